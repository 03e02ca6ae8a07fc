"""Trades summed up on their engine, as finely as every later question needs, and exactly.

The engine only counts, adds up integers and compares; what follows from the sums (ratios, medians, shares)
is worked out here, once for all engines, from the small table that comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import kinds
from loopring_lab.engines.kinds import keys_of
from loopring_lab.engines.periods import Period
from loopring_lab.errors import AmountError, LabError

__all__ = ["cube", "keys_of"]

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
        with ``fills``, ``charged`` (fills of known fee), ``zero`` (fills of fee zero), ``first`` and ``last``
        (milliseconds) and the sums of ``size``, ``notional``, ``fee`` and ``received`` (the gross amount that
        the fee is charged on), ``decimal256(76, 18)``.

    Raises
    ------
    LabError
        The frame is not one of trades.
    AmountError
        An amount is not exact, or a sum is too large for the engine.
    """
    period = None if every is None else Period.of(every)
    if (engine := kinds.kind(frame)) == "dask":
        return pa.concat_tables(_partitions(frame, by, what, every), promote_options="permissive")
    table = kinds.opened(frame, list(dict.fromkeys([*NEEDED, *by])), what)
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
        sums = cube(part, by, what, every)
        with pa.BufferOutputStream() as sink, pa.ipc.new_stream(sink, sums.schema) as stream:
            stream.write_table(sums)
        return bytes(sink.getvalue())  # a table itself would arrive with unaligned buffers

    parts = kinds.partitions(frame, [*NEEDED, *by], what)
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
    return kinds.flat(column, name).combine_chunks()
