"""Trades aggregated on their engine, exactly: periods, sums, groups of sums, and the columns of a summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import integers
from loopring_lab.engines import adapters, convert
from loopring_lab.errors import AmountError, LabError

SECOND = 1000
DAY = 86_400 * SECOND
FIXED = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
MONDAY = 4 * DAY


class Period(NamedTuple):
    """A length of time: `fine` milliseconds for the engine, counted from `origin`, and calendar `months`."""

    fine: int
    origin: int = 0
    months: int = 0

    @classmethod
    def of(cls, every: str) -> Period:
        """Read a length such as ``"1d"``."""
        found = re.fullmatch(r"([1-9]\d{0,3})?(s|min|h|d|w|mo|q|y)", str(every).lower())
        if not found:
            raise LabError(
                f"every={every!r} is not a period. Give a number and a unit, such as '1h', '1d', '1w' (from "
                "Monday), '1mo', '1q' or '1y'; 'min' is a minute."
            )
        number, unit = int(found[1] or 1), found[2]
        if unit in MONTHS:
            return cls(DAY, 0, number * MONTHS[unit])
        return cls(number * FIXED[unit], MONDAY if unit == "w" else 0)

    def starts(self, cells: np.ndarray) -> np.ndarray:
        """Turn the engine's cells into moments at which periods start."""
        moments = cells * self.fine + self.origin
        if not self.months:
            return moments
        months = moments.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        first = months // self.months * self.months
        return first.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)


AMOUNTS = ("size", "notional", "fee")
LEGS = ("base", "quote", "fee_token")
NEEDED = ("created_at", *LEGS, *AMOUNTS, "fee_bps")
ADDED = dict.fromkeys((*AMOUNTS, "received", "fills", "charged", "zero"), "sum") | {
    "first": "min",
    "last": "max",
}
SUM = pa.decimal256(76, 18)
MILLI = 1000
MOST_DIGITS = 38
MOST_WHOLE = 2.0**60
SILENT = ("polars", "spark")  # sums that do not fit come back as another number


def aggregate(frame: Any, by: Sequence[str], what: str, every: str | None = None) -> pa.Table:
    """Count and sum trades on their engine."""
    period = None if every is None else Period.of(every)
    if (engine := adapters.engine_of(frame)) == "dask":
        return pa.concat_tables(_partitions(frame, by, what, every), promote_options="permissive")
    table = adapters.open_frame(frame, list(dict.fromkeys([*NEEDED, *by])), what)
    keys = list(dict.fromkeys([*(["period"] if period else []), *by, *LEGS, "unknown", "milli_bps"]))
    with _overflow_named(engine, what):
        found = _sums(table, keys, period, engine)
    _check_sums(found, engine, what)
    return _regular(found, keys, period)


