"""Rows merged into the archive on their identity: nothing lost, nothing doubled, changes kept."""

from __future__ import annotations

import functools
import operator
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.delta import TRADES, Conflict, DeltaFolder
from loopring_lab.errors import ArchiveError, UnexpectedAnswer

__all__ = ["Merged", "merge", "retry_on_conflict"]

IDENTITY = ("account_id", "trade_id", "side", "order_hash", "asked")
MARKS = ("verbatim", "retrieved_at", "version", "current")
ATTEMPTS = 50
LONGEST_PAUSE = 0.5

T = TypeVar("T")


class Merged(NamedTuple):
    """How many rows a merge added: of new identities, and further contents of known ones."""

    fresh: int = 0
    changed: int = 0


class _Version(NamedTuple):
    """One content of an identity: where it stands among the new rows, or -1 and its row among those held."""

    moment: int
    number: int
    row: int
    held: bool
    current: bool


def merge(disk: DeltaFolder, rows: pa.Table) -> Merged:
    """Commit what is new among rows, all or none, whoever else writes at the same time."""
    return retry_on_conflict(lambda: _attempt(disk, rows)) if len(rows) else Merged()


def retry_on_conflict(attempt: Callable[[], T]) -> T:
    """Try a commit again while other writers come first."""
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except Conflict:
            time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.01 * 2**number)))  # noqa: S311 - not a secret
    raise ArchiveError(
        f"Other writers of this archive came first {ATTEMPTS} times. Nothing was lost: try again when they "
        "are done."
    )


def _attempt(disk: DeltaFolder, rows: pa.Table) -> Merged:
    table = disk.table(TRADES)
    accounts = pc.unique(rows["account_id"]).to_pylist()
    held = disk.read(TRADES, [*IDENTITY, *MARKS], _near(rows), accounts, table)
    fresh, changes = settle(rows, held)
    if not len(fresh):
        return Merged()
    claims = [f"account {account}" for account in sorted(set(fresh["account_id"].to_pylist()))]
    if len(changes):
        again = disk.read(TRADES, None, _near(fresh), sorted(set(changes["account_id"].to_pylist())), table)
        disk.merge(pa.concat_tables([fresh, _with_marks(again, changes)]), table, claims)
    else:
        disk.append(TRADES, fresh, table, claims)
    first = pc.sum(pc.equal(fresh["version"], 1)).as_py()
    return Merged(first, len(fresh) - first)


def settle(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Find what is new among rows, and what it changes about those held."""
    moments = rows["retrieved_at"].cast(pa.int64()).to_numpy()
    order = np.argsort(moments, kind="stable")
    rows, moments = rows.take(pa.array(order)), moments[order]
    known: dict[tuple[Any, ...], dict[str, _Version]] = defaultdict(dict)
    marks = [held[name].to_pylist() for name in ("verbatim", "version", "current")]
    times = held["retrieved_at"].cast(pa.int64()).to_pylist()
    for place, (key, moment, text, *mark) in enumerate(zip(_keys(held), times, *marks, strict=True)):
        known[key][text] = _Version(moment, mark[0], place, True, mark[1])
    touched, added = set(), []
    for place, (key, text) in enumerate(zip(_keys(rows), rows["verbatim"].to_pylist(), strict=True)):
        versions = known[key]
        if text not in versions:
            versions[text] = _Version(int(moments[place]), len(versions) + 1, place, False, True)
            added.append(place)
            if len(versions) > 1:
                touched.add(key)
    _disjoint(known)
    return _flagged(rows, held, [known[key] for key in touched], added)


def _flagged(
    rows: pa.Table, held: pa.Table, several: Sequence[dict[str, _Version]], added: list[int]
) -> tuple[pa.Table, pa.Table]:
    """Say for identities of several contents which are current."""
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
    rows = _set(_set(rows, "version", pa.array(numbers)), "current", pa.array(flags))
    changes = held.take(pa.array(turned, pa.int64()))
    return rows.take(pa.array(added, pa.int64())), _set(changes, "current", pc.invert(changes["current"]))


def _disjoint(known: Mapping[tuple[Any, ...], Any]) -> None:
    """Refuse fills that are listed under both fill types."""
    both = len(known) - len({key[:-1] for key in known})
    if both and any(key[1] is not None for key in known):
        raise UnexpectedAnswer(
            "fillTypes",
            expected="each fill as amm or as dex",
            got=f"{both} fills as both",
            hint="This relayer does not tell fill types apart, so its trades are not added: read them with "
            "client.trades(..., fill_type=...).",
        )


def _with_marks(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Take the rows that `changes` names, with its marks."""
    wanted = dict(zip(_versions(changes), changes["current"].to_pylist(), strict=True))
    chosen = [place for place, one in enumerate(_versions(rows)) if one in wanted]
    rows = rows.take(pa.array(chosen, pa.int64()))
    return _set(rows, "current", pa.array([wanted[one] for one in _versions(rows)], pa.bool_()))


def _versions(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in (*IDENTITY, "version")), strict=True))


def _keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in IDENTITY), strict=True))


def _near(rows: pa.Table) -> Any:
    """Choose the rows that can have the identity of one of these: by account, first and last id."""
    spans = rows.group_by("account_id").aggregate([("trade_id", "min"), ("trade_id", "max")])
    number, unknown = pc.field("trade_id"), pc.field("trade_id").is_null()
    conditions = [
        (pc.field("account_id") == span["account_id"])
        & (unknown | ((number >= span["trade_id_min"]) & (number <= span["trade_id_max"])))
        if span["trade_id_min"] is not None
        else (pc.field("account_id") == span["account_id"]) & unknown
        for span in spans.to_pylist()
    ]
    return functools.reduce(operator.or_, conditions)


def _set(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)
