"""Exact sums of trades: periods, partial sums made by the engine, and the groups of a summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loopring_lab.amounts import limbs
from loopring_lab.amounts.scaling import combined
from loopring_lab.engines import adapters, convert, workers
from loopring_lab.engines.pairs import Sides, codes_of, counted, note_on_both_sides, row_groups, sides_of
from loopring_lab.errors import AmountError, LabError
from loopring_lab.tables.identity import SIDES

SECOND = 1000
DAY = 86_400 * SECOND
UNITS = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
FIRST_MONDAY = 4 * DAY  # 1970 began on a Thursday

TOKEN_OF = {"size": "base", "notional": "quote", "fee": "fee_token"}
SUMMED, TOKENS = tuple(TOKEN_OF), tuple(TOKEN_OF.values())
COLUMNS = ("created_at", *TOKENS, *SUMMED, "fee_bps")
SUM = pa.decimal256(76, 18)
PAIRED_BY = ("trade_id", "side")
KEY_TYPES = {"milli_bps": pa.float64(), "period": pa.int64(), "unknown": pa.int64()}
MILLI_BPS = 1000  # per basis point: rates are counted in thousandths
WHOLE_FROM = 2.0**60  # a float this large has no fractional part
MOST_QUANTILES = 1000
IN_MEMORY = ("pandas", "pyarrow")
WRAPPING = ("polars", "spark")
"""Engines whose sums overflow without an error."""


class Period(NamedTuple):
    """A length of time: bins of `step` milliseconds counted from `origin`, or calendar `months` of days."""

    step: int
    origin: int = 0
    months: int = 0

    @classmethod
    def parse(cls, every: str) -> Period:
        match = re.fullmatch(r"([1-9]\d{0,3})?(s|min|h|d|w|mo|q|y)", str(every).lower())
        if not match:
            raise LabError(
                f"every={every!r} is not a period. Give a number and a unit, such as '1h', '1d', '1w' (from "
                "Monday), '1mo', '1q' or '1y'; 'min' is a minute."
            )
        count, unit = int(match[1] or 1), match[2]
        if unit in MONTHS:
            return cls(DAY, 0, count * MONTHS[unit])
        return cls(count * UNITS[unit], FIRST_MONDAY if unit == "w" else 0)

    def bins(self, times: Any) -> Any:
        """Number the bin of each time in milliseconds; takes an array or an engine's expression."""
        return (times - self.origin) // self.step

    def numbers(self, moments: pa.ChunkedArray) -> pa.Array:
        """Number the bins of a column of times; null stays null."""
        return pa.array(self.bins(moments.fill_null(0).to_numpy()), mask=np.asarray(moments.is_null()))

    def starts(self, bins: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return when the periods of bins start; null stays null."""
        times = bins.fill_null(0).to_numpy() * self.step + self.origin
        if self.months:
            months = times.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
            first = months // self.months * self.months
            times = first.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
        return pa.array(times, adapters.TIMESTAMP, mask=np.asarray(bins.is_null()))


def aggregate(
    trades: Any,
    by: Sequence[str],
    caller: str,
    every: str | None = None,
    *,
    amounts: Sequence[str] = SUMMED,
    rates: bool = True,
    paired: PairedFills | None = None,
) -> pa.Table:
    """Add up amounts on the engine of trades: by period, `by` and tokens, with the `rates` of the fills.

    Where that reads all rows, `paired` counts both sides of them at the same time.
    """
    period = None if every is None else Period.parse(every)
    engine = adapters.engine_of(trades)
    if engine == "dask":
        parts = _partition_sums(trades, by, caller, every, amounts, rates)
        return pa.concat_tables(parts, promote_options="permissive")
    tokens = [TOKEN_OF[name] for name in amounts]
    keys = list(dict.fromkeys([*with_period(by, every), *tokens, "unknown"]))
    columns = list(dict.fromkeys(["created_at", *tokens, *amounts, "fee_bps", *by]))
    if engine in IN_MEMORY:
        rows = convert.to_table(trades, caller, [*columns, *(paired.columns if paired else ())])
        return _uniform(_sums_in_memory(rows, keys, period, rates, paired), keys, period)
    table = adapters.open_frame(trades, columns, caller)
    keys += ["milli_bps"][:rates]
    try:
        sums = _engine_sums(table, keys, period, engine, amounts)
    except Exception as error:  # each engine has its own for an overflow
        if isinstance(error, LabError) or "overflow" not in str(error).lower():
            raise
        raise _overflow(engine, caller) from None
    if engine in WRAPPING and _may_have_wrapped(sums, amounts):
        raise _overflow(engine, caller)
    return _uniform(sums, keys, period)


def with_period(by: Sequence[str], every: str | None) -> list[str]:
    """Put ``period`` in front of the keys where sums are per period."""
    return [*by] if every is None else ["period", *by]


class GroupBy:
    """Rows of partial sums grouped by keys, in the order of the keys' values, or of their categories."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self.table, self.keys = table, list(dict.fromkeys(keys))
        self.ids: NDArray[np.int64]
        self.ids, self.first_rows = row_groups(table, self.keys, ranks)
        self.count = len(self.first_rows)

    def key_columns(self) -> dict[str, Any]:
        """Return the value of each key in each group."""
        rows = self.table.select(self.keys).take(pa.array(self.first_rows))
        return {name: adapters.decode(rows[name], name) for name in self.keys}

    def combinations(self) -> pa.Table:
        """Return the keys of each group as a table, which has a row for each even without keys."""
        return pa.table(self.key_columns() | {" row": np.arange(self.count)})

    def complete(self) -> np.ndarray:
        """Return a mask of the rows whose amounts are all known."""
        return equal(self.table["unknown"], 0)

    def sum(self, name: str, rows: np.ndarray | None = None) -> pa.Array:
        """Add up amounts or counts, or those of `rows`, in each group; null where nothing is known."""
        column, ids = self.table[name], self.ids
        if rows is not None:
            column, ids = column.filter(pa.array(rows)), ids[rows]
        return totals(column, ids, self.count)[0]

    def aggregate(self, name: str, how: Literal["min", "max"]) -> pa.Array:
        """Return the least or largest value of each group; null where nothing is known."""
        column, limits = self.table[name], np.iinfo(np.int64)
        if pa.types.is_decimal(column.type):
            groups = pa.table({"id": self.ids, "x": column}).group_by("id").aggregate([("x", how)])
            return groups.sort_by("id")[f"x_{how}"].combine_chunks()
        of, missing = (np.minimum, limits.max) if how == "min" else (np.maximum, limits.min)
        found = np.full(self.count, missing)
        of.at(found, self.ids, column.fill_null(missing).to_numpy())
        return pa.array(found, column.type, mask=found == missing)

    def only_value(self, name: str) -> pa.Array:
        """Return the value that all known ones of a group share, else null."""
        if name in self.keys:
            return self.table[name].take(pa.array(self.first_rows)).combine_chunks()
        coded = combined(adapters.decode(self.table[name], name)).dictionary_encode()
        codes, found = coded.indices.fill_null(-1).to_numpy(), np.full(self.count, -1)
        known = np.flatnonzero(codes >= 0)
        found[self.ids[known]] = codes[known]
        found[self.ids[known[codes[known] != found[self.ids[known]]]]] = -1
        return coded.dictionary.take(pa.array(found, mask=found < 0))

    def median_bps(self) -> pa.Array:
        """Return the median fee rate of each group's fills, to a thousandth of a basis point."""
        lists = [combined(self.table[name]) for name in ("milli_bps", "rated")]
        rates, counts = (numbers.flatten().to_numpy(zero_copy_only=False) for numbers in lists)
        ids = np.repeat(self.ids, lists[0].value_lengths())
        known = np.flatnonzero(~np.isnan(rates))
        distinct, ranked = np.unique(rates[known], return_inverse=True)
        known = known[np.argsort(ids[known] * len(distinct) + ranked)]
        rates, counts = rates[known], counts[known]
        last_ranks = np.cumsum(counts)
        fills = np.zeros(self.count, np.int64)
        np.add.at(fills, ids[known], counts)
        before, rated = np.cumsum(fills) - fills, fills > 0
        lower = rates[np.searchsorted(last_ranks, (before + (fills + 1) // 2)[rated])]
        upper = rates[np.searchsorted(last_ranks, (before + fills // 2 + 1)[rated])]
        medians = np.full(self.count, np.nan)
        medians[rated] = (lower + upper) / (2 * MILLI_BPS)
        return pa.array(medians, from_pandas=True)


class Groups:
    """Combinations of keys in parts of rows, numbered in the order in which they are first seen."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = [*dict.fromkeys(keys)]
        self._known: pa.Table | None = None

    def __len__(self) -> int:
        return 0 if self._known is None else len(self._known)

    def numbers(self, rows: pa.Table) -> np.ndarray:
        """Number the groups of rows."""
        part = GroupBy(rows, self.keys)
        return self.add(part.combinations())[part.ids]

    def add(self, combinations: pa.Table) -> np.ndarray:
        """Number combinations, of which each is there once."""
        if self._known is None:
            self._known = combinations
            return np.arange(len(combinations))
        count, both = len(self), pa.concat_tables([self._known, combinations], promote_options="permissive")
        groups = GroupBy(both, self.keys)
        added = np.sort(groups.first_rows[groups.first_rows >= count])
        later = count + np.searchsorted(added, groups.first_rows)
        numbers = np.where(groups.first_rows < count, groups.first_rows, later)
        self._known = pa.concat_tables([both.slice(0, count), both.take(pa.array(added))])
        return np.asarray(numbers[groups.ids[count:]])

    def ordered(self, keys: Sequence[str] | None = None) -> GroupBy:
        """Group these combinations by keys, all of them by default, in the order of their values."""
        if self._known is None:
            raise RuntimeError("no rows were added")
        return GroupBy(self._known, self.keys if keys is None else keys)


def summary_columns(groups: GroupBy) -> dict[str, pa.Array]:
    """Compute the exact sums and the ratios that every summary has; the median where there are rates."""
    table, complete = groups.table, groups.complete()
    base, quote, fee_token = (groups.only_value(name) for name in TOKENS)
    rated = complete & table["received"].is_valid().to_numpy()
    charged = groups.sum("charged", table["charged"].to_numpy() > 0)

    def in_one(token: pa.Array, amounts: pa.Array) -> pa.Array:
        return pc.if_else(token.is_valid(), amounts, pa.scalar(None, SUM))

    return {
        "fills": groups.sum("fills"),
        "base": base,
        "volume": in_one(base, groups.sum("size")),
        "quote": quote,
        "notional": in_one(quote, groups.sum("notional")),
        "fee_token": fee_token,
        "received": in_one(fee_token, groups.sum("received")),
        "fee": in_one(fee_token, groups.sum("fee")),
        "bps": ratio(in_one(fee_token, groups.sum("fee", rated)), groups.sum("received", rated), 10_000),
        **({"median_bps": groups.median_bps()} if "milli_bps" in table.column_names else {}),
        "zero_fee_share": pc.divide(groups.sum("zero").cast(pa.float64()), charged.cast(pa.float64())),
        "unknown": groups.sum("fills", ~complete).fill_null(0),
    }


def ratio(numerators: pa.Array, denominators: pa.Array, times: int = 1) -> pa.Array:
    """Divide exact sums, each quotient correctly rounded to float64; null where it is not defined."""
    return pa.array(limbs.ratios(numerators, denominators, times), from_pandas=True)


def totals(column: pa.ChunkedArray, ids: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
    """Add up amounts or counts in groups, null where nothing is known, and count what is known."""
    if column.null_count:
        known = column.is_valid()
        column, ids = column.filter(known), ids[known.to_numpy()]
    counts = np.bincount(ids, minlength=count)
    if pa.types.is_decimal(column.type):
        return limbs.totals(combined(column), ids, counts > 0), counts
    sums = np.bincount(ids, column.to_numpy(), count).astype(np.int64)
    return pa.array(sums, mask=counts == 0), counts


def equal(left: pa.ChunkedArray, right: Any) -> np.ndarray:
    """Return a mask of the rows where values are equal; null equals nothing."""
    return np.asarray(pc.fill_null(pc.equal(left, right), False))


def shares(fills: pa.Array, outer: np.ndarray) -> pa.Array:
    """Divide counts by the total of the outer group that each belongs to."""
    counts = fills.to_numpy()
    totals = np.zeros(int(outer.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, outer, counts)
    return pa.array(counts / totals[outer])


def check_quantiles(count: Any, caller: str) -> None:
    """Raise a `LabError` unless the number of quantiles is a whole number from 1 to `MOST_QUANTILES`."""
    if type(count) is not int or not 1 <= count <= MOST_QUANTILES:
        raise LabError(
            f"{caller}: quantiles={count!r} is not valid. Give a whole number from 1 to {MOST_QUANTILES}."
        )


class PairedFills:
    """The fills of which a frame holds both sides: rows of one trade id, a BUY and a SELL."""

    def __init__(self, trades: Any, caller: str) -> None:
        self._trades, self._caller = trades, caller
        self._sides = Sides()
        self.count_sides: Callable[[np.ndarray, int], tuple[int, np.ndarray]] | None = None
        self._places = 0
        self._known = set(PAIRED_BY) <= set(convert.column_names(trades))
        self.columns = PAIRED_BY if self._known else ()  # to read, where results are made row by row

    def summary(
        self,
        groups: GroupBy,
        columns: Mapping[str, Any],
        every: str | None = None,
        around: GroupBy | None = None,
    ) -> Any:
        """Build a result that counts fills, with ``both_sides`` and, in pandas, the note.

        With wider groups `around`, both sides are counted in these.
        """
        return self.result({**columns, "both_sides": self.count(groups, every, around)})

    def result(self, columns: Mapping[str, Any]) -> Any:
        """Build a result whose fills are counted, with the note in pandas."""
        result = result_frame(self._trades, columns)
        return convert.with_note(result, self.note) if isinstance(result, pd.DataFrame) else result

    def count(self, groups: GroupBy, every: str | None = None, around: GroupBy | None = None) -> pa.Array:
        """Count, in each group, the fills of which it, or a wider one `around`, holds both sides.

        Null where trades do not say.
        """
        if around is None:
            return self._count(groups, every)
        return self._count(around, every).take(pa.array(around.ids[groups.first_rows]))

    def add(self, trades: np.ndarray, sides: np.ndarray, places: np.ndarray) -> None:
        """Note the sides of rows, so that they are not read again: each is part of a row that is grouped."""
        self._sides.add(trades, sides, places)
        self.count_sides = self._sides.count
        self._places = max(self._places, int(places.max(initial=-1)) + 1)

    @property
    def note(self) -> str:
        """Say of how many fills both sides are counted; empty where of none."""
        return note_on_both_sides(self._total)

    def _count(self, groups: GroupBy, every: str | None) -> pa.Array:
        if not self._known:
            return pa.nulls(groups.count, pa.int64())
        if self.count_sides:
            self._total, counts = self.count_sides(groups.ids, groups.count)
            return pa.array(counts)
        if "side" in groups.keys:
            return pa.array(np.zeros(groups.count, np.int64))
        period = None if every is None else Period.parse(every)
        if adapters.engine_of(self._trades) == "spark":
            found = self._on_spark(groups.keys, period)
            counts = np.bincount(_places(groups, [found]), found["fills"].to_numpy(), groups.count)
            return pa.array(counts.astype(np.int64))
        sides, parts = self._read(groups.keys, period)
        self._total, counts = sides.count(_places(groups, parts), groups.count)
        return pa.array(counts)

    @cached_property
    def _total(self) -> int:
        if not self._known:
            return 0
        if self.count_sides:
            return self.count_sides(np.zeros(self._places, np.int64), 1)[0]
        if adapters.engine_of(self._trades) == "spark":
            return int(pc.sum(self._on_spark([], None)["fills"]).as_py() or 0)
        sides, parts = self._read([], None)
        return sides.count(np.zeros(len(parts), np.int64), 1)[0]

    def _read(self, keys: Sequence[str], period: Period | None) -> tuple[Sides, list[pa.Table]]:
        """Read all rows in batches, and the combinations of keys in each, which groups are numbered by."""
        sides, parts, count = Sides(), list[pa.Table](), 0
        for batch in convert.batches(self._trades, self._needed(keys, period), self._caller):
            rows = batch.append_column("period", period.numbers(batch["moment"])) if period else batch
            groups, first = row_groups(rows, keys)
            sides.add(*sides_of(rows), groups + count)
            found = _key_columns(rows.take(pa.array(first)), keys, period)
            parts.append(pa.table(found | {"fills": np.zeros(len(first), np.int64)}))
            count += len(first)
        return sides, parts

    def _on_spark(self, keys: Sequence[str], period: Period | None) -> pa.Table:
        rows = adapters.open_frame(self._trades, self._needed(keys, period), self._caller)
        if period:
            rows = rows.with_columns(period.bins(nw.col("moment")).alias("period"))
        found = _both_sides(rows, keys)
        return pa.table(_key_columns(found, keys, period) | {"fills": found["fills"].cast(pa.int64())})

    def _needed(self, keys: Sequence[str], period: Period | None) -> list[str]:
        names = ["created_at" if period and key == "period" else key for key in (*PAIRED_BY, *keys)]
        return list(dict.fromkeys(names))


def _places(groups: GroupBy, parts: Sequence[pa.Table]) -> np.ndarray:
    """Return the group of each row of tables that have its keys."""
    known = pa.table(groups.key_columns() | {"fills": np.zeros(groups.count, np.int64)})
    ids = GroupBy(pa.concat_tables([known, *parts], promote_options="permissive"), groups.keys).ids
    return np.argsort(ids[: len(known)])[ids[len(known) :]]


def _both_sides(rows: Any, keys: Sequence[str]) -> pa.Table:
    """Count, for each combination of keys that has any, the trade ids of which it holds both sides."""
    rows = rows.filter(nw.col("side").cast(nw.String).is_in(SIDES), ~nw.col("trade_id").is_null())
    rows = rows.with_columns(
        (nw.col("side") == "BUY").cast(nw.Int64).alias("is_buy"), nw.lit(0).alias("all_rows")
    )
    found = rows.group_by(*dict.fromkeys(["all_rows", *keys, "trade_id"])).agg(
        nw.col("is_buy").min().alias("least_side"), nw.col("is_buy").max().alias("most_side")
    )
    found = found.filter(nw.col("least_side") != nw.col("most_side"))
    counts = found.group_by("all_rows", *keys).agg(nw.len().alias("fills"))
    return counts.lazy().collect("pyarrow").to_native()


def result_frame(trades: Any, columns: pa.Table | Mapping[str, Any]) -> Any:
    """Build a result of the same engine as the trades it comes from; amounts that do not fit raise."""
    return convert.to_native(trades, result_table(columns))


def result_table(columns: pa.Table | Mapping[str, Any]) -> pa.Table:
    """Give columns of a result the types that all engines convert; amounts that do not fit raise."""
    table, fields = pa.table(columns), []
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_decimal, is_int = pa.types.is_decimal(column.type), pa.types.is_int64(column.type)
        type_ = adapters.DECIMAL_256 if is_decimal else column.type
        fields.append(pa.field(name, type_, nullable=not is_int or column.null_count > 0))
    narrow = [adapters.checked_cast(table[field.name], field.type, field.name) for field in fields]
    return pa.table(narrow, schema=pa.schema(fields))


def _engine_sums(
    table: Any, keys: Sequence[str], period: Period | None, engine: str, amounts: Sequence[str]
) -> pa.Table:
    unknown = nw.any_horizontal(*(nw.col(name).is_null() for name in amounts), ignore_nulls=False)
    zero = (nw.col("fee") == 0).fill_null(False) if "fee" in amounts else nw.lit(False)
    added = [unknown.cast(nw.Int64).alias("unknown"), zero.cast(nw.Int64).alias("zero")]
    milli = nw.col("fee_bps") * MILLI_BPS + 0.5
    whole = milli.floor()  # of 64 bits on Spark, too few for larger rates
    added.append(nw.when(milli < WHOLE_FROM).then(whole).otherwise(milli).alias("milli_bps"))
    if period:
        added.append(period.bins(nw.col("moment")).alias("period"))
    sums = [
        nw.len().alias("fills"),
        nw.col("zero").sum(),
        nw.col("moment").min().alias("first"),
        nw.col("moment").max().alias("last"),
        *(nw.col(name).sum() for name in amounts),
        *(nw.col(name).count().alias(f"{name} known") for name in amounts),
    ]
    if engine in WRAPPING:
        sums += [nw.col(name).cast(nw.Float64).sum().alias(f"{name} as float") for name in amounts]
    grouped = table.with_columns(*added).group_by(*keys).agg(*sums)
    return grouped.lazy().collect("pyarrow").to_native()


def _sums_in_memory(
    rows: pa.Table, keys: Sequence[str], period: Period | None, rates: bool, paired: PairedFills | None
) -> pa.Table:
    """Add up rows by keys; where few have the same ones, each row is a group of its own."""
    unknown, amounts = np.zeros(len(rows), np.int8), [name for name in SUMMED if name in rows.column_names]
    for name in amounts:
        if rows[name].null_count:
            unknown |= np.asarray(rows[name].is_null())
    rows = rows.append_column("unknown", pa.array(unknown))
    if period:
        rows = rows.append_column("period", period.numbers(rows["moment"]))
    zero = equal(rows["fee"], 0) if "fee" in amounts else np.zeros(len(rows), bool)
    if {"order_hash", "trade_id"}.isdisjoint(keys):
        groups, first = row_groups(rows, keys)
        columns = {name: rows[name].take(pa.array(first)) for name in keys}
        columns |= {"fills": np.bincount(groups), "zero": np.bincount(groups[zero], minlength=len(first))}
        for name in amounts:
            columns[name], columns[f"{name} known"] = totals(rows[name], groups, len(first))
        if rates:
            columns |= rates_of(thousandths(rows["fee_bps"]), groups, len(first))
    else:
        groups = np.arange(len(rows))
        columns = {name: rows[name] for name in rows.column_names}
        columns |= {"fills": np.ones(len(rows), np.int64), "zero": zero}
        columns["milli_bps"] = thousandths(rows["fee_bps"])
        columns |= {"first": rows["moment"], "last": rows["moment"]}
        columns |= {f"{name} known": rows[name].is_valid() for name in amounts}
    if paired and paired.columns:
        paired.add(*sides_of(rows), groups)
    return pa.table(columns)


def thousandths(rates: pa.ChunkedArray) -> np.ndarray:
    """Round rates in basis points to the nearest thousandth, half up."""
    milli: np.ndarray = rates.to_numpy() * MILLI_BPS
    milli += 0.5
    np.floor(milli, out=milli)
    return milli


def rates_of(milli: np.ndarray, groups: np.ndarray, count: int) -> dict[str, pa.Array]:
    """List the rates in each group, and of how many fills each one is."""
    rates = pa.array(milli, from_pandas=True)
    if rates.null_count:
        rates, groups = rates.drop_null(), groups[rates.is_valid().to_numpy(zero_copy_only=False)]
    with suppress(pa.ArrowInvalid):  # most are integers that need no look-up
        rates = rates.cast(pa.int64())
    codes, values = codes_of(rates)
    width = max(len(values), 1)
    keys, rated = counted(groups * width + codes, count * width)
    group, code = np.divmod(keys, width)
    found = {"milli_bps": values.take(pa.array(code)).cast(pa.float64(), safe=False), "rated": rated}
    offsets = np.searchsorted(group, np.arange(count + 1)).astype(np.int32)
    return {name: pa.ListArray.from_arrays(offsets, column) for name, column in found.items()}


def _partition_sums(
    trades: Any, by: Sequence[str], caller: str, every: str | None, amounts: Sequence[str], rates: bool
) -> list[pa.Table]:
    """Add up each partition of a Dask frame on its worker: nothing is shuffled, and little comes back."""
    work = partial(aggregate, by=by, caller=caller, every=every, amounts=amounts, rates=rates)
    return [*workers.apply(work, adapters.columns_of(trades, [*COLUMNS, *by], caller))]


def _may_have_wrapped(sums: pa.Table, amounts: Sequence[str]) -> bool:
    """Look at the same sums in floats, which do not wrap."""
    largest = {name: pc.max(pc.abs(sums[f"{name} as float"])).as_py() or 0 for name in amounts}
    digits = adapters.DECIMAL_128.precision
    return any(most > 0.99 * 10.0 ** (digits - sums[name].type.scale) for name, most in largest.items())


def _overflow(engine: str, caller: str) -> AmountError:
    return AmountError(
        f"{caller}: a sum has more than 20 digits before the point, the most {engine} holds exactly. "
        "Group more finely, or use pandas or pyarrow, whose sums hold 58."
    )


def _key_columns(sums: pa.Table, keys: Sequence[str], period: Period | None) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in keys:
        column = sums[name]
        column = column.cast(KEY_TYPES[name]) if name in KEY_TYPES else adapters.decode(column, name)
        columns[name] = column.combine_chunks()
    if period:
        columns["period"] = period.starts(columns["period"])
    return columns


def _uniform(sums: pa.Table, keys: Sequence[str], period: Period | None) -> pa.Table:
    """Give the partial sums of every engine the same types."""
    columns = _key_columns(sums, keys, period)
    missing = pa.scalar(None, SUM)
    counts = {"charged": "fee known", "valued": "notional known"}
    counts |= {name: name for name in ("fills", "zero", "first", "last")}
    for name in SUMMED:
        if f"{name} known" in sums.column_names:
            known, amounts = pc.greater(sums[f"{name} known"].cast(pa.int64()), 0), sums[name].cast(SUM)
            amounts = amounts if pc.all(known).as_py() else pc.if_else(known, amounts, missing)
            columns[name] = amounts.combine_chunks()
    for name, source in counts.items():
        if source in sums.column_names:
            columns[name] = sums[source].cast(pa.int64()).combine_chunks()
    if "rated" in sums.column_names:
        columns |= {name: sums[name] for name in ("milli_bps", "rated")}
    elif "milli_bps" in sums.column_names:
        rates = sums["milli_bps"].cast(pa.float64())
        columns |= {"milli_bps": _lists_of_one(rates), "rated": _lists_of_one(columns["fills"])}
    if {*SUMMED} <= {*columns}:
        in_base, in_quote = (pc.equal(columns["fee_token"], columns[token]) for token in ("base", "quote"))
        received_quote = pc.if_else(in_quote, columns["notional"], missing)
        columns["received"] = pc.if_else(in_base, columns["size"], received_quote)
    return pa.table(columns)


def _lists_of_one(column: Any) -> pa.ListArray:
    """Return a column in which each value is a list of its own."""
    return pa.ListArray.from_arrays(np.arange(len(column) + 1, dtype=np.int32), combined(column))


def ranks(column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, int]:
    """Rank the values of a column, or of the `Key` of one by its order, null last; also count the ranks."""
    first = name.order if isinstance(name, adapters.Key) else []
    try:
        codes, values = codes_of(column)
        order = pc.sort_indices(values).to_numpy()
        if first:
            places = pc.index_in(values, pa.array(first, values.type))
            order = order[np.argsort(places.fill_null(len(first)).to_numpy()[order], kind="stable")]
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise adapters.not_groupable(name, column.type, "grouping") from None
    places = np.empty(len(order) + 1, np.int64)
    places[order], places[-1] = np.arange(len(order)), len(order)
    return places[codes], len(places)