def _sums(table: Any, keys: Sequence[str], period: Period | None, engine: str) -> pa.Table:
    """Group and add up, as the engine gives it."""
    unknown = nw.col("size").is_null() | nw.col("notional").is_null() | nw.col("fee").is_null()
    milli = nw.col("fee_bps") * MILLI + 0.5
    if engine == "spark":  # its floor gives 64 bits; above them a float is whole
        milli = nw.when(milli < MOST_WHOLE).then(milli.floor()).otherwise(milli)
    else:
        milli = milli.floor()
    zero = (nw.col("fee") == 0).fill_null(False)
    fresh = [unknown.cast(nw.Int64).alias("unknown"), milli.alias("milli_bps")]
    if period:
        fresh.append(((nw.col("moment") - period.origin) // period.fine).alias("period"))
    floats = {name: f"{name} as float" for name in AMOUNTS} if engine in SILENT else {}
    sums = (
        table.with_columns(*fresh, zero.cast(nw.Int64).alias("zero"))
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
    return sums.lazy().collect("pyarrow").to_native()


def _partitions(frame: Any, by: Sequence[str], what: str, every: str | None) -> list[pa.Table]:
    """Add up each partition of a Dask frame where it lies: nothing is shuffled, and little comes back."""
    import dask

    def counted(part: pd.DataFrame) -> bytes:
        sums = aggregate(part, by, what, every)
        with pa.BufferOutputStream() as sink, pa.ipc.new_stream(sink, sums.schema) as stream:
            stream.write_table(sums)
        return bytes(sink.getvalue())  # a table itself would arrive with unaligned buffers

    parts = adapters.partitions(frame, [*NEEDED, *by], what)
    found = dask.compute(*map(dask.delayed(counted), parts))  # type: ignore[attr-defined, no-untyped-call]
    return [pa.ipc.open_stream(sums).read_all() for sums in found]


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


def _check_sums(found: pa.Table, engine: str, what: str) -> None:
    """Refuse sums that were too large for an engine which does not say so."""
    for name in AMOUNTS if engine in SILENT else ():
        largest = pc.max(pc.abs(found[f"{name} as float"])).as_py() or 0
        if largest > 0.99 * 10.0 ** (MOST_DIGITS - found[name].type.scale):
            raise _too_large(engine, what)


def _regular(found: pa.Table, keys: Sequence[str], period: Period | None) -> pa.Table:
    """Give the engine's answer the same types, whichever engine it was."""
    columns: dict[str, Any] = {}
    for name in keys:
        columns[name] = _key(found[name], name)
    for name in AMOUNTS:
        known = pc.greater(found[f"{name} known"], 0)
        columns[name] = pc.if_else(known, found[name].cast(SUM), pa.scalar(None, SUM)).combine_chunks()
    counts = {"fills": "fills", "charged": "fee known", "zero": "zero", "first": "first", "last": "last"}
    for name, given in counts.items():
        columns[name] = pc.cast(found[given], pa.int64()).combine_chunks()
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
    return adapters.flat(column, name).combine_chunks()


class Groups:
    """The groups of a cube under some keys, in the order of the keys."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self.table, self.keys = table, list(keys)
        self.ids = np.zeros(len(table), np.int64)
        for name in keys:
            ranks, count = _ranked(table[name], name)
            self.ids = np.unique(self.ids * count + ranks, return_inverse=True)[1]
        found, self.where = np.unique(self.ids, return_index=True)
        self.count = len(found)

    def key(self, name: str) -> pa.ChunkedArray:
        """Give a key's value for each group."""
        return self.table[name].take(pa.array(self.where))

    def sum(self, name: str, rows: np.ndarray | None = None) -> pa.Array:
        """Add up a column within each group; null where nothing is known or no row is chosen."""
        column = self.table[name]
        if rows is not None:
            column = pc.if_else(pa.array(rows), column, pa.scalar(None, column.type))
        empty = pa.table({"id": np.arange(self.count), "x": pa.nulls(self.count, column.type)})
        parts = pa.concat_tables([pa.table({"id": self.ids, "x": column}), empty])
        return parts.group_by("id").aggregate([("x", "sum")]).sort_by("id")["x_sum"].combine_chunks()

    def only(self, name: str) -> pa.Array:
        """Give a text column's value where all that is known of it in a group is the same, else null."""
        codes = pa.table({"id": self.ids, "x": self.table[name]})
        found = codes.group_by("id").aggregate([("x", "count_distinct"), ("x", "min")]).sort_by("id")
        nothing = pa.scalar(None, found["x_min"].type)
        return pc.if_else(pc.equal(found["x_count_distinct"], 1), found["x_min"], nothing).combine_chunks()

    def extreme(self, name: str, which: str) -> pa.Array:
        """Give the least or greatest known value of a column in each group."""
        found = pa.table({"id": self.ids, "x": self.table[name]}).group_by("id").aggregate([("x", which)])
        return found.sort_by("id")[f"x_{which}"].combine_chunks()

    def median_bps(self) -> np.ndarray:
        """Find the median of the fills' fee rates, to a thousandth of a basis point."""
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
        coded = adapters.flat(column, name).combine_chunks().dictionary_encode()
        order = pc.sort_indices(coded.dictionary).to_numpy()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise adapters.unordered(name, column.type, "grouping") from None
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order], ranks[-1] = np.arange(len(order)), len(order)
    return ranks[coded.indices.fill_null(len(order)).to_numpy()], len(ranks)


def ratio(numerators: pa.Array, denominators: pa.Array, times: int = 1) -> pa.Array:
    """Divide exact sums, each quotient correctly rounded to float64; null where there is none."""
    pairs = zip(integers(numerators), integers(denominators), strict=True)
    return pa.array([None if a is None or not b else a * times / b for a, b in pairs], pa.float64())


def amounts_of(groups: Groups) -> dict[str, pa.Array]:
    """Work out the exact sums and the ratios of each group."""
    table = groups.table
    clear = np.asarray(table["unknown"]) == 0
    token = groups.only("fee_token")
    rated = clear & table["received"].is_valid().to_numpy()
    fee = pc.if_else(token.is_valid(), groups.sum("fee", rated), pa.scalar(None, table["fee"].type))
    charged = groups.sum("charged", np.asarray(table["charged"]) > 0)
    return {
        "fills": groups.sum("fills"),
        "base": groups.only("base"),
        "volume": _in_one(groups, "base", "size"),
        "quote": groups.only("quote"),
        "notional": _in_one(groups, "quote", "notional"),
        "fee_token": token,
        "received": _in_one(groups, "fee_token", "received"),
        "fee": _in_one(groups, "fee_token", "fee"),
        "bps": ratio(fee, groups.sum("received", rated), 10_000),
        "median_bps": pa.array(groups.median_bps(), from_pandas=True),
        "zero_fee_share": pc.divide(groups.sum("zero").cast(pa.float64()), charged.cast(pa.float64())),
        "unknown": groups.sum("fills", ~clear).fill_null(0),
    }


def share_of(fills: pa.Array, whole: np.ndarray) -> pa.Array:
    """Divide counts by the count of the whole they belong to."""
    counts = fills.to_numpy()
    totals = np.zeros(int(whole.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, whole, counts)
    return pa.array(counts / totals[whole])


def answer(frame: Any, columns: Mapping[str, Any]) -> Any:
    """Give columns as a frame of the engine that asked."""
    fields, arrays = [], []
    for name, column in columns.items():
        wide = pa.types.is_decimal(column.type)
        arrays.append(adapters.cast(column, adapters.WIDE, name) if wide else column)
        counted = pa.types.is_int64(column.type) and not column.null_count
        fields.append(pa.field(name, arrays[-1].type, nullable=not counted))
    return convert.to_native(frame, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def _in_one(groups: Groups, token: str, amount: str) -> pa.Array:
    total = groups.sum(amount)
    return pc.if_else(groups.only(token).is_valid(), total, pa.scalar(None, total.type))
