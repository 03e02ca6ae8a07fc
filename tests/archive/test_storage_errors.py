"""Disk trouble in an archive: full, read-only, foreign, damaged, newer; each error says what is safe and what to do."""

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pyarrow as pa
import pytest
from support.archive_kills import check
from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive
from loopring_lab.errors import DamagedArchive, DiskRefused, LabError, NewerArchive, NotAnArchive
from loopring_lab.relayer import Relayer


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Make writing fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 60, 2_000, 9_000])
def test_a_full_disk_loses_nothing_and_the_next_sync_goes_on(
    tmp_path: Path, small: Ledger, size: int
) -> None:
    archive = Archive(tmp_path / "a")
    with Relayer(small) as relayer:
        archive.sync(client_of(relayer), account_id=small.accounts[0])
        before = archive.trades()
        with no_file_longer_than(size), pytest.raises(DiskRefused) as caught:
            archive.sync(client_of(relayer), accounts=small.accounts)
        assert "the disk is full" in str(caught.value)
        assert "What was committed before is safe" in str(caught.value)
        assert "Make room, then run the same again" in str(caught.value)
        pd.testing.assert_frame_equal(archive.trades(), before)
        archive.sync(client_of(relayer), accounts=small.accounts)
    check(tmp_path / "a", *small.truth())


def test_a_full_disk_at_the_very_beginning_leaves_nothing_in_the_way(tmp_path: Path, small: Ledger) -> None:
    with Relayer(small) as relayer:
        for size in (0, 10, 100, 500):
            with no_file_longer_than(size), pytest.raises(DiskRefused):
                Archive(tmp_path / "a").sync(client_of(relayer), accounts=small.accounts)
        Archive(tmp_path / "a").sync(client_of(relayer), accounts=small.accounts)
    check(tmp_path / "a", *small.truth())


@pytest.mark.parametrize("number", ["Read-only file system (os error 30)", "Permission denied (os error 13)"])
def test_a_folder_that_must_not_be_written_to_can_be_read(
    archive: Archive, small: Ledger, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    def refuse(*words: Any, **how: Any) -> None:
        raise OSError(f"Generic LocalFileSystem error: Unable to open file: {number}")

    monkeypatch.setattr(deltalake, "write_deltalake", refuse)
    with Relayer(small) as relayer, pytest.raises(DiskRefused) as caught:
        archive.sync(client_of(relayer), accounts=small.accounts)
    assert "no permission" in str(caught.value)
    assert "report, trades and scan work" in str(caught.value)
    assert len(archive.trades()) == 240


@pytest.mark.skipif(
    os.geteuid() == 0, reason="needs a user whom file permissions bind: run as anyone but root"
)
def test_a_closed_folder_is_named(tmp_path: Path, small: Ledger) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with Relayer(small) as relayer, pytest.raises(DiskRefused, match="no permission"):
        Archive(tmp_path / "closed" / "a").sync(client_of(relayer), accounts=small.accounts)


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_folder_with_files(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("mine")


def a_delta_table(path: Path) -> None:
    deltalake.write_deltalake(str(path), pa.table({"x": [1]}))


def another_mark(path: Path) -> None:
    path.mkdir()
    (path / "archive.json").write_text('{"format": "zip"}')


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_file, "is a file. An archive is a folder"),
        (a_folder_with_files, "contains 'thesis.tex' and is not an archive. Nothing was changed"),
        (a_delta_table, "a Delta table, but not an archive. Nothing was changed. Use another folder"),
        (another_mark, "archive.json does not belong to an archive. Nothing was changed"),
    ],
)
def test_what_is_not_an_archive_is_left_alone(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "other")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    with pytest.raises(NotAnArchive, match=said):
        Archive(tmp_path / "other")
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_a_table_of_an_archive_is_told_from_the_archive(archive: Archive) -> None:
    with pytest.raises(NotAnArchive, match="Give the archive's own folder"):
        Archive(archive._folder.path / "trades")


