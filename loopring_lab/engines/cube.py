"""Trades summed up on their engine, as finely as every later question needs, and exactly.

The engine only counts, adds up integers and compares; what follows from the sums (ratios, medians, shares)
is worked out here, once for all engines, from the small table that comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import integers
from loopring_lab.engines import kinds
from loopring_lab.engines.periods import Period
from loopring_lab.errors import AmountError, LabError

__all__ = ["Groups", "cube", "keys_of"]

AMOUNTS = ("size", "notional", "fee")
LEGS = ("base", "quote", "fee_token")
NEEDED = ("created_at", *LEGS, *AMOUNTS, "fee_bps")
SUM = pa.decimal256(76, 18)
MILLI = 1000
MOST_DIGITS = 38


def keys_of(by: str | Sequence[str] | None, what: str) -> list[str]:
    """Read ``by=``: names of columns to group by.

    Parameters
    ----------
    by : str, sequence of str or None
        As a caller gave it.
    what : str
        The function asked for, for error messages.

    Returns
    -------
    list of str
        Each once, in order.

    Raises
    ------
    LabError
        A name is an amount, the time, or twice there.
    """
    names = [by] if isinstance(by, str) else list(by or [])
    for name in names:
        if name in (*AMOUNTS, "price", "fee_bps", "created_at") or names.count(name) > 1:
            hint = (
                "Periods are asked for with every=."
                if name == "created_at"
                else "Use columns such as market."
            )
            raise LabError(f"{what}: by={by!r} cannot group by {name!r}. {hint}")
    return names


def cube(frame: Any, by: Sequence[str], what: str, every: str | None = None) -> pa.Table:
    """Count and sum trades on their engine.

    Parameters
    ----------
    frame : frame of any engine
        Trades.
    by : sequence of str
        Columns to group by.
    what : str
        The function asked for, for error messages.
    every : str, optional
        A period to group by as well.

    Returns
    -------
    pyarrow.Table
        A row for each combination of ``period`` (with `every`), `by`, ``base``, ``quote``, ``fee_token``,
        ``unknown`` (whether an amount is null) and ``milli_bps`` (``fee_bps`` to the nearest thousandth),
        with ``fills``, ``zero`` (fills of fee zero), ``first`` and ``last`` (milliseconds) and the sums of
        ``size``, ``notional``, ``fee`` and ``received`` (the gross amount that the fee is charged on),
        ``decimal256(76, 18)``.

    Raises
    ------
    LabError
        The frame is not one of trades.
    AmountError
        An amount is not exact, or a sum is too large for the engine.
    """
    period = Period.of(every) if every else None
    table = kinds.opened(frame, list(dict.fromkeys([*NEEDED, *by])), what)
    unknown = nw.col("size").is_null() | nw.col("notional").is_null() | nw.col("fee").is_null()
    milli = (nw.col("fee_bps") * MILLI + 0.5).floor()
    fresh = [unknown.cast(nw.Int64).alias("unknown"), milli.alias("milli_bps")]
    if period:
        fresh.append(((nw.col("moment") - period.origin) // period.fine).alias("period"))
    keys = list(dict.fromkeys([*(["period"] if period else []), *by, *LEGS, "unknown", "milli_bps"]))
    engine = kinds.kind(frame)
    floats = {name: f"{name} as float" for name in AMOUNTS} if engine == "polars" else {}
    sums = (
        table.with_columns(*fresh, (nw.col("fee") == 0).cast(nw.Int64).alias("zero"))
        .group_by(*keys)
        .agg(
            nw.len().alias("fills"),
            nw.col("zero").sum(),
            nw.col("moment").min().alias("first"),
            nw.col("moment").max().alias("last"),
            *(nw.col(name).sum() for name in AMOUNTS),
            *(nw.col(name).count().alias(f"{name} known") for name in AMOUNTS),
            *(nw.col(name).cast(nw.Float64).sum().alias(alias) for name, alias in floats.items()),
        )
    )
    with _overflow_named(engine, what):
        found = sums.lazy().collect("pyarrow").to_native()
    return _regular(found, keys, period, what)


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
        if keys and len(table):
            frame = table.select(list(keys)).to_pandas()
            self.ids = frame.groupby(list(keys), dropna=False, sort=True).ngroup().to_numpy()
        else:
            self.ids = np.zeros(len(table), np.int64)
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


def ratio(numerators: pa.Array, denominators: pa.Array, times: int = 1) -> pa.Array:
    """Divide exact sums, each quotient correctly rounded to float64; null where there is none."""
    pairs = zip(integers(numerators), integers(denominators), strict=True)
    return pa.array([None if a is None or not b else a * times / b for a, b in pairs], pa.float64())


@contextmanager
def _overflow_named(engine: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(error, LabError) or "overflow" not in str(error).lower():
            raise
        raise _too_large(engine, what) from None


def _too_large(engine: str, what: str) -> AmountError:
    return AmountError(
        f"{what}: a sum has more than 20 digits before the point, the most {engine} holds exactly. "
        "Group more finely, or use pandas or pyarrow, whose sums have 58."
    )


def _regular(found: pa.Table, keys: Sequence[str], period: Period | None, what: str) -> pa.Table:
    """Give the engine's answer the same types, whichever engine it was."""
    columns: dict[str, Any] = {}
    for name in keys:
        columns[name] = _key(found[name], name)
    for name in AMOUNTS:
        columns[name] = _total(found, name, what)
    for name in ("fills", "zero", "first", "last"):
        columns[name] = pc.cast(found[name], pa.int64()).combine_chunks()
    columns["zero"] = columns["zero"].fill_null(0)
    if period:
        known = columns["period"].is_valid().to_numpy(zero_copy_only=False)
        starts = period.starts(columns["period"].fill_null(0).to_numpy())
        columns["period"] = pa.array(starts, pa.timestamp("ms", "UTC"), mask=~known)
    in_base, in_quote = (pc.equal(columns["fee_token"], columns[leg]) for leg in ("base", "quote"))
    nothing = pa.scalar(None, SUM)
    columns["received"] = pc.if_else(
        in_base, columns["size"], pc.if_else(in_quote, columns["notional"], nothing)
    )
    return pa.table(columns)


def _key(column: pa.ChunkedArray, name: str) -> pa.Array:
    if name == "milli_bps":
        return column.cast(pa.float64()).combine_chunks()
    if name in ("period", "unknown"):
        return pc.cast(column, pa.int64()).combine_chunks()
    if pa.types.is_dictionary(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string()).combine_chunks()
    return column.combine_chunks()


def _total(found: pa.Table, name: str, what: str) -> pa.Array:
    """Take a sum: null where nothing was known, refused where the engine's type was too small for it."""
    column, known = found[name], pc.greater(found[f"{name} known"], 0)
    alias = f"{name} as float"
    if alias in found.column_names and len(found):
        largest = pc.max(pc.abs(found[alias])).as_py() or 0
        if largest > 0.99 * 10.0 ** (MOST_DIGITS - column.type.scale):
            raise _too_large("polars", what)
    if pc.any(pc.and_(known, column.is_null())).as_py():
        raise _too_large("spark", what)
    return pc.if_else(known, column.cast(SUM), pa.scalar(None, SUM)).combine_chunks()
