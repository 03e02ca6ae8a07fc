"""Damage in an archive: flipped bits, torn and emptied files, power cuts, other writers; found and repaired."""

import errno
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archive_damage import LATER, content, flip_bits, make_archive
from support.archive_kills import check, cut_power_again_and_again
from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive, damage, queries
from loopring_lab.archive.maintenance import split_by_listing
from loopring_lab.archive.merge import set_column
from loopring_lab.archive.records import listings
from loopring_lab.cli import main
from loopring_lab.client import Client
from loopring_lab.errors import DamagedArchive
from loopring_lab.relayer import Relayer
from loopring_lab.storage import digests


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Client]]:
    with Relayer(LATER) as relayer:
        path = tmp_path_factory.mktemp("damage") / "base"
        make_archive(path, relayer)
        yield path, client_of(relayer)


@pytest.fixture
def copied(base: tuple[Path, Client], tmp_path: Path) -> tuple[Path, Client]:
    return Path(shutil.copytree(base[0], tmp_path / "a")), base[1]


def largest(path: Path) -> Path:
    """Return the largest file of trades of the current state."""
    return max(map(Path, queries.list_files(Archive(path)._folder)), key=lambda file: file.stat().st_size)


def log_of(path: Path, name: str = "trades") -> list[Path]:
    return sorted((path / name / "_delta_log").glob("*.json"))


