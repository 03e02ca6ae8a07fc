"""Disk trouble in an archive: full, read-only, foreign, damaged, newer; each error says what is safe and what to do."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from support.archive_kills import check
from support.ledger import client_of
from support.optional import thorough

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.errors import ArchiveError, DiskRefused, NewerArchive, NotAnArchive
from loopring_lab.relayer import Relayer
from loopring_lab.rollup import Store


@contextmanager
def no_file_longer_than(size):
    """Make writing fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 9_000, 60_000, 100_000])
def test_a_full_disk_loses_nothing_and_the_next_sync_goes_on(tmp_path, small, size):
    archive = Archive(tmp_path / "a")
    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), account_id=small.accounts[0])
        before = archive.trades()
        with no_file_longer_than(size), pytest.raises(DiskRefused) as caught:
            archive.sync(client_of(relayer), accounts=small.accounts)
        for said in (
            "the disk is full",
            "What was committed before is safe",
            "Make room, then run the same again",
        ):
            assert said in str(caught.value)
        # The rows may be stored, and only the log could not be moved into the file.
        pd.testing.assert_frame_equal(archive.trades(small.accounts[0]), before)
        assert len(archive.trades()) in (120, 240)
        archive.sync(client_of(relayer), accounts=small.accounts)
    check(tmp_path / "a", *small.truth())


@pytest.mark.thorough
def test_a_full_disk_at_the_very_beginning_leaves_nothing_in_the_way(tmp_path, small):
    with Relayer(small) as relayer:
        for size in (0, 12, 5_000, 12_288, 20_000):
            with no_file_longer_than(size), pytest.raises(DiskRefused):
                Archive(tmp_path / "a").sync(
                    client_of(relayer), accounts=small.accounts
                )
        Archive(tmp_path / "a").sync(client_of(relayer), accounts=small.accounts)
    check(tmp_path / "a", *small.truth())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('Cannot open file "x": Read-only file system', "report, trades and scan work"),
        ('Cannot open file "x": Permission denied', "report, trades and scan work"),
        (
            "Could not set lock on file: No locks available",
            "cannot lock files, as many network drives cannot. Copy the file to a local disk",
        ),
    ],
)
def test_what_the_system_refuses_is_told_with_what_still_works(archive, words, said):
    error = archive._file.translated(duckdb.IOException(f"IO Error: {words}"))
    assert isinstance(error, DiskRefused)
    assert said in str(error)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("COMMIT", "no transaction is active"),
        ("ROLLBACK", "no transaction is active"),
        ("SELECT wal_checksum_corrupt FROM trades", "wal_checksum_corrupt"),
        ("SELECT error('cannot be decided')", "cannot be decided"),
    ],
)
def test_only_damage_is_called_damage(archive, sql, said):
    with pytest.raises(ArchiveError, match=said) as caught:
        archive.query(sql)
    assert type(caught.value) is ArchiveError
    assert "damaged" not in str(caught.value)
    assert "backup" not in str(caught.value)
    assert archive.verify().empty


def test_an_error_that_nobody_knows_is_passed_on_in_its_own_words(archive):
    unknown = duckdb.Error("Sequencing Error: the counter of lanes is asleep")
    error = archive._file.translated(unknown)
    assert type(error) is ArchiveError
    assert "Sequencing Error: the counter of lanes is asleep" in str(error)
    assert "damaged" not in str(error)


def test_want_of_memory_is_no_damage(archive):
    lab.engine.set_memory("64MiB")
    try:
        with pytest.raises(ArchiveError, match="more memory is needed") as caught:
            archive.query("SELECT list(n) FROM range(100_000_000) AS many(n)")
    finally:
        lab.engine.set_memory()
    assert type(caught.value) is ArchiveError


