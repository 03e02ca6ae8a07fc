"""Fees compared with a fee schedule: which fills were charged more than it allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import SUM, Limbs, blocks, floors, to_decimals
from loopring_lab.amounts.scaling import from_integers, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP
from loopring_lab.engines.aggregate import result_frame
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.orders import LAST, moments_of
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.fees.tiers import ALL_BPS, FEE_COLUMNS, FeeAmounts
from loopring_lab.query import parse_utc, to_milliseconds
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.rows import FILL_TYPES, ROLES

CALLER = "lab.fees.schedule_check"
FILL_COLUMNS = ("trade_id", "account_id", "market", "side", "fill_type", "order_hash", "fee_token")
VALIDITY = ("since", "until")
VOCABULARY = {"fill_type": {*FILL_TYPES}, "side": {*SIDES}, "role": {*ROLES}}
"""All values that these columns can have, whether or not they occur in a frame."""
COUNTED = ("fills", "above", "unknown")
SEVERAL = "several lines might apply"


def schedule_check(trades: Any, schedule: Any, others: Any = "refuse", absent: str = "refuse") -> Any:
    """Find the fills that were charged more than a fee schedule allows.

    Only certain cases are called ``above``: prices are truncated to 8 decimals, so an amount received in
    quote units is known only between bounds, and a fee counts as too high if it exceeds what the larger bound
    allows. A fill whose role, type, market or time is unknown is judged by every line that might apply: their
    verdict stands where all agree, and is ``unknown`` where they do not. `fills.with_roles` finds many roles.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    schedule : number, list of mappings, or pandas.DataFrame
        Basis points for every fill; or lines with ``bps``, the columns of `trades` to match, each with a
        value or a list of values of which any may match, and optionally ``since`` (inclusive) and ``until``
        (exclusive), in UTC unless they have a time zone, such as
        ``[{"market": ["LRC-ETH", "ETH-USDT"], "fill_type": "amm", "bps": 20}, {"bps": 30}]``. The first line
        that matches a fill applies.
    others : number, None or 'refuse'
        Basis points for fills that no line matches; None ignores them; by default an unmatched fill raises
        an error.
    absent : 'refuse' or 'ignore'
        What to do with a value of the schedule that does not occur in `trades`, such as a market in which an
        account never traded. By default it raises an error, because a misspelt value would match nothing and
        the audit would come back clean. The possible values of ``fill_type``, ``side`` and ``role`` are
        known: those may always be absent, and any other always raises.

    Returns
    -------
    frame of the same kind, one row per fill
        ``created_at``, ``trade_id``, ``account_id``, ``market``, ``side``, ``fill_type``, ``order_hash``,
        ``fee_token``, ``fee``; ``line``, the number of the line that applies, from 0 (null where several
        might; `others` counts as the last line); ``schedule_bps`` (float64), ``allowed``, the highest fee the
        schedule allows (truncated to 18 decimals), and ``excess``, the fee above that, by the highest rate
        that might apply; ``verdict``: ``above``, or ``unknown`` where the lines that might apply disagree
        (``schedule_bps`` is null) or an amount is unknown (``allowed`` is null). Fills that are within the
        schedule are not listed; `schedule_lines` counts them. In pandas, ``attrs["notes"]`` says how many
        fills each line decided.

    Raises
    ------
    LabError, AmountError
        As for `summary`, or the schedule is not valid, a value of it does not occur, or no line matches a
        fill.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> len(lab.fees.schedule_check(trades, 30))
    0
    """
    audit = _Audit(trades, schedule, others, absent)
    result = result_frame(trades, audit.listed)
    if isinstance(result, pd.DataFrame) and len(audit.lines) > 1:
        result.attrs["notes"] = [*result.attrs.get("notes", []), audit.note()]
    return result


def schedule_lines(trades: Any, schedule: Any, others: Any = "refuse", absent: str = "refuse") -> Any:
    """Count the fills that each line of a fee schedule decides: a line that decides none may be a mistake.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    schedule : number, list of mappings, or pandas.DataFrame
        As for `schedule_check`.
    others, absent : optional
        As for `schedule_check`.

    Returns
    -------
    frame of the same kind, one row per line
        In the order of the schedule: ``line``, its number from 0; ``applies_to``, what it matches;
        ``bps`` (float64, null if ignored); ``fills`` that it decides, and of those ``above`` and ``unknown``,
        the verdicts of `schedule_check`. `others` comes last of the lines; then, with a null ``line``, the
        fills to which several lines might apply.

    Raises
    ------
    LabError, AmountError
        As for `schedule_check`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lines = [{"fill_type": "amm", "bps": 10}, {"bps": 30}]
    >>> lab.fees.schedule_lines(trades, lines)[["line", "applies_to", "bps"]]
       line                 applies_to   bps
    0     0              fill_type amm  10.0
    1     1                 every fill  30.0
    2  <NA>  several lines might apply   NaN
    """
    audit = _Audit(trades, schedule, others, absent)
    return result_frame(trades, audit.counted())


class _Line(NamedTuple):
    """A line of a schedule: the rate, or None to ignore fills; values to match; validity in milliseconds."""

    rate: Fraction | None
    match: Mapping[str, frozenset[Any]] = MappingProxyType({})
    since: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        parts = [f"{name} {' or '.join(sorted(map(str, values)))}" for name, values in self.match.items()]
        for name in VALIDITY:
            moment = getattr(self, name)
            parts += [] if moment is None else [f"{name} {pd.Timestamp(moment, unit='ms', tz='UTC')}"]
        return ", ".join(parts) or "every fill"

    def matches(self, columns: Mapping[str, _Column], moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the fills that the line matches, and of those that it might match."""
        certain = np.ones(len(moments), bool)
        possible = certain.copy()
        parts = [columns[name].matches(values) for name, values in self.match.items()]
        parts += [] if self.since is None else [(moments >= self.since, moments == NAT)]
        parts += [] if self.until is None else [((moments < self.until) & (moments != NAT), moments == NAT)]
        for matching, unknown in parts:
            certain &= matching
            possible &= matching | unknown
        return certain, possible


