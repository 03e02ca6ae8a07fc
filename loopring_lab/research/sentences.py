"""What quotes of a pool and its liquidity come to, in words that claim no more than they show."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.engine.ask import given
from loopring_lab.errors import LabError
from loopring_lab.fills.sentences import (
    LEVEL,
    interval_in_words,
    rounded,
    sentences_of_groups,
)
from loopring_lab.interactive.prose import Sentences
from loopring_lab.research import earnings

# Columns by which an answer of `pool_quotes` by group is known.
QUOTED = ("orders", "unquoted", "weighted_opportunity_bps", "low_opportunity_bps")
NO_QUOTES = (
    "No quotes: no reserves of a pool are known just before any order on the book."
)


def describe(answer: Any) -> Sentences:
    """Say in words what `liquidity` or `pool_quotes` (with ``by=``) found, for each pool or row.

    Parameters
    ----------
    answer : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `liquidity`, or `pool_quotes` with ``by=``.

    Returns
    -------
    str
        Which a notebook shows as prose. Of a pool: fees and losses, the mean net return of a period with its
        interval, and how the position changed. Of quotes: the opportunity cost of the orders on the book, with its
        interval, and how many have a quote.

    Raises
    ------
    LabError
        `answer` has the columns of neither.

    Examples
    --------
    >>> pool = client.trades(account_id=1, limit=200)
    >>> days = lab.research.liquidity(pool, prices=client.outside_prices(pool))
    >>> "Fees, assumed: " in lab.research.describe(days)
    True
    """
    found = given(answer, "lab.research.describe")
    names = set(found.names)
    is_of_pools = names.issuperset(earnings.NEEDED)
    if not is_of_pools and not names.issuperset(QUOTED):
        raise LabError(
            f"{found.caller}: the frame is no answer of lab.research.liquidity, nor of lab.research.pool_quotes with "
            "by=. Pass one of these, such as that of pool_quotes with by=[]."
        )
    table = found.to_pandas()
    if is_of_pools:
        return Sentences("\n".join(earnings.sentences(table)) or "No fills of a pool.")
    level = table.attrs.get("intervals", LEVEL)
    lines = sentences_of_groups(table, lambda row: _of_quotes(row, level))
    # An answer without a row has no group to speak of.
    return Sentences("\n".join(lines) or NO_QUOTES)


def _of_quotes(row: dict[Any, Any], level: float) -> str:
    """Say what orders on the book would have saved or lost at the pool."""
    cost = row["weighted_opportunity_bps"]
    if pd.isna(cost):
        return NO_QUOTES
    low = row["low_opportunity_bps"]
    high = row["high_opportunity_bps"]
    # Without an interval both ends are missing, and no comparison with 0 holds.
    verdict = "Undecided"
    if low > 0:
        verdict = "The pool would have been cheaper"
    elif high < 0:
        verdict = "The book was cheaper than the pool would have been"
    quoted = row["orders"] - row["unquoted"]
    interval = interval_in_words(low, high, level)
    return (
        f"{verdict}: the opportunity cost is {rounded(cost)} bps ({interval}), all in, over the "
        f"{quoted:,} of {row['orders']:,} orders on the book that have a quote."
    )
