"""Prices near trades: a call given a year of minute closes reads those that it may look up, and no others.

The last price before a moment is in the same hour, or in the last hour before it that has prices. That is nearly always
the hour before, so only where it is not are all hours with prices looked through.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engine.ask import ask_table, given_prices
from loopring_lab.engine.asof import Nearest
from loopring_lab.engine.groups import HOUR
from loopring_lab.engine.kinds import Arrow, Given
from loopring_lab.engine.question import ORDER_COLUMNS, PLACE, Question
from loopring_lab.engine.running import run

NEEDS = ("created_at", "market", "price")
# A frame with one of these holds trades, not closes.
OF_TRADES = {*ORDER_COLUMNS} - {"market", "side"}
# From the hour of a lookup to that next to it, in which the last price before a moment is, or the first after it.
BEFORE = -1
AFTER = 1

LOOKED_FROM = f"""
-- hours, counted from 1970, in which a price is looked up for a fill
SELECT DISTINCT market, unnest([{{moments}}]) // {HOUR} AS hour FROM trades
WHERE market IS NOT NULL AND ms IS NOT NULL"""
ADJACENT = """
-- these hours and those next to them
FROM hours UNION SELECT {keys}, hour + unnest([{sides}]) FROM hours"""
# Of a column as it was given, microseconds take half the time that milliseconds do.
HOUR_OF_GIVEN = f"epoch_us(created_at::TIMESTAMPTZ) // {1000 * HOUR}"
IN_THESE = f"WHERE ({{texts}}, {HOUR_OF_GIVEN}) IN (FROM near)"
CLOSES = "-- the prices of these hours\nSELECT {columns} FROM trades"
LONELY = f"""
-- hours next to which no price can be looked up, and on which side
SELECT {{keys}}, hour, next FROM (SELECT *, unnest([{{sides}}]) AS next FROM hours)
WHERE ({{keys}}, hour + next) NOT IN (SELECT ({{keys}}, epoch_ms(created_at) // {HOUR}) FROM closes WHERE price > 0)"""
WITH_PRICES = f"""
-- hours with prices that can be looked up, of the markets of these
SELECT DISTINCT {{keys}}, ms // {HOUR} AS hour FROM trades
WHERE ms IS NOT NULL AND ({{keys}}) IN (SELECT ({{keys}}) FROM lonely)"""
FARTHER = f"""
-- the nearest hours that have prices, but for those that were read
SELECT {{l_keys}}, p.hour FROM lonely AS l ASOF JOIN priced AS p ON {{same}} AND l.hour > p.hour WHERE next = {BEFORE}
UNION
SELECT {{l_keys}}, p.hour FROM lonely AS l ASOF JOIN priced AS p ON {{same}} AND l.hour < p.hour WHERE next = {AFTER}
EXCEPT
FROM near"""


def prices_near(
    prices: Any, trades: Given[Any], *later: int, nearest: Nearest = "last"
) -> Given[Any] | None:
    """Return the prices of a call, if there are any; of closes, those that may be looked up for its trades.

    They are looked up from each fill, and from so many milliseconds `later`.
    """
    moments = ", ".join(f"ms + {length}" for length in (0, *later))
    hours = {"sums": LOOKED_FROM.format(moments=moments)}
    side = BEFORE if nearest == "last" else AFTER
    found = given_prices(prices, trades.caller)
    return closes_near(found, trades, Question(trades.caller, hours, NEEDS), side)


def closes_near(
    prices: Given[Any] | None,
    trades: Given[Any],
    hours: Question,
    *sides: int,
    keys: tuple[str, ...] = ("market",),
    **tables: pa.Table,
) -> Given[Any] | None:
    """Return the closes of prices that may be looked up in these `hours`, on these `sides` of a moment in them.

    `hours` is a question about the trades, and `tables` are asked with it; its answer has the columns `keys`, by which
    markets are told apart, and ``hour``. Prices that are no closes are returned as they are.
    """
    # Prices that are trades may have more fills of the orders asked about, and Spark deals out prices with trades.
    if prices is None or OF_TRADES & set(prices.names) or trades.is_dealt_out:
        return prices
    caller = prices.caller
    terms = {
        "keys": ", ".join(keys),
        "texts": ", ".join(f"{key}::VARCHAR" for key in keys),
        "l_keys": ", ".join(f"l.{key}" for key in keys),
        "same": " AND ".join(f"l.{key} = p.{key}" for key in keys),
        "sides": ", ".join(map(str, sides)),
    }
    asked = ask_table(hours, trades, **tables)
    near = run(ADJACENT.format(**terms), caller, hours=asked)
    needs = ("created_at", *keys, "price")
    columns = [*needs, *(name for name in PLACE if name in prices.names)]
    steps = {"sums": CLOSES.format(columns=", ".join(columns))}
    of_hours = Question(caller, steps, columns, only=IN_THESE.format(**terms))
    closes = ask_table(of_hours, prices, near=near)
    lonely = run(LONELY.format(**terms), caller, hours=asked, closes=closes)
    if len(lonely):
        steps = {"sums": WITH_PRICES.format(**terms)}
        of_all = Question(caller, steps, needs, only=_farther_sql(lonely))
        priced = ask_table(of_all, prices, lonely=lonely)
        farther = run(
            FARTHER.format(**terms), caller, near=near, lonely=lonely, priced=priced
        )
        # Closes are often there from the first trade on, and have no hour before that.
        if len(farther):
            far = ask_table(of_hours, prices, near=farther)
            closes = pa.concat_tables([closes, far])
    return Arrow(closes, caller)


def _farther_sql(lonely: pa.Table) -> str:
    """Return the clause that selects prices on the far sides of hours: a file with prices in order skips the others."""
    farther = []
    for side, most, sign in ((BEFORE, pc.max, "<"), (AFTER, pc.min, ">")):
        hours = lonely.filter(pc.field("next") == side)["hour"]
        if len(hours):
            ms = most(hours).as_py() * HOUR
            farther.append(
                f"created_at::TIMESTAMPTZ {sign} make_timestamptz({1000 * ms})"
            )
    return f"WHERE price > 0 AND ({' OR '.join(farther)})"
