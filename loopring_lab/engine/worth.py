"""What tokens are worth in one another: the markets that lead from one to another, and prices by day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from loopring_lab.engine.ask import ask_table
from loopring_lab.engine.groups import DAY
from loopring_lab.engine.kinds import Given
from loopring_lab.engine.question import Question

Pair = tuple[str, str]
"""The base and the quote token of a market."""

DAY_SQL = f"floor(ms / {DAY}.0)::BIGINT"
"""The day of a row, counted from 1970."""


class Step(NamedTuple):
    """A conversion along one market: from base to quote by its price (power 1), or back, divided by it (-1)."""

    pair: Pair
    power: int

    @property
    def reached(self) -> str:
        """The token converted to."""
        base, quote = self.pair
        return quote if self.power == 1 else base


def busiest_paths(fills: Mapping[Pair, int], token: str) -> dict[str, list[Step]]:
    """Return the steps by which each token is converted to one.

    Starting from that token, always the busiest market is added that leads to a token not reached before.
    """
    paths: dict[str, list[Step]] = {token: []}
    while True:
        # Markets of which exactly one token is reached: each leads to one more.
        open_pairs = [
            pair for pair in fills if (pair[0] in paths) != (pair[1] in paths)
        ]
        if not open_pairs:
            return paths
        base, quote = max(open_pairs, key=lambda pair: (fills[pair], pair))
        if base in paths:
            paths[quote] = [Step((base, quote), -1), *paths[base]]
        else:
            paths[base] = [Step((base, quote), 1), *paths[quote]]


DAILY_PRICES = f"""
-- the mean price of each market on each day: what was paid for all that was bought
SELECT base, quote, {DAY_SQL} AS day, count(*) AS fills,
    sum(notional)::DOUBLE / sum(size)::DOUBLE AS price
FROM trades
WHERE price > 0 AND size > 0 AND notional > 0 AND ms IS NOT NULL AND base IS NOT NULL AND quote IS NOT NULL
GROUP BY ALL
"""


def worth_by_day(trades: Given[Any]) -> pa.Table:
    """Return what a unit of each quote token is worth on each day, in the one that most fills are quoted in.

    These weigh fills of several quote tokens against each other, for which a daily mean is exact enough.
    Before a market's first day that day's price counts, and after its last day the last one.

    Columns are ``token``, ``day`` (from 1970) and ``worth`` (float64); quote tokens that no market connects
    with the most used one are left out.
    """
    question = Question(
        trades.caller,
        steps={"sums": DAILY_PRICES},
        needs=("created_at", "base", "quote", "size", "price", "notional"),
        split_by=("base", "quote"),
    )
    daily = ask_table(question, trades).to_pandas()
    # A row for each day and a column for each market.
    prices = (
        daily.pivot(index="day", columns=["base", "quote"], values="price")
        .sort_index()
        .ffill()
        .bfill()
    )
    fills = daily.groupby(["base", "quote"])["fills"].sum().to_dict()
    quotes = daily.groupby("quote")["fills"].sum().to_dict()
    worth = pd.DataFrame({"token": [], "day": [], "worth": []})
    if quotes:
        most_used = max(quotes, key=lambda token: (quotes[token], token))
        paths = busiest_paths(fills, most_used)
        parts = [
            _worth_of(token, paths[token], prices) for token in quotes if token in paths
        ]
        worth = pd.concat(parts, ignore_index=True)
    types = {"token": pa.string(), "day": pa.int64(), "worth": pa.float64()}
    return pa.Table.from_pandas(worth, pa.schema(types), preserve_index=False)


def _worth_of(token: str, steps: list[Step], prices: pd.DataFrame) -> pd.DataFrame:
    """Return what a token is worth on each day, along the markets that it is converted in."""
    worth = pd.Series(1.0, prices.index)
    for step in steps:
        worth *= prices[step.pair] ** step.power
    return worth.rename("worth").reset_index().assign(token=token)
