"""Files that hold more than we made, logs and pipes beside and in place of files, and copies: never written, all named."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from support.file_trials import BATCH, make_archive, write_to
from support.ledger import Ledger, client_of
from support.optional import first_often, thorough

from loopring_lab.archive import Archive
from loopring_lab.cli import main
from loopring_lab.engine import database
from loopring_lab.errors import (
    ArchiveError,
    DamagedArchive,
    LabError,
    NewerArchive,
    NotAnArchive,
)
from loopring_lab.relayer import Relayer
from loopring_lab.rollup import Store

# For each of DuckDB's lists of objects: statements that put one into a file, and how the error names it. The table
# `{table}` is one of the file's own.
FOREIGN = {
    "duckdb_triggers": [
        (
            "CREATE TRIGGER doubling AFTER INSERT ON held.main.{table} FOR EACH STATEMENT UPDATE held.main.source "
            "SET name = 'mainnet'",
            "trigger doubling",
        )
    ],
    "duckdb_views": [("CREATE VIEW held.more AS SELECT 1 AS a", "view more")],
    "duckdb_tables": [("CREATE TABLE held.mine (a INTEGER)", "table mine")],
    "duckdb_columns": [
        ("CREATE TABLE held.mine (a INTEGER, b INTEGER AS (a + 1))", "table mine")
    ],
    "duckdb_constraints": [
        ("CREATE TABLE held.mine (a INTEGER CHECK (a > 0))", "table mine")
    ],
    "duckdb_functions": [
        ("CREATE MACRO held.sum(x) AS 42", "function sum"),
        ("CREATE MACRO held.rows() AS TABLE SELECT 1 AS a", "function rows"),
    ],
    "duckdb_sequences": [("CREATE SEQUENCE held.s", "sequence s")],
    "duckdb_types": [("CREATE TYPE held.mood AS ENUM ('good')", "type mood")],
    "duckdb_schemas": [
        (
            "CREATE SCHEMA held.other; CREATE TABLE held.other.rows (a INTEGER)",
            "schema other",
        ),
        # One of the same name inside of it is another schema, which DuckDB 2.0 has.
        ("CREATE SCHEMA held.main.main", "schema main"),
    ],
    "duckdb_indexes": [("CREATE INDEX i ON held.{table} (block_id)", "index i")],
}
# DuckDB 2.0 lists these, and has no statement that makes one.
WITHOUT_STATEMENT = {"duckdb_coordinate_systems"}
STATEMENTS = [one for statements in FOREIGN.values() for one in statements]
# Every object goes the same way, so that a trigger stands for all in the fast suite.
OFTEN = [FOREIGN["duckdb_triggers"][-1]]


def change(path, statement):
    """Run a statement as a stranger does, under the name that the library uses."""
    with duckdb.connect() as stranger:
        stranger.execute(f"ATTACH '{path}' AS held")
        stranger.execute(statement)


@pytest.fixture(scope="module")
def client():
    """A client of a relayer that has 20 trades more of each account than `archive`."""
    with Relayer(Ledger(2, 140, seed=3)) as relayer:
        yield client_of(relayer)


@pytest.fixture
def store(tmp_path):
    exchange, roots = "0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4", "aa" * 32 + "bb" * 32
    block = tmp_path / "block.hex"
    block.write_text(exchange + roots + "5f9bd5f000000000000000002711")
    held = Store(tmp_path / "blocks.duckdb")
    held.import_files(block, first_block=20)
    return held


def test_every_list_of_duckdb_has_something_foreign_here():
    query = (
        "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'duckdb%' "
        "AND function_type = 'table' AND len(parameters) = 0"
    )
    lists = set()
    with duckdb.connect() as connection:
        for (name,) in connection.execute(query).fetchall():
            columns = connection.sql(f"FROM {name}() LIMIT 0").columns
            if {"database_name", "schema_name"} <= set(columns):
                lists.add(name)
    assert lists == FOREIGN.keys() | WITHOUT_STATEMENT


@pytest.mark.parametrize(
    ("statement", "named"),
    [one if one in OFTEN else thorough(*one) for one in STATEMENTS],
)
def test_an_archive_that_holds_more_is_read_and_never_written(
    archive, client, small, tmp_path, statement, named
):
    before = archive.trades()
    file = archive._file.path
    change(file, statement.format(table="blocks"))
    body = file.read_bytes()
    with pytest.raises(
        NotAnArchive,
        match=rf"{named}.*never written to; nothing was changed.*archive\.copy\(path\)",
    ):
        Archive(file).sync(client, accounts=small.accounts)
    assert file.read_bytes() == body
    pd.testing.assert_frame_equal(Archive(file).trades(), before)
    clean = Archive(file).copy(tmp_path / "clean.duckdb")
    pd.testing.assert_frame_equal(clean.trades(), before)
    clean.sync(client, accounts=small.accounts)
    assert len(clean.trades()) == 280
    assert clean.source == archive.source


@pytest.mark.parametrize(
    ("statement", "named"),
    [STATEMENTS[0], *(thorough(*one) for one in STATEMENTS[1:])],
)
def test_a_store_that_holds_more_is_read_and_never_written(
    store, tmp_path, statement, named
):
    file = tmp_path / "blocks.duckdb"
    change(file, statement.format(table="events"))
    body = file.read_bytes()
    again = tmp_path / "block.hex"
    with pytest.raises(NotAnArchive, match=rf"{named}.*store\.copy\(path\)"):
        Store(file).import_files(again)
    assert file.read_bytes() == body
    assert Store(file).report()["blocks"].sum() == 1
    clean = Store(file).copy(tmp_path / "clean.duckdb")
    assert clean.import_files(again).attrs["added"] == 0
    assert clean.blocks().raw == store.blocks().raw


@pytest.mark.parametrize(
    "statement",
    first_often(
        2,
        [
            "ALTER TABLE held.syncs ADD COLUMN more VARCHAR DEFAULT 'x'",
            "ALTER TABLE held.syncs ALTER gone SET DEFAULT 5",
            "ALTER TABLE held.syncs ALTER gone SET NOT NULL",
            "ALTER TABLE held.syncs ALTER total TYPE HUGEINT",
            "CREATE OR REPLACE TABLE held.blocks (block_id BIGINT NOT NULL, rows BIGINT NOT NULL, "
            "imported_at TIMESTAMPTZ NOT NULL, UNIQUE (block_id))",
            "CREATE OR REPLACE TABLE held.blocks (block_id BIGINT NOT NULL, imported_at TIMESTAMPTZ NOT NULL, "
            "rows BIGINT AS (block_id))",
        ],
    ),
)
def test_tables_with_other_columns_are_those_of_somebody_else(
    archive, client, small, statement
):
    file = archive._file.path
    change(file, "UPDATE held.syncs SET gone = 0")
    change(file, statement)
    body = file.read_bytes()
    with pytest.raises(NotAnArchive, match="not the one of"):
        Archive(file).sync(client, accounts=small.accounts)
    with pytest.raises(NotAnArchive, match="not the one of"):
        Archive(file).trades()
    assert file.read_bytes() == body


@pytest.mark.parametrize(
    "statement", ["CREATE MACRO held.f(x) AS 42", "CREATE SEQUENCE held.s"]
)
def test_a_database_without_tables_is_no_empty_archive(
    tmp_path, client, small, statement
):
    file = tmp_path / "theirs.duckdb"
    change(file, statement)
    body = file.read_bytes()
    with pytest.raises(NotAnArchive, match="never written to"):
        Archive(file).sync(client, accounts=small.accounts)
    assert file.read_bytes() == body


def test_a_file_of_two_sources_is_not_ours(archive, client, small):
    change(
        archive._file.path,
        "INSERT INTO held.source SELECT * REPLACE ('block store' AS kind) FROM held.source",
    )
    with pytest.raises(NotAnArchive, match="not the one of"):
        archive.trades()
    with pytest.raises(NotAnArchive, match="not the one of"):
        archive.sync(client, accounts=small.accounts)


@pytest.mark.parametrize("name", ["side", "fill_type"])
def test_words_that_we_do_not_write_are_named(archive, name):
    change(archive._file.path, f"UPDATE held.rows SET {name} = upper({name}) || '.'")
    with pytest.raises(DamagedArchive, match=f"other words in {name}"):
        archive.trades()


@pytest.mark.parametrize("moment", ["infinity", "2022-01-01 00:00:00.000001"])
def test_times_that_we_do_not_write_are_named(archive, moment):
    change(archive._file.path, f"UPDATE held.rows SET created_at = '{moment}'")
    with pytest.raises(DamagedArchive, match="times that are not whole milliseconds"):
        archive.trades()


@pytest.mark.parametrize("engine", ["pyarrow", "polars"])
def test_an_amount_that_we_do_not_write_is_an_error_of_ours_in_a_scan(archive, engine):
    # The largest number of 128 bits has 39 digits.
    change(archive._file.path, f"UPDATE held.rows SET size = {2**127 - 1}")
    with pytest.raises(ArchiveError, match="Could not cast value"):
        archive.scan(engine)


def test_rows_that_are_stored_twice_are_found(archive):
    count = archive.report()["rows"].sum()
    change(archive._file.path, "INSERT INTO held.rows FROM held.rows")
    found = archive.verify()
    assert found["table"].tolist() == ["rows"]
    assert found["problem"].tolist() == [f"{count:,} rows are stored more than once."]


# What lies beside a file


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """An archive whose last two transactions are in its log, as a kill leaves them."""
    path = tmp_path_factory.mktemp("killed") / "a.duckdb"
    make_archive(path)
    return path


@pytest.fixture
def own(killed, tmp_path):
    """A copy of it with its log, the test's own."""
    shutil.copy(f"{killed}.wal", tmp_path / "a.duckdb.wal")
    return Path(shutil.copy(killed, tmp_path))


