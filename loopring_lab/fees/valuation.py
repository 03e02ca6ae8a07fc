"""Fees of many tokens valued in one, at the last prices before each fill's order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_tolerance
from loopring_lab.engine import sums
from loopring_lab.engine.ask import ask, ask_table, given, given_prices
from loopring_lab.engine.asof import (
    asof_sql,
    before_sql,
    spans_sql,
    time_sql,
    with_spans_sql,
)
from loopring_lab.engine.clusters import student_sql
from loopring_lab.engine.groups import HOUR, Keys, keys_of, literal
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import AFTER, BEFORE, closes_near
from loopring_lab.engine.question import (
    ORDER_COLUMNS,
    PLACE,
    Large,
    Prices,
    Question,
    Spanned,
    Streamed,
)
from loopring_lab.engine.worth import DAY_SQL, Step, Traded, shortest_paths
from loopring_lab.errors import LabError, did_you_mean

CALLER = "lab.fees.in_token"
# The level at which `within_bps` holds.
LEVEL = 0.95
# Ages are in units of so many milliseconds, as an archive finds medians by counting tenths: those of this unit are few,
# and so are the ages in each. A power of 2 loses no digit.
AGES = 1 << 14
PRICE_COLUMNS = ("created_at", "base", "quote", "price")
SUMMED = (
    "fills",
    "unpriced",
    "fee_value",
    "value_token",
    "within_bps",
    "median_age",
    "max_age",
    "both_sides",
)


def in_token(
    trades: Trades[FrameT],
    token: str,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    tolerance: str | pd.Timedelta | None = "7d",
) -> FrameT:
    """Value each fill's fee in one token.

    Each token is converted along one path of markets that have a price, the shortest to `token`: LRC to USDT by
    LRC-USDT, not by LRC-ETH and ETH-USDT. Of several as short, it begins in the market in which `trades` have traded
    most of the token, or else in the first by name. In each market of the path the last price before the fill's
    order counts: one older than its first fill. So later prices are never used, nor a fill's own price, its
    counterpart's or that of another fill of its order.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars or DuckDB, or an Archive
        From `Client.trades` or `Archive.scan`. Paths need all markets at once, so Spark frames are refused.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow, Polars or DuckDB, or an Archive, optional
        Prices or trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``; where they have
        ``market`` too, each has the pair that it has in `trades`. By default
        `trades`; the prices of an account that trades rarely are old, those of a busier one, of all accounts
        or of a price file are better.
    by : str or sequence of str, optional
        Sum by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the oldest price of a path; None for any age.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (float64, units of ``value_token``, which is `token`), ``value_path``, such
        as ``"LRC>ETH>USDT"``, and ``priced_at``, the time of the oldest price used; null where a market of the
        path has no price within `tolerance`. With `by`, one row per group: ``fills``, ``unpriced`` (fills without
        a value), ``fee`` (exact), ``fee_value``, ``value_token``, ``within_bps`` (float64, null if not known),
        ``median_age`` and ``max_age``, how old the oldest price of each value was (ms), and ``both_sides``, as
        for `summary`; sums cover known amounts only.

    Raises
    ------
    LabError, AmountError
        As for `with_tiers`, or no market trades `token`, a market has two pairs of tokens, `tolerance` is not
        valid, or `trades` is a Spark frame.

    Notes
    -----
    Prices are estimates, so values are floats: ``within_bps`` says how far a sum, in basis points of
    ``fee_value``, may be from the sum at true prices, in 19 of 20 cases. It is by how much the sum would change
    at the first prices after the orders, plus the standard error of that change, clustered by day, times
    Student's t for so many days: what moves prices on one day moves all values of that day. Values after which a
    market of their path has no price are taken to move as the others of their group do; where they are more
    than half of its value, ``within_bps`` is null. For several groups, add up their errors. Several prices of one
    market at one moment count as their mean.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fills", "unpriced", "fee_value"]].tail(2)
      fee_token  fills  unpriced  fee_value
    8      USDT     12         3   4.327694
    9      WBTC      5         1   0.830072
    """
    limit = parse_tolerance(tolerance, CALLER)
    fills = given(trades, CALLER)
    beside = given_prices(prices, CALLER)
    outer = keys_of(fills, by, *SUMMED)
    source = "trades" if prices is None else "prices"
    converted = _steps_sql(_paths(fills, beside, token))
    hours = Question(
        CALLER,
        {"steps": converted, "sums": HOURS},
        ("created_at", "fee_token"),
        split_by=(),
    )
    beside = closes_near(beside, fills, hours, BEFORE, AFTER, keys=("base", "quote"))
    steps = {
        "steps": converted,
        "numbered": NUMBERED,
        "spans": spans_sql(with_prices=False, trades="numbered"),
        "known_prices": Prices(KNOWN_PRICES.format(source=source)),
        "fills": Spanned(
            f"-- with the moments of the first and the last fill of their order\n{with_spans_sql('numbered')}"
        ),
        "orders": ORDERS,
        "conversions": CONVERSIONS.format(before=before_sql(beside)),
        "before": asof_sql("conversions", "last", "base", "quote"),
        "next": NEXT,
        "after": asof_sql("next", "first", "base", "quote"),
        "rates": RATES,
        "valued": _valued_sql(limit),
    }
    needs = ("created_at", "fee_token", "fee")
    may_have = ("base", "quote", "price", *PLACE, *ORDER_COLUMNS)
    others: dict[str, Any] = {"price_needs": PRICE_COLUMNS, "split_by": ()}
    if by is None:
        steps["rows"] = f"""
