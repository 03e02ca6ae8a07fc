"""Fees compared with a fee schedule: which fills were charged more than it allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import from_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP
from loopring_lab.engines.aggregate import result_frame
from loopring_lab.errors import LabError
from loopring_lab.fees.tiers import ALL_BPS, FEE_COLUMNS, FeeAmounts
from loopring_lab.query import parse_utc

CALLER = "fees.schedule_check"
FILL_COLUMNS = ("trade_id", "account_id", "market", "side", "fill_type", "order_hash", "fee_token")
VALIDITY = ("since", "until")
EPOCH = pd.Timestamp(0, tz="UTC")


def schedule_check(trades: Any, schedule: Any, others: Any = "refuse") -> Any:
    """Find the fills that were charged more than a fee schedule allows.

    Only certain cases are listed: prices are truncated to 8 decimals, so an amount received in quote units is
    known only between bounds, and a fee counts as too high if it exceeds what the larger bound allows.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    schedule : number, list of mappings, or pandas.DataFrame
        Basis points for every fill; or lines with ``bps``, the columns of `trades` to match, and optionally
        ``since`` (inclusive) and ``until`` (exclusive), in UTC unless they have a time zone, such as
        ``[{"market": "LRC-ETH", "fill_type": "amm", "bps": 20}, {"bps": 30}]``. The first line that matches
        a fill applies.
    others : number, None or 'refuse'
        Basis points for fills that no line matches; None ignores them; by default an unmatched fill raises
        an error.

    Returns
    -------
    frame of the same kind, one row per fill
        ``created_at``, ``trade_id``, ``account_id``, ``market``, ``side``, ``fill_type``, ``order_hash``,
        ``fee_token``, ``fee``, ``schedule_bps`` (float64), ``allowed``, the highest fee the schedule allows
        (truncated to 18 decimals), ``excess``, the fee above that, and ``verdict``: ``above``, or ``unknown``
        where an amount is unknown, so that the fill cannot be checked.

    Raises
    ------
    LabError, AmountError
        As for `summary`, or the schedule is not valid, or no line matches a fill.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> len(lab.fees.schedule_check(trades, 30))
    0
    """
    lines = _lines(schedule)
    if others is None:
        lines.append(_Line(None))
    elif others != "refuse":
        lines.append(_Line(_rate(others, "others")))
    matched = [name for line in lines for name in line.match]
    columns = list(dict.fromkeys(["created_at", *FILL_COLUMNS, *FEE_COLUMNS, *matched]))
    batches = convert.batches(trades, columns, CALLER)
    return result_frame(trades, pa.concat_tables([_check_batch(batch, lines) for batch in batches]))


class _Line(NamedTuple):
    """A line of a schedule: the rate, or None to ignore fills; values to match; validity in milliseconds."""

    rate: Fraction | None
    match: Mapping[str, Any] = MappingProxyType({})
    since: int | None = None
    until: int | None = None


def _lines(schedule: Any) -> list[_Line]:
    if isinstance(schedule, pd.DataFrame):
        schedule = [{k: v for k, v in line.items() if not pd.isna(v)} for line in schedule.to_dict("records")]
    if isinstance(schedule, Mapping):
        schedule = [schedule]
    if not isinstance(schedule, Iterable) or isinstance(schedule, str):
        return [_Line(_rate(schedule, "schedule"))]
    return [_line(line, f"line {number} of the schedule") for number, line in enumerate(schedule)]


def _line(line: Any, where: str) -> _Line:
    if not isinstance(line, Mapping) or "bps" not in line:
        raise LabError(f"{CALLER}: {where}, {line!r}, has no bps. Give {{'market': ..., 'bps': 20}}.")
    if "created_at" in line:
        raise LabError(f"{CALLER}: {where} matches created_at. Use since and until instead.")
    match = {name: value for name, value in line.items() if name not in ("bps", *VALIDITY)}
    since, until = (_milliseconds(line.get(name), f"{where}: {name}") for name in VALIDITY)
    return _Line(_rate(line["bps"], where), match, since, until)


def _milliseconds(value: Any, where: str) -> int | None:
    time = parse_utc(f"{CALLER}: {where}", value)
    return None if time is None else int((time.ceil("ms") - EPOCH) // pd.Timedelta(1, "ms"))


def _rate(value: Any, where: str) -> Fraction:
    try:
        rate = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        rate = None
    if rate is None or not 0 <= rate <= ALL_BPS:
        raise LabError(
            f"{CALLER}: {where}: {value!r} is not a rate. Give basis points from 0 to {ALL_BPS}, such as 20."
        )
    return rate


def _check_batch(batch: pa.Table, lines: list[_Line]) -> pa.Table:
    """List the fills of a batch that were charged too much, and those that cannot be checked."""
    amounts, numbers = FeeAmounts(batch), _matching_lines(batch, lines)
    ignored = np.array([line.rate is None for line in lines], bool)[numbers]
    fractions = [(line.rate or Fraction(0)).as_integer_ratio() for line in lines]
    numerator, denominator = np.array(fractions, object).reshape(-1, 2)[numbers].T
    allowed = amounts.most * numerator // (denominator * ALL_BPS)
    above = np.greater(amounts.fee, allowed).astype(bool)
    listed = np.flatnonzero(~ignored & (above | ~amounts.known))
    rows = batch.take(pa.array(listed))
    columns = {"created_at": rows["moment"].cast(TIMESTAMP)}
    columns |= {name: rows[name] for name in (*FILL_COLUMNS, "fee")}
    columns["schedule_bps"] = pa.array((numerator / denominator)[listed].astype(np.float64))
    for name, values in {"allowed": allowed, "excess": amounts.fee - allowed}.items():
        columns[name] = from_integers(np.where(amounts.known, values, None)[listed], DECIMAL_256)
    columns["verdict"] = pa.array(np.where(amounts.known, "above", "unknown")[listed], pa.string())
    return pa.table(columns)


def _matching_lines(batch: pa.Table, lines: list[_Line]) -> np.ndarray:
    """Return the number of the first line that matches each fill."""
    numbers = np.full(len(batch), -1, np.int64)
    moment = batch["moment"].to_numpy()
    for number, line in enumerate(lines):
        matches = numbers < 0
        for name, value in line.match.items():
            matches &= np.array([cell == value for cell in batch[name].to_pylist()], bool)
        if line.since is not None:
            matches &= moment >= line.since
        if line.until is not None:
            matches &= moment < line.until
        numbers[matches] = number
    unmatched = np.flatnonzero(numbers < 0)
    if len(unmatched):
        fill = batch.slice(int(unmatched[0]), 1).to_pylist()[0]
        raise LabError(
            f"{CALLER}: {len(unmatched)} fills match no line of the schedule, the first in {fill['market']} "
            f"({fill['fill_type']}). Add a line, or use others=25 (basis points), or others=None to ignore "
            "them."
        )
    return numbers