def entries(log):
    """Return where each entry of a log begins: a length and a checksum of 8 bytes each, then its contents."""
    place = log.index(b"\xff\xff") + 2
    while place < len(log):
        yield place
        place += 16 + int.from_bytes(log[place : place + 8], "little")


def held(path):
    return Archive(path).query("SELECT count(*) AS held FROM rows")["held"][0]


@pytest.mark.thorough
def test_damage_that_shows_only_when_a_log_is_folded_in_says_where_the_rows_are(
    tmp_path,
):
    whole = tmp_path / "whole.duckdb"
    make_archive(whole)
    body = whole.read_bytes()
    said = []
    # Some ends hold what is read only when a log is folded in.
    for cut in range(300_000, 400_000, 12_000):
        path = tmp_path / f"{cut}.duckdb"
        path.write_bytes(body[:-cut])
        with contextlib.suppress(NotAnArchive):
            said.append(write_to(path))
        log = Path(f"{path}.wal")
        if said[-1:] == ["DamagedArchive"] and log.exists():
            assert path.read_bytes() == body[:-cut]
            assert log.stat().st_size
            return
    raise AssertionError(f"no such end: {said}")


class CutOff(io.BytesIO):
    """A log that is cut off as soon as its length was asked for."""

    def seek(self, place, whence=os.SEEK_SET):
        found = super().seek(place, whence)
        if whence == os.SEEK_END:
            self.truncate(100)
        return found