-- what is shown beside each fill
SELECT row, fee_value,
    {literal(token)} AS value_token,
    value_path,
    priced_at
FROM valued"""
        question = Question(CALLER, steps, needs, may_have, shown=None, **others)
        return ask(question, fills, beside)
    keys = sums.with_key(outer, "fee_token")
    steps["rows"] = Large(f"""
-- what is summed
SELECT {keys.columns()}, {DAY_SQL} AS day, fee, fee_value, change, age
FROM valued""")
    steps["sums"] = DAYS.format(group=keys.columns())
    return sums.asked(
        fills,
        keys,
        steps,
        _shown_sql(keys, token),
        sides=outer,
        needs=needs,
        may_have=may_have,
        prices=beside,
        medians=("age",),
        **others,
    )


# Paths


TRADED = """
-- what was traded in each market
SELECT market, base, quote,
    coalesce(sum(size::DOUBLE), 0) AS size,
    coalesce(sum(notional::DOUBLE), 0) AS notional
FROM trades
GROUP BY ALL"""
MARKETS = """
-- markets with a price
SELECT DISTINCT market, base, quote
FROM trades"""
FEE_TOKENS = """
-- each token in which fees were paid
SELECT DISTINCT fee_token
FROM trades"""


def _paths(
    trades: Given[Any], prices: Given[Any] | None, token: Any
) -> dict[str, list[Step]]:
    """Return the markets that lead from each token to `token`, of which there must be a price or a fee."""
    own = _rows_of(trades, TRADED, (), ("market", "base", "quote", "size", "notional"))
    markets = _rows_of(
        prices or trades, MARKETS, PRICE_COLUMNS, ("market",), "WHERE price > 0"
    )
    _refuse_several_pairs([*own, *markets])
    pairs = [(row["base"], row["quote"]) for row in markets]
    pairs = [pair for pair in pairs if None not in pair and pair[0] != pair[1]]
    if markets and not pairs and prices is not None:
        _check_named(markets)
    known = {name for pair in pairs for name in pair}
    if not isinstance(token, str) or token not in known:
        fee_tokens = [
            row["fee_token"] for row in _rows_of(trades, FEE_TOKENS, ("fee_token",))
        ]
        # Without trades, there is nothing to value.
        if fee_tokens and token not in fee_tokens:
            names = sorted(name for name in {*known, *fee_tokens} if name is not None)
            hint = did_you_mean(
                token, names, f"Known tokens: {', '.join(names) or 'none'}."
            )
            raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")
    traded = dict.fromkeys(pairs, Traded())
    for row in own:
        pair = (row["base"], row["quote"])
        if pair in traded:
            size, notional = traded[pair]
            traded[pair] = Traded(size + row["size"], notional + row["notional"])
    return shortest_paths(traded, token)


def _refuse_several_pairs(markets: list[dict[str, Any]]) -> None:
    """Refuse a market that has other tokens elsewhere: the price of one pair is not that of the other."""
    pairs_of: dict[str, set[str]] = defaultdict(set)
    for row in markets:
        if None not in row.values():
            pairs_of[row["market"]].add(f"base {row['base']} and quote {row['quote']}")
    for market, pairs in sorted(pairs_of.items()):
        if len(pairs) > 1:
            raise LabError(
                f"{CALLER}: trades or prices of {market} have {', others '.join(sorted(pairs))}. Correct the "
                "columns base and quote; those of client.markets() are the market's."
            )


def _check_named(markets: list[dict[str, Any]]) -> None:
    """Refuse prices of which none says between which tokens it is, as those of a file without these columns."""
    if all(row["base"] is None or row["quote"] is None for row in markets):
        raise LabError(
            f"{CALLER}: the prices name no base and quote token. Read their file with "
            "lab.tables.prices(file, client.markets()), or give it the columns base and quote."
        )


def _rows_of(
    frame: Given[Any],
    sums: str,
    needs: tuple[str, ...],
    may_have: tuple[str, ...] = (),
    only: str = "",
) -> list[dict[str, Any]]:
    """Return the rows of one query."""
    question = Question(
        frame.caller, {"sums": sums}, needs, may_have, only=only, split_by=()
    )
    rows: list[dict[str, Any]] = ask_table(question, frame).to_pylist()
    return rows


def _steps_sql(paths: dict[str, list[Step]]) -> str:
    """Return the step ``steps``: a row for each market of each token's path; the token valued in has one without."""
    rows = []
    # Prices are looked up with the number of a path beside each order: sorting takes twice as long with its name.
    for number, (token, path) in enumerate(paths.items()):
        whole = ">".join([token, *(step.reached for step in path)])
        markets = [
            f"{literal(step.pair[0])}, {literal(step.pair[1])}, {step.power}"
            for step in path
        ]
        rows += [
            f"({literal(token)}, {number}, {literal(whole)}, {market})"
            for market in markets or ["NULL, NULL, NULL"]
        ]
    return f"""
-- how each token is converted: in these markets, by their prices (power 1) or divided by them (-1)
SELECT *
FROM (VALUES {", ".join(rows)}) AS v(token, path, value_path, base, quote, power)"""


