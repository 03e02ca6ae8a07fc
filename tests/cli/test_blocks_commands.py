"""The commands on stores of blocks: arguments, exit codes, output, Ctrl-C, and where the address comes from."""

import json

import pytest
from support.child_output import on_a_terminal
from support.rollup_stores import SOURCE, made_block
from support.scripted_chain import CONTRACT, FIRST_L1, ScriptedChain, data_of

from loopring_lab.cli import main
from loopring_lab.rollup import Store

KEY = "k3yThatMustNever-be_seen0123456789abcdef"


@pytest.fixture(autouse=True)
def no_bar(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")


def run(chain, monkeypatch, *words):
    with chain.served() as url:
        monkeypatch.setenv("LOOPRING_RPC_URL", f"{url}/v3/{KEY}")
        return main(["blocks", *words])


def test_sync_report_check(tmp_path, monkeypatch, capsys):
    folder = str(tmp_path / "blocks")
    assert run(ScriptedChain(12), monkeypatch, "sync", folder, "--rate", "1000") == 0
    said = capsys.readouterr()
    assert said.out.endswith("12 blocks, none known to be missing\n")
    assert KEY not in said.out + said.err
    assert main(["blocks", "report", folder]) == 0
    assert capsys.readouterr().out == said.out
    assert said.out.splitlines()[1].split()[:3] == ["1", "12", "12"]


def test_blocks_without_numbers_do_not_pass_for_all_there_are(tmp_path, capsys):
    store = Store(tmp_path / "blocks")
    store.file.bind(SOURCE)
    apart = [made_block(number, block_id=None) for number in (2, 3, 7)]
    store.file.add(apart)
    assert main(["blocks", "report", str(tmp_path / "blocks")]) == 0
    said = "3 blocks, none known to be missing; 3 without a number, around which others may be missing\n"
    assert capsys.readouterr().out.endswith(said)
    assert main(["blocks", "check", str(tmp_path / "blocks")]) == 1
    assert "indices      1 checked, 1 wrong, 3 not" in capsys.readouterr().out


def test_calls_that_submit_no_block_are_counted(tmp_path, capsys):
    other = {"hash": "0x" + "ab" * 32, "blockNumber": "0x1", "input": "0xa9059cbb"}
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps([other] * 3))
    store = str(tmp_path / "blocks")
    assert main(["blocks", "import", store, str(calls)]) == 2
    said = "none of 3 calls and events submits a block, so nothing was added."
    assert said in capsys.readouterr().err
    (tmp_path / "1.hex").write_text(data_of(1, 16).hex())
    line = ["blocks", "import", store, str(calls), str(tmp_path / "1.hex")]
    assert main([*line, "--first-block", "1", "--json"]) == 0
    shown = capsys.readouterr()
    assert [row["blocks"] for row in json.loads(shown.out)] == [1]
    said = "3 calls and events that submit no block were skipped.\n"
    assert shown.err.endswith(said)


@pytest.mark.parametrize(
    ("method", "command", "rest", "can_resume"),
    [
        ("sync", "sync", [], True),
        ("import_files", "import", ["."], True),
        ("check", "check", [], False),
        ("report", "report", [], False),
    ],
)
def test_ctrl_c_says_how_to_resume_what_writes(
    method, command, rest, can_resume, tmp_path, monkeypatch, capsys
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, method, interrupted)
    words = ["blocks", command, str(tmp_path / "blocks"), *rest]
    assert main(words) == 130
    resume = (
        f"what was read so far is safe. Resume with: loopring-lab {' '.join(words)}"
    )
    said = capsys.readouterr().err
    assert (resume in said) is ("Resume" in said) is can_resume


def test_a_sync_of_a_part(tmp_path, monkeypatch):
    folder = str(tmp_path / "blocks")
    bounds = ["--from-block", str(FIRST_L1 + 300), "--to-block", str(FIRST_L1 + 400)]
    chain = ScriptedChain(12, chain_id=5)
    assert run(chain, monkeypatch, "sync", folder) == 2
    assert run(chain, monkeypatch, "sync", folder, *bounds, "--exchange", CONTRACT) == 1
    assert [raw.block_id for raw in Store(folder).blocks().raw] == [3, 4]


