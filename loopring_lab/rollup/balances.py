"""Balances of pools, recomputed: what one AMM update states, and every change until the next.

Amounts are summed exactly as limbs: three of 32 bits and one with the rest and the sign, in int64 each, so
that two to the thirty additions fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

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
    found: np.ndarray = table[name].to_numpy().astype(np.int64)
    return found


def _key(table: pa.Table, account: str, token: str) -> np.ndarray:
    key: np.ndarray = _integers(table, account) << 16 | _integers(table, token)
    return key


def _place(table: pa.Table) -> np.ndarray:
    place: np.ndarray = _integers(table, "block") << BITS | _integers(table, "index_in_block")
    return place


def _limbs(column: pa.ChunkedArray) -> np.ndarray:
    """Return 128-bit amounts as limbs."""
    array = column.combine_chunks()
    if not len(array):
        return np.empty((0, LIMBS), np.int64)
    words = np.frombuffer(array.buffers()[1], "<u4").reshape(-1, LIMBS)
    limbs: np.ndarray = words[array.offset : array.offset + len(array)].astype(np.int64)
    return limbs


def _carried(limbs: np.ndarray) -> np.ndarray:
    """Return the same numbers with every limb but the last within its 32 bits."""
    limbs = limbs.copy()
    for place in range(LIMBS - 1):
        limbs[:, place + 1] += limbs[:, place] >> BITS
        limbs[:, place] &= (1 << BITS) - 1
    return limbs


def _integer(limbs: np.ndarray) -> int:
    return sum(limb << BITS * place for place, limb in enumerate(limbs.tolist()))
