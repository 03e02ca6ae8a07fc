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


class Traded(NamedTuple):
    """What was traded in a market: of its base token, and of its quote token."""

    size: float = 0.0
    notional: float = 0.0


class Step(NamedTuple):
    """A conversion along one market: from base to quote by its price (power 1), or back, divided by it (-1)."""

    converted: str
    reached: str
    pair: Pair
    power: int
    amount: float
    """How much of the token converted from was traded in the market."""


def shortest_paths(traded: Mapping[Pair, Traded], token: str) -> dict[str, list[Step]]:
    """Return the steps by which each token is converted to one.

    The fewest markets lead there. Of several as short ways, the one begins in the market in which most of the token
    was traded, or else in the first by name.
    """
    steps = []
    for (base, quote), market in traded.items():
        pair = (base, quote)
        steps.append(Step(base, quote, pair, 1, market.size))
        steps.append(Step(quote, base, pair, -1, market.notional))
    paths: dict[str, list[Step]] = {token: []}
    while True:
        # Each round reaches the tokens that are one market further away.
        nearest = [
            step
            for step in steps
            if step.reached in paths and step.converted not in paths
        ]
        if not nearest:
            return paths
        nearest.sort(key=lambda step: (-step.amount, step.pair))
        found: dict[str, list[Step]] = {}
        for step in nearest:
            found.setdefault(step.converted, [step, *paths[step.reached]])
        paths |= found


DAILY_PRICES = f"""
-- the mean price of each market on each day: what was paid for all that was bought
SELECT base, quote, {DAY_SQL} AS day, count(*) AS fills,
    sum(size)::DOUBLE AS size, sum(notional)::DOUBLE AS notional,
    sum(notional)::DOUBLE / sum(size)::DOUBLE AS price
FROM trades
WHERE price > 0 AND size > 0 AND notional > 0 AND ms IS NOT NULL AND base IS NOT NULL AND quote IS NOT NULL
GROUP BY ALL
"""


WORTH = pa.schema({"token": pa.string(), "day": pa.int64(), "worth": pa.float64()})


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
    totals = daily.groupby(["base", "quote"])[["size", "notional"]].sum()
    traded = {pair: Traded(*amounts) for pair, *amounts in totals.itertuples()}
    quotes = daily.groupby("quote")["fills"].sum().to_dict()
    most_used = max(quotes, key=lambda token: (quotes[token], token), default="")
    parts = [WORTH.empty_table()]
    for token, steps in shortest_paths(traded, most_used).items():
        if token in quotes:
            worth = _worth_of(token, steps, prices)
            parts.append(pa.Table.from_pandas(worth, WORTH, preserve_index=False))
    return pa.concat_tables(parts)


def _worth_of(token: str, steps: list[Step], prices: pd.DataFrame) -> pd.DataFrame:
    """Return what a token is worth on each day, along the markets that it is converted in."""
    worth = pd.Series(1.0, prices.index)
    for step in steps:
        worth *= prices[step.pair] ** step.power
    return worth.rename("worth").reset_index().assign(token=token)
