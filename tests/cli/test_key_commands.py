"""The commands about an account's key: shown, recovered and updated with a wallet that stays elsewhere."""

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest
from support.clients import client_at, client_of
from support.key_update_setup import personal_sign, sign_typed_data
from support.optional import thorough
from support.scripted_server import Answer, scripted
from support.troubled import passed_on

from loopring_lab import cli
from loopring_lab.cli.keys import paste_signature, show_key
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings, World

ACCOUNT = 10083
# A program as a person would write it around a wallet; the key is in its environment, never in an argument.
SIGNER = """
import json, os, sys
from eth_account import Account
from eth_account.messages import encode_defunct
request = json.load(sys.stdin)
wallet = Account.from_key(os.environ["WALLET"])
first, second = request["params"]
if request["method"] == "personal_sign":
    assert second == wallet.address
    signed = wallet.sign_message(encode_defunct(hexstr=first))
else:
    assert (request["method"], first) == ("eth_signTypedData_v4", wallet.address)
    signed = wallet.sign_typed_data(full_message=json.loads(second))
print("0x" + signed.signature.hex())
"""


@pytest.fixture
def relayer(request) -> Iterator[Relayer]:
    pace = getattr(request, "param", 0.02)
    with Relayer(World(size=0.002), Settings(update_seconds=pace)) as relayer:
        yield relayer


@pytest.fixture
def key(relayer, monkeypatch):
    """Run a command about a key against the relayer; return its exit code."""
    monkeypatch.setenv("LOOPRING_API_KEY", relayer.api_key)

    def run(name: str, account: int, *options: str, at: str = "") -> int:
        address = at or relayer.base_url
        words = ["key", name, str(account), "--base-url", address, *options]
        return cli.main(words)

    return run


@pytest.fixture
def program(tmp_path, relayer, monkeypatch):
    """Return a command that signs for an account."""

    def make(account: int) -> str:
        path = tmp_path / "sign it.py"
        path.write_text(SIGNER)
        monkeypatch.setenv("WALLET", relayer.signer(account).key.hex())
        return f"{sys.executable} '{path}'"

    return make


class Person:
    """Stands at the terminal: reads what is asked, signs it, and pastes with quotation marks around."""

    def __init__(self, signer, capsys):
        self.signer = signer
        self.capsys = capsys
        self.read: list[str] = []
        self.pasted: list[str] = []

    def isatty(self) -> bool:
        return False

    def readline(self) -> str:
        self.read.append(self.capsys.readouterr().out)
        *_, asked, content = self.read[-1].strip().splitlines()
        assert asked.endswith(f", as {self.signer.address}:")
        if "personal_sign" in asked:
            signature = personal_sign(self.signer, content)
        else:
            assert "eth_signTypedData_v4" in asked
            signature = sign_typed_data(self.signer, json.loads(content))
        self.pasted.append(signature.hex())
        return f'  "0x{signature.hex()}"\n'


@pytest.mark.parametrize("account", [70_004, thorough(ACCOUNT)])
def test_a_key_is_updated_with_pasted_signatures(
    relayer, key, capsys, monkeypatch, account
):
    person = Person(relayer.signer(account), capsys)
    monkeypatch.setattr(sys, "stdin", person)
    client = client_of(relayer)
    before = client.account(account)
    assert key("update", account, "--fee-token", "LRC", "--yes") == 0
    after = client.account(account)
    assert (after.nonce, after.x == before.x) == (before.nonce + 1, False)
    said = capsys.readouterr()
    assert f"Account {account} has the new key: L2Key(secret=<hidden>, x={after.x}" in (
        said.out
    )
    # The preview comes before each signature, and neither signature is ever shown.
    assert [text.count("POST /api/v3/account") for text in person.read] == [1, 1]
    assert "attach(" not in person.read[0]
    everything = "".join([*person.read, *said])
    assert len(person.pasted) == 2
    assert not [one for one in person.pasted if one in everything]


@pytest.mark.parametrize("account", [70_003, thorough(ACCOUNT)])
def test_a_command_signs_an_update_and_recovers_the_key(
    relayer, key, program, capsys, account
):
    command = program(account)
    before = client_of(relayer).account(account)
    assert key("show", account, "--signer-command", command) == 0
    out = capsys.readouterr().out
    assert "with key nonce: 0\nL2Key(secret=<hidden>" in out
    assert f"key of account {account}; its wallet wrote v as 27 or 28." in out
    assert before.x in out
    assert key("update", account, "--signer-command", command, "--yes") == 0
    after = client_of(relayer).account(account)
    assert (after.nonce, after.key_seed[-17:]) == (2, "with key nonce: 1")
    assert key("show", account, "--signer-command", command) == 0
    assert after.x in capsys.readouterr().out


def test_an_account_is_shown_without_a_signature(relayer, key, capsys):
    assert key("show", 70_003) == 0
    out = capsys.readouterr().out
    seed = client_of(relayer).current_key_seed(70_003)
    assert out.endswith(f"Signed for the current key: {seed}\n")


