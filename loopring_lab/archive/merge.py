"""Rows merged into the archive by identity: nothing lost, nothing duplicated, changes kept as versions."""

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
from loopring_lab.tables.identity import IDENTITY

KEY = ("account_id", *IDENTITY, "asked")
VERSION = ("verbatim", "retrieved_at", "version", "current")


class Merged(NamedTuple):
    """How many rows a merge added: of new identities, and further contents of known ones."""

    fresh: int = 0
    changed: int = 0


class _Version(NamedTuple):
    """One content of an identity: its row among those held, or else among the new ones."""

    moment: int
    number: int
    row: int
    held: bool
    current: bool


def merge(folder: DeltaFolder, rows: pa.Table) -> Merged:
    """Commit what is new among rows, all or none, whoever else writes at the same time."""
    return retry_on_conflict(_merge_once, folder, rows) if len(rows) else Merged()


def _merge_once(folder: DeltaFolder, rows: pa.Table) -> Merged:
    table = folder.table(TRADES)
    accounts = pc.unique(rows["account_id"]).to_pylist()
    held = folder.read(TRADES, [*KEY, *VERSION], _same_ids(rows), accounts, table)
    fresh, changes = resolve_versions(rows, held)
    if not len(fresh):
        return Merged()
    claims = [f"account {account}" for account in sorted(set(fresh["account_id"].to_pylist()))]
    if len(changes):
        accounts = sorted(set(changes["account_id"].to_pylist()))
        again = folder.read(TRADES, None, _same_ids(fresh), accounts, table)
        folder.merge(pa.concat_tables([fresh, _apply_changes(again, changes)]), table, claims)
    else:
        folder.append(TRADES, fresh, table, claims)
    first = pc.sum(pc.equal(fresh["version"], 1)).as_py()
    return Merged(first, len(fresh) - first)


def resolve_versions(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Find what is new among rows, and what it changes about those held."""
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
    """Mark the latest of several contents of an identity as current, and the others as not."""
    numbers, flags = np.ones(len(rows), np.int32), np.ones(len(rows), bool)
    turned: list[int] = []
    for versions in several:
        latest = max(version.moment for version in versions.values())
        for version in versions.values():
            current = version.moment == latest
            if not version.held:
                numbers[version.row], flags[version.row] = version.number, current
            elif current != version.current:
                turned.append(version.row)
    rows = set_column(set_column(rows, "version", pa.array(numbers)), "current", pa.array(flags))
    rows = rows.take(pa.array(added, pa.int64()))
    changes = held.take(pa.array(turned, pa.int64()))
    return rows, set_column(changes, "current", pc.invert(changes["current"]))


def _refuse_shared_fills(known: Mapping[tuple[Any, ...], Any]) -> None:
    if any(key[1] is not None for key in known):
        tables.refuse_shared_fills(
            len(known) - len({key[:-1] for key in known}),
            "Its trades are not added: read them with client.trades(..., fill_type=...).",
        )


def _apply_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the rows that `changes` names, with what it says of being current."""
    current = dict(zip(_keys(changes, "version"), changes["current"].to_pylist(), strict=True))
    keys = _keys(rows, "version")
    places = [place for place, key in enumerate(keys) if key in current]
    flags = pa.array([current[keys[place]] for place in places], pa.bool_())
    return set_column(rows.take(pa.array(places, pa.int64())), "current", flags)


def _keys(rows: pa.Table, *further: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in (*KEY, *further)), strict=True))


def _same_ids(rows: pa.Table) -> Any:
    """Select the rows that can have the identity of one of these: by account, first and last id."""
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