class _Column:
    """A column of fills as numbers of its values; unknown ones have the number after the last."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        coded = column.combine_chunks().dictionary_encode()
        self.values = coded.dictionary.to_pylist()
        self.codes = coded.indices.fill_null(len(self.values)).to_numpy()

    def matches(self, wanted: frozenset[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the fills that have one of these values, and of those whose value is unknown."""
        found = np.array([*(value in wanted for value in self.values), False])
        return found[self.codes], self.codes == len(self.values)


class _Candidates:
    """The lines that might apply to each fill of a batch: how many, the last, the ranks of their rates."""

    def __init__(
        self, lines: list[_Line], rates: list[Fraction], columns: dict[str, _Column], moments: np.ndarray
    ) -> None:
        count = len(moments)
        self.open = np.ones(count, bool)  # no line matches for certain
        self.count, self.line = np.zeros(count, np.int64), np.full(count, -1)
        self.ignored = np.zeros(count, bool)
        self.lowest, self.highest = np.full(count, len(rates)), np.full(count, -1)
        for number, line in enumerate(lines):
            certain, possible = line.matches(columns, moments)
            here = self.open & possible
            self.open &= ~certain
            self.count += here
            self.line[here] = number
            if line.rate is None:
                self.ignored |= here
            else:
                rank = rates.index(line.rate)
                self.lowest[here] = np.minimum(self.lowest[here], rank)
                self.highest[here] = np.maximum(self.highest[here], rank)
        self.unmatched = self.count == 0
        self.line[(self.count > 1) | self.open] = len(lines)