def test_nothing_that_the_relayer_says_of_an_account_commands_a_terminal(
    relayer, capsys, monkeypatch
):
    lies = {
        "/api/v3/account?": {"keySeed": "a\x1b[2J\nb"},
        "/api/v3/counterFactualInfo?": {
            "walletFactory": "0x1",
            "walletOwner": "\x1b]0;x\x07",
            "walletSalt": "1",
        },
    }

    def lying(number, request):
        answer = passed_on(relayer.base_url, request)
        for path, lie in lies.items():
            if request.path.startswith(path):
                told = json.loads(answer.body) | lie
                return Answer(200, json.dumps(told).encode(), answer.headers)
        return answer

    monkeypatch.setattr(sys, "stdin", io.StringIO("0x1234\n"))
    with scripted(lying) as server, pytest.raises(LabError):
        show_key(client_at(server.base_url), 70_004, paste_signature)
    said = capsys.readouterr().out
    assert "a?[2J?b" in said
    assert "as ?]0;x?:" in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_what_is_not_confirmed_is_not_sent(relayer, key, capsys, monkeypatch):
    monkeypatch.setattr("click.confirm", lambda text: False)
    monkeypatch.setattr(sys, "stdin", Person(relayer.signer(ACCOUNT), capsys))
    assert key("update", ACCOUNT) == 1
    assert capsys.readouterr().out.endswith("Nothing was sent.\n")
    assert relayer.counts.requests["/account"] == 1
    assert client_of(relayer).account(ACCOUNT).nonce == 1


@pytest.mark.parametrize(
    ("account", "command", "said"),
    [
        (70_005, "false", "70005 is owned by a contract"),
        (70_006, "false", "The account cannot pay this fee"),
        (ACCOUNT, "false", "it ended with exit code 1, and nothing was signed"),
        (ACCOUNT, "/nowhere/signer", "it cannot be run"),
        (ACCOUNT, "'", "every quotation mark closed"),
        (ACCOUNT, "echo 0x1234", "expected r, s, v: 65 bytes"),
    ],
)
def test_refusals_are_those_of_the_walkthrough(
    relayer, key, capsys, account, command, said
):
    assert key("update", account, "--signer-command", command, "--yes") == 2
    told = capsys.readouterr().err
    assert said in told
    assert "0x1234" not in told
    assert client_of(relayer).account(account).nonce == 1


def test_a_fee_that_rose_on_the_way_is_raised_by_the_option(
    relayer, key, capsys, monkeypatch
):
    body = b'{"resultInfo": {"code": 114002, "message": "fee too low"}}'

    def dearer(number, request):
        if request.method == "POST":
            return Answer(400, body)
        return passed_on(relayer.base_url, request)

    monkeypatch.setattr(sys, "stdin", Person(relayer.signer(ACCOUNT), capsys))
    with scripted(dearer) as server:
        assert key("update", ACCOUNT, "--yes", at=server.base_url) == 2
    assert "raise --max-fee" in capsys.readouterr().err


# A call, an argument or a name of Python; a wallet's method is none.
PYTHON = re.compile(r"\w\(|(?<!personal)_\w|\b[a-z]+=")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--valid-for", "soon"], "--valid-for 'soon': expected a duration above zero"),
        (["--valid-for", "90000d"], "--valid-for is too long"),
        (["--fee-token", "DOGE"], "--fee-token 'DOGE': pays no fees"),
        (["--max-fee", "-1"], "got --max-fee '-1'"),
        (
            ["--max-fee", "0"],
            "what you allow is 0 ETH. If you mean to pay that, write --max-fee '0.000019'",
        ),
        (["--signer-command", "echo 0x1234"], "Sign exactly what is shown"),
    ],
)
def test_refusals_name_what_a_terminal_has(key, capsys, options, said):
    assert key("update", ACCOUNT, "--signer-command", "false", "--yes", *options) == 2
    told = capsys.readouterr().err
    assert said in told
    assert not PYTHON.search(told)


@pytest.mark.thorough
@pytest.mark.parametrize("relayer", [None], indirect=True)
def test_after_lost_answers_the_next_command_is_named(relayer, key, program, capsys):
    def silent(number, request):
        # The update arrives, and of that nothing is heard.
        answer = passed_on(relayer.base_url, request)
        return Answer(hang_up=True) if request.method == "POST" else answer

    command = program(ACCOUNT)
    with scripted(silent) as server:
        options = ["--signer-command", command, "--yes"]
        assert key("update", ACCOUNT, *options, at=server.base_url) == 2
    told = capsys.readouterr().err
    assert "sent 3 times without a usable answer, so it may have been accepted" in told
    assert told.endswith(
        "See loopring-lab key show; if the nonce stays the same, run this command again: only one update acts.\n"
    )
    assert "submit()" not in told


def test_another_wallets_signature_does_not_recover_the_key(
    key, program, capsys, monkeypatch, relayer
):
    person = Person(relayer.signer(ACCOUNT), capsys)
    other = relayer.signer(11519)
    monkeypatch.setattr(
        person, "readline", lambda: personal_sign(other, "x").hex() + "\n"
    )
    monkeypatch.setattr(sys, "stdin", person)
    assert key("show", ACCOUNT, "--recover") == 2
    assert "does not give the key of account 10083" in capsys.readouterr().err
