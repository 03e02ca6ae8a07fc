"""Fees against a schedule: which fills were charged more than they should have been."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import absent, from_integers
from loopring_lab.engines import adapters, convert
from loopring_lab.engines.aggregate import answer
from loopring_lab.errors import LabError
from loopring_lab.fees.tiers import NEEDED, Fees

__all__ = ["schedule_check"]

WHAT = "fees.schedule_check"
WHOLE = 10_000
SHOWN = ("trade_id", "account_id", "market", "side", "fill_type", "order_hash", "fee_token")
TIMES = ("since", "until")
EPOCH = pd.Timestamp(0, tz="UTC")


def schedule_check(trades: Any, schedule: Any, others: Any = "refuse") -> Any:
    """Find the fills that were charged above a schedule.

    Only what is certain is listed: a price is cut to 8 decimals, so the amount received in quote units is
    only known between bounds, and a fee counts as too high if it is above what the larger bound allows.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    schedule : number, list of mappings, or pandas.DataFrame
        Basis points for every fill; or lines of ``bps`` with any of the columns of `trades` they are for,
        and ``since`` and ``until``, moments from and before which they hold (UTC where no zone is given),
        such as ``[{"market": "LRC-ETH", "fill_type": "amm", "bps": 20}, {"bps": 30}]``. The first line that
        fits a fill counts.
    others : number, None or 'refuse'
        Basis points for fills that no line fits; None leaves them out; by default there must be none.

    Returns
    -------
    frame of the same kind, one row a fill
        ``created_at``, ``trade_id``, ``account_id``, ``market``, ``side``, ``fill_type``, ``order_hash``,
        ``fee_token``, ``fee``, ``schedule_bps`` (float64), ``allowed``, the most the schedule allows (cut at
        18 decimals), ``excess``, fee above that, and ``verdict``: ``above``, or ``unknown`` where an amount
        is not known, so that the fill cannot be checked.

    Raises
    ------
    LabError
        The schedule is not one, or no line fits a fill.
    AmountError
        An amount is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> len(lab.fees.schedule_check(trades, 30))
    0
    """
    lines = _lines(schedule)
    if others != "refuse":
        lines.append(_Line({}, None, None, None if others is None else _rate(others, "others")))
    columns = dict.fromkeys(["created_at", *SHOWN, *NEEDED, *(name for line in lines for name in line.match)])
    parts = [_checked(part, lines) for part in convert.batches(trades, list(columns), WHAT)]
    found = pa.concat_tables(parts)
    return answer(trades, {name: found[name] for name in found.column_names})


class _Line(NamedTuple):
    """A line of a schedule: what a fill must be, from and until when, and the rate; None leaves it out."""

    match: Mapping[str, Any]
    since: int | None
    until: int | None
    rate: Fraction | None


def _lines(schedule: Any) -> list[_Line]:
    if isinstance(schedule, pd.DataFrame):
        schedule = [{k: v for k, v in line.items() if not pd.isna(v)} for line in schedule.to_dict("records")]
    if isinstance(schedule, Mapping):
        schedule = [schedule]
    if not isinstance(schedule, Iterable) or isinstance(schedule, str):
        return [_Line({}, None, None, _rate(schedule, "schedule"))]
    return [_line(number, line) for number, line in enumerate(schedule)]


def _line(number: int, line: Any) -> _Line:
    if not isinstance(line, Mapping) or "bps" not in line:
        raise LabError(
            f"{WHAT}: line {number} of the schedule, {line!r}, has no bps. Give {{'market': ..., 'bps': 20}}."
        )
    if "created_at" in line:
        raise LabError(
            f"{WHAT}: line {number} of the schedule names created_at. Say since and until instead."
        )
    match = {name: value for name, value in line.items() if name not in ("bps", *TIMES)}
    return _Line(match, *_span(line, number), _rate(line["bps"], f"line {number} of the schedule"))


def _span(line: Mapping[str, Any], number: int) -> tuple[int | None, int | None]:
    since, until = (_moment(line.get(name), number, name) for name in TIMES)
    return since, until


def _moment(value: Any, number: int, name: str) -> int | None:
    if value is None:
        return None
    stamp = pd.to_datetime(value, utc=True, errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        raise LabError(
            f"{WHAT}: line {number} of the schedule: {name}={value!r} is not a time. Give '2022-03-31'."
        )
    return int((stamp.ceil("ms") - EPOCH) // pd.Timedelta(1, "ms"))


def _rate(value: Any, where: str) -> Fraction:
    try:
        rate = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        rate = Fraction(-1)
    if not 0 <= rate <= WHOLE:
        raise LabError(
            f"{WHAT}: {where}: {value!r} is not a rate. Give basis points from 0 to {WHOLE}, such as 20."
        )
    return rate


def _checked(part: pa.Table, lines: list[_Line]) -> pa.Table:
    fees, chosen = Fees(part), _chosen(part, lines)
    lost = np.flatnonzero(chosen < 0)
    if len(lost):
        row = part.slice(int(lost[0]), 1).to_pylist()[0]
        raise LabError(
            f"{WHAT}: {len(lost)} fills have no line in the schedule, the first in {row['market']} "
            f"({row['fill_type']}). Add a line, or say others=25 (basis points), or others=None to leave "
            "them out."
        )
    rates = np.array([line.rate for line in lines], object)[chosen]
    asked = ~absent(rates)
    tops = np.array([rate.numerator if rate is not None else 0 for rate in rates], object)
    bottoms = np.array([rate.denominator if rate is not None else 1 for rate in rates], object)
    allowed = fees.most * tops // (bottoms * WHOLE)
    above = np.greater(fees.fee, allowed).astype(bool) & fees.known
    keep = np.flatnonzero(asked & (above | ~fees.known))
    amounts = {"allowed": allowed, "excess": fees.fee - allowed}
    shown = part.take(pa.array(keep))
    columns = {"created_at": shown["moment"].cast(adapters.MOMENT)} | {
        name: shown[name] for name in (*SHOWN, "fee")
    }
    columns["schedule_bps"] = pa.array([float(rate) for rate in rates[keep]], pa.float64())
    for name, numbers in amounts.items():
        columns[name] = from_integers(np.where(fees.known, numbers, None)[keep], adapters.WIDE)
    columns["verdict"] = pa.array(np.where(fees.known, "above", "unknown")[keep], pa.string())
    return pa.table(columns)


def _chosen(part: pa.Table, lines: list[_Line]) -> np.ndarray:
    """Give the number of the first line that fits each row, -1 where none does."""
    chosen = np.full(len(part), -1, np.int64)
    moment = part["moment"].to_numpy()
    for number, line in enumerate(lines):
        fits = chosen < 0
        for name, value in line.match.items():
            fits &= np.array([one == value for one in part[name].to_pylist()], bool)
        if line.since is not None:
            fits &= moment >= line.since
        if line.until is not None:
            fits &= moment < line.until
        chosen[fits] = number
    return chosen
