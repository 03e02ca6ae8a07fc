"""Tab completion of market and token names, through IPython's own completer."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import loopring_lab as lab
from loopring_lab.interactive import completion


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance(
        config=Config({"HistoryManager": {"enabled": False}})
    )
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def client(shell: InteractiveShell) -> lab.Client:
    for names in completion._names.values():
        names.clear()  # other tests' markets
    client = lab.connect()
    client.markets()
    return client


def completed(shell: InteractiveShell, code: str) -> list[str]:
    with provisionalcompleter():
        return [
            code[: found.start] + found.text + code[found.end :]
            for found in shell.Completer.completions(code, len(code))
        ]


@pytest.mark.parametrize(
    "code",
    [
        'client.trades(market="LRC-',
        "client.trades(10083, market = 'lrc-",
        'trades[trades["market"] == "LRC-',
        "x = 1\ny = client.trades(market='LRC-",
    ],
)
def test_markets_complete(shell, client, code):
    listed = sorted(name for name in client.markets().index if name.startswith("LRC-"))
    assert len(listed) > 1
    assert completed(shell, code) == [code[:-4] + name for name in listed]


@pytest.mark.parametrize(
    "code",
    [
        'lab.figures.volume(trades, quote="US',
        "lab.fees.in_token(trades, 'US",
        'lab.fees.in_token(trades, token="us',
        'trades[trades["fee_token"] == "US',
    ],
)
def test_tokens_complete(shell, client, code):
    listed = sorted(name for name in client.tokens().index if name.startswith("US"))
    assert listed == ["USDC", "USDT"]
    assert completed(shell, code) == [code[:-2] + name for name in listed]


@pytest.mark.parametrize(
    "code",
    ['print("LRC', 'open("US', 'side = "LR', "market = LR", 'market="LRC-ETH", x="'],
)
def test_elsewhere_nothing_is_offered(client, code):
    assert completion.complete_name(code) == ("", [])


def test_the_completer_is_hooked_in_once(shell, client):
    before = len(shell.Completer.custom_matchers)
    lab.connect().tokens()
    assert len(shell.Completer.custom_matchers) == before


FIRST_TAB = """
import sys, time
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.Completer.use_jedi = True
shell.run_cell("import loopring_lab as lab; from loopring_lab.sources.client import Client; client = Client.__new__(Client)")
begun = time.process_time()
with provisionalcompleter():
    found = [c.text for c in shell.Completer.completions(CODE, len(CODE))]
assert EXPECTED in found, found
assert "matplotlib" not in sys.modules
print(time.process_time() - begun)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("client.", "trades"),
        ("lab.figures.fee_", "fee_tiers"),
    ],
)
def test_the_first_tab_is_answered_at_once(code, expected):
    source = f"CODE, EXPECTED = {code!r}, {expected!r}{FIRST_TAB}"
    answer = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert float(answer.stdout.splitlines()[-1]) < 0.3


@pytest.mark.parametrize(
    "code",
    [
        "client.source.",
        "client._",
        "x().client.",
        "lab.connect.",
        "lab.Client.trades.",
        "lab.errors.LabError.",
    ],
)
def test_what_is_no_object_of_ours_is_left_to_others(shell, client, code):
    variables = {"client": client, "lab": lab}
    assert completion.complete_attribute(code, variables)[1] == {}
