"""Merging rows into an archive by identity: none lost, none duplicated, changes kept as versions."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.archive.folder import TRADES, ArchiveFolder
from loopring_lab.archive.records import HistoryKey, ListingSnapshot, RawPage, to_rows
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.storage.delta import retry_on_conflict
from loopring_lab.tables import wire
from loopring_lab.tables.identity import IDENTITY

KEY = ("account_id", *IDENTITY, "asked")
VERSION = ("verbatim", "version", "current", "imported")
FILL = ("account_id", "trade_id")
CHANGING = ("current", "imported")


class _Version(NamedTuple):
    """One content of an identity, with its row among those held or else among the new ones."""

    number: int
    row: int
    held: bool
    current: bool
    imported: bool


_Pair = tuple[_Version, _Version]


def merge_pages(
    folder: ArchiveFolder,
    batch: Mapping[HistoryKey, Sequence[RawPage]],
    listing: ListingSnapshot,
    imported: bool = False,
) -> dict[HistoryKey, LabError]:
    """Commit what is new on pages, all or none, and return the errors of histories that were left out."""
    parts, errors = [], dict[HistoryKey, LabError]()
    for key, pages in batch.items():
        try:
            wire.refuse_without_trades(page.batch for page in pages)
            parts.append(to_rows(key, pages, listing, imported))
        except (UnexpectedAnswer, AmountError) as error:
            errors[key] = error
    if any(map(len, parts)):
        retry_on_conflict(_merge_once, folder, pa.concat_tables(parts))
    return errors


def _merge_once(folder: ArchiveFolder, rows: pa.Table) -> None:
    table = folder.table(TRADES)
    accounts = pc.unique(rows["account_id"]).to_pylist()
    held = folder.read(TRADES, [*KEY, *VERSION], _same_ids(rows), accounts, table)
    fresh, changes = resolve_versions(rows, held)
    written = pa.concat_tables([fresh.select(KEY), changes.select(KEY)])
    claims = [f"account {account}" for account in sorted(set(written["account_id"].to_pylist()))]
    if len(changes):
        accounts = sorted(set(changes["account_id"].to_pylist()))
        again = folder.read(TRADES, None, _same_ids(changes), accounts, table)
        folder.merge(pa.concat_tables([fresh, _apply_changes(again, changes)]), table, claims)
    elif len(fresh):
        folder.append(TRADES, fresh, table, claims)


def resolve_versions(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Find the new rows, and those held that they change: the content read last is current.

    No clock decides; and what a sync has seen stays current, whatever is imported later.
    """
    recurring = _recurring(pa.concat_tables([rows.select(FILL), held.select(FILL)]))
    among_new, among_held = (pa.array(part) for part in np.split(recurring, [len(rows)]))
    fresh, changes = _resolve_recurring(rows.filter(among_new), held.filter(among_held))
    return pa.concat_tables([rows.filter(pc.invert(among_new)), fresh]), changes


def _recurring(fills: pa.Table) -> np.ndarray:
    """Return a mask of the rows whose account and id another row has too, or that have no id."""
    account, trade_id = (fills[name].fill_null(0).to_numpy() for name in FILL)
    order = np.lexsort((trade_id, account))
    same = (np.diff(account[order]) == 0) & (np.diff(trade_id[order]) == 0)
    recurring: np.ndarray = fills["trade_id"].is_null().to_numpy().copy()
    recurring[order[1:][same]] = recurring[order[:-1][same]] = True
    return recurring


def _resolve_recurring(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Find the new rows among those that may be versions of one identity, and those held that they change."""
    known: dict[tuple[Any, ...], dict[str, _Version]] = defaultdict(dict)
    marks = zip(*(held[name].to_pylist() for name in VERSION), strict=True)
    for place, (key, (text, number, current, imported)) in enumerate(
        zip(row_values(held), marks, strict=True)
    ):
        known[key][text] = _Version(number, place, True, current, imported is True)
    touched, added = set(), []
    columns = (rows["verbatim"], rows["retrieved_at"].cast(pa.int64()), rows["imported"])
    read = list(zip(row_values(rows), *(column.to_pylist() for column in columns), strict=True))
    for place, (key, text, _, imported) in enumerate(read):
        versions = known[key]
        if text not in versions:
            versions[text] = _Version(len(versions) + 1, place, False, True, imported)
            added.append(place)
        if len(versions) > 1 or versions[text].imported > imported:
            touched.add(key)
    _refuse_shared_fills(known)
    seen: dict[tuple[Any, ...], tuple[Any, set[str], bool]] = {}
    for key, text, moment, imported in read:
        if key in touched:
            again = key in seen and seen[key][0] == moment
            seen[key] = (moment, (seen[key][1] if again else set()) | {text}, imported)
    settled = [_settle(known[key], texts, imported) for key, (_, texts, imported) in seen.items()]
    return _new_rows(rows, added, settled), _changed_rows(held, settled)


def _settle(versions: dict[str, _Version], texts: set[str], imported: bool) -> list[_Pair]:
    """Return each content of an identity before and after a reading that ended with some of them."""
    keeps = imported and any(version.held and not version.imported for version in versions.values())
    pairs = []
    for text, version in versions.items():
        current = version.held and version.current if keeps else text in texts
        is_imported = version.imported and (imported or text not in texts)
        pairs.append((version, version._replace(current=current, imported=is_imported)))
    return pairs


def _new_rows(rows: pa.Table, added: Sequence[int], settled: Iterable[Sequence[_Pair]]) -> pa.Table:
    numbers, flags = np.ones(len(rows), np.int32), np.ones(len(rows), bool)
    for _, version in chain.from_iterable(settled):
        if not version.held:
            numbers[version.row], flags[version.row] = version.number, version.current
    rows = set_column(set_column(rows, "version", pa.array(numbers)), "current", pa.array(flags))
    return rows.take(pa.array(added, pa.int64()))


def _changed_rows(held: pa.Table, settled: Iterable[Sequence[_Pair]]) -> pa.Table:
    changed = [new for old, new in chain.from_iterable(settled) if old.held and old != new]
    rows = held.take(pa.array([version.row for version in changed], pa.int64()))
    for name in CHANGING:
        rows = set_column(rows, name, pa.array([getattr(version, name) for version in changed], pa.bool_()))
    return rows


def _refuse_shared_fills(known: Mapping[tuple[Any, ...], Any]) -> None:
    fills = [key[: len(KEY)] for key in known if key[1] is not None]
    tables.refuse_shared_fills(
        len(fills) - len({key[:-1] for key in fills}),
        "Its trades are not added: read them with client.trades(..., fill_type=...).",
    )


def _apply_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the rows that `changes` names, with their new marks."""
    places = {key: place for place, key in enumerate(row_values(rows, "version"))}
    rows = rows.take(pa.array([places[key] for key in row_values(changes, "version")], pa.int64()))
    for name in CHANGING:
        rows = set_column(rows, name, changes[name])
    return rows


def row_values(rows: pa.Table, *further: str) -> list[tuple[Any, ...]]:
    """Return the key of each row, and the values of further columns; without any identity, the text is it."""
    columns = [rows[name].to_pylist() for name in KEY]
    anonymous = pc.and_(*(pc.is_null(rows[name]) for name in ("trade_id", "order_hash")))
    texts = pc.if_else(pc.and_(anonymous, pc.is_null(rows["side"])), rows["verbatim"], None).to_pylist()
    return list(zip(*columns, texts, *(rows[name].to_pylist() for name in further), strict=True))


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
