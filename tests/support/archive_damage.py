"""Flips single bits in an archive: what reading gives then, what `verify` says, what `repair` leaves."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer

EARLIER, LATER = Ledger(2, 60, seed=3), Ledger(2, 80, seed=3)


class Tally(NamedTuple):
    """How many flips were refused or harmless on reading, found by verify, and repaired."""

    read: Counter[tuple[str, str]]
    found: int
    repaired: int


def make_archive(path: Path, relayer: Relayer) -> None:
    """Make an archive of checkpoints, rewritten files and several commits; the relayer serves `LATER`."""
    with Relayer(EARLIER) as earlier:
        Archive(path).sync(client_of(earlier), accounts=EARLIER.accounts, progress=False)
    Archive(path).compact()
    Archive(path).sync(client_of(relayer), accounts=LATER.accounts, progress=False)


def content(path: Path) -> tuple[Any, ...]:
    """Read everything that users see: rows with their members as received, trades, report."""
    archive = Archive(path)
    rows = archive._folder.read("trades").drop_columns(["retrieved_at", "version"])
    report = archive.report().drop(columns="synced_at")
    trades = archive.trades()
    return sorted(map(str, rows.to_pylist())), trades.astype(str).to_csv(), report.to_csv(), trades.attrs


def kind_of(name: Path) -> str:
    return (
        name.name if len(name.parts) == 1 else f"{'log' if '_delta_log' in name.parts else 'data'} of {name.parts[0]}"
    )


def flip_bits(base: Path, flips: int, seed: int, client: Client | None = None) -> Tally:
    """Flip one bit at a time in a copy; AssertionError where wrong values come out or good ones are lost.

    With a client each copy is repaired, too. Every second bit is in a file drawn without regard to its size,
    so that small files get their share.
    """
    dice, work = random.Random(seed), base.with_name(f"{base.name} work")
    files = sorted(file.relative_to(base) for file in base.rglob("*") if file.is_file())
    sizes = [(base / file).stat().st_size for file in files]
    good = content(base)
    read, found, repaired = Counter[tuple[str, str]](), 0, 0
    for number in range(flips):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        file = dice.choice(files) if number % 2 else dice.choices(files, sizes)[0]
        place = flip(work / file, dice)
        where = f"bit {place} of {file}"
        try:
            assert content(work) == good, f"{where}: wrong values"
            read[kind_of(file), "as before"] += 1
        except LabError as error:
            read[kind_of(file), type(error).__name__] += 1
        report = Archive(work).verify()
        assert file.as_posix() in set(report["file"]), f"{where}: not found"
        found += 1
        if client:
            Archive(work).repair(client, progress=False)
            assert Archive(work).verify().empty, f"{where}: repaired, and damaged"
            assert content(work) == good, f"{where}: values lost"
            others = [other for other in files if other.match("trades/*/*.parquet") and other != file]
            assert all((work / one).read_bytes() == (base / one).read_bytes() for one in others)
            repaired += 1
    shutil.rmtree(work)
    return Tally(read, found, repaired)


def flip(file: Path, dice: random.Random) -> int:
    body = bytearray(file.read_bytes())
    place = dice.randrange(8 * len(body))
    body[place // 8] ^= 1 << place % 8
    file.write_bytes(body)
    return place