@pytest.mark.parametrize("name", ["a%20b", "a[b]", "a|b", "a^b", "a\\b", "a\nb"])
def test_a_path_that_deltalake_misreads_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabError, match=r"deltalake misreads .* in a path\. Use another folder"):
        Archive(tmp_path / name)


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "none")
    for look in (
        archive.report,
        archive.trades,
        lambda: archive.scan("polars"),
        archive.compact,
        archive.reread,
    ):
        with pytest.raises(NotAnArchive, match="Fill it first"):
            look()
    assert not (tmp_path / "none").exists()


def test_a_later_schema_is_left_alone(archive: Archive) -> None:
    mark = archive._folder.path / "archive.json"
    archive._folder.write_manifest(json.loads(mark.read_text()) | {"schema": 3})
    with pytest.raises(NewerArchive, match=r"schema 3; this one reads up to 2.*Upgrade loopring-lab"):
        Archive(archive._folder.path)
    with pytest.raises(NewerArchive):
        archive.report()


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def spoil(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize("damage", [lose, cut, spoil])
def test_a_damaged_file_of_trades_is_named(
    archive: Archive, small: Ledger, damage: Callable[[Path], None]
) -> None:
    [file, *_] = sorted((archive._folder.path / "trades").rglob("*.parquet"))
    damage(file)
    with pytest.raises(DamagedArchive) as caught:
        archive.trades()
    name = file.relative_to(archive._folder.path).as_posix()
    assert f"{name} is {'missing' if damage is lose else 'damaged'}. Nothing was changed" in str(caught.value)
    assert "archive.repair(client) repairs it" in str(caught.value)


def test_a_lost_file_is_let_go_of_and_fetched_again(archive: Archive, small: Ledger) -> None:
    for file in (archive._folder.path / "trades" / f"account_id={small.accounts[0]}").glob("*.parquet"):
        file.unlink()
    with pytest.raises(DamagedArchive, match=r"\.parquet is missing"):
        archive.scan("duckdb")
    archive.repair()
    lacking = archive.report().query("not complete")
    assert set(lacking["account_id"]) == {small.accounts[0]}
    assert lacking["missing"].sum() == 120
    with Relayer(small) as relayer:
        assert archive.sync(client_of(relayer), accounts=small.accounts)["complete"].all()
    check(archive._folder.path, *small.truth())


@pytest.mark.parametrize("name", ["trades", "listings"])
def test_a_lost_log_is_named(archive: Archive, name: str) -> None:
    shutil.rmtree(archive._folder.path / name / "_delta_log")
    with pytest.raises(DamagedArchive, match=f"the log of {name}/ is missing"):
        archive.report()


def test_a_damaged_log_is_named(archive: Archive) -> None:
    for file in (archive._folder.path / "trades" / "_delta_log").iterdir():
        file.write_bytes(b'{"add": {"path')
    with pytest.raises(DamagedArchive, match=r"trades/_delta_log/0+\.json is damaged"):
        archive.report()


def test_another_table_in_the_place_of_trades_is_named(archive: Archive) -> None:
    trades = archive._folder.path / "trades"
    shutil.rmtree(trades)
    deltalake.write_deltalake(str(trades), pa.table({"x": [1]}))
    with pytest.raises(DamagedArchive, match=r"trades/_delta_log/0+1\.json is missing"):
        archive.report()


def test_a_beginning_that_was_cut_short_is_begun_again(tmp_path: Path, small: Ledger) -> None:
    folder = tmp_path / "a"
    (folder / "trades" / "_delta_log").mkdir(parents=True)
    (folder / "archive.json").write_text('{"format": "loopring_lab archive", "schema": 1}')
    with Relayer(small) as relayer:
        Archive(folder).sync(client_of(relayer), accounts=small.accounts)
    check(folder, *small.truth())


def test_without_deltalake_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(LabError, match=r"pip install 'loopring-lab\[archive\]'"):
        Archive(tmp_path / "a")