def state(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def spoil(file: Path, place: int) -> None:
    body = bytearray(file.read_bytes())
    body[place] ^= 0x10
    file.write_bytes(body)


def spoil_column(file: Path, name: str) -> None:
    """Damage where a column begins in a Parquet file, so that it cannot be read."""
    with pq.ParquetFile(file) as opened:
        group = opened.metadata.row_group(0)
        names = [group.column(number).path_in_schema for number in range(group.num_columns)]
        column = group.column(names.index(name))
        start = min(filter(None, (column.data_page_offset, column.dictionary_page_offset)))
    for place in range(start, start + 8):
        spoil(file, place)


# Found


@pytest.mark.thorough
def test_no_flipped_bit_gives_a_wrong_value_and_verify_names_each(base: tuple[Path, Client]) -> None:
    tally = flip_bits(base[0], 60, seed=1)
    assert tally.found == 60
    assert sum(count for (_, outcome), count in tally.read.items() if outcome == "DamagedArchive") > 20


@pytest.mark.thorough
def test_repair_loses_no_good_value(base: tuple[Path, Client]) -> None:
    assert flip_bits(base[0], 20, seed=2, client=base[1]).repaired == 20


def test_a_wrong_statistic_in_the_log_cannot_hide_rows(copied: tuple[Path, Client]) -> None:
    path, _ = copied
    since = Archive(path).trades()["created_at"].max()
    entry = log_of(path)[-1]
    text = entry.read_text()
    changed = text.replace('maxValues\\":{', 'maxValues\\":{\\"created_at\\":\\"2001-01-01T00:00:00Z\\",', 1)
    entry.write_text(changed.replace(',\\"created_at\\":\\"2021', ',\\"created_by\\":\\"2021', 1))
    assert len(deltalake.DeltaTable(str(path / "trades")).file_uris()) > 0
    with pytest.raises(DamagedArchive, match=f"{entry.name} is damaged"):
        Archive(path).trades(since=since)


def test_only_what_is_read_is_refused(copied: tuple[Path, Client]) -> None:
    path, _ = copied
    file = largest(path)
    other = next(account for account in LATER.accounts if str(account) not in file.parent.name)
    before = Archive(path).trades(other)
    spoil(file, 100)
    pd.testing.assert_frame_equal(Archive(path).trades(other), before)
    with pytest.raises(DamagedArchive, match=f"{file.name} is damaged"):
        Archive(path).trades()


def test_a_file_is_read_for_its_digest_once_in_a_session(
    copied: tuple[Path, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = copied
    read, is_as_read = [], digests.Digests._is_as_read

    def counted(self: digests.Digests, name: str) -> bool:
        read.append(name)
        return is_as_read(self, name)

    monkeypatch.setattr(digests.Digests, "_is_as_read", counted)
    for _ in range(2):
        archive = Archive(path)
        archive.trades()
        archive.report()
        archive.scan("duckdb")
    assert len(read) == len(set(read)) > 5


@pytest.mark.parametrize("work", [Archive.reread, Archive.compact, lambda one: one.scan("duckdb")])
def test_damage_is_not_read_into_new_files(
    copied: tuple[Path, Client], work: Callable[[Archive], Any]
) -> None:
    path, _ = copied
    spoil(largest(path), 100)
    before = state(path)
    with pytest.raises(DamagedArchive, match="Nothing was changed"):
        work(Archive(path))
    assert state(path) == before


def test_verify_says_what_a_file_holds_and_what_to_do(
    copied: tuple[Path, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = copied
    file, other = largest(path), log_of(path, "syncs")[0]
    rows, account = pq.read_metadata(file).num_rows, int(file.parent.name.removeprefix("account_id="))
    assert main(["verify", str(path)]) == 0
    assert capsys.readouterr().out == "every file is as it was recorded\n"
    file.unlink()
    spoil(other, 9)
    found = Archive(path).verify().set_index("file")
    line = found.loc[file.relative_to(path).as_posix()]
    assert (line["problem"], line["account_id"], line["rows"]) == ("missing", account, rows)
    assert line["advice"] == "repair sets it aside and downloads its rows again"
    assert found.loc[other.relative_to(path).as_posix(), "advice"] == "repair restores it from its copy"
    assert len(found) == 2
    assert main(["verify", str(path)]) == 1
    assert "missing" in capsys.readouterr().out


def test_a_repr_shows_that_an_archive_is_damaged(copied: tuple[Path, Client]) -> None:
    path, _ = copied
    (path / "archive.json").write_bytes(b"")
    assert repr(Archive(path)).endswith(", damaged)")
    assert "archive.json is damaged" in Archive(path)._repr_html_()


def test_a_sector_that_cannot_be_read_is_damage(
    copied: tuple[Path, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = copied
    bad, measure = largest(path), digests._measure

    def spoiled(file: Path, **how: Any) -> Any:
        if file == bad:
            raise OSError(errno.EIO, "Input/output error")
        return measure(file, **how)

    monkeypatch.setattr(digests, "_measure", spoiled)
    found = Archive(path).verify()
    assert found["file"].tolist() == [bad.relative_to(path).as_posix()]
    assert found["problem"].tolist() == ["damaged"]


def test_ctrl_c_while_a_lock_is_taken_leaves_no_lock(
    copied: tuple[Path, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path, flock = copied[0], fcntl.flock

    def interrupted(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        raise KeyboardInterrupt

    archive = Archive(path)
    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt), archive._folder.digests.locked():
        pass
    descriptor = os.open(path, os.O_RDONLY)
    flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


# Repaired


def test_the_command_repairs_and_downloads(
    tmp_path: Path, small: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    with Relayer(small) as relayer:
        monkeypatch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        Archive(path).sync(client_of(relayer), accounts=small.accounts)
        spoil(largest(path), 100)
        assert main(["verify", str(path), "--repair"]) == 1
        assert "moved to set-aside/trades/account_id=" in capsys.readouterr().out
        Archive(path).sync(client_of(relayer), accounts=small.accounts)
    check(path, *small.truth())
    assert main(["verify", str(path)]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("left", [b"", b"\0" * 100, b'{"format": "loop'])
def test_an_archive_with_an_emptied_manifest_is_read_and_the_next_sync_writes_it(
    copied: tuple[Path, Client], left: bytes
) -> None:
    path, client = copied
    before, manifest = content(path), (path / "archive.json").read_bytes()
    (path / "archive.json").write_bytes(left)
    assert content(path) == before
    assert (path / "archive.json").read_bytes() == left
    assert Archive(path).verify()["file"].tolist() == ["archive.json"]
    Archive(path).sync(client, accounts=LATER.accounts)
    assert (path / "archive.json").read_bytes() == manifest
    assert Archive(path).verify().empty
    assert content(path) == before


def test_an_emptied_manifest_hides_no_other_damage(copied: tuple[Path, Client]) -> None:
    path, client = copied
    (path / "archive.json").write_bytes(b"")
    spoil(largest(path), 100)
    with pytest.raises(DamagedArchive, match="account_id=.* is damaged"):
        Archive(path).trades()
    (path / "copies").unlink()
    with pytest.raises(DamagedArchive, match=r"archive\.json is damaged"):
        Archive(path).report()
    Archive(path).repair(client)
    assert Archive(path).verify().empty


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("lose", "named"),
    [
        (lambda path: (path / "archive.json").write_bytes(b""), "archive.json"),
        (lambda path: (path / "archive.json").write_bytes(b'{"format": "loop'), "archive.json"),
        (lambda path: (path / "digests").unlink(), "digests"),
        (lambda path: (path / "digests").write_bytes(b""), "digests"),
        (lambda path: (path / "copies").write_bytes(b""), "copies"),
        (lambda path: log_of(path)[-1].write_bytes(b""), "trades/_delta_log/0"),
        (lambda path: shutil.rmtree(path / "listings" / "_delta_log"), "listings/_delta_log/0"),
        (lambda path: next((path / "syncs").glob("*.parquet")).write_bytes(b""), "syncs/"),
        (lambda path: largest(path).write_bytes(b""), "trades/account_id="),
    ],
)
def test_what_is_emptied_or_torn_is_named_and_repaired(
    copied: tuple[Path, Client], lose: Callable[[Path], Any], named: str
) -> None:
    path, client = copied
    before, report = Archive(path).trades(), Archive(path).report()
    lose(path)
    found = Archive(path).verify()
    assert any(name.startswith(named) for name in found["file"])
    Archive(path).repair(client)
    assert Archive(path).verify().empty
    pd.testing.assert_frame_equal(Archive(path).trades(), before)
    assert Archive(path).report().drop(columns="synced_at").equals(report.drop(columns="synced_at"))


class Shorter(Ledger):
    """A source that no longer lists the oldest rows of its accounts."""

    def __init__(self, of: Ledger, gone: int) -> None:
        super().__init__(0, 0)
        self.accounts, self.keys, self.rows = of.accounts, of.keys[gone:], of.rows[gone:]


@pytest.mark.parametrize(("column", "kept"), [("size", True), ("verbatim", False)])
def test_rows_that_the_source_no_longer_lists_are_salvaged_or_set_aside(
    copied: tuple[Path, Client], column: str, kept: bool
) -> None:
    path, _ = copied
    before = Archive(path).trades()
    file = largest(path)
    account = int(file.parent.name.removeprefix("account_id="))
    spoil_column(file, column)
    damaged = file.read_bytes()
    with Relayer(Shorter(LATER, gone=100)) as relayer:
        done = Archive(path).repair(client_of(relayer))
        listed = len(client_of(relayer).trades(account))
    assert done["done"].tolist() == [f"moved to set-aside/{file.relative_to(path).as_posix()}"]
    assert (path / "set-aside" / file.relative_to(path)).read_bytes() == damaged
    after = Archive(path).trades()
    if kept:
        pd.testing.assert_frame_equal(after, before)
    else:
        assert listed <= (after["account_id"] == account).sum() < (before["account_id"] == account).sum()
    others = [frame[frame["account_id"] != account].reset_index(drop=True) for frame in (after, before)]
    pd.testing.assert_frame_equal(*others)
    assert Archive(path).verify().empty


def test_a_row_is_salvaged_only_if_its_columns_agree_with_its_members(copied: tuple[Path, Client]) -> None:
    folder = Archive(copied[0])._folder
    part = split_by_listing(folder.read("trades", keys=LATER.accounts[:1]))[0]
    sizes, texts = part["size"].to_pylist(), part["verbatim"].to_pylist()
    sizes[3] += 1
    texts[5], texts[8] = texts[5][:-9], texts[8].replace("3.5669E-4", "3.5668E-4")
    spoiled = set_column(part, "size", pa.array(sizes, part["size"].type))
    good = damage._agreeing_rows(set_column(spoiled, "verbatim", pa.array(texts)), listings(folder))
    assert good.equals(part.take([place for place in range(len(part)) if place not in (3, 5, 8)]))


# Crashes, other writers, older archives


@pytest.mark.thorough
def test_power_cuts_lose_no_reported_row(tmp_path: Path) -> None:
    rows, _ = cut_power_again_and_again(tmp_path / "disk" / "a", 6, accounts=4, trades=60, most_syncs=90)
    assert rows > 0


def test_a_commit_that_a_crash_cut_short_is_undone_by_the_next_sync(copied: tuple[Path, Client]) -> None:
    path, client = copied
    before, last = Archive(path).trades(), log_of(path)[-1]
    torn = last.with_name(f"{int(last.name[:20]) + 1:020}.json")
    torn.write_bytes(b"")
    last.with_name(f"{last.name[:20]}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedArchive, match="cut short by a crash before its commit counted"):
        Archive(path).trades()
    Archive(path).sync(client, accounts=LATER.accounts)
    assert (path / "set-aside" / torn.relative_to(path)).exists()
    assert Archive(path).verify().empty
    pd.testing.assert_frame_equal(Archive(path).trades(), before)


def test_a_digest_that_a_crash_left_torn_is_written_again(copied: tuple[Path, Client]) -> None:
    path, client = copied
    lines = (path / "digests").read_bytes().splitlines(keepends=True)
    (path / "digests").write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert Archive(path).verify()["problem"].tolist() == ["not recorded"]
    Archive(path).sync(client, accounts=LATER.accounts)
    assert Archive(path).verify().empty


def test_what_another_program_committed_is_told_and_then_recorded(copied: tuple[Path, Client]) -> None:
    path, client = copied
    syncs = deltalake.DeltaTable(str(path / "syncs"))
    deltalake.write_deltalake(syncs, syncs.to_pyarrow_table().slice(0, 1), mode="append")
    found = Archive(path).verify()
    assert found["problem"].tolist() == ["not recorded", "not recorded"]
    assert len(Archive(path).trades()) == 160
    Archive(path).sync(client, accounts=LATER.accounts)
    assert Archive(path).verify().empty


def test_an_archive_without_digests_is_read_as_it_is_and_recorded_by_the_next_sync(
    copied: tuple[Path, Client],
) -> None:
    path, client = copied
    before = Archive(path).trades()
    for name in ("digests", "copies"):
        (path / name).unlink()
    (path / "archive.json").write_text('{"format": "loopring_lab archive", "schema": 1}\n')
    files = state(path)
    pd.testing.assert_frame_equal(Archive(path).trades(), before)
    assert set(Archive(path).verify()["problem"]) == {"not recorded"}
    assert state(path) == files
    Archive(path).sync(client, accounts=LATER.accounts)
    assert json.loads((path / "archive.json").read_text())["schema"] == 2
    assert Archive(path).verify().empty
    spoil(largest(path), random.Random(1).randrange(1_000))
    with pytest.raises(DamagedArchive, match="is damaged"):
        Archive(path).trades()


def test_a_wrong_hint_of_an_older_archive_is_removed(copied: tuple[Path, Client]) -> None:
    path, _ = copied
    hint = path / "trades" / "_delta_log" / "_last_checkpoint"
    hint.write_text('{"version":7,"size":8}')
    with pytest.raises(DamagedArchive, match="_last_checkpoint"):
        Archive(path).trades()
    assert Archive(path).verify()["file"].tolist() == [hint.relative_to(path).as_posix()]
    Archive(path).repair()
    assert len(Archive(path).trades()) == 160


def test_reading_writes_nothing(copied: tuple[Path, Client]) -> None:
    path, _ = copied
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    archive = Archive(path)
    for work in (
        archive.trades,
        archive.report,
        archive.verify,
        archive.repair,
        lambda: archive.scan("polars"),
    ):
        work()
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before
