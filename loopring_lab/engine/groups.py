"""What answers are grouped by: columns of the caller's frame, and periods of time.

In queries the keys are called ``group_1``, ``group_2`` and so on, whatever the caller's columns are called;
`running` gives the answer their real names. So a name of a column is never part of a query's meaning.
"""

from __future__ import annotations

import functools
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopring_lab.engine import session
from loopring_lab.engine.hashes import hash_sql
from loopring_lab.engine.notes import NOTES
from loopring_lab.errors import LabError, did_you_mean

if TYPE_CHECKING:
    from loopring_lab.engine.kinds import Given

UTC = "UTC"
SECOND = 1000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
FIXED = {"s": SECOND, "min": 60 * SECOND, "h": HOUR, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
UNIT_NAMES = {
    "s": "second",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "mo": "month",
    "q": "quarter",
    "y": "year",
}

# DuckDB's other name of HUGEINT, used for a column of somebody's own, as HUGEINTs in queries are amounts in 1e-18.
WHOLE_NUMBER = "INT128"
# A key of all rows, which answers leave out: with it no list of keys is empty.
EVERYTHING = "everything"
# DuckDB's other name of VARCHAR, used for order hashes of which nobody has looked whether they are some.
ANY_TEXT = "TEXT"
TAKES_NAMES = "It takes names of columns, such as 'market', not their values."
IS_OF_RESULT = "The result has its own column of that name: rename yours."
NOT_GROUPS = ("size", "price", "notional", "fee", "fee_bps")

# A quotient of doubles is made smaller by more than it may have been rounded up by.
SMALLER = 1 - 1e-14


def quoted(name: str) -> str:
    """Write a name as an SQL identifier: it can then be any text."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def same_sql(left: str, right: str, names: Iterable[str]) -> str:
    """Return the condition that two tables have the same columns of these names; nulls are alike."""
    pairs = [f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in names]
    return " AND ".join(pairs)


def whole_units(amount: str, unit: int) -> str:
    """Return how many whole units of at most 10**18 an amount has, ``amount // unit``, as SQL.

    DuckDB divides HUGEINTs bit by bit, 0.2 s for a million; this takes 0.015 s. The quotient of doubles, made too
    small by more than they are rounded by, leaves a rest of 64 bits, which the processor divides.
    """
    low = f"floor({amount}::DOUBLE * {SMALLER / unit!r})::HUGEINT"
    exact = f"{low} + ({amount} - {low} * {unit})::BIGINT // {unit}"
    # The rest has at most 1e-14 of the amount, and a unit.
    return f"CASE WHEN {amount} BETWEEN 0 AND {10**32} THEN {exact} ELSE {amount} // {unit} END"


def quotient(amount: str, other: str) -> str:
    """Return how many times an amount has another, ``amount // other``, as SQL; null of nothing.

    It is made of doubles, as DuckDB divides HUGEINTs bit by bit. Up to 10**12 times, the quotient of two, made smaller
    by more than they are rounded by, is right or one too small.
    """
    other = f"nullif({other}, 0)"
    ratio = f"({amount})::DOUBLE / {other}::DOUBLE"
    low = f"floor({ratio} * {SMALLER!r})::HUGEINT"
    exact = f"{low} + ({amount} - {low} * {other} >= {other})::INTEGER"
    is_small = f"{amount} >= 0 AND {other} > 0 AND {ratio} < 1e12"
    return f"CASE WHEN {is_small} THEN {exact} ELSE ({amount}) // {other} END"


def bps_sql(part: str, whole: str) -> str:
    """Return the share of an amount in another in basis points, as SQL; null of nothing.

    Amounts have more digits than a double; a rate of up to four decimals, below 10**11, is exactly that number all
    the same.
    """
    rate = f"{part}::DOUBLE / nullif({whole}::DOUBLE, 0)"
    ten_thousandths = f"round({rate} * 1e8)::HUGEINT"
    # A product of larger amounts may not fit 128 bits; in lowest terms, theirs fit doubles.
    common = f"nullif(gcd({part}, {whole}), 0)"
    return f"""CASE
        WHEN greatest(abs({part}), abs({whole})) > {10**29}
            THEN 10000 * ({part} // {common})::DOUBLE / nullif(({whole} // {common})::DOUBLE, 0)
        WHEN {part} * {10**8} = {whole} * {ten_thousandths} THEN {ten_thousandths}::DOUBLE / 1e4
        ELSE 10000 * {rate}
    END"""


@dataclass(frozen=True)
class Periods:
    """Periods of one length, such as ``1w`` or ``1mo``, which begin by the clock of a time zone.

    Where clocks change, a day has 23 or 25 hours. Periods of an hour or less keep their length, so an hour that a clock
    shows twice is two periods.
    """

    every: str
    zone: str = UTC

    @property
    def length(self) -> str:
        """The length of a period as SQL."""
        count, unit = count_and_unit(self.every)
        if unit in MONTHS:
            return f"INTERVAL {count * MONTHS[unit]} MONTH"
        return f"INTERVAL {count * FIXED[unit] // SECOND} SECOND"

    def start(self, moment: str = "created_at") -> str:
        """Return the start of the period of a moment as SQL."""
        moment = f"{moment}::TIMESTAMPTZ"
        shown = _clock(moment, self.zone)
        begun = self._begun(shown)
        if self._least <= HOUR:
            return _moment(f"{begun} - ({shown} - {_clock(moment, UTC)})", UTC)
        return _moment(begun, self.zone)

    def starts(self, first: str, last: str) -> str:
        """Return the starts of all periods from a start to before a moment, as a list in SQL."""
        zone = UTC if self._least <= HOUR else self.zone
        shown = _clock(first, zone)
        # A start that a clock leaves out, such as a midnight, is shown as an hour later. Days may be counted from any
        # day, as those of a figure are, so that not every start is one that `start` gives.
        if self._least % DAY == 0:
            shown = f"date_trunc('day', {shown})"
        elif self._least > HOUR:
            shown = self._begun(shown)
        listed = f"range({shown}, {_clock(last, zone)}, {self.length})"
        return f"list_transform({listed}, lambda start: {_moment('start', zone)})"

    def _begun(self, shown: str) -> str:
        """Return what the clock shows when the period of what it shows begins."""
        _, unit = count_and_unit(self.every)
        # Weeks begin on a Monday; other periods are counted from the beginning of 1970.
        origin = "1970-01-05" if unit == "w" else "1970-01-01"
        return f"time_bucket({self.length}, {shown}, TIMESTAMP '{origin}')"

    @property
    def _least(self) -> int:
        """How many milliseconds a period has, if clocks are not changed in it; of months, how many at least."""
        count, unit = count_and_unit(self.every)
        return count * FIXED.get(unit, 28 * DAY)


def _clock(moment: str, zone: str) -> str:
    """Return what the clock of a zone shows at a moment, as SQL without a zone: a connection has its own."""
    if zone == UTC:
        return f"make_timestamp(epoch_us({moment}))"
    return f"timezone({literal(zone)}, {moment})"


def _moment(shown: str, zone: str) -> str:
    """Return the first moment at which the clock of a zone shows this, as SQL."""
    if zone == UTC:
        return f"to_timestamp(epoch({shown}))"
    # DuckDB gives the second moment where clocks were put back by an hour.
    second = f"timezone({literal(zone)}, {shown})"
    first = f"{second} - INTERVAL 1 HOUR"
    return f"CASE WHEN {_clock(first, zone)} = {shown} THEN {first} ELSE {second} END"


@functools.cache
def _zones() -> set[str]:
    """Return the time zones that both DuckDB and Python know."""
    rows = session.cursor().execute("SELECT name FROM pg_timezone_names()").fetchall()
    return zoneinfo.available_timezones() & {name for (name,) in rows}


def check_zone(tz: object, caller: str) -> str:
    """Return the name of a time zone; a LabError where it is none."""
    if isinstance(tz, str) and tz in _zones():
        return tz
    hint = did_you_mean(tz, _zones(), "Give a name of the IANA time zone database.")
    raise LabError(
        f"{caller}: tz={tz!r} is not the name of a time zone, such as 'Europe/Berlin' or 'UTC'. {hint}"
    )


def count_and_unit(every: str) -> tuple[int, str]:
    """Return the number and the unit of a period; a LabError where it is none."""
    match = re.fullmatch(r"([1-9]\d{0,3})?(s|min|h|d|w|mo|q|y)", str(every).lower())
    if not match:
        raise LabError(
            f"every={every!r} is not a period. Give a number and a unit, such as '1h', '1d', '1w' (from "
            "Monday), '1mo', '1q' or '1y'; 'min' is a minute."
        )
    return int(match[1] or 1), match[2]


@dataclass(frozen=True)
class Keys:
    """The keys of an answer: their names in it, and how their values are put in order.

    ``order`` holds, for ordered categories, the values of a key in their order. ``added`` are the keys that are no
    columns of the caller's: with ``periods`` one of them is ``period``, and a step of the question adds the others.
    """

    names: tuple[str, ...] = ()
    periods: Periods | None = None
    order: dict[str, list[Any]] = field(default_factory=dict)
    added: tuple[str, ...] = ()

    @property
    def of_frame(self) -> list[str]:
        """The keys that are columns of the caller's."""
        return [name for name in self.names if name not in self.added]

    @property
    def aliases(self) -> list[str]:
        """The names of the keys in queries."""
        return [f"group_{number}" for number, _ in enumerate(self.names, start=1)]

    def definitions(self, types: Mapping[str, str]) -> list[str]:
        """Return the keys of a frame with columns of these types: one line of a SELECT for each."""
        aliases = dict(zip(self.names, self.aliases, strict=True))
        lines = [f"0 AS {EVERYTHING}"]
        if self.periods is not None:
            lines.append(f"{self.periods.start()} AS {aliases['period']}")
        for name in self.of_frame:
            source = quoted(name)
            kind = types[name]
            if kind in ("FLOAT", "DOUBLE"):
                source += " + 0"  # makes -0.0 and 0.0 one group
            if kind == WHOLE_NUMBER:
                source += "::DECIMAL(38, 0)"
            if kind == ANY_TEXT:
                source = hash_sql(source)
            lines.append(f"{source} AS {aliases[name]}")
        return lines

    def columns(self, table: str = "") -> str:
        """List the keys, as of a table if one is given."""
        prefix = f"{table}." if table else ""
        return ", ".join(prefix + alias for alias in (EVERYTHING, *self.aliases))

    def same(self, left: str, right: str, *others: str) -> str:
        """Return the condition that two tables have the same keys, and the same other columns; nulls are alike."""
        return same_sql(left, right, (EVERYTHING, *self.aliases, *others))

    def sorted_by(self, *others: str, table: str = "") -> str:
        """Return ORDER BY with the keys of a table and other columns, unknown ones last."""
        prefix = f"{table}." if table else ""
        terms = [prefix + EVERYTHING]
        for key, name in zip(self.aliases, self.names, strict=True):
            term = prefix + key
            values = self.order.get(name)
            if values:
                # DuckDB reads each text as a value of the key's own type.
                places = " ".join(
                    f"WHEN {literal(str(value))} THEN {place}"
                    for place, value in enumerate(values)
                )
                term = f"CASE {term} {places} END"
            terms.append(f"{term} NULLS LAST")
        terms += [f"{name} NULLS LAST" for name in others]
        return f"ORDER BY {', '.join(terms)}"


def keys_of(
    trades: Given[Any],
    by: str | Sequence[str] | None,
    *reserved: str,
    every: str | None = None,
    tz: str = UTC,
) -> Keys:
    """Check ``by=``, ``every=`` and ``tz=`` of a call. `reserved` are names that its answer has for columns of its own.

    With `every`, ``period`` is the first key.
    """
    caller = trades.caller
    zone = check_zone(tz, caller)
    periods = None
    added: tuple[str, ...] = ()
    if every is not None:
        count_and_unit(every)  # raises where it is not a period
        periods = Periods(every, zone)
        added = ("period",)
    names = [] if by is None else several(by)
    for name in names:
        # Names are compared below, and pandas compares each value of a column.
        if not isinstance(name, str):
            raise LabError(
                f"{caller}: by= cannot include {type(name).__name__}. {TAKES_NAMES}"
            )
    for name in names:
        if name == "created_at":
            hint = "Use every= to group by period."
        elif name in NOT_GROUPS:
            hint = "Use columns such as market."
        elif name in (*reserved, *added, *NOTES):
            hint = IS_OF_RESULT
        elif not name or "\0" in name:
            hint = "DuckDB has no columns of such a name: rename yours."
        elif names.count(name) > 1:
            hint = "Name it once." if name in trades.names else TAKES_NAMES
        else:
            continue
        raise LabError(f"{caller}: by= cannot include {name!r}. {hint}")
    order = {name: trades.order_of(name) for name in names}
    return Keys((*added, *names), periods, order, added)


def several(given: Any) -> list[Any]:
    """Return a list of what is given, which is one value, such as a text, or many."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    return list(given)
