"""Prices near trades: a call given a year of minute closes reads those that it may look up, and no others.

The last price before a moment is in the same hour, or in the last hour before it that has prices. That is nearly always
the hour before, so only where it is not are all hours with prices looked through.
"""

from __future__ import annotations

from typing import Any

from loopring_lab.engine.ask import ask_table, given_prices
from loopring_lab.engine.asof import Nearest
from loopring_lab.engine.kinds import Arrow, Given
from loopring_lab.engine.question import ORDER_COLUMNS, PLACE, Question
from loopring_lab.engine.running import run

HOUR = 3_600_000  # milliseconds
NEEDS = ("created_at", "market", "price")
# A frame with one of these holds trades, not closes.
OF_TRADES = {*ORDER_COLUMNS} - {"market", "side"}

LOOKED_FROM = f"""
-- hours, counted from 1970, in which a price is looked up for a fill
SELECT DISTINCT market, unnest([{{moments}}]) // {HOUR} AS hour FROM trades
WHERE market IS NOT NULL AND ms IS NOT NULL"""
ADJACENT = """
-- these hours and those next to them
FROM hours UNION SELECT market, hour {sign} 1 FROM hours"""
# Of a column as it was given, microseconds take half the time that milliseconds do.
HOUR_OF_GIVEN = f"epoch_us(created_at::TIMESTAMPTZ) // {1000 * HOUR}"
IN_THESE = f"WHERE (market::VARCHAR, {HOUR_OF_GIVEN}) IN (FROM near)"
CLOSES = "-- the prices of these hours\nSELECT {columns} FROM trades"
LONELY = f"""
-- hours next to which no price can be looked up
SELECT market, hour FROM hours
WHERE (market, hour {{sign}} 1) NOT IN (SELECT market, epoch_ms(created_at) // {HOUR} FROM closes WHERE price > 0)"""
WITH_PRICES = f"""
-- hours with prices that can be looked up, of the markets of these
SELECT DISTINCT market, ms // {HOUR} AS hour FROM trades
WHERE ms IS NOT NULL AND market IN (SELECT market FROM lonely)"""
FARTHER = """
-- with the nearest hours that have prices
FROM near
UNION
SELECT l.market, p.hour FROM lonely AS l ASOF JOIN priced AS p ON l.market = p.market AND l.hour {than} p.hour"""


def prices_near(
    prices: Any, trades: Given[Any], *later: int, nearest: Nearest = "last"
) -> Given[Any] | None:
    """Return the prices of a call, if there are any; of closes, those that may be looked up for its trades.

    They are looked up from each fill, and from so many milliseconds `later`.
    """
    found = given_prices(prices, trades.caller)
    # Prices that are trades may have more fills of the orders asked about, and Spark deals out prices with trades.
    if found is None or OF_TRADES & set(found.names) or trades.is_dealt_out:
        return found
    sign = "-" if nearest == "last" else "+"
    than = ">" if nearest == "last" else "<"
    moments = ", ".join(f"ms + {length}" for length in (0, *later))
    steps = {"sums": LOOKED_FROM.format(moments=moments)}
    hours = ask_table(Question(trades.caller, steps, NEEDS), trades)
    near = run(ADJACENT.format(sign=sign), found.caller, hours=hours)
    columns = [*NEEDS, *(name for name in PLACE if name in found.names)]
    steps = {"sums": CLOSES.format(columns=", ".join(columns))}
    of_hours = Question(found.caller, steps, columns, only=IN_THESE)
    closes = ask_table(of_hours, found, near=near)
    lonely = run(LONELY.format(sign=sign), found.caller, hours=hours, closes=closes)
    if len(lonely):
        usable = "WHERE price > 0"
        asked = Question(found.caller, {"sums": WITH_PRICES}, NEEDS, only=usable)
        priced = ask_table(asked, found, lonely=lonely)
        farther = FARTHER.format(than=than)
        near = run(farther, found.caller, near=near, lonely=lonely, priced=priced)
        closes = ask_table(of_hours, found, near=near)
    return Arrow(closes, found.caller)
