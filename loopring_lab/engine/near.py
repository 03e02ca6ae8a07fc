"""Prices near trades: a call given a year of minute closes reads those that it may look up, and no others.

Where prices must be near in time, the hours that they are in are known. Else the last price before a moment is in the
same hour, or in the last hour before it that has prices; which hours have any is asked of all prices, which takes a
fifth of a second of 8.4 million closes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from loopring_lab.engine.ask import ask_table, given_prices
from loopring_lab.engine.asof import Nearest
from loopring_lab.engine.groups import HOUR
from loopring_lab.engine.kinds import Arrow, Given
from loopring_lab.engine.question import ORDER_COLUMNS, PLACE, Question
from loopring_lab.engine.running import run
from loopring_lab.engine.text import TRADES

NEEDS = ("created_at", "market", "price")
# A frame with one of these holds trades, not closes.
OF_TRADES = {*ORDER_COLUMNS} - {"market", "side"}
# How an hour of lookups compares with that of the last price before a moment in it, or of the first after it.
BEFORE = ">"
AFTER = "<"

# Of so few hours beside each fill all are read, whether they have prices or not.
FEW = 2 * HOUR

LOOKED_FROM = """
-- hours, counted from 1970, in which prices of fills are looked up; where these must be near, all that they may be in
SELECT DISTINCT market, unnest({hours}) AS hour FROM trades
WHERE market IS NOT NULL AND ms IS NOT NULL"""
# Microseconds take half the time that milliseconds do.
HOUR_OF = f"epoch_us(created_at::TIMESTAMPTZ) // {1000 * HOUR}"
PRICED = f"""
-- hours with prices that can be looked up
SELECT DISTINCT {{keys}}, {HOUR_OF} AS hour FROM trades WHERE created_at IS NOT NULL"""
NEAR = "-- these hours, and beyond each the nearest with prices\nFROM hours"
BEYOND = "SELECT p.* FROM hours AS l ASOF JOIN priced AS p ON {same} AND l.hour {side} p.hour"
# The hour alone, which leaves out most prices, is compared in half the time of texts.
IN_THESE = f"WHERE {HOUR_OF} IN (SELECT hour FROM near) AND ({{texts}}, {HOUR_OF}) IN (FROM near)"


def prices_near(
    prices: Any,
    trades: Given[Any],
    *later: int,
    nearest: Nearest = "last",
    within: int | None = None,
) -> Given[Any] | None:
    """Return the prices of a call, if there are any; of closes, those that may be looked up for its trades.

    They are looked up from each fill, and from so many milliseconds `later`; `within` so many, or at any distance.
    """
    farthest = max(later, default=0)
    sides = []
    if within is not None and within + farthest <= FEW:
        back = within if nearest == "last" else 0
        ahead = farthest + within - back
        hours = f"range((ms - {back}) // {HOUR}, (ms + {ahead}) // {HOUR} + 1)"
    else:
        sides.append(BEFORE if nearest == "last" else AFTER)
        listed = [f"(ms + {length}) // {HOUR}" for length in (0, *later)]
        hours = f"[{', '.join(listed)}]"
    found = given_prices(prices, trades.caller)
    steps = {"sums": LOOKED_FROM.format(hours=hours)}
    question = Question(trades.caller, steps, NEEDS)
    return closes_near(found, trades, question, *sides)


def closes_near(
    prices: Given[Any] | None,
    trades: Given[Any],
    hours: Question,
    *sides: str,
    keys: tuple[str, ...] = ("market",),
    **tables: pa.Table,
) -> Given[Any] | None:
    """Return the closes of prices in these `hours`, and in the nearest hours with prices on these `sides` of each.

    `hours` is a question about the trades, and `tables` are asked with it; its answer has the columns `keys`, by which
    markets are told apart, and ``hour``. Prices that are no closes are returned as they are.
    """
    # Prices that are trades may have more fills of the orders asked about, and Spark deals out prices with trades.
    if prices is None or OF_TRADES & set(prices.names) or trades.is_dealt_out:
        return prices
    caller = prices.caller
    # A market that is no text is none that was traded in.
    texts = ", ".join(f"{key}::VARCHAR" for key in keys)
    needs = ("created_at", *keys, "price")
    near = ask_table(hours, trades, **tables)
    if sides:
        steps = {"sums": PRICED.format(keys=", ".join(keys))}
        usable = Question(caller, steps, needs, only="WHERE price > 0")
        same = " AND ".join(f"l.{key} = p.{key}" for key in keys)
        beyond = [BEYOND.format(same=same, side=side) for side in sides]
        text = "\nUNION\n".join([NEAR, *beyond])
        near = run(text, caller, hours=near, priced=ask_table(usable, prices))
    columns = [*needs, *(name for name in PLACE if name in prices.names)]
    # Rows as they are given: converting prices takes as long as finding them, and is done where they are used.
    these = IN_THESE.format(texts=texts)
    steps = {
        "sums": f"-- the prices of these hours\nSELECT {', '.join(columns)} FROM {TRADES} {these}"
    }
    of_hours = Question(caller, steps, columns)
    return Arrow(ask_table(of_hours, prices, near=near), caller)