def test_missing_blocks_are_exit_code_1_and_named(tmp_path, monkeypatch, capsys):
    folder = str(tmp_path / "blocks")
    chain = ScriptedChain(12)
    lost = [
        log["transactionHash"]
        for log in chain.logs
        if int(log["topics"][1], 16) in (3, 7)
    ]
    for one in lost:
        del chain.transactions[one]
    assert run(chain, monkeypatch, "sync", folder) == 1
    said = capsys.readouterr()
    assert said.err.startswith(
        "loopring-lab: 2 blocks could not be read; all others are stored. The first: block 3"
    )
    assert said.out.endswith(
        "10 blocks, 2 missing. Run blocks sync to download them.\n"
    )
    assert main(["blocks", "report", folder]) == 1
    assert main(["blocks", "check", folder]) == 1
    assert "indices, block 3: " in capsys.readouterr().out
    assert run(ScriptedChain(12), monkeypatch, "sync", folder) == 0


def test_an_endpoint_without_logs_proves_nothing(tmp_path, monkeypatch, capsys):
    """Endpoints that have pruned their logs answer as if there had been none."""
    store = str(tmp_path / "blocks")
    pruned = ScriptedChain(0)
    assert run(pruned, monkeypatch, "sync", store, "--rate", "1000") == 1
    said = capsys.readouterr().out
    assert said.startswith("No block is held, which proves nothing: ")
    assert said.endswith("Sync with another endpoint, or import files.\n")
    assert main(["blocks", "report", store]) == 1
    assert capsys.readouterr().out == said
    assert main(["blocks", "check", store]) == 1
    found = capsys.readouterr().out
    assert found.startswith("0 wrong, 1 not checkable\n")
    assert "Not checkable: 1 exchange of which no block is held." in found
    # A part of the chain may have none.
    part = ["--to-block", str(FIRST_L1 + 10)]
    assert run(pruned, monkeypatch, "sync", store, *part) == 0
    assert capsys.readouterr().out == said


def test_import_takes_numbers_and_tokens(tmp_path, capsys):
    folder = str(tmp_path / "blocks")
    for number in (5, 6, 8):
        (tmp_path / f"{number}.hex").write_text(data_of(number, 16).hex())
    tokens = tmp_path / "tokens.json"
    tokens.write_text('[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]')
    line = f"{tmp_path}/5.hex {tmp_path}/6.hex --first-block 5 --tokens {tokens}"
    assert main(["blocks", "import", folder, *line.split()]) == 1
    assert capsys.readouterr().out.endswith(
        "2 blocks, 4 missing. Run blocks sync to download them.\n"
    )
    assert Store(folder).tokens()["decimals"].to_dict() == {"ETH": 18}
    line = f"{tmp_path}/8.hex --first-block 8"
    assert main(["blocks", "import", folder, *line.split()]) == 1
    assert "3 blocks, 5 missing. Run blocks sync" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["report"], ["check"], ["import", "no-such-file"]])
def test_what_cannot_be_done_is_exit_code_2(tmp_path, words, capsys):
    assert main(["blocks", words[0], str(tmp_path / "blocks"), *words[1:]]) == 2
    assert capsys.readouterr().err.startswith("loopring-lab: ")


def asked(folder, typed):
    """Sync a store on a terminal, and type an answer to the question for an address."""
    bounds = ["--rate", "1000", "--to-block", str(FIRST_L1 + 1_000)]
    return on_a_terminal(
        ["blocks", "sync", str(folder), *bounds],
        prompt=b"Address of an Ethereum endpoint (not shown; empty for the embedded chain): ",
        typed=typed,
        without="LOOPRING_RPC_URL",
    )


def test_the_address_is_asked_for_on_a_terminal_and_not_shown(tmp_path):
    with ScriptedChain(9).served() as url:
        code, seen = asked(tmp_path / "blocks", f"{url}/{KEY}".encode())
    assert code == 0
    assert KEY.encode() not in seen
    assert b"9 blocks, none known to be missing" in seen


@pytest.mark.thorough
def test_no_address_means_the_embedded_chain(tmp_path):
    code, seen = asked(tmp_path / "blocks", b"")
    assert code == 0
    assert (
        b"Embedded chain: synthetic world, seed 1. Nothing here is real market data."
        in seen
    )
    assert b"none known to be missing" in seen


def test_an_address_that_no_option_takes_is_not_repeated(capsys):
    for option in (
        ["--rpc", f"https://host.example/{KEY}"],
        [f"--rpc=https://user:{KEY}@host.example"],
    ):
        assert main(["blocks", "sync", "folder", *option]) == 2
        shown = capsys.readouterr()
        assert "No such option '--rpc'" in shown.err
        assert KEY not in shown.out + shown.err
