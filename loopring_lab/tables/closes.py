"""Prices from outside of the exchange, from a CSV file."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pandas as pd

from loopring_lab.bounded import given_path
from loopring_lab.engine.notes import with_note
from loopring_lab.errors import LabError
from loopring_lab.redaction import hide_addresses
from loopring_lab.tables.csv_files import (
    NEEDED,
    POSITIVE,
    TEXT_TIME,
    TOKENS,
    UNITS,
    CsvFile,
    read_milliseconds,
    read_positive,
    refuse_other_tokens,
)
from loopring_lab.tables.listings import EARLIEST, check_frame, to_utc

# A feed that has stopped repeats its last price; daily closes may well be equal twice.
DAY = np.timedelta64(1, "D")
LEAST_STILL = 24


def prices(
    file: str | os.PathLike[str],
    markets: pd.DataFrame | None = None,
    unit: str | None = None,
) -> pd.DataFrame:
    """Read prices from outside of the exchange, such as minute closes, from a CSV file.

    Parameters
    ----------
    file : path
        CSV in UTF-8, compressed with gzip or not, of at most 512 MiB, with a line of names: ``created_at``,
        ``market`` and ``price`` (quote per base, above 0, of any number of decimals up to 18), and optionally
        ``base`` and ``quote``; other columns are left out. The time is when the price was known: the end of
        a minute, where many providers state its start.
    markets : pandas.DataFrame, optional
        From `Client.markets`; gives ``base`` and ``quote`` where the file has none, and refuses other ones.
    unit : {'s', 'ms'}, optional
        Unit of times that are numbers since 1970. By default times are text such as
        ``2022-03-31 18:00:00+00:00``, in UTC where they have no zone.

    Returns
    -------
    pandas.DataFrame, shape (prices, 5)
        ``created_at`` (UTC, milliseconds), ``market``, ``base``, ``quote`` (null where unknown) and ``price``
        (`amounts.AMOUNT`, exact; null where empty), sorted by time and market: `prices` of
        `fills.compare_venues` and its like, or the `reference` of `fills.all_in_cost`. A note in
        ``attrs["notes"]`` names a market whose price stands still for a day, as that of a feed does that stopped.

    Raises
    ------
    UnexpectedAnswer
        The file is not such a CSV file, or a market has other tokens than in `markets` or on a line before;
        names file, line and column.
    LabError
        `markets` or `unit` is not valid.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> file = Path(tempfile.mkdtemp(), "closes.csv")
    >>> closes = {"created_at": ["2022-03-31T18:01Z"], "market": ["LRC-ETH"], "price": ["0.00031"]}
    >>> pd.DataFrame(closes).to_csv(file, index=False)
    >>> lab.show(lab.tables.prices(file, client.markets()))
       created_at (UTC)  market base price (ETH)
    2022-03-31 18:01:00 LRC-ETH  LRC     0.00031
    """
    file = hide_addresses(file)
    if unit is not None and unit not in UNITS:
        raise LabError(
            f"unit={unit!r} is not known. Use 's' or 'ms', or leave it out where times are text."
        )
    if markets is not None:
        check_frame("markets", markets, {*TOKENS})
    closes = CsvFile(
        given_path(file),
        (*NEEDED, *TOKENS),
        complete=("created_at", "market"),
    )
    moment = f"a whole number of {unit} since 1970"
    if not unit:
        moment = f"{TEXT_TIME}, or unit='ms' for numbers"
    found = pd.DataFrame(
        {
            "created_at": to_utc(
                closes.column(
                    "created_at",
                    moment,
                    partial(
                        read_milliseconds,
                        unit=unit,
                    ),
                )
            ),
            "market": closes.column("market", "a name"),
        }
    )
    early = found["created_at"] < pd.Timestamp(EARLIEST, unit="ms", tz="UTC")
    if unit == "ms" and early.any():
        # Seconds that are taken for milliseconds are times of 1970.
        raise closes.error(
            "times of 2015 or later, or unit='s'",
            str(found["created_at"][early].iloc[0]),
            closes.line_of(int(early.argmax())),
            "created_at",
        )
    for name in TOKENS:
        found[name] = closes.column(name, "a name")
    refuse_other_tokens(closes, found, markets)
    if markets is not None:
        for name in TOKENS:
            listed = markets[name].to_dict()
            found[name] = found[name].fillna(found["market"].map(listed))
    found["price"] = closes.column("price", POSITIVE, read_positive)
    # A price may be repeated, but not contradicted.
    once = found.drop_duplicates(["created_at", "market", "price"])
    again = once.index[once.duplicated(["created_at", "market"])]
    if len(again):
        at, market, price = found.loc[again[0], [*NEEDED]]
        got = f"{price:f}, but another price of {market} at {at} before"
        raise closes.error(
            "one price of a market and time",
            got,
            closes.line_of(again[0]),
            "price",
        )
    categories = found.astype(dict.fromkeys(["market", *TOKENS], "category"))
    closes_in_order = categories.sort_values(
        ["created_at", "market"],
        kind="stable",
        ignore_index=True,
    )
    return with_note(closes_in_order, _note_on_still(closes_in_order))


def _note_on_still(found: pd.DataFrame) -> str:
    """Name a market whose price stood still for a day, though there were many; empty where none did."""
    markets = found["market"].cat.codes.to_numpy()
    times = found["created_at"].to_numpy()
    order = np.lexsort((times, markets))
    markets = markets[order]
    times = times[order]
    prices = found["price"].array.take(order)
    is_new = (prices[1:] != prices[:-1]) | (np.diff(markets) != 0)
    starts = np.append(0, np.flatnonzero(is_new) + 1)[: len(found)]
    ends = np.append(starts[1:], len(found))[: len(found)] - 1
    is_still = times[ends] - times[starts] >= DAY
    is_often = ends - starts >= LEAST_STILL
    still = np.flatnonzero(is_still & is_often)
    if not len(still):
        return ""
    first = found.iloc[order[starts[still[0]]]]
    until = found["created_at"].iloc[order[ends[still[0]]]]
    more = f", and {len(still) - 1} more times" if len(still) > 1 else ""
    return (
        f"The price of {first['market']} stands still for a day and more: {first['price']} from "
        f"{first['created_at']:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}{more}. If its trades moved meanwhile, "
        "leave these prices out."
    )
