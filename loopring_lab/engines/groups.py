"""Groups of a cube: sums, shared values and medians for each, in the order of the keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import integers
from loopring_lab.engines import kinds
from loopring_lab.engines.cube import MILLI

__all__ = ["Groups"]


class Groups:
    """The groups of a cube under some keys, in the order of the keys.

    Parameters
    ----------
    table : pyarrow.Table
        From `cube`.
    keys : sequence of str
        Columns of it. Null is a group of its own and comes last.

    Attributes
    ----------
    ids : numpy.ndarray of int64
        The group of each row of the cube.
    where : numpy.ndarray of int64
        A row of each group.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self.table, self.keys = table, list(keys)
        self.ids = np.zeros(len(table), np.int64)
        for name in keys:
            ranks, count = _ranked(table[name], name)
            self.ids = np.unique(self.ids * count + ranks, return_inverse=True)[1]
        found, self.where = np.unique(self.ids, return_index=True)
        self.count = len(found)

    def key(self, name: str) -> pa.ChunkedArray:
        """Give a key's value for each group.

        Parameters
        ----------
        name : str
            One of the keys.

        Returns
        -------
        pyarrow.ChunkedArray
            Of the column's type.
        """
        return self.table[name].take(pa.array(self.where))

    def sum(self, name: str, rows: np.ndarray | None = None) -> pa.Array:
        """Add up a column within each group; null where nothing is known or no row is chosen.

        Parameters
        ----------
        name : str
            A column of the cube.
        rows : numpy.ndarray of bool, optional
            Which rows of the cube count.

        Returns
        -------
        pyarrow.Array
            A sum for each group: integers, or ``decimal256(76, 18)``.
        """
        column = self.table[name]
        if rows is not None:
            column = pc.if_else(pa.array(rows), column, pa.scalar(None, column.type))
        empty = pa.table({"id": np.arange(self.count), "x": pa.nulls(self.count, column.type)})
        parts = pa.concat_tables([pa.table({"id": self.ids, "x": column}), empty])
        return parts.group_by("id").aggregate([("x", "sum")]).sort_by("id")["x_sum"].combine_chunks()

    def only(self, name: str) -> pa.Array:
        """Give a text column's value where all that is known of it in a group is the same, else null.

        Parameters
        ----------
        name : str
            A column of the cube.

        Returns
        -------
        pyarrow.Array
            A text or null for each group.
        """
        codes = pa.table({"id": self.ids, "x": self.table[name]})
        found = codes.group_by("id").aggregate([("x", "count_distinct"), ("x", "min")]).sort_by("id")
        nothing = pa.scalar(None, found["x_min"].type)
        return pc.if_else(pc.equal(found["x_count_distinct"], 1), found["x_min"], nothing).combine_chunks()

    def extreme(self, name: str, which: str) -> pa.Array:
        """Give the least or greatest known value of a column in each group.

        Parameters
        ----------
        name : str
            A column of the cube.
        which : {'min', 'max'}
            Least or greatest.

        Returns
        -------
        pyarrow.Array
            A value for each group, null where none is known.
        """
        found = pa.table({"id": self.ids, "x": self.table[name]}).group_by("id").aggregate([("x", which)])
        return found.sort_by("id")[f"x_{which}"].combine_chunks()

    def median_bps(self) -> np.ndarray:
        """Find the median of the fills' fee rates, to a thousandth of a basis point.

        Returns
        -------
        numpy.ndarray of float64
            Basis points for each group; NaN where no fill's rate is known. The mean of the two middle ones
            where their number is even.
        """
        rates = self.table["milli_bps"].to_numpy()
        known = ~np.isnan(rates)
        order = np.lexsort((rates[known], self.ids[known]))
        ids, rates = self.ids[known][order], rates[known][order]
        reached = np.cumsum(self.table["fills"].to_numpy()[known][order])
        last = np.searchsorted(ids, np.arange(self.count), "right") - 1
        ends = np.where(last >= 0, reached[last], 0) if len(reached) else np.zeros(self.count, np.int64)
        before = np.concatenate([[0], ends[:-1]])
        held = ends - before
        found = np.full(self.count, np.nan)
        some = held > 0
        low = rates[np.searchsorted(reached, before[some] + (held[some] + 1) // 2)]
        high = rates[np.searchsorted(reached, before[some] + held[some] // 2 + 1)]
        found[some] = (low + high) / (2 * MILLI)
        return found


def _ranked(column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, int]:
    """Number the values of a column in their order, null last, and say how many numbers there are."""
    try:
        coded = kinds.flat(column, name).combine_chunks().dictionary_encode()
        order = pc.sort_indices(coded.dictionary).to_numpy()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise kinds.unordered(name, column.type, "grouping") from None
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order], ranks[-1] = np.arange(len(order)), len(order)
    return ranks[coded.indices.fill_null(len(order)).to_numpy()], len(ranks)


def ratio(numerators: pa.Array, denominators: pa.Array, times: int = 1) -> pa.Array:
    """Divide exact sums, each quotient correctly rounded to float64; null where there is none."""
    pairs = zip(integers(numerators), integers(denominators), strict=True)
    return pa.array([None if a is None or not b else a * times / b for a, b in pairs], pa.float64())
