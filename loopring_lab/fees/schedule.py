"""Fees compared with a fee schedule: which fills were charged more than it allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_utc, to_milliseconds
from loopring_lab.engine.ask import ask, ask_table, given
from loopring_lab.engine.groups import Keys, literal, several
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.notes import with_note
from loopring_lab.engine.question import Question
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.fees.tiers import ALL_BPS, FEE_COLUMNS, MOST_RECEIVED, PLACES
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.rows import FILL_TYPES, ROLES

CALLER = "lab.fees.schedule_check"
SHOWN = (
    "created_at",
    "trade_id",
    "account_id",
    "market",
    "side",
    "fill_type",
    "order_hash",
    "fee_token",
    "fee",
)
VALIDITY = ("since", "until")
# All values that these columns can have, whether or not they occur in a frame.
VOCABULARY = {"fill_type": {*FILL_TYPES}, "side": {*SIDES}, "role": {*ROLES}}
# Products of a rate's numerator and denominator are computed in 128 bits.
LARGEST_PRODUCT = 2**127


def schedule_check(
    trades: Trades[FrameT],
    schedule: Any,
    others: Any = "refuse",
    absent: str = "refuse",
) -> FrameT:
    """Find the fills that were charged more than a fee schedule allows.

    Only certain cases are called ``above``: prices are truncated to 8 decimals, so an amount received in
    quote units is known only between bounds, and a fee counts as too high if it exceeds what the larger bound
    allows. A fill whose role, type, market or time is unknown is judged by every line that might apply: their
    verdict stands where all agree, and is ``unknown`` where they do not. `fills.with_roles` finds many roles.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
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
        schedule are not listed. In pandas, ``attrs["notes"]`` says how many fills each line decided: one that
        decided none may be a mistake.

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
    fills = given(trades, CALLER)
    audit = _Audit(fills, schedule, others, absent)
    listed = ask(audit.question("row", rows=LISTED), fills)
    return with_note(listed, audit.note())


@dataclass(frozen=True)
class _Line:
    """A line of a schedule: its rate, the values it matches in columns, and when it holds, in milliseconds."""

    rate: Fraction | None
    """Basis points; None ignores the fills."""
    match: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{name} {' or '.join(sorted(map(str, values)))}"
            for name, values in self.match.items()
        ]
        for name in VALIDITY:
            moment = getattr(self, name)
            if moment is not None:
                parts.append(f"{name} {pd.Timestamp(moment, unit='ms', tz='UTC')}")
        return ", ".join(parts) or "every fill"


