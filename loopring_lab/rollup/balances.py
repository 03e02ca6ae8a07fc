"""Balances over blocks: one account's, what a pool keeps of each fill, and pools' balances recomputed.

Pools' balances are summed exactly as limbs: three of 32 bits and one with the rest and the sign, in int64
each, so that two to the thirty additions fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, as_series, combined, scale_what_fits
from loopring_lab.query import parse_account_id
from loopring_lab.tables.listings import TEXT, check_frame

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

LIMBS, BITS = 4, 32
CHANGES = {
    "spot_trade": (
        ("account_a", "sell_a", "fill_a", -1), ("account_a", "buy_a", "fill_b", 1),
        ("account_a", "fee_token_a", "fee_a", -1), ("account_b", "sell_b", "fill_b", -1),
        ("account_b", "buy_b", "fill_a", 1), ("account_b", "fee_token_b", "fee_b", -1),
    ),
    "transfer": (
        ("sender", "token", "amount", -1), ("sender", "fee_token", "fee", -1),
        ("receiver", "to_token", "amount", 1),
    ),
    "deposit": (("account", "token", "amount", 1),),
    "withdrawal": (("account", "token", "amount", -1), ("account", "fee_token", "fee", -1)),
    "account_update": (("account", "fee_token", "fee", -1),),
    "nft_mint": (("minter", "fee_token", "fee", -1), ("receiver", "to_token", "amount", 1)),
}  # fmt: skip
"""Of each type of transaction whose balance changes: account, token, amount, and whether it is added."""
STATED = "amm_update"
Place = tuple[int, int, str, int]
_FILLS = ("token_in_id", "amount_in", "token_out_id", "amount_out", "balance_in", "balance_out", "kept")
_TOKEN_OF = {
    **dict.fromkeys(("amount", "balance", "change", "published", "recomputed"), "token_id"),
    **dict.fromkeys(("amount_in", "balance_in", "kept"), "token_in_id"),
    **dict.fromkeys(("amount_out", "balance_out"), "token_out_id"),
    "fee": "fee_token_id",
    "fill_a": "sell_a", "fill_b": "sell_b", "fee_a": "fee_token_a", "fee_b": "fee_token_b",
}  # fmt: skip


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


def _finished(frame: pd.DataFrame, blocks: Blocks, account_id: int, tokens: pd.DataFrame | None) -> pd.DataFrame:
    frame = blocks._finished(frame, tokens)
    frame.attrs["account_id"] = account_id
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
    yield from zip(*(rows[column].to_pylist() for column in ("block", "index_in_block", token, amount)), strict=True)


def with_units(frame: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """Add symbols after token ids and units after amounts."""
    check_frame("tokens", tokens, {"token_id", "decimals"})
    listed = pd.Index(tokens["token_id"])
    decimals = np.append(tokens["decimals"].fillna(-1).to_numpy(np.int64), -1)
    symbols = pd.CategoricalDtype(pd.Index(tokens.index, dtype=TEXT))
    found: dict[str, Any] = {}
    for name, column in frame.items():
        found[str(name)] = column
        if name in _TOKEN_OF.values():
            codes = listed.get_indexer(column.to_numpy(np.int64))
            label = str(name).removesuffix("_id") if str(name).endswith("_id") else f"{name}_symbol"
            found[label] = pd.Categorical.from_codes(codes, dtype=symbols)
        elif name in _TOKEN_OF and _TOKEN_OF[str(name)] in frame:
            codes = listed.get_indexer(frame[_TOKEN_OF[str(name)]].to_numpy(np.int64))
            found[f"{name}_units"] = _units(column, decimals[codes], str(name))
    return pd.DataFrame(found, copy=False)


def _units(column: pd.Series, decimals: np.ndarray, name: str) -> pd.Series:
    """Convert smallest units; null where the token is not listed, or where its decimals do not fit."""
    numbers, to = pa.array(column.array).cast(WHOLE), AMOUNT.pyarrow_dtype
    return as_series(scale_what_fits(combined(numbers), decimals, to, name)[0])


class Statement(NamedTuple):
    """A balance that an AMM update states, and the one recomputed; None where nothing stated one before."""

    block: int
    index_in_block: int
    account: int
    token: int
    found: int
    expected: int | None


class PoolBalances:
    """The balances that AMM updates have stated so far, with the changes since then."""

    def __init__(self) -> None:
        self._keys, self._balances = np.empty(0, np.int64), np.empty((0, LIMBS), np.int64)

    def add(self, blocks: Blocks, runs: np.ndarray, resumes: bool) -> tuple[int, list[Statement]]:
        """Add blocks in order; return how many balances agree, and the statements that do not, or begin.

        `runs` numbers the blocks' unbroken sequences; `resumes` says whether the first goes on from before.
        """
        if not resumes:
            self._keys, self._balances = self._keys[:0], self._balances[:0]
        updates = blocks.table("amm_update")
        stated = _key(updates, "account", "token")
        known = np.union1d(self._keys, stated)
        first = np.full(len(self._keys), -1, np.int64)
        parts = [(self._keys, first, np.zeros(len(first), np.int64), self._balances)]
        parts += [(stated, _place(updates), runs[_integers(updates, "block")], _limbs(updates["balance"]))]
        parts += [(key, place, runs[place >> BITS], limbs) for key, place, limbs in _changes(blocks, known)]
        key, place, run, limbs = (np.concatenate(column) for column in zip(*parts, strict=True))
        states = np.arange(len(key)) < len(self._keys) + len(stated)
        order = np.lexsort((place, key))  # runs follow each other: their order is that of places
        last = int(runs[-1])
        return self._walk(last, key[order], place[order], run[order], limbs[order], states[order])

    def _walk(
        self,
        last_run: int,
        key: np.ndarray,
        place: np.ndarray,
        run: np.ndarray,
        limbs: np.ndarray,
        states: np.ndarray,
    ) -> tuple[int, list[Statement]]:
        """Compare each statement with the one before it, and keep the last of each pool and token."""
        sums = np.cumsum(np.where(states[:, None], 0, limbs), axis=0)
        at = np.flatnonzero(states)
        group = np.cumsum(np.diff(key, prepend=-1).astype(bool) | np.diff(run, prepend=-1).astype(bool))
        follows = np.diff(group[at], prepend=-1) == 0
        before = at[np.flatnonzero(follows) - 1]
        after = at[follows]
        expected = np.zeros((len(at), LIMBS), np.int64)
        expected[follows] = _carried(limbs[before] + sums[after] - sums[before])
        right = follows & (expected == limbs[at]).all(axis=1)
        named = np.flatnonzero(~right & (place[at] >= 0))
        last = at[np.diff(group[at], append=-1) != 0]
        last = last[run[last] == last_run]
        ends = np.searchsorted(group, group[last], "right") - 1
        self._keys, self._balances = key[last], _carried(limbs[last] + sums[ends] - sums[last])
        statements = []
        for one in named.tolist():
            block, index = divmod(int(place[at[one]]), 1 << BITS)
            account, token = divmod(int(key[at[one]]), 1 << 16)
            expects = _integer(expected[one]) if follows[one] else None
            found = _integer(limbs[at[one]])
            statements.append(Statement(block, index, account, token, found, expects))
        return int(right.sum()), statements


def _changes(blocks: Blocks, known: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield key, place and amount of every change of known pools and tokens."""
    for kind, changes in CHANGES.items():
        table = blocks.table(kind)
        for account, token, amount, sign in changes if len(known) else ():
            key = _key(table, account, token)
            near = np.minimum(np.searchsorted(known, key), len(known) - 1)
            rows = np.flatnonzero(known[near] == key)
            if len(rows):
                part = table.select(["block", "index_in_block", amount]).take(pa.array(rows))
                yield key[rows], _place(part), sign * _limbs(part[amount])


def _integers(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].to_numpy().astype(np.int64))


def _key(table: pa.Table, account: str, token: str) -> np.ndarray:
    return np.asarray(_integers(table, account) << 16 | _integers(table, token))


def _place(table: pa.Table) -> np.ndarray:
    return np.asarray(_integers(table, "block") << BITS | _integers(table, "index_in_block"))


def _limbs(column: pa.ChunkedArray) -> np.ndarray:
    """Return 128-bit amounts as limbs."""
    array = column.combine_chunks()
    if not len(array):
        return np.empty((0, LIMBS), np.int64)
    words = np.frombuffer(array.buffers()[1], "<u4").reshape(-1, LIMBS)
    return np.asarray(words[array.offset : array.offset + len(array)].astype(np.int64))


def _carried(limbs: np.ndarray) -> np.ndarray:
    """Return the same numbers with every limb but the last within its 32 bits."""
    limbs = limbs.copy()
    for place in range(LIMBS - 1):
        limbs[:, place + 1] += limbs[:, place] >> BITS
        limbs[:, place] &= (1 << BITS) - 1
    return limbs


def _integer(limbs: np.ndarray) -> int:
    return sum(limb << BITS * place for place, limb in enumerate(limbs.tolist()))
