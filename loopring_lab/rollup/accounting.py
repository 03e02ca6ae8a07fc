"""One account's balances over blocks, and what a pool keeps of each of its fills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import WHOLE, as_series
from loopring_lab.query import parse_account_id
from loopring_lab.rollup.balances import CHANGES
from loopring_lab.rollup.units import with_units

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

STATED = "amm_update"
Place = tuple[int, int, str, int]
_FILLS = ("token_in_id", "amount_in", "token_out_id", "amount_out", "balance_in", "balance_out", "kept")


class Entry(NamedTuple):
    """What one transaction does to one balance of an account, or says about it, in smallest units."""

    block: int
    index_in_block: int
    kind: str
    token_id: int
    change: int | None
    published: int | None
    recomputed: int | None


def balances(blocks: Blocks, account_id: int, tokens: pd.DataFrame | None) -> pd.DataFrame:
    """Return every change of an account's balances, and every balance published, in block order."""
    columns = zip(*_entries(blocks, parse_account_id(account_id)), strict=True)
    found = dict(zip(Entry._fields, columns, strict=False)) or dict.fromkeys(Entry._fields, ())
    frame = _begin(blocks, found)
    frame["kind"] = pd.Series(found["kind"], dtype="str")
    frame["token_id"] = as_series(pa.array(found["token_id"], pa.int64()))
    for name in ("change", "published", "recomputed"):
        frame[name] = as_series(pa.array(found[name], WHOLE))
    return _finished(frame, blocks, account_id, tokens)


def pool_fills(blocks: Blocks, account_id: int, tokens: pd.DataFrame | None) -> pd.DataFrame:
    """Return a pool's fills, its balances before each, and what it kept beyond a constant product."""
    by_place: dict[tuple[int, int], list[Entry]] = {}
    for entry in _entries(blocks, parse_account_id(account_id)):
        if entry.kind == "spot_trade":
            by_place.setdefault(entry[:2], []).append(entry)
    rows = [(*place, *_kept(legs)) for place, legs in by_place.items() if len(legs) == 2]
    found = dict(zip(("block", "index_in_block", *_FILLS), zip(*rows, strict=True), strict=False))
    frame = _begin(blocks, found or {"block": (), "index_in_block": ()})
    for name in _FILLS:
        is_token = name.startswith("token")
        frame[name] = as_series(pa.array(found.get(name, ()), pa.int64() if is_token else WHOLE))
    shares = [None if row[-1] is None else 10_000 * row[-1] / (row[3] or 1) for row in rows]
    frame["kept_bps"] = pd.Series(shares, dtype="float64")
    return _finished(frame, blocks, account_id, tokens)


def _finished(
    frame: pd.DataFrame, blocks: Blocks, account_id: int, tokens: pd.DataFrame | None
) -> pd.DataFrame:
    frame = frame if tokens is None else with_units(frame, tokens)
    frame.attrs |= blocks.attrs | {"account_id": account_id}
    return frame


def _begin(blocks: Blocks, found: dict[str, Any]) -> pd.DataFrame:
    block, within = (np.array(found[name], np.int32) for name in ("block", "index_in_block"))
    return blocks._begin(block, within)


def _kept(legs: list[Entry]) -> tuple[int | None, ...]:
    """Return both legs of a pool's fill, and how much more it got than keeps the product of its balances."""
    out, into = sorted(legs, key=lambda leg: leg.change or 0)
    got, gave = into.change or 0, -(out.change or 0)
    before_in = None if into.recomputed is None else into.recomputed - got
    before_out = None if out.recomputed is None else out.recomputed + gave
    kept = None
    if before_in is not None and before_out is not None and 0 < gave < before_out:
        kept = got + -before_in * gave // (before_out - gave)  # rounded down, as the amount needed goes up
    return into.token_id, got, out.token_id, gave, before_in, before_out, kept


def _entries(blocks: Blocks, account: int) -> Iterator[Entry]:
    """Yield entries in block order, the changes of one transaction and token taken together."""
    net: dict[Place, int] = {}
    for kind, changes in CHANGES.items():
        for name, token, amount, sign in changes:
            for *key, value in _rows(blocks, kind, account, name, token, amount):
                change_at = (key[0], key[1], kind, key[2])
                net[change_at] = net.get(change_at, 0) + sign * int(value)
    told: dict[Place, int] = {(b, i, STATED, t): int(v) for b, i, t, v in _rows(blocks, STATED, account)}
    now: dict[int, int] = {}
    for place in sorted(net.keys() | told.keys()):
        token_id, change = place[3], net.get(place)
        if token_id in now:
            now[token_id] += change or 0
        if place in told or change:
            yield Entry(*place, change, told.get(place), now.get(token_id))
        if place in told:
            now[token_id] = told[place]


def _rows(
    blocks: Blocks,
    kind: str,
    account: int,
    name: str = "account",
    token: str = "token",
    amount: str = "balance",
) -> Iterator[tuple[Any, ...]]:
    """Yield block, index, token and amount of an account's transactions of a type."""
    table = blocks.table(kind)
    rows = table.filter(pc.equal(table[name], account))
    yield from zip(
        *(rows[column].to_pylist() for column in ("block", "index_in_block", token, amount)), strict=True
    )
