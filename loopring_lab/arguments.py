"""The arguments of a query: validation, conversion, and suggestions for wrong names."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable
from numbers import Number
from typing import Any, ParamSpec, cast

import numpy as np
import pandas as pd

from loopring_lab import tables
from loopring_lab.bounded import MAX_INT64, shown
from loopring_lab.engine.ask import ask_table, given
from loopring_lab.engine.question import Question
from loopring_lab.errors import LabError, RelayerError, did_you_mean, in_any_case
from loopring_lab.tables.listings import POOL_PREFIX
from loopring_lab.tables.rows import FILL_TYPES

# The relayer's error code for a market that it does not list: an invalid argument.
NO_MARKET = 100001
# Times of trades are milliseconds since 1970, as the relayer sends them.
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# A date, then a time of day, then a zone, each with or without its separators.
_ISO_8601 = re.compile(
    r"\s*(\d{4}(-\d{2}(-\d{2})?)?|\d{8})"
    r"([T ]\d{2}(:?\d{2}(:?\d{2}([.,]\d{1,9})?)?)? ?(Z|[+-]\d{2}(:?\d{2})?)?)?\s*"
)
_EXAMPLE_TIME = (
    "Give one like '2022-03-31' or '2022-03-31T18:00Z', with the year first."
)
_DIGITS = re.compile(r"\s*[0-9]{1,19}\s*")  # 2^63 has 19

# The first and last time of each market's trades, one row for each market, as questions about time need them.
SPANS = Question(
    "outside_prices",
    steps={
        "sums": """
-- the first and the last time of each market
SELECT market, min(ms) AS first_ms, max(ms) AS last_ms FROM trades GROUP BY market""",
        "answer": "-- in order\nSELECT * FROM sums ORDER BY market",
    },
    needs=("created_at", "market"),
)

Moment = str | pd.Timestamp | Any
Arguments = ParamSpec("Arguments")


def validate_trade_query(
    account_id: object,
    order_hash: str | None,
    fill_type: str | None,
    limit: int | None,
) -> None:
    """Refuse a query that no relayer could answer."""
    if account_id is None and not order_hash:
        raise LabError(
            "trades: neither an account nor an order is given. Give account_id= or order_hash=."
        )
    if fill_type is not None and fill_type not in FILL_TYPES:
        raise LabError(
            f"fill_type={fill_type!r}: give 'amm', 'dex', or nothing for both."
        )
    if limit is not None and _whole(limit) < 1:
        raise LabError(
            f"limit={shown(limit)}: give a number of trades above 0, or nothing for all."
        )


def parse_account_id(value: Any, name: str = "account_id") -> int:
    """Return an account id as an int, also of its digits as text, or raise a `LabError`."""
    is_digits = isinstance(value, str) and _DIGITS.fullmatch(value)
    account_id = int(value) if is_digits else _whole(value)
    if not 0 <= account_id <= MAX_INT64:
        raise LabError(
            f"{name}={shown(value)} is not a valid account id. Give a whole number, such as 10083."
        )
    return account_id


def parse_account_ids(values: Iterable[Any]) -> list[int]:
    """Return account ids, each once."""
    ids = list(dict.fromkeys(map(parse_account_id, values)))
    if not ids:
        raise LabError("account_id= is empty. Give an account id, or several.")
    return ids


def of_each_account(
    read: Callable[Arguments, pd.DataFrame],
) -> Callable[Arguments, pd.DataFrame]:
    """Have a method that reads an account's trades take several accounts as well, which it reads one by one."""
    signature = inspect.signature(read)

    @functools.wraps(read)
    def trades(*args: Arguments.args, **kwargs: Arguments.kwargs) -> pd.DataFrame:
        given = signature.bind(*args, **kwargs)
        accounts = given.arguments.get("account_id")
        if not isinstance(accounts, Iterable) or isinstance(accounts, str):
            return read(*args, **kwargs)
        frames = []
        for account in parse_account_ids(accounts):
            given.arguments["account_id"] = account
            frames.append(read(*given.args, **given.kwargs))
        return tables.join_frames(frames, given.arguments.get("limit"))

    return trades


def _whole(value: Any) -> int:
    """Return a whole number, or -1 for anything else."""
    # True is an int to Python, and would be the account 1.
    if isinstance(value, bool):
        return -1
    try:
        return operator.index(value)
    except TypeError:
        return -1


