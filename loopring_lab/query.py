"""What is asked of a history: which of it, from when on, until when; and the nearest name to a wrong one."""

from __future__ import annotations

import difflib
import operator
from typing import Any

import pandas as pd

from loopring_lab.errors import LabError
from loopring_lab.tables.rows import FILL_TYPES

__all__ = ["Moment", "filter_trades", "near_market", "parse_utc", "validate_trade_query"]

Moment = str | pd.Timestamp | Any


def validate_trade_query(
    account_id: int | None, order_hash: str | None, fill_type: str | None, limit: int | None
) -> None:
    """Refuse what no relayer could answer."""
    if account_id is None and not order_hash:
        raise LabError("trades: nothing to ask for. Give account_id=, or order_hash=.")
    if fill_type is not None and fill_type not in FILL_TYPES:
        raise LabError(f"fill_type={fill_type!r}: give 'amm', 'dex', or nothing for both.")
    if limit is not None and limit < 1:
        raise LabError(f"limit={limit}: give a number of trades above 0, or nothing for all.")


def parse_utc(name: str, moment: Moment) -> pd.Timestamp | None:
    """Read a moment, in UTC where no zone is given."""
    if moment is None:
        return None
    stamp = pd.to_datetime(moment, errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        raise LabError(f"{name}={moment!r} is not a time. Give one like '2022-03-31' or '2022-03-31T18:00Z'.")
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")


def filter_trades(
    frame: pd.DataFrame, start: pd.Timestamp | None, end: pd.Timestamp | None, limit: int | None
) -> pd.DataFrame:
    """Choose rows by their time, then the newest of them."""
    moment = frame["created_at"]
    inside = moment.isna() | ((start is None or moment >= start) & (end is None or moment < end))
    some = frame[inside] if not inside.all() else frame
    return (some.tail(limit) if limit else some).reset_index(drop=True)


def near_market(name: str, known: pd.Index) -> str | None:
    """Find the market that was probably meant."""
    asked = name.upper()
    turned = "-".join(reversed(asked.split("-")))
    return next((one for one in known if one == turned), None) or next(
        iter(difflib.get_close_matches(asked, known, 1)), None
    )


def parse_account_id(value: Any, name: str = "account_id") -> int:
    """Return an account id as an int, or raise."""
    try:
        found = operator.index(value)
    except TypeError:
        found = -1
    if found < 0:
        raise LabError(f"{name}={value!r}: give the account's number, such as 10083.")
    return found
