"""An account that is deleted from an archive: no byte of it stays, and nothing else goes."""

import io
import shutil

import duckdb
import pytest
from pandas.testing import assert_frame_equal
from support.ledger import client_of

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.cli import main
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer

GONE = 20_000
KEPT = 20_001


def traces(archive, account):
    """Return what identifies the orders of an account, as bytes."""
    found = archive.query(f"SELECT order_hash FROM rows WHERE account_id = {account}")
    return {text[:24].encode() for text in found["order_hash"]}


def test_no_byte_of_the_account_stays_and_all_else_does(archive, small, tmp_path):
    file = archive._file.path
    file.chmod(0o600)
    own = traces(archive, GONE) - traces(archive, KEPT)
    assert any(trace in file.read_bytes() for trace in own)
    trades = archive.trades(KEPT)
    report = archive.report([KEPT])
    gone = archive.trades(GONE)
    assert_frame_equal(archive.delete(GONE), report)
    assert not any(trace in file.read_bytes() for trace in own)
    assert list(file.parent.glob(f"{file.name}*")) == [file]
    assert file.stat().st_mode & 0o777 == 0o600
    assert_frame_equal(archive.trades(), trades)
    assert archive.verify().empty
    for again in (archive.delete, archive.trades):
        with pytest.raises(LabError, match=f"does not hold account {GONE}"):
            again(GONE)
    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), account_id=GONE)
    assert_frame_equal(archive.trades(GONE), gone)


class Slow:
    """A connection of DuckDB, during whose opening something happens to the file."""

    def __init__(self, connection, happens):
        self.connection = connection
        self.happens = happens

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, sql, *given):
        found = self.connection.execute(sql, *given)
        if "READ_WRITE" in sql and self.happens:
            self.happens.pop()()
        return found


@pytest.mark.thorough
def test_who_opens_the_file_just_then_writes_into_the_new_one(
    archive, small, tmp_path, monkeypatch
):
    new = archive.copy(tmp_path / "new")
    with Relayer(small) as relayer:
        client = client_of(relayer)
        # The first transaction stores the listing, the second what was counted.
        happens = [lambda: new._file.path.replace(archive._file.path), dict]
        connect = duckdb.connect
        monkeypatch.setattr(
            duckdb,
            "connect",
            lambda *given, **how: Slow(connect(*given, **how), happens),
        )
        archive.sync(client, account_id=KEPT, full=True)
    monkeypatch.undo()
    assert happens == []
    assert archive.report([KEPT])["checked_at"].notna().all()
    syncs = "SELECT count(*) AS n FROM syncs WHERE account_id = {}"
    [of_kept], [of_gone] = (
        archive.query(syncs.format(one))["n"] for one in (KEPT, GONE)
    )
    assert of_kept > of_gone


@pytest.mark.thorough
def test_trades_of_blocks_are_not_deleted_in_part(tmp_path):
    archive = Archive(tmp_path / "settled")
    archive.import_blocks(lab.connect(blocks="demo").store)
    account = int(archive.report()["account_id"].iloc[0])
    before = archive._file.path.read_bytes()
    with pytest.raises(LabError, match="delete the file instead"):
        archive.delete(account)
    assert archive._file.path.read_bytes() == before


def test_the_command_asks_first(synced, tmp_path, monkeypatch, capsys):
    file = shutil.copy(synced, tmp_path / "a")
    words = ["delete", str(file), "--account", str(GONE)]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(words) == 130
    assert set(Archive(file).report()["account_id"]) == {GONE, KEPT}
    assert main([*words, "--yes"]) == 0
    assert "120 trades, complete" in capsys.readouterr().out
    assert set(Archive(file).report()["account_id"]) == {KEPT}