def parse_utc(name: str, moment: Moment) -> pd.Timestamp | None:
    """Read a time, as UTC where it has no zone; a number could be of any unit and is refused."""
    if moment is None:
        return None
    if isinstance(moment, (Number, np.number)):
        raise LabError(
            f"{name}={shown(moment)} is not a time: a number may count seconds or milliseconds. Give one "
            "like '2022-03-31T18:00Z', or pandas.Timestamp(number, unit='ms', tz='UTC')."
        )
    stamp = None
    # pandas would read 12.04.2023 as 4 December, and 13.04.2023 as 13 April; and it makes times of a dict's columns.
    text = moment if isinstance(moment, str) else None
    is_readable = text is None or _ISO_8601.fullmatch(text)
    if is_readable and not isinstance(moment, dict):
        stamp = pd.to_datetime(moment, errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        raise LabError(f"{name}={shown(moment)} is not a time. {_EXAMPLE_TIME}")
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")


def parse_span(
    since: Moment, until: Moment
) -> tuple[pd.Timestamp | None, pd.Timestamp | None]:
    """Read two times, the first of which is not after the second."""
    start, end = parse_utc("since", since), parse_utc("until", until)
    if start is not None and end is not None and start > end:
        raise LabError(
            f"since={shown(since)} is after until={shown(until)}, so nothing is between them. Swap them."
        )
    return start, end


def parse_length(length: Any, caller: str, name: str = "tolerance") -> int:
    """Parse a length of time such as ``"60s"`` as milliseconds, or raise a `LabError`."""
    parsed: Any = None
    if isinstance(length, str):
        # pandas reads days and weeks in capitals only, and a number without a unit as nanoseconds.
        has_unit = not re.fullmatch(r"\s*[+-]?\d+\s*", length)
        text = re.sub(r"(?<=[\d ])[dw]$", lambda unit: unit[0].upper(), length)
        parsed = pd.to_timedelta(text, errors="coerce") if has_unit else None
    elif isinstance(length, dt.timedelta | np.timedelta64):
        parsed = pd.to_timedelta(cast("dt.timedelta", length), errors="coerce")
    if not isinstance(parsed, pd.Timedelta) or parsed < pd.Timedelta(0):
        none = ", or None" if name == "tolerance" else ""
        raise LabError(
            f"{caller}: {name}={length!r} is not a length of time. Give a number with a unit, such as '60s'{none}."
        )
    return int(parsed // pd.Timedelta(1, "ms"))


def parse_tolerance(tolerance: Any, caller: str) -> int | None:
    """Parse a tolerance as milliseconds; None for any length."""
    return None if tolerance is None else parse_length(tolerance, caller)


def to_milliseconds(moment: pd.Timestamp | None) -> int | None:
    """Return the first whole millisecond that is not before a time, counted from 1970: trades have no others."""
    if moment is None:
        return None
    whole = moment.as_unit("ms")
    if whole < moment:
        whole += pd.Timedelta(1, "ms")
    return round(whole.timestamp() * 1000)


def outside_prices(
    trades: Any, known_markets: pd.Index, every: str
) -> dict[str, dict[str, Any]]:
    """Return what to ask an outside market, for each market of trades: from an hour before to a day after."""
    length = parse_length(every, "outside_prices", "every")
    if length < MINUTE_MS or length % MINUTE_MS:
        raise LabError(
            f"outside_prices: every={every!r} is no number of whole minutes. Give '1min' or '1h'."
        )
    spans = ask_table(SPANS, given(trades, SPANS.caller)).to_pylist()
    known = [span for span in spans if span["first_ms"] is not None]
    if not known:
        return {}
    # The first trade finds a price from the hour before it; the longest mark-outs need a day after the last trade.
    first = min(span["first_ms"] for span in known) - HOUR_MS
    last = max(span["last_ms"] for span in known) + DAY_MS
    traded = {span["market"] for span in spans}
    # They are in the order of the listing, which is that of the categories of trades.
    names = [name for name in known_markets if name in traded]
    return {
        name: {"market": name, "start": first, "end": last, "every": length}
        for name in names
    }


def known_market(
    market: str | None, fill_type: str | None, listed: pd.Index
) -> tuple[str | None, str | None]:
    """Return a market's name as it is listed, in any case, and the fill type; the name of a pool says both."""
    if market is None or market == "":
        return None, fill_type
    if not isinstance(market, str):
        raise LabError(
            f"market={shown(market)} is not the name of a market. Give one, such as 'LRC-ETH', or nothing for all."
        )
    plain = market
    if market.upper().startswith(POOL_PREFIX):
        plain = market[len(POOL_PREFIX) :]
        if fill_type == "dex":
            raise LabError(
                f"market={market!r} is the name of a pool, which has no order-book fills. Leave out fill_type='dex'."
            )
        fill_type = "amm"
    return in_any_case(plain, listed) or plain, fill_type


def with_suggestion(
    error: RelayerError, market: str | None, listed: pd.Index
) -> RelayerError:
    """Say which market was probably meant where a relayer refuses one that is not listed."""
    if error.code != NO_MARKET or market is None or market in listed:
        return error
    hint = market_hint(market, listed, "client.markets() lists the markets.")
    return RelayerError(
        error.message,
        status=error.status,
        code=error.code,
        hint=hint,
        endpoint=error.endpoint,
    )


def market_hint(name: str, known: pd.Index, otherwise: str) -> str:
    """Suggest the market that was probably meant, also by its tokens the other way round, else say `otherwise`."""
    swapped = "-".join(reversed(name.upper().split("-")))
    if swapped in known:
        return f"Did you mean {swapped!r}?"
    return did_you_mean(name, known, otherwise)


def filter_trades(
    frame: pd.DataFrame,
    start: pd.Timestamp | None,
    end: pd.Timestamp | None,
    limit: int | None,
    **asked: object,
) -> pd.DataFrame:
    """Select rows by their time, and then the newest of them; where none are left, a note says so."""
    moment = frame["created_at"]
    outside = pd.Series(False, index=frame.index)
    if start is not None:
        outside |= moment < start
    if end is not None:
        outside |= moment >= end
    # A row of unknown time is kept: comparisons with it are false.
    selected = frame[~outside] if outside.any() else frame
    if limit:
        selected = selected.tail(limit)
    selected = selected.reset_index(drop=True)
    if selected.empty:
        note = "There are no trades"
        given = [
            f"{name}={value!r}" for name, value in asked.items() if value is not None
        ]
        if given:
            note += f" of {', '.join(given)}"
        if len(frame):
            # How many is not known: a relayer's pages are read up to that time only.
            note += " in the time asked for, but some outside it"
        selected.attrs["notes"] = [f"{note}."]
    return selected
