"""What an archive remembers beside trades: listings, and what the relayer counted at each sync."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.disk import LISTINGS, SYNCS, TRADES, Disk
from loopring_lab.archive.merge import persistently
from loopring_lab.archive.shape import SCHEMAS
from loopring_lab.archive.stored import Listed
from loopring_lab.errors import ArchiveError

__all__ = ["Count", "counts", "held", "keep_counts", "keep_listing", "listings", "now"]

History = tuple[int, str]
MOMENTS = ("synced_at", "since")


class Count(NamedTuple):
    """What the relayer counted of one history, and what was held then.

    Parameters
    ----------
    account_id, fill_type : int, str
        Which history.
    synced_at : int
        When, milliseconds.
    total : int
        Rows that the relayer counted.
    gone : int or None
        How many more were held when nothing was missing; None where something was.
    requests : int
        Pages asked for.
    since : int or None
        The moment from which on trades were asked for.
    """

    account_id: int
    fill_type: str
    synced_at: int
    total: int
    gone: int | None
    requests: int = 0
    since: int | None = None


def now() -> int:
    """Tell the time.

    Returns
    -------
    int
        Milliseconds since 1970.
    """
    return time.time_ns() // 1_000_000


def held(disk: Disk, history: History) -> set[int]:
    """Hash the identities that are held of a history, as `paging.Course` does.

    Parameters
    ----------
    disk : Disk
        Of the archive.
    history : (int, str)
        Account and fill type asked for.

    Returns
    -------
    set of int
        One for each trade, whatever its versions.
    """
    where = (pc.field("asked") == history[1]) & (pc.field("version") == 1)
    rows = disk.read(TRADES, ["trade_id", "side", "order_hash"], where, [history[0]])
    return set(map(hash, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def keep_listing(disk: Disk, listed: Listed) -> None:
    """Store a listing unless the same is there.

    Parameters
    ----------
    disk : Disk
        Of the archive, begun.
    listed : Listed
        Tokens and markets.

    Raises
    ------
    ArchiveError
        The archive holds made-up trades and these are real, or the other way round.
    """

    def attempt() -> None:
        table = disk.table(LISTINGS)
        known = listings(disk)
        for one in known.values():
            _kindred(disk, one, listed)
        if listed.name not in known:
            moment = pa.scalar(listed.moment, pa.timestamp("ms", "UTC"))
            row = [listed.name, listed.tokens, listed.markets, listed.source, listed.synthetic, moment]
            columns = dict(zip(SCHEMAS[LISTINGS].names, ([value] for value in row), strict=True))
            disk.append(LISTINGS, pa.table(columns), table, [listed.name])

    persistently(attempt)


def listings(disk: Disk) -> dict[str, Listed]:
    """Read every listing.

    Parameters
    ----------
    disk : Disk
        Of the archive.

    Returns
    -------
    dict of str to Listed
        By name, in the order in which they came.
    """
    rows = disk.read(LISTINGS).sort_by("retrieved_at")
    moments = rows["retrieved_at"].cast(pa.int64()).to_pylist()
    found = {}
    for row, moment in zip(rows.to_pylist(), moments, strict=True):
        listed = Listed(row["tokens"], row["markets"], row["source"], row["synthetic"], moment // 1000)
        found[row["listing"]] = listed
    return found


def keep_counts(disk: Disk, fresh: Iterable[Count]) -> None:
    """Store what the relayer counted.

    Parameters
    ----------
    disk : Disk
        Of the archive, begun.
    fresh : iterable of Count
        For each history that was read.
    """
    rows = [one._asdict() for one in fresh]
    if rows:
        columns = {name: [row[name] for row in rows] for name in SCHEMAS[SYNCS].names}
        whole = {name: pa.array(columns[name], pa.int64()) for name in columns if name != "fill_type"}
        table = pa.table({name: whole.get(name, columns[name]) for name in columns})
        for name in MOMENTS:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.timestamp("ms", "UTC")))
        persistently(lambda: disk.append(SYNCS, table))


def counts(disk: Disk) -> dict[History, Count]:
    """Read what was counted last of each history.

    Parameters
    ----------
    disk : Disk
        Of the archive.

    Returns
    -------
    dict of (int, str) to Count
        ``gone`` is that of the last time nothing was missing, 0 before the first.
    """
    rows = disk.read(SYNCS).sort_by("synced_at")
    for name in MOMENTS:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, rows[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    found: dict[History, Count] = {}
    for row in rows.to_pylist():
        one = Count(**row)
        before = found.get((one.account_id, one.fill_type))
        gone = one.gone if one.gone is not None else before.gone if before else 0
        found[one.account_id, one.fill_type] = one._replace(gone=gone)
    return found


def _kindred(disk: Disk, held: Listed, fresh: Listed) -> None:
    """Refuse to mix made-up trades with real ones, or with those of another made-up world."""
    if held.synthetic != fresh.synthetic or (held.synthetic and held.source != fresh.source):
        raise ArchiveError(
            f"{disk.path}: holds trades from {held.source}, and these are from {fresh.source}. Made-up "
            "trades are not mixed with others: keep them in an archive of their own. Nothing was added."
        )