# Steps of the query


HOURS = f"""
-- hours, counted from 1970, in which prices are looked up for the orders of fills
SELECT DISTINCT base, quote, ms // {HOUR} AS hour
FROM trades
JOIN steps ON fee_token = token
WHERE base IS NOT NULL AND ms IS NOT NULL"""
KNOWN_PRICES = """
-- the price of each market at each moment, of several the mean
SELECT
    hash(base, quote) AS keys,
    moment,
    avg(price::DOUBLE) / 1e18 AS price
FROM {source}
WHERE price > 0 AND moment IS NOT NULL AND base <> quote
GROUP BY ALL"""
NUMBERED = Streamed("""
-- fills with a number of their order: those of unknown orders are one at each moment, and all of unknown times are one,
-- which no price is before or after
SELECT * REPLACE (coalesce(CASE WHEN moment IS NOT NULL THEN order_id END, hash(moment)) AS order_id)
FROM trades""")
ORDERS = """
-- orders and the token of their fees; of one that pays in several, as no order does, those in each are by themselves
SELECT order_id AS number, fee_token,
    min(moment) AS first_fill,
    max(moment) AS last_fill
FROM fills
WHERE moment IS NOT NULL
GROUP BY ALL"""
CONVERSIONS = """
-- each order in each market that its fee token is converted in, to be looked up before its first fill
SELECT number, last_fill, path, base, quote, power,
    {before} AS anchor
FROM orders
JOIN steps ON fee_token = token"""
NEXT = """
-- the same with the price before the order, to be looked up after its last fill
SELECT * EXCLUDE (anchor, found_price, found_moment),
    last_fill AS anchor,
    found_price AS price,
    found_moment AS price_moment
FROM before"""
RATES = f"""
-- what a unit of each order's fee token is worth: at the last prices before it, and at the first ones after it, which
-- is unknown where a market has none
SELECT number, path,
    {time_sql("min(price_moment)")} AS oldest,
    coalesce(product(pow(price, power)), 1) AS rate,
    CASE WHEN count(found_price) = count(power) THEN coalesce(product(pow(found_price, power)), 1) END AS later_rate
FROM after
GROUP BY number, path
HAVING count(price) = count(power)"""
DAYS = """
-- sums of each day, as what moves prices on a day moves all values of that day
SELECT {group}, day,
    count(*) AS fills,
    count(fee_value) AS valued,
    sum(fee) AS fee,
    sum(fee_value) AS fee_value,
    sum(change) AS change,
    sum(abs(fee_value)) AS worth,
    sum(abs(fee_value)) FILTER (WHERE change IS NOT NULL) AS shown,
    max(age) AS max_age
FROM rows
GROUP BY ALL"""


