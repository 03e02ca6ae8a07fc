"""The archive commands: arguments, exit codes, output, Ctrl-C, and where the API key comes from."""

import json
import os
import shlex
import signal
import subprocess
import time

import pandas as pd
import pytest
from support.archive_kills import check
from support.child_output import PROGRAM, on_a_terminal
from support.ledger import Ledger
from support.saved_pages import save
from support.settled_block import COUNTS

from loopring_lab.archive import Archive
from loopring_lab.cli import main, print_report
from loopring_lab.relayer import Relayer, Settings


def words(path, relayer, ledger):
    accounts = [
        word for account in ledger.accounts for word in ("--account", str(account))
    ]
    return ["sync", str(path), *accounts, "--base-url", relayer.base_url]


def test_sync_report_and_report_again(tmp_path, small, monkeypatch, capsys):
    with Relayer(small) as relayer:
        monkeypatch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        assert main(words(tmp_path / "a", relayer, small)) == 0
        key = relayer.api_key[:]
    said = capsys.readouterr()
    assert said.out.endswith("240 trades, complete per the source's count\n")
    assert len(said.out.splitlines()) == 1 + 4 + 1
    assert key not in said.out + said.err
    assert main(["report", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out == said.out
    check(tmp_path / "a", *small.truth())


def test_a_report_is_json_for_programs(synced, capsys):
    archive = Archive(synced)
    assert main(["report", str(synced), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    report = archive.report()
    assert [row["account_id"] for row in rows] == report["account_id"].tolist()
    assert sum(row["rows"] for row in rows) == 240
    assert rows[0]["first"].startswith(str(report["first"][0].date()))


def test_a_recording_is_synced_and_imported(any_block_folder, tmp_path, capsys):
    block = any_block_folder
    assert main(["import", str(tmp_path / "a"), str(block / "trades")]) == 0
    assert f"{COUNTS[block.name][0]} trades, complete" in capsys.readouterr().out
    [account, *_] = Archive(tmp_path / "a").report()["account_id"]
    line = ["sync", f"{tmp_path}/a", "--account", str(account)]
    assert main([*line, "--recording", str(block)]) == 0
    # Saved answers say nothing of accounts that nobody saved: these are no accounts without trades.
    capsys.readouterr()
    words = ["sync", f"{tmp_path}/b", *line[2:], "--account", "777777"]
    assert main([*words, "--recording", str(block)]) == 2
    assert "account 777777 is not in this recording" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_an_export_of_accounts_and_times_goes_on(synced, tmp_path, capsys):
    trades = Archive(synced).trades(20_000)
    middle = trades["created_at"].iloc[60]
    folder = tmp_path / "out"
    words = ["export", str(synced), str(folder), "--account", "20000", "--until"]
    words += [middle.isoformat(), "--source-columns"]
    for _ in range(2):
        assert main(words) == 0
        assert capsys.readouterr().out == f"60 trades written to {folder}\n"
    found = pd.read_parquet(folder)
    assert sorted(found["trade_id"]) == sorted(trades["trade_id"].iloc[:60])
    assert set(found["source"]) == {Archive(synced).source}
    assert main(["export", str(synced), str(folder), "--since", "2020-01-01"]) == 2
    assert "Give these, or a folder that does not exist yet." in capsys.readouterr().err


def test_what_is_missing_is_exit_code_1(small, tmp_path, capsys):
    saved = save(small, tmp_path / "saved")
    file = saved / "trades" / f"{small.accounts[0]}-dex.json"
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"totalNum": body["totalNum"] + 9}))
    assert main(["import", str(tmp_path / "a"), str(saved)]) == 1
    assert "9 missing. Run sync to download them." in capsys.readouterr().out
    assert main(["report", str(tmp_path / "a")]) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["report", "{none}"], "no trades here yet"),
        (["sync", "{none}"], "no accounts given"),
        (["import", "{none}", "{none}/x.json"], "no such file or folder"),
        (
            ["sync", "{none}", "--account", "5", "--recording", "{none}"],
            "expected a folder of saved responses",
        ),
        (
            ["sync", "{none}", "--account", "abc"],
            "'abc' is not a valid integer range. Add --help to see what a command takes.",
        ),
        (
            ["import", "{none}", "x.json", "--account", "abc"],
            "'abc' is not a valid integer range. Add --help to see what a command takes.",
        ),
        (["sync", "--acount", "5"], "Did you mean '--account'? Add --help"),
        (["sync", "--s", "5"], "?) Add --help"),
        (["sync", "--account"], "requires an argument. Add --help"),
    ],
)
def test_what_is_refused_is_one_line_and_exit_code_2(tmp_path, line, said, capsys):
    assert main([word.format(none=tmp_path / "none") for word in line]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("loopring-lab: ")
    assert err.count("\n") == 1


def test_what_was_never_counted_is_shown_as_unknown(archive, small, capsys):
    [first, *_] = small.accounts
    report = archive.report()
    report.loc[report["account_id"] == first, ["total", "missing", "synced_at"]] = None
    report.loc[report["account_id"] == first, "complete"] = False
    assert print_report(report, as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[3:7] == ["?", "?", "0", "False"]
    assert lines[-1] == (
        "240 trades, 0 missing; 2 histories have not been read completely yet. Run sync to download them."
    )


def test_an_archive_without_a_history_claims_nothing(
    tmp_path, small, monkeypatch, capsys
):
    monkeypatch.setenv("LOOPRING_API_KEY", "wrong")
    with Relayer(small) as relayer:
        assert main(words(tmp_path / "a", relayer, small)) == 2
    capsys.readouterr()
    assert main(["report", str(tmp_path / "a")]) == 1
    said = "0 trades, as no history has been read yet. Run sync to download some.\n"
    assert capsys.readouterr().out == said


def test_there_is_no_word_for_the_key(small, tmp_path, capsys):
    assert main(["sync", str(tmp_path / "a"), "--account", "5", "--api-key", "x"]) == 2
    assert "No such option '--api-key'" in capsys.readouterr().err


@pytest.mark.thorough
def test_ctrl_c_leaves_a_valid_archive_and_says_how_to_go_on(tmp_path):
    ledger = Ledger(accounts=2, trades=420)
    path = tmp_path / "my archive"
    with Relayer(ledger, Settings(latency=0.2)) as relayer:
        line = [*PROGRAM, *words(path, relayer, ledger)]
        env = os.environ | {"LOOPRING_API_KEY": relayer.api_key[:], "TQDM_DISABLE": "1"}
        process = subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True)
        while relayer.counts.requests["/user/trades"] < 7:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert f"Resume with: loopring-lab sync '{path}' --account 20000" in err
        report = Archive(path).report()
        assert 0 < report["rows"].sum() < 840
        subprocess.run(line, env=env, timeout=600, capture_output=True, check=True)
    check(path, *ledger.truth())


def test_an_interrupted_import_resumes_with_the_options_it_was_given(
    tmp_path, capsys, monkeypatch
):
    def interrupted(*_, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(Archive, "import_pages", interrupted)
    line = ["import", f"{tmp_path}/a", "my page.json"]
    line += ["--account", "7", "--fill-type", "amm"]
    assert main(line) == 130
    command = capsys.readouterr().err.partition("Resume with: loopring-lab ")[2]
    assert shlex.split(command) == line


@pytest.mark.thorough
def test_the_key_is_asked_for_on_a_terminal_and_not_shown(tmp_path, small):
    with Relayer(small) as relayer:
        key = relayer.api_key[:].encode()
        code, seen = on_a_terminal(
            words(tmp_path / "a", relayer, small),
            prompt=b"API key (not shown): ",
            typed=key,
            without="LOOPRING_API_KEY",
        )
    assert code == 0
    assert key not in seen
    assert b"240 trades, complete per the source's count" in seen
