"""Merging rows into an archive by identity: none lost, none duplicated, changes kept as versions."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.archive.delta import TRADES, DeltaFolder, retry_on_conflict
from loopring_lab.archive.records import HistoryKey, ListingSnapshot, RawPage, to_rows
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.tables.identity import IDENTITY

KEY = ("account_id", *IDENTITY, "asked")
VERSION = ("verbatim", "retrieved_at", "version", "current")


class _Version(NamedTuple):
    """One content of an identity, with its row among those held or else among the new ones."""

    moment: int
    number: int
    row: int
    held: bool
    current: bool


def merge_pages(
    folder: DeltaFolder, batch: Mapping[HistoryKey, Sequence[RawPage]], listing: ListingSnapshot
) -> dict[HistoryKey, LabError]:
    """Commit what is new on pages, all or none, and return the errors of histories that were left out."""
    parts, errors = [], dict[HistoryKey, LabError]()
    for key, pages in batch.items():
        try:
            parts.append(to_rows(key, pages, listing))
        except (UnexpectedAnswer, AmountError) as error:
            errors[key] = error
    if any(map(len, parts)):
        retry_on_conflict(_merge_once, folder, pa.concat_tables(parts))
    return errors


def _merge_once(folder: DeltaFolder, rows: pa.Table) -> None:
    table = folder.table(TRADES)
    accounts = pc.unique(rows["account_id"]).to_pylist()
    held = folder.read(TRADES, [*KEY, *VERSION], _same_ids(rows), accounts, table)
    fresh, changes = resolve_versions(rows, held)
    if not len(fresh):
        return
    claims = [f"account {account}" for account in sorted(set(fresh["account_id"].to_pylist()))]
    if len(changes):
        accounts = sorted(set(changes["account_id"].to_pylist()))
        again = folder.read(TRADES, None, _same_ids(fresh), accounts, table)
        folder.merge(pa.concat_tables([fresh, _apply_changes(again, changes)]), table, claims)
    else:
        folder.append(TRADES, fresh, table, claims)


def resolve_versions(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Find the new rows, and those held of which they change `current`."""
    moments = rows["retrieved_at"].cast(pa.int64()).to_numpy()
    order = np.argsort(moments, kind="stable")
    rows, moments = rows.take(pa.array(order)), moments[order]
    known: dict[tuple[Any, ...], dict[str, _Version]] = defaultdict(dict)
    texts, numbers, flags = (held[name].to_pylist() for name in ("verbatim", "version", "current"))
    times = held["retrieved_at"].cast(pa.int64()).to_pylist()
    for place, key in enumerate(_keys(held)):
        known[key][texts[place]] = _Version(times[place], numbers[place], place, True, flags[place])
    changed, added = set(), []
    for place, (key, text) in enumerate(zip(_keys(rows), rows["verbatim"].to_pylist(), strict=True)):
        versions = known[key]
        if text not in versions:
            versions[text] = _Version(int(moments[place]), len(versions) + 1, place, False, True)
            added.append(place)
            if len(versions) > 1:
                changed.add(key)
    _refuse_shared_fills(known)
    return _mark_current(rows, held, [known[key] for key in changed], added)


def _mark_current(
    rows: pa.Table, held: pa.Table, several: Sequence[dict[str, _Version]], added: list[int]
) -> tuple[pa.Table, pa.Table]:
    """Mark only the latest of several contents of an identity as current."""
    numbers, flags = np.ones(len(rows), np.int32), np.ones(len(rows), bool)
    flipped: list[int] = []
    for versions in several:
        latest = max(version.moment for version in versions.values())
        for version in versions.values():
            current = version.moment == latest
            if not version.held:
                numbers[version.row], flags[version.row] = version.number, current
            elif current != version.current:
                flipped.append(version.row)
    rows = set_column(set_column(rows, "version", pa.array(numbers)), "current", pa.array(flags))
    rows = rows.take(pa.array(added, pa.int64()))
    changes = held.take(pa.array(flipped, pa.int64()))
    return rows, set_column(changes, "current", pc.invert(changes["current"]))


def _refuse_shared_fills(known: Mapping[tuple[Any, ...], Any]) -> None:
    if any(key[1] is not None for key in known):
        tables.refuse_shared_fills(
            len(known) - len({key[:-1] for key in known}),
            "Its trades are not added: read them with client.trades(..., fill_type=...).",
        )


def _apply_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the rows that `changes` names, with their new `current`."""
    current = dict(zip(_keys(changes, "version"), changes["current"].to_pylist(), strict=True))
    keys = _keys(rows, "version")
    places = [place for place, key in enumerate(keys) if key in current]
    flags = pa.array([current[keys[place]] for place in places], pa.bool_())
    return set_column(rows.take(pa.array(places, pa.int64())), "current", flags)


def _keys(rows: pa.Table, *further: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in (*KEY, *further)), strict=True))


def _same_ids(rows: pa.Table) -> Any:
    """Select the rows that may have one of these identities, by account and range of ids."""
    spans = rows.group_by("account_id").aggregate([("trade_id", "min"), ("trade_id", "max")])
    names = ("account_id", "trade_id_min", "trade_id_max")
    trade_id, unknown = pc.field("trade_id"), pc.field("trade_id").is_null()
    conditions = []
    for account_id, first, last in zip(*(spans[name].to_pylist() for name in names), strict=True):
        between = unknown if first is None else unknown | ((trade_id >= first) & (trade_id <= last))
        conditions.append((pc.field("account_id") == account_id) & between)
    return functools.reduce(operator.or_, conditions)


def set_column(rows: pa.Table, name: str, column: Any) -> pa.Table:
    """Replace a column of a table."""
    return rows.set_column(rows.schema.get_field_index(name), name, column)