def _valued_sql(limit: int | None) -> str:
    """Return the step of fills with the value of their fee, where its oldest price is no older than so many ms."""
    is_fresh = (
        "ms IS NOT NULL" if limit is None else f"ms - epoch_ms(price_time) <= {limit}"
    )
    return f"""
-- each fill with the value of its fee, by how much that would change at the first prices after its order, and the
-- age of its oldest price; fees in the token itself have their value at any time
SELECT fills.*,
    coalesce(oldest, created_at) AS price_time,
    CASE WHEN {is_fresh} THEN fee::DOUBLE / 1e18 * rate END AS fee_value,
    fee_value * (later_rate / rate - 1) AS change,
    CASE WHEN fee_value IS NOT NULL THEN p.value_path END AS value_path,
    CASE WHEN fee_value IS NOT NULL THEN price_time END AS priced_at,
    (ms - epoch_ms(priced_at)) / {AGES}.0::DOUBLE AS age
FROM fills
LEFT JOIN (SELECT DISTINCT token, path, value_path FROM steps) AS p ON fee_token = token
LEFT JOIN rates AS r ON order_id = number AND p.path = r.path"""


def _shown_sql(keys: Keys, token: str) -> str:
    # A sum may be off by all of its change, and by so many standard errors of the days' changes: of few days, many.
    reach = student_sql(LEVEL, "count(*) FILTER (WHERE shown > 0)")
    error = f"(abs(sum(change)) + ({reach}) * sqrt(sum(change * change)))"
    group = keys.columns("s")
    same = keys.same("s", "m")
    return f"""
-- sums of all days by group, and how far they may be off
WITH days AS (  -- sums of each whole day: those of an archive are of parts of it
    SELECT {keys.columns()}, day,
        sum(COLUMNS(* EXCLUDE ({keys.columns()}, day, max_age))),
        max(max_age) AS max_age
    FROM sums
    GROUP BY ALL
)
SELECT {group},
    sum(fills)::BIGINT AS fills,
    sum(fills - valued)::BIGINT AS unpriced,
    sum(fee) AS fee,
    sum(fee_value) AS fee_value,
    {literal(token)} AS value_token,
    -- values that no later price shows are taken to move as the others do, if these are worth as much
    CASE
        WHEN sum(worth) = 0 THEN 0
        WHEN sum(shown) >= sum(worth) / 2
            THEN 10000 * {error} * sum(worth) / sum(shown) / nullif(abs(sum(fee_value)), 0)
    END AS within_bps,
    to_milliseconds(round({AGES} * any_value(age))::BIGINT) AS median_age,
    to_milliseconds(({AGES} * max(max_age))::BIGINT) AS max_age
FROM days AS s LEFT JOIN medians AS m ON {same}
GROUP BY ALL"""