AS_A_USER = """
import os, sys
from loopring_lab.archive import Archive
from loopring_lab.errors import DiskRefused
from loopring_lab.origin import Source
archive = Archive(sys.argv[1])
archive.trades(), archive.report()  # loads what another user may have no right to load
os.setuid(65534)
print(len(archive.trades()), archive.report()["complete"].all())
try:
    with archive._file.writing(Source("ledger", True)):
        print("written")
except DiskRefused as error:
    print(error)
try:
    print(archive.delete(20_000))
except DiskRefused as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run as root")
@pytest.mark.parametrize("mode", [0o555, thorough(0o755)])
def test_another_user_reads_and_is_told_what_keeps_it_from_writing(archive, mode):
    said = as_a_user(archive, mode, 0o444)
    assert said.count("no permission to write, or read-only media") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run as root")
def test_a_file_in_a_closed_folder_cannot_be_written_anew(archive):
    """Who may write to the file, but to nothing beside it, can neither add a log nor replace the file."""
    said = as_a_user(archive, 0o555, 0o666)
    assert "a.duckdb: cannot be written (Permission denied). Check its folder" in said


def as_a_user(archive, folder_mode, file_mode):
    """Return what is said to another user who reads an archive, writes to it, and deletes an account of it."""
    folder = Path(tempfile.mkdtemp(prefix="loopring-lab-readable-"))
    file = Path(shutil.copy(archive._file.path, folder / "a.duckdb"))
    file.chmod(file_mode)
    folder.chmod(folder_mode)
    try:
        words = [sys.executable, "-W", "ignore", "-c", AS_A_USER, str(file)]
        said = subprocess.run(
            words, capture_output=True, text=True, timeout=600, check=False
        )
    finally:
        shutil.rmtree(folder)
    assert said.stdout.startswith("240 True\n"), said.stderr
    return said.stdout


@pytest.mark.skipif(
    os.geteuid() == 0,
    reason="needs a user whom file permissions bind: run as anyone but root",
)
def test_a_closed_folder_is_named(tmp_path, small):
    (tmp_path / "closed").mkdir(mode=0o500)
    with Relayer(small) as relayer, pytest.raises(DiskRefused, match="no permission"):
        Archive(tmp_path / "closed" / "a").sync(
            client_of(relayer), accounts=small.accounts
        )


def a_text(path):
    path.write_text("mine" * 5_000)


def a_folder(path):
    path.mkdir()
    (path / "thesis.tex").write_text("mine")


def another_database(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE rows AS SELECT 1 AS x")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            a_text,
            "a file, but not one of DuckDB. Nothing was changed. Use another path",
        ),
        (
            a_folder,
            r"is a folder, .* and an archive is one file. Give its path, such as .*other/trades\.duckdb",
        ),
        (
            another_database,
            "a DuckDB file, but not the one of an archive. Nothing was changed",
        ),
    ],
)
def test_what_is_not_an_archive_is_left_alone(tmp_path, small, make, said):
    make(tmp_path / "other")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    with pytest.raises(NotAnArchive, match=said):
        Archive(tmp_path / "other").report()
    with Relayer(small) as relayer, pytest.raises(NotAnArchive, match=said):
        Archive(tmp_path / "other").sync(client_of(relayer), accounts=small.accounts)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_nothing_is_made_by_looking(tmp_path):
    archive = Archive(tmp_path / "none")
    for look in (
        archive.report,
        archive.trades,
        lambda: archive.scan("polars"),
        archive.verify,
        lambda: archive.query("FROM trades"),
        lambda: archive.export(tmp_path / "exported"),
    ):
        with pytest.raises(NotAnArchive, match="Fill it first"):
            look()
    assert list(tmp_path.iterdir()) == []


def test_a_later_format_is_left_alone(archive):
    with duckdb.connect(str(archive._file.path)) as connection:
        connection.execute("UPDATE source SET format = 9")
    with pytest.raises(
        NewerArchive,
        match=r"format 9; this version reads up to 2.*Upgrade loopring-lab",
    ):
        archive.report()


def test_an_earlier_format_is_said_to_be_one(archive):
    """Also where its tables were others than now."""
    for change in (
        "UPDATE source SET format = 1",
        "ALTER TABLE syncs DROP COLUMN gone",
    ):
        with duckdb.connect(str(archive._file.path)) as connection:
            connection.execute(change)
        with pytest.raises(
            NotAnArchive,
            match=r"format 1, of an earlier version of loopring-lab.*Nothing was changed.*Read it with the version that wrote it",
        ):
            archive.report()


@pytest.mark.parametrize("size", [12_287, *map(thorough, (0, 12, 4_096))])
def test_a_beginning_that_was_cut_short_is_begun_again(archive, small, size):
    file = archive._file.path
    os.truncate(file, size)
    with pytest.raises(NotAnArchive, match="no trades here yet"):
        archive.trades()
    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), accounts=small.accounts)
    check(file, *small.truth())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.txt", b"my own\n"),
        ("closes.csv", b"a,b\n1,2\n" * 1_300),
        ("page.json", b"12345678D"),
        ("page.json", b"a"),
    ],
)
def test_a_short_file_of_somebody_is_never_taken_for_a_beginning(
    tmp_path, small, name, text
):
    file = tmp_path / name
    file.write_bytes(text)
    said = "a file, but not one of DuckDB. Nothing was changed"
    with pytest.raises(NotAnArchive, match=said):
        Archive(file).trades()
    with Relayer(small) as relayer, pytest.raises(NotAnArchive, match=said):
        Archive(file).sync(client_of(relayer), accounts=small.accounts)
    with pytest.raises(NotAnArchive, match=said):
        Store(file).report()
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == {file: text}


def test_a_link_in_the_place_of_the_log_is_never_written_through(archive, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    link = Path(f"{archive._file.path}.wal")
    link.symlink_to(mine)
    with pytest.raises(
        NotAnArchive, match="is a link, .* and DuckDB would write through it"
    ):
        archive.report()
    assert mine.read_text() == "mine"