class _Audit:
    """Every fill judged by a schedule, one batch after the other."""

    def __init__(self, trades: Any, schedule: Any, others: Any, absent: str) -> None:
        if absent not in ("refuse", "ignore"):
            raise LabError(f"{CALLER}: absent={absent!r} is not valid. Use 'refuse' or 'ignore'.")
        self.lines = [*_lines(schedule), *_rest(others)]
        self.rates = sorted({line.rate or Fraction(0) for line in self.lines})
        self.counts = {name: np.zeros(len(self.lines) + 1, np.int64) for name in COUNTED}
        self.seen: dict[str, set[Any]] = {name: set() for line in self.lines for name in line.match}
        self.unmatched: list[pa.Table] = []
        columns = list(dict.fromkeys(["created_at", *FILL_COLUMNS, *FEE_COLUMNS, *self.seen]))
        batches = convert.batches(trades, columns, CALLER)
        parts = [self.judge(block) for batch in batches for block in blocks(batch)]
        unmatched = pa.concat_tables(self.unmatched)
        if len(unmatched) or self.counts["fills"].any():
            self.refuse_absent_values(absent)
        if len(unmatched):
            raise _no_line(unmatched)
        self.listed = pa.concat_tables(parts)

    def judge(self, batch: pa.Table) -> pa.Table:
        """List the fills of a batch that were charged too much, and those that cannot be checked."""
        columns = {name: _Column(batch[name]) for name in self.seen}
        for name, column in columns.items():
            self.seen[name].update(column.values)
        amounts, lines = FeeAmounts(batch), _Candidates(self.lines, self.rates, columns, moments_of(batch))
        self.unmatched.append(batch.select(["market", "fill_type"]).filter(pa.array(lines.unmatched)))
        most, least = (self.allowed(amounts, ranks) for ranks in (lines.highest, lines.lowest))
        too_high, high = most < amounts.fee, least < amounts.fee
        rated, settled = lines.highest >= 0, ~lines.open & amounts.known
        above = rated & settled & ~lines.ignored & too_high
        unknown = rated & ~above & ~(settled & ~high)
        for name, mask in {"fills": ~lines.unmatched, "above": above, "unknown": unknown}.items():
            self.counts[name] += np.bincount(lines.line[mask], minlength=len(self.lines) + 1)
        agreed = above | ((lines.lowest == lines.highest) & ~lines.ignored & ~lines.open)
        listed = np.flatnonzero(above | unknown)
        rows, line, agreed = batch.take(pa.array(listed)), lines.line[listed], agreed[listed]
        found = {"created_at": rows["moment"].cast(TIMESTAMP)}
        found |= {name: rows[name] for name in (*FILL_COLUMNS, "fee")}
        found["line"] = pa.array(line, mask=line == len(self.lines))
        rates = np.array([*map(float, self.rates), 0.0])[lines.highest[listed]]
        found["schedule_bps"] = pa.array(rates, mask=~agreed)
        for name, numbers in {"allowed": most, "excess": amounts.fee - most}.items():
            shown = Limbs(numbers.low, numbers.high, amounts.known)[listed]
            found[name] = pc.if_else(pa.array(agreed), to_decimals(shown, SUM), pa.scalar(None, SUM))
        found["verdict"] = pa.array(np.where(above[listed], "above", "unknown"), pa.string())
        return pa.table(found)

    def allowed(self, amounts: FeeAmounts, ranks: np.ndarray) -> Limbs:
        """Return the highest fee that rates of these ranks allow on the most that may have been received."""
        pairs = [rate.as_integer_ratio() for rate in [*self.rates, Fraction(0)]]
        fitting = np.array([max(n, d * ALL_BPS) <= LAST for n, d in pairs])
        rates = [(n, d * ALL_BPS) if fits else (0, 1) for (n, d), fits in zip(pairs, fitting, strict=True)]
        numerators, divisors = (Limbs.small(numbers)[ranks] for numbers in zip(*rates, strict=True))
        found, sure = floors(amounts.most, numerators, divisors)
        rows = np.flatnonzero(amounts.known & ~(sure & fitting[ranks]))
        if len(rows):
            most = to_integers(to_decimals(amounts.most[rows], SUM)).tolist()
            rest = [
                one * pairs[rank][0] // (pairs[rank][1] * ALL_BPS)
                for one, rank in zip(most, ranks[rows], strict=True)
            ]
            exact = Limbs.of(from_integers(rest, SUM))
            found.low[rows], found.high[rows] = exact.low, exact.high
        return found

    def refuse_absent_values(self, absent: str) -> None:
        for number, line in enumerate(self.lines):
            for name, values in line.match.items():
                fixed = VOCABULARY.get(name, set())
                known = self.seen[name] | fixed
                wrong = sorted(values - known, key=str)
                if wrong and (fixed or absent == "refuse"):
                    names = ", ".join(sorted(map(repr, known))[:8]) or "no known value"
                    hint = did_you_mean(wrong[0], known, f"Values there: {names}.")
                    hint += "" if fixed else " Use absent='ignore' if it need not occur."
                    where = f"line {number} of the schedule: {name}={wrong[0]!r}"
                    raise LabError(f"{CALLER}: {where} occurs nowhere in trades. {hint}")

    def counted(self) -> pa.Table:
        numbers = np.arange(len(self.lines) + 1)
        rates = [None if line.rate is None else float(line.rate) for line in self.lines]
        return pa.table(
            {
                "line": pa.array(numbers, mask=numbers == len(self.lines)),
                "applies_to": [*map(str, self.lines), SEVERAL],
                "bps": pa.array([*rates, None], pa.float64()),
            }
            | self.counts
        )

    def note(self) -> str:
        """Say how many fills each line decided."""
        fills = self.counts["fills"]
        parts = [f"line {number} ({line}): {fills[number]:,}" for number, line in enumerate(self.lines)]
        return f"Fills decided by {'; '.join([*parts, f'{SEVERAL}: {fills[-1]:,}'])}."


