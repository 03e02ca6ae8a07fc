"""What is asked of a history: which of it, from when on, until when; and the nearest name to a wrong one."""

from __future__ import annotations

import difflib
from typing import Any

import pandas as pd

from loopring_lab.errors import LabError
from loopring_lab.tables.rows import FILL_TYPES

__all__ = ["Moment", "checked", "chosen", "near_market", "utc"]

Moment = str | pd.Timestamp | Any


def checked(account_id: int | None, order_hash: str | None, fill_type: str | None, limit: int | None) -> None:
    """Refuse what no relayer could answer.

    Parameters
    ----------
    account_id, order_hash, fill_type, limit : object
        As for `Client.trades`.

    Raises
    ------
    LabError
        Names the argument.
    """
    if account_id is None and not order_hash:
        raise LabError("trades: nothing to ask for. Give account_id=, or order_hash=.")
    if fill_type is not None and fill_type not in FILL_TYPES:
        raise LabError(f"fill_type={fill_type!r}: give 'amm', 'dex', or nothing for both.")
    if limit is not None and limit < 1:
        raise LabError(f"limit={limit}: give a number of trades above 0, or nothing for all.")


def utc(name: str, moment: Moment) -> pd.Timestamp | None:
    """Read a moment, in UTC where no zone is given.

    Parameters
    ----------
    name : str
        Of the argument.
    moment : str, datetime, Timestamp or None
        Any form that pandas reads.

    Returns
    -------
    pandas.Timestamp or None
        In UTC.

    Raises
    ------
    LabError
        It is no time; names the argument.

    Examples
    --------
    >>> utc("since", "2022-03-31")
    Timestamp('2022-03-31 00:00:00+0000', tz='UTC')
    """
    if moment is None:
        return None
    stamp = pd.to_datetime(moment, errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        raise LabError(f"{name}={moment!r} is not a time. Give one like '2022-03-31' or '2022-03-31T18:00Z'.")
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")


def chosen(
    frame: pd.DataFrame, start: pd.Timestamp | None, end: pd.Timestamp | None, limit: int | None
) -> pd.DataFrame:
    """Choose rows by their time, then the newest of them.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trades, oldest first.
    start, end : pandas.Timestamp or None
        From and before; a row of unknown time is kept.
    limit : int or None
        The newest so many.

    Returns
    -------
    pandas.DataFrame
        Numbered from 0.
    """
    moment = frame["created_at"]
    inside = moment.isna() | ((start is None or moment >= start) & (end is None or moment < end))
    some = frame[inside] if not inside.all() else frame
    return (some.tail(limit) if limit else some).reset_index(drop=True)


def near_market(name: str, known: pd.Index) -> str | None:
    """Find the market that was probably meant.

    Parameters
    ----------
    name : str
        Not among the known ones.
    known : pandas.Index
        Names of markets.

    Returns
    -------
    str or None
        The same tokens the other way round, else the nearest spelling.

    Examples
    --------
    >>> near_market("eth-lrc", pd.Index(["LRC-ETH", "ETH-USDC"]))
    'LRC-ETH'
    """
    asked = name.upper()
    turned = "-".join(reversed(asked.split("-")))
    return next((one for one in known if one == turned), None) or next(
        iter(difflib.get_close_matches(asked, known, 1)), None
    )