class _Audit:
    """A schedule checked against trades, as steps of a query, and how many fills each line decides."""

    def __init__(
        self, trades: Given[Any], schedule: Any, others: Any, absent: str
    ) -> None:
        if absent not in ("refuse", "ignore"):
            raise LabError(
                f"{CALLER}: absent={absent!r} is not valid. Use 'refuse' or 'ignore'."
            )
        self.lines = [*_lines(schedule), *_rest(others)]
        if not self.lines:
            raise LabError(
                f"{CALLER}: schedule={schedule!r} has no lines. Give a rate such as 20, or {{'bps': 20}}."
            )
        self.keys = Keys(
            tuple(dict.fromkeys(name for line in self.lines for name in line.match))
        )
        self.known = {name: _values_in(trades, name) for name in self.keys.names}
        for name, there in self.known.items():
            if any(map(_is_amount, there)):
                raise LabError(
                    f"{CALLER}: the schedule matches {name}, and amounts cannot be matched. Add a column of classes "
                    "of them, and match that."
                )
        for number, line in enumerate(self.lines):
            for name, values in line.match.items():
                self._refuse_absent(values, name, number, absent)
        self.decided = self._count(trades)

    def question(self, kept: str, **last: str) -> Question:
        """Return a question that ends with steps after ``judged``, the fills with their verdicts and columns `kept`."""
        steps = {
            "matched": self._matched(kept),
            "chosen": self._chosen(),
            "judged": self._judged(),
            **last,
        }
        needs = ("created_at", "market", "fill_type", *FEE_COLUMNS)
        return Question(CALLER, steps, needs, keys=self.keys, shown=SHOWN)

    def note(self) -> str:
        """Say how many fills each line decided, if there are several."""
        if len(self.lines) == 1:
            return ""
        parts = [
            f"line {number} ({line}): {self.decided.get(number, 0):,}"
            for number, line in enumerate(self.lines)
        ]
        return f"Fills decided by {'; '.join(parts)}; several lines might apply: {self.decided.get(None, 0):,}."

    def _matched(self, kept: str) -> str:
        # A comparison with an unknown value is neither true nor false in SQL, but NULL: the line might apply.
        conditions = [
            f"{self._condition(line)} AS line_{number}"
            for number, line in enumerate(self.lines)
        ]
        return f"""
-- fills, and of each line whether it matches them; NULL where that is not known
SELECT {kept}, market, fill_type, fee,
    {MOST_RECEIVED} AS most,
    {", ".join(conditions)}
FROM trades"""

    def _condition(self, line: _Line) -> str:
        """Return whether a line matches a fill, as SQL."""
        parts = []
        for name, alias in zip(self.keys.names, self.keys.aliases, strict=True):
            if name in line.match:
                there = [
                    literal(str(value))
                    for value in self.known[name]
                    if value in line.match[name]
                ]
                # Nothing there has one of these values, but an unknown one might: then this is NULL.
                parts.append(
                    f"{alias} IN ({', '.join(there)})"
                    if there
                    else f"{alias} <> {alias}"
                )
        if line.since is not None:
            parts.append(f"ms >= {line.since}")
        if line.until is not None:
            parts.append(f"ms < {line.until}")
        return " AND ".join(parts) or "TRUE"

    def _chosen(self) -> str:
        numbers = range(len(self.lines))
        certain = " ".join(f"WHEN line_{number} THEN {number}" for number in numbers)
        possible = " ".join(
            f"WHEN line_{number} IS DISTINCT FROM FALSE THEN {number}"
            for number in numbers
        )
        return f"""
-- the first line that matches for certain, and the first that might; NULL for none
SELECT *,
    CASE {certain} END AS certain,
    CASE {possible} END AS possible
FROM matched"""

    def _judged(self) -> str:
        """Judge fills by the lines that might apply: those that might match, up to the first that does."""
        rates = ["NULL::DOUBLE"]
        fees = ["NULL::HUGEINT"]
        ignored = ["FALSE"]
        for number, line in enumerate(self.lines):
            applies = f"line_{number} IS DISTINCT FROM FALSE AND {number} <= coalesce(certain, {number})"
            if line.rate is None:
                ignored.append(applies)
            else:
                rates.append(
                    f"CASE WHEN {applies} THEN '{float(line.rate)}'::DOUBLE END"
                )
                fees.append(f"CASE WHEN {applies} THEN {_allowed(line.rate)} END")
        all_rates = ", ".join(rates)
        all_fees = ", ".join(fees)
        is_ignored = " OR ".join(ignored)
        return f"""
-- fills with their verdict; NULL where the fee is within the schedule, or no line has a rate
WITH rated AS (  -- the rates of the lines that might apply, and the highest fees that these allow
    SELECT *,
        least({all_rates}) AS lowest_bps,
        greatest({all_rates}) AS bps,
        least({all_fees}) AS least_allowed,
        greatest({all_fees}) AS most_allowed,
        certain IS NOT NULL AND NOT ({is_ignored}) AS is_rated
    FROM chosen
)
SELECT *,
    CASE WHEN bps IS NULL THEN NULL
        WHEN is_rated AND fee > most_allowed THEN 'above'
        WHEN certain IS NOT NULL AND fee <= least_allowed THEN NULL
        ELSE 'unknown' END AS verdict,
    verdict = 'above' OR (is_rated AND lowest_bps = bps) AS is_agreed,
    CASE WHEN certain = possible THEN certain END AS line
FROM rated"""

    def _refuse_absent(
        self, values: frozenset[Any], name: str, line: int, absent: str
    ) -> None:
        fixed = VOCABULARY.get(name, set())
        known = {value for value in (*self.known[name], *fixed) if value is not None}
        wrong = sorted(values - known, key=str)
        # In a frame without rows nothing occurs.
        if not wrong or not self.known[name] or (absent == "ignore" and not fixed):
            return
        names = ", ".join(sorted(map(repr, known))[:8]) or "no known value"
        hint = did_you_mean(wrong[0], known, f"Values there: {names}.")
        if not fixed:
            hint += " Use absent='ignore' if it need not occur."
        raise LabError(
            f"{CALLER}: line {line} of the schedule: {name}={wrong[0]!r} occurs nowhere in trades. {hint}"
        )

    def _count(self, trades: Given[Any]) -> dict[int | None, int]:
        """Count the fills that each line decides, and under None those to which several might apply."""
        question = self.question("ms", sums=COUNTED, answer=COUNTED_IN_ALL)
        counted = ask_table(question, trades).to_pylist()
        for row in counted:
            if row["unmatched"]:
                raise LabError(
                    f"{CALLER}: {row['unmatched']} fills match no line of the schedule, such as one in "
                    f"{row['example']}. Add a line, or use others=25 (basis points), or others=None to ignore them."
                )
        return {row["line"]: row["fills"] for row in counted}