@pytest.mark.thorough
def test_a_log_that_is_folded_in_while_it_is_read_is_no_damage(own, monkeypatch):
    expected = held(own)

    def opened(log, *words):
        monkeypatch.undo()
        body = log.read_bytes()
        duckdb.connect(own).close()
        assert not log.exists()
        return CutOff(body)

    monkeypatch.setattr(database, "open_file", opened)
    assert held(own) == expected


@pytest.mark.thorough
def test_a_bit_at_any_structural_place_of_a_log_loses_nothing_without_a_word(
    own, killed
):
    whole = held(own)
    log = Path(f"{own}.wal")
    good = log.read_bytes()
    start = range(good.index(b"\xff\xff") + 2)
    lengths = [place + byte for place in entries(good) for byte in range(8)]
    said = set()
    for place in [*start, *lengths]:
        for bit in (0, 7):
            spoiled = bytearray(good)
            spoiled[place] ^= 1 << bit
            log.write_bytes(spoiled)
            try:
                assert held(own) == whole, f"bit {bit} of byte {place}"
                said.add("read")
            except ArchiveError as error:
                said.add(type(error).__name__)
            assert log.read_bytes() == spoiled
    assert "DamagedArchive" in said
    # Within an entry, behind its length and its checksum, DuckDB's own checksum differs.
    begins = list(entries(good))
    spoiled = bytearray(good)
    spoiled[begins[len(begins) // 2] + 16] ^= 1
    log.write_bytes(spoiled)
    with pytest.raises(DamagedArchive, match=r"the file is damaged.*archive\.copy"):
        held(own)
    log.write_bytes(good[4_096:])
    with pytest.raises(DamagedArchive, match=r"a\.duckdb\.wal: .* does not begin as"):
        Archive(own).report()
    log.write_bytes(bytes(4_096) + good[4_096:])
    with pytest.raises(DamagedArchive, match=r"archive\.copy\(path\)"):
        Archive(own).report()


def test_a_log_that_was_cut_anywhere_reads_as_whole_transactions(own):
    whole = held(own)
    log = Path(f"{own}.wal")
    good = log.read_bytes()
    counts = set()
    for length in (0, 3, 30, 50, 61, 62, len(good) // 4, len(good) - 1, len(good)):
        log.write_bytes(good[:length])
        counts.add(held(own))
    assert counts == {whole - 2 * BATCH, whole - BATCH, whole}


def a_text(log):
    log.write_text("my notes\n" * 100)


def a_second_name(log):
    mine = log.with_name("mine.txt")
    mine.write_text("my notes\n" * 100)
    os.link(mine, log)


def a_pipe(log):
    os.mkfifo(log)


def a_link(log):
    mine = log.with_name("mine.txt")
    mine.write_text("my notes\n" * 100)
    log.symlink_to(mine)


def a_link_to_itself(log):
    log.symlink_to(log)


def of_another(log):
    other = log.with_name("another")
    make_archive(other)
    shutil.copy(f"{other}.wal", log)


@pytest.mark.parametrize("suffix", [".wal", ".wal.checkpoint", ".wal.recovery"])
@pytest.mark.parametrize(
    "make", [a_text, a_second_name, a_pipe, a_link, a_link_to_itself]
)
def test_what_lies_in_the_place_of_a_log_is_named_and_left_alone(
    archive, client, small, make, suffix
):
    file = archive._file.path
    log = Path(f"{file}{suffix}")
    make(log)
    body = file.read_bytes()
    facts = log.lstat()
    for use in (
        Archive(file).report,
        lambda: Archive(file).sync(client, accounts=small.accounts),
        lambda: Archive(file).copy(file.with_name("copy")),
    ):
        with pytest.raises(ArchiveError, match=rf"\{suffix}: .*Nothing was changed"):
            use()
    assert file.read_bytes() == body
    after = log.lstat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        facts.st_ino,
        facts.st_size,
        facts.st_mtime_ns,
    )


@pytest.mark.parametrize("make", [thorough(a_text), of_another])
def test_a_log_without_its_file_is_left_alone(tmp_path, client, small, make):
    log = tmp_path / "new.duckdb.wal"
    make(log)
    body = log.read_bytes()
    with pytest.raises(ArchiveError, match=r"new\.duckdb\.wal: .*Nothing was changed"):
        Archive(tmp_path / "new.duckdb").sync(client, accounts=small.accounts)
    assert log.read_bytes() == body
    assert not (tmp_path / "new.duckdb").exists()


def test_an_older_log_and_that_of_another_file_are_named_and_left_alone(
    own, client, small, tmp_path
):
    log = Path(f"{own}.wal")
    older = log.read_bytes()
    change(own, "CHECKPOINT held")
    assert not log.exists()
    other = tmp_path / "other.duckdb"
    make_archive(other)
    said = r"the log beside it \(\.wal\) is older than the file, or another file's"
    for body in (older, Path(f"{other}.wal").read_bytes()):
        log.write_bytes(body)
        for use in (
            Archive(own).report,
            lambda: Archive(own).sync(client, accounts=small.accounts),
            lambda: Archive(own).copy(tmp_path / "copy"),
        ):
            with pytest.raises(ArchiveError, match=said):
                use()
        assert log.read_bytes() == body


def test_each_commit_leaves_one_file(tmp_path, small):
    archive = Archive(tmp_path / "one.duckdb")
    seen = []

    def watch(*_):
        seen.append(sorted(file.name for file in tmp_path.iterdir()))

    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), accounts=small.accounts, progress=watch)
    assert seen
    assert all(names == ["one.duckdb"] for names in seen)
    moved = (tmp_path / "one.duckdb").rename(tmp_path / "moved.duckdb")
    assert len(Archive(moved).trades()) == 240