def _lines(schedule: Any) -> list[_Line]:
    if isinstance(schedule, pd.DataFrame):
        schedule = [
            {k: v for k, v in line.items() if not _is_missing(v)} for line in schedule.to_dict("records")
        ]
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
    match = {n: _values(v, f"{where}: {n}") for n, v in line.items() if n not in ("bps", *VALIDITY)}
    since, until = (_milliseconds(line.get(name), f"{where}: {name}") for name in VALIDITY)
    if since is not None and until is not None and until <= since:
        raise LabError(f"{CALLER}: {where} ends before it begins. Give since= a time before until=.")
    return _Line(_rate(line["bps"], where), match, since, until)


def _rest(others: Any) -> Iterator[_Line]:
    """Make the line for fills that no other line matches, if there is to be one."""
    if others is None:
        yield _Line(None)
    elif not isinstance(others, str) or others != "refuse":
        yield _Line(_rate(others, "others"))


def _values(value: Any, where: str) -> frozenset[Any]:
    """Return the values that a line matches in one column."""
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if where.endswith("account_id") and any(isinstance(one, bool) for one in values):
        raise LabError(f"{CALLER}: {where}={value!r} is not a number. Give account ids, such as 10083.")
    if not values or not all(pd.api.types.is_hashable(one) and not _is_missing(one) for one in values):
        raise LabError(
            f"{CALLER}: {where}={value!r} matches nothing. Give a value or a list of values, or leave the "
            "column out to match all."
        )
    return frozenset(values)


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _milliseconds(value: Any, where: str) -> int | None:
    time = parse_utc(f"{CALLER}: {where}", value)
    return to_milliseconds(time and time.ceil("ms"))


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


def _no_line(fills: pa.Table) -> LabError:
    market, fill_type = (fills[name][0].as_py() for name in ("market", "fill_type"))
    return LabError(
        f"{CALLER}: {len(fills)} fills match no line of the schedule, the first in {market} ({fill_type}). "
        "Add a line, or use others=25 (basis points), or others=None to ignore them."
    )