def _values_in(trades: Given[Any], name: str) -> list[Any]:
    """Return the different values of a column."""
    keys = Keys((name,))
    steps = {
        "sums": f"-- the values in each market\nSELECT DISTINCT {keys.columns()} FROM trades",
        "answer": "-- those in any\nSELECT DISTINCT * FROM sums",
    }
    question = Question(CALLER, steps, ("created_at",), keys=keys)
    values: list[Any] = ask_table(question, trades)[name].to_pylist()
    return values


COUNTED = """
-- how many fills each line decides, and how many fills none does
SELECT line,
    count(possible) AS fills,
    count(*) FILTER (WHERE possible IS NULL) AS unmatched,
    min(concat(market, ' (', fill_type, ')')) FILTER (WHERE possible IS NULL) AS example
FROM judged
GROUP BY line"""
COUNTED_IN_ALL = """
-- the same of all markets
SELECT line,
    sum(fills)::BIGINT AS fills,
    sum(unmatched)::BIGINT AS unmatched,
    min(example) AS example
FROM sums
GROUP BY line"""
LISTED = """
-- fills that are not within the schedule, and what is allowed where all lines that might apply agree
SELECT row,
    line::BIGINT AS line,
    CASE WHEN is_agreed THEN bps END AS schedule_bps,
    CASE
        WHEN is_agreed AND fee IS NOT NULL THEN most_allowed
    END AS allowed,
    fee - allowed AS excess,
    verdict
FROM judged
WHERE verdict IS NOT NULL"""


def _allowed(rate: Fraction) -> str:
    """Return the highest fee that a rate allows, cut to 1e-18, as SQL.

    No product is larger than the amount, or two parts of the rate.
    """
    share = rate / ALL_BPS
    parts = f"most // {share.denominator} * {share.numerator}"
    return f"{parts} + most % {share.denominator} * {share.numerator} // {share.denominator}"


def _lines(schedule: Any) -> list[_Line]:
    if isinstance(schedule, pd.DataFrame):
        schedule = [
            {k: v for k, v in line.items() if not _is_missing(v)}
            for line in schedule.to_dict("records")
        ]
    if isinstance(schedule, Mapping):
        schedule = [schedule]
    if not isinstance(schedule, Iterable) or isinstance(schedule, str):
        return [_Line(_rate(schedule, "schedule"))]
    return [
        _line(line, f"line {number} of the schedule")
        for number, line in enumerate(schedule)
    ]


def _line(line: Any, where: str) -> _Line:
    if not isinstance(line, Mapping) or "bps" not in line:
        raise LabError(
            f"{CALLER}: {where}, {line!r}, has no bps. Give {{'market': ..., 'bps': 20}}."
        )
    if "created_at" in line:
        raise LabError(
            f"{CALLER}: {where} matches created_at. Use since and until instead."
        )
    match = {
        n: _values(v, f"{where}: {n}")
        for n, v in line.items()
        if n not in ("bps", *VALIDITY)
    }
    since, until = (
        _milliseconds(line.get(name), f"{where}: {name}") for name in VALIDITY
    )
    if since is not None and until is not None and until <= since:
        raise LabError(
            f"{CALLER}: {where} ends before it begins. Give since= a time before until=."
        )
    return _Line(_rate(line["bps"], where), match, since, until)


def _rest(others: Any) -> Iterator[_Line]:
    """Make the line for fills that no other line matches, if there is to be one."""
    if others is None:
        yield _Line(None)
    elif not isinstance(others, str) or others != "refuse":
        yield _Line(_rate(others, "others"))


def _values(value: Any, where: str) -> frozenset[Any]:
    """Return the values that a line matches in one column."""
    values = several(value)
    if not values or not all(
        pd.api.types.is_hashable(one) and not _is_missing(one) for one in values
    ):
        raise LabError(
            f"{CALLER}: {where}={value!r} matches nothing. Give a value or a list of values, or leave the "
            "column out to match all."
        )
    return frozenset(values)


def _is_amount(value: Any) -> bool:
    """Return whether a value of a column is an amount, with its 18 decimals, which queries have as an integer."""
    return isinstance(value, Decimal) and value.as_tuple().exponent == -PLACES


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _milliseconds(value: Any, where: str) -> int | None:
    return to_milliseconds(parse_utc(f"{CALLER}: {where}", value))


def _rate(value: Any, where: str) -> Fraction:
    try:
        rate = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        rate = None
    if rate is None or not 0 <= rate <= ALL_BPS:
        raise LabError(
            f"{CALLER}: {where}: {value!r} is not a rate. Give basis points from 0 to {ALL_BPS}, such as 20."
        )
    if rate.numerator * rate.denominator * ALL_BPS >= LARGEST_PRODUCT:
        raise LabError(
            f"{CALLER}: {where}: {value!r} has too many digits. Give a rate of at most 15 decimal places."
        )
    return rate