# In place of a file


@pytest.mark.parametrize("kind", [Archive, Store])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(NotAnArchive, match="a pipe or a device"):
            kind(path)
    later = kind(tmp_path / "later")
    os.mkfifo(tmp_path / "later")
    for use in (lambda: repr(later), later._repr_html_, later.report):
        with pytest.raises(LabError, match="a pipe or a device"):
            use()


# Copies


def test_a_copy_holds_all_that_the_archive_holds(own, tmp_path):
    """Also what is in the log still; versions, counts and listings are kept in their order."""
    copied = Archive(own).copy(tmp_path / "copy.duckdb")
    for query in (
        "FROM rows ORDER BY ALL",
        "FROM syncs",
        "FROM listings",
        "FROM blocks",
        "FROM source",
    ):
        pd.testing.assert_frame_equal(copied.query(query), Archive(own).query(query))
    pd.testing.assert_frame_equal(copied.report(), Archive(own).report())
    assert copied.verify().empty
    assert not (tmp_path / "copy.duckdb.wal").exists()


COPIED = """
import os, signal, sys
from loopring_lab import Archive
from loopring_lab.engine.database import StoredFile
copy = StoredFile._copied
def copy_and_die(*args):
    copy(*args)
    os.kill(os.getpid(), signal.SIGKILL)
StoredFile._copied = copy_and_die
Archive(sys.argv[1]).copy(sys.argv[2])
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="kills: run on Linux or macOS")
def test_what_a_killed_copy_left_goes_with_the_next_one(own, tmp_path):
    backups = tmp_path / "backups"
    mine = backups / "copy.duckdb.mine"
    mine.mkdir(parents=True)
    target = backups / "copy.duckdb"
    words = [sys.executable, "-W", "ignore", "-c", COPIED, str(own), str(target)]
    assert subprocess.run(words).returncode == -9
    [left] = set(backups.iterdir()) - {mine}
    assert (left / "copy").stat().st_size
    # Long ago, so that no process can be about to lock it.
    for folder in (left, mine):
        os.utime(folder, (0, 0))
    assert len(Archive(own).copy(target).trades()) == len(Archive(own).trades())
    assert set(backups.iterdir()) == {mine, target}


def test_a_copy_never_takes_the_place_of_a_file(archive, tmp_path, capsys):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(LabError, match="is there already"):
        archive.copy(mine)
    assert mine.read_text() == "mine"
    target = tmp_path / "backups" / "one.duckdb"
    assert main(["copy", str(archive._file.path), str(target)]) == 0
    assert len(Archive(target).trades()) == 240
    assert main(["copy", str(archive._file.path), str(target)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [file.name for file in target.parent.iterdir()] == ["one.duckdb"]


def test_stores_are_copied_by_the_command_too(store, tmp_path):
    target = tmp_path / "backup.duckdb"
    assert main(["blocks", "copy", str(tmp_path / "blocks.duckdb"), str(target)]) == 0
    assert Store(target).blocks().raw == store.blocks().raw


@pytest.mark.thorough
def test_copies_made_while_another_syncs_are_of_one_moment_each(tmp_path):
    ledger = Ledger(4, 60, seed=3)
    archive = Archive(tmp_path / "a")
    with Relayer(ledger) as relayer:
        archive.sync(client_of(relayer), account_id=ledger.accounts[0])

        def sync():
            for account in ledger.accounts[1:]:
                Archive(tmp_path / "a").sync(client_of(relayer), account_id=account)

        syncing = threading.Thread(target=sync)
        syncing.start()
        counts = []
        while syncing.is_alive() or not counts:
            copied = archive.copy(tmp_path / f"copy {len(counts)}")
            report = copied.report()
            counts.append(int(report["rows"].sum()))
            # Rows and what was counted of them are committed together.
            assert report["missing"].fillna(0).eq(0).all()
            assert len(copied.trades()) == counts[-1]
        syncing.join()
    assert counts == sorted(counts)
    assert counts[0] >= 60


def test_a_damaged_archive_is_copied_whole_or_not_at_all(archive, tmp_path):
    """Spoils one of DuckDB's blocks of 256 KiB at a time; some of them are not in use."""
    file = archive._file.path
    good = file.read_bytes()
    before = archive.trades()
    outcomes = set()
    said: list[str] = []
    is_left = False
    for start in range(12_288, len(good), 262_144):
        body = bytearray(good)
        body[start + 100 : start + 1_100] = bytes(1_000)
        file.write_bytes(body)
        target = tmp_path / f"copy {start}"
        try:
            copied = Archive(file).copy(target)
            pd.testing.assert_frame_equal(copied.trades(), before)
            outcomes.add("whole")
        except DamagedArchive as error:
            outcomes.add("refused")
            said.append(str(error))
            is_left |= target.exists()
    assert "refused" in outcomes
    assert not is_left
    assert all(text.startswith(str(file)) for text in said)
    assert all("Restore a backup (made by archive.copy" in text for text in said)


def test_a_later_version_is_not_copied(archive, tmp_path):
    change(archive._file.path, "UPDATE held.source SET format = 9")
    with pytest.raises(NewerArchive):
        archive.copy(tmp_path / "copy")
