"""What a pool's liquidity earned: fees, what rebalancing cost, and the change of the position's value."""

from __future__ import annotations

from typing import Any

from loopring_lab.engine.ask import ask, counts, given, given_prices
from loopring_lab.engine.asof import PRICE_COLUMNS, asof_sql, before_sql, prices_sql
from loopring_lab.engine.groups import HOUR, UTC, Keys, Periods, keys_of, literal
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import BEFORE, closes_near, prices_near
from loopring_lab.engine.notes import with_attrs
from loopring_lab.engine.question import PLACE, PLACE_BITS, Question, Streamed
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import OUTSIDE_PRICES, kind_of_prices, noted
from loopring_lab.research.reserves import (
    BLOCK,
    MOVES,
    NUMBERED,
    POOL,
    check_fee,
    ledger_of,
)

# A balance has 96 bits in the exchange's circuits (DESIGN.md of Loopring/protocols): four digits of base 10**9. So
# each product of a digit with a balance fits 128 bits.
DIGIT = 10**9

NEEDS = (
    "created_at",
    "account_id",
    "market",
    "base",
    "quote",
    "side",
    "fill_type",
    "role",
    "size",
    "price",
    "notional",
)


def liquidity(
    trades: Trades[FrameT],
    balances: Any = None,
    prices: Any = None,
    *,
    every: str = "1d",
    tz: str = UTC,
    pool_fee_bps: int = 20,
) -> FrameT:
    """Compute what a pool's liquidity earned, by day: fees, losses to rebalancing, and the change of its value.

    A liquidity provider owns a share of a pool, and earns that share of everything here. The value of the
    position changes because prices do, because of fees, because the pool trades at worse prices than the outside
    market's, and because liquidity is added or removed. These parts add up to the change exactly.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        With the rows of one pool or several, such as `Client.trades` of their accounts, or all trades of blocks.
        Where they have a column ``flow`` (`with_flow`), losses to arbitrage and to users are told apart.
    balances : frame of any of these kinds, optional
        What the pools held after each change, as for `pool_quotes`: from `BlocksClient.pool_balances`. Changes of
        a pool in one millisecond need their places in blocks. Without `balances` the fee is assumed, and nothing is
        known of the position.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange: ``created_at``, ``market`` and ``price``. Without them only amounts in
        base and quote tokens are known.
    every, tz : str
        Length and time zone of periods, as for `fees.over_time`.
    pool_fee_bps : int
        Fee assumed where it cannot be measured, in basis points of the amount paid in; 20 in every pool of the
        exchange.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per period and pool
        ``period``, ``account_id`` (of the pool), ``market``, ``base``, ``quote``; ``fills``, ``unpriced`` (fills
        and other changes without an amount, a balance or a price), ``notional``; the position at the end,
        ``base_held`` and ``quote_held``, liquidity added less removed, ``base_added`` and ``quote_added``, and
        fees, ``base_fees`` and ``quote_fees``, in base and quote tokens.

        In quote units, truncated to 18 decimals: the value of the position when the period begins, ``opened``,
        and ends, ``closed``, and ``change``, which is
        ``rebalanced + fees - lost_to_arbitrage - lost_to_users - lost_to_unknown + added``;
        ``net``, fees less losses, which is what the pool earned beyond the rebalanced portfolio; ``held``, what
        the position would have gained untouched, and ``against_held``, how much more the pool gained: below 0
        this is called impermanent loss. ``fee_source`` is ``measured``, ``assumed`` or ``partly measured``;
        ``reference`` is ``outside prices`` or ``own trades``.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`; the trades have no fills of a pool, or `balances` are not as described.

    Notes
    -----
    A position of x base and y quote tokens is worth x p + y at the outside price p, the last one at or before;
    x p is truncated to 18 decimals, and every part is a difference of such values, so that nothing is left over.

    ``rebalanced`` is the gain of a portfolio that always holds as many base tokens as the pool, but buys and
    sells them at the outside price (the rebalancing strategy of Milionis et al.). ``fees`` are what a pool of
    constant product received beyond what it needed for the fill, valued at p. The loss of a fill is its fee less
    what x p + y gained by it; losses to arbitrage are what the paper calls loss versus rebalancing (LVR). Losses
    to users can be below 0: a fill away from the outside price pays the pool.

    ``held`` holds what the position held when the period began, and what was added to it since. The first period
    begins just before the first change with known balances and a price, and the last one ends with the last change;
    others begin and end with the clock. Fills before and after that are in no sum; what lacks a price in between, or
    an amount because blocks are missing, makes the sums of its period null.

    Rows of `balances` that change both tokens in opposite directions are fills, also where `trades` lack them; all
    others are liquidity added or removed. Fills are found in both frames by block and place, so that trades of a
    relayer, which have the time of each fill, can be asked with balances of blocks.

    References
    ----------
    J. Milionis, C. C. Moallemi, T. Roughgarden and A. L. Zhang, "Automated Market Making and
    Loss-Versus-Rebalancing", 2022.

    Examples
    --------
    >>> pool = client.trades(account_id=1, limit=200)
    >>> days = lab.research.liquidity(pool, prices=client.outside_prices(pool))
    >>> days["fee_source"].unique().tolist()
    ['assumed']
    >>> bool((days["fees"] - days["lost_to_unknown"] == days["net"]).all())
    True
    """
    caller = "lab.research.liquidity"
    fills = given(trades, caller)
    pool = ["account_id", "market", "base", "quote"]
    keys = keys_of(fills, pool, every=str(every), tz=tz)
    check_fee(pool_fee_bps, caller)
    _check_pools(fills)
    # A pool's fills come from its balances where these are known, since trades may lack some; else from trades.
    steps = {"own": OWN}
    tables = {}
    periods = Periods(str(every), tz)
    if balances is None:
        steps["events"] = FILLS_ALONE
        beside = prices_near(prices, fills)
    else:
        tables["ledger"] = ledger_of(given(balances, f"{caller}: balances="))
        steps |= MOVES | PLACED
        hours = Question(caller, {"sums": hours_sql(periods)}, NEEDS)
        beside = closes_near(
            given_prices(prices, caller), fills, hours, BEFORE, **tables
        )
    kind = "" if prices is None else kind_of_prices(beside, fills)
    steps |= {
        "legs": LEGS,
        "charged": charged_sql(pool_fee_bps),
        "marks": marks_sql(periods),
    }
    steps |= _price_steps(beside, kind)
    steps |= {
        "valued": VALUED,
        "worths": WORTH,
        "parts": PARTS,
        "sums": sums_sql(keys),
        "answer": answer_sql(keys, kind),
    }
    question = Question(
        caller,
        steps,
        NEEDS,
        (*PLACE, "flow"),
        keys=keys,
        price_may_have=PRICE_COLUMNS,
    )
    answer = with_attrs(ask(question, fills, beside, **tables), every=str(every))
    return noted(answer, kind, fills, beside)


def _price_steps(prices: Given[Any] | None, kind: str) -> dict[str, str]:
    """Return the steps that put prices beside ``marks``; the last, ``begun``, is where a position begins."""
    if prices is None:
        no_prices = "-- without prices no value is known\nSELECT *, NULL::HUGEINT AS found_price FROM marks"
        return {"begun": no_prices}
    # An outside price of the same millisecond counts; a trade of the exchange must be older than the fill.
    anchor = "first_fill + 1"
    if kind != OUTSIDE_PRICES:
        anchor = before_sql(prices)
    return {
        "known_prices": prices_sql(prices, "last"),
        "lookups": Streamed(
            f"-- the moments to look from\nSELECT *, {anchor} AS anchor FROM marks"
        ),
        "priced": asof_sql("lookups", "last"),
        # Balances before the first price have no value; a fill among them is counted as unpriced.
        "begun": "-- moments with a value\nSELECT * FROM priced WHERE is_fill OR found_price IS NOT NULL",
    }


def hours_sql(periods: Periods) -> str:
    """Return the hours, counted from 1970, with a change of a pool's balances or the end of a period, as SQL."""
    return f"""
-- hours in which a position may be valued
WITH moments AS (  -- fills, and other changes of balances
    SELECT market, ms FROM trades
    UNION
    SELECT market, ms FROM ledger
),
spans AS (  -- the time of each market's changes
    SELECT market,
        make_timestamptz(min(ms) * 1000) AS created_at,
        make_timestamptz(max(ms) * 1000) AS last
    FROM moments
    GROUP BY market
),
ends AS (  -- the ends of periods in it
    SELECT market, epoch_ms(unnest({periods.starts(periods.start(), "last")})) AS ms FROM spans
)
SELECT DISTINCT market, ms // {HOUR} AS hour
FROM (FROM moments UNION FROM ends)
WHERE market IS NOT NULL AND ms IS NOT NULL"""


# A fill of a pool is an order of its own, with the pool as the maker.
OWN = f"""
-- the pools' own side of their fills: whoever takes from a pool is not one
SELECT {NUMBERED}, {BLOCK}, index_in_block, ms, moment,
    TRUE AS is_fill,
    CASE
        WHEN flow IN ('arbitrage', 'user') THEN flow
        ELSE 'unknown'
    END AS flow,
    CASE side
        WHEN 'BUY' THEN size
        WHEN 'SELL' THEN -size
    END AS base_change,
    CASE side
        WHEN 'BUY' THEN -notional
        WHEN 'SELL' THEN notional
    END AS quote_change
FROM trades
WHERE fill_type = 'amm' AND role = 'maker'"""

# Columns of a fill that are known only with the balances.
KNOWN_WITH_BALANCES = (
    "base_before",
    "quote_before",
    "base_after",
    "quote_after",
    "base_unit",
    "quote_unit",
)
UNKNOWN = ", ".join(f"NULL::HUGEINT AS {name}" for name in KNOWN_WITH_BALANCES)
# An event is placed if it stands among the balances of its pool: what the pool held before and after it is known. A
# fill that is not, of a pool with known balances, is lost: it moved a position of which nobody can say how large it
# was.
UNPLACED = f"FALSE AS is_placed, NULL::BIGINT AS number, {UNKNOWN}"

FILLS_ALONE = f"""
-- fills of pools of which no balance is known
SELECT *,
    FALSE AS is_lost,
    {UNPLACED}
FROM own"""

PLACED = {
    "seen": """
-- the fills of trades by their places, with what trades say better than balances: the time, and whose flow it was
SELECT pool, block, index_in_block,
    min(ms) AS fill_ms,
    any_value(flow) AS flow
FROM own
GROUP BY ALL""",
    "timed": """
-- fills and other changes of pools whose balances are known; in their order, so no time is before an earlier one
SELECT m.*,
    coalesce(s.flow, 'unknown') AS flow,
    max(coalesce(s.fill_ms, m.ms)) OVER (PARTITION BY pool ORDER BY number) AS event_ms
FROM moves AS m
LEFT JOIN seen AS s USING (pool, block, index_in_block)""",
    "others": """
-- fills that are not among these: of a pool whose balances are known at other times, they are lost to its position
SELECT *,
    pool IN (SELECT pool FROM moves) AS is_lost
FROM own
ANTI JOIN (FROM moves WHERE is_fill) AS known USING (pool, block, index_in_block)""",
    "events": f"""
-- all of them
SELECT {POOL}, number,
    event_ms AS ms,
    event_ms * {1 << PLACE_BITS} + coalesce(index_in_block + 1, 0) AS moment,
    is_fill,
    flow,
    base_change,
    quote_change,
    FALSE AS is_lost,
    TRUE AS is_placed,
    {", ".join(KNOWN_WITH_BALANCES)}
FROM timed
UNION ALL BY NAME
SELECT {POOL}, ms, moment, is_fill, flow, base_change, quote_change, is_lost, {UNPLACED}
FROM others""",
}

LEGS = """
-- each event by what came in and went out, with the balances that it met; only fills have both
SELECT *,
    base_change > 0 AS is_base_in,
    -- 0, but null where the change is unknown
    CASE
        WHEN is_base_in THEN base_change
        WHEN quote_change > 0 THEN quote_change
        ELSE 0 * quote_change
    END AS amount_in,
    CASE
        WHEN is_base_in THEN -quote_change
        ELSE -base_change
    END AS amount_out,
    CASE
        WHEN is_base_in THEN base_before
        ELSE quote_before
    END AS balance_in,
    CASE
        WHEN is_base_in THEN nullif(quote_after, 0)
        ELSE nullif(base_after, 0)
    END AS left_out,
    CASE
        WHEN is_base_in THEN base_unit
        ELSE quote_unit
    END AS unit
FROM events"""


def charged_sql(pool_fee_bps: int) -> str:
    """Return the step that measures what a pool kept of each fill, as `rollup.Blocks.pool_fills` does.

    With balances x and y before a fill that takes `out` of y, x * out / (y - out) keeps the product. That is a
    division by hand, digit by digit, as the product of two balances does not fit 128 bits.
    """
    return f"""
-- what a pool kept of each fill: all that came in beyond what keeps the product of the balances, rounded up
WITH divided AS (  -- each event, with what keeps the product
    SELECT *,
        balance_in // {DIGIT**3} * amount_out AS first,
        first % left_out * {DIGIT} + balance_in // {DIGIT**2} % {DIGIT} * amount_out AS second,
        second % left_out * {DIGIT} + balance_in // {DIGIT} % {DIGIT} * amount_out AS third,
        third % left_out * {DIGIT} + balance_in % {DIGIT} * amount_out AS fourth,
        first // left_out * {DIGIT**3}
            + second // left_out * {DIGIT**2}
            + third // left_out * {DIGIT}
            + fourth // left_out
            + (fourth % left_out > 0)::INT AS exact
    FROM legs
),
kept AS (  -- each event, with what the pool received beyond that, if it is a fill
    SELECT *,
        CASE
            WHEN is_fill AND amount_out > 0 AND left_out > 0 AND balance_in > 0
                THEN amount_in - (exact + unit - 1) // unit * unit
        END AS kept
    FROM divided
)
SELECT * EXCLUDE (first, second, third, fourth, exact, kept),
    is_fill AND kept IS NOT NULL AS is_measured,
    CASE
        WHEN is_fill THEN coalesce(kept, amount_in * {pool_fee_bps} // 10000)
    END AS fee
FROM kept"""


def marks_sql(periods: Periods) -> str:
    """Return the step with every moment at which a position is valued: events, and the ends of periods."""
    return f"""
-- the moments at which a position is valued: each event, and the end of each period but the last
WITH dated AS (  -- each event, with its period
    SELECT * EXCLUDE created_at,
        {periods.start()} AS period
    FROM (SELECT *, make_timestamptz(ms * 1000) AS created_at FROM charged) AS timed
),
spans AS (  -- each pool with known balances, and its first and last period
    SELECT {POOL},
        min(period) AS first,
        max(period) AS last
    FROM dated
    WHERE is_placed
    GROUP BY ALL
),
starts AS (  -- each period of a pool but the last
    SELECT {POOL},
        unnest({periods.starts("first", "last")}) AS period,
        last
    FROM spans
),
ends AS (  -- the end of each of these, an event that changes nothing
    SELECT {POOL},
        period,
        epoch_ms(lead(period, 1, last) OVER (PARTITION BY pool ORDER BY period)) AS ms,
        ms * {1 << PLACE_BITS} AS moment,
        FALSE AS is_fill,
        FALSE AS is_lost,
        TRUE AS is_placed,
        0::HUGEINT AS base_change,
        0::HUGEINT AS quote_change
    FROM starts
),
listed AS (  -- both
    SELECT *, TRUE AS is_event FROM dated
    UNION ALL BY NAME
    SELECT *, FALSE AS is_event FROM ends
),
placed AS (  -- what was held after the last event, which may be unknown
    SELECT *,
        row_number() OVER in_order AS place,
        CASE WHEN is_event AND is_placed THEN struct_pack(base := base_after, quote := quote_after) END AS held,
        last_value(held IGNORE NULLS) OVER in_order AS last_held
    FROM listed
    WINDOW in_order AS (PARTITION BY pool ORDER BY ms, is_event, number)
)
-- by the name `first_fill` the lookup of prices finds the moment
SELECT * EXCLUDE (held, last_held) REPLACE (
    CASE WHEN is_event THEN base_before ELSE last_held.base END AS base_before,
    CASE WHEN is_event THEN quote_before ELSE last_held.quote END AS quote_before,
    CASE WHEN is_event THEN base_after ELSE last_held.base END AS base_after,
    CASE WHEN is_event THEN quote_after ELSE last_held.quote END AS quote_after
),
    moment AS first_fill
FROM placed"""


def product_sql(size: str, price: str) -> str:
    """Return size times price as SQL, cut to 18 decimals.

    The product of two amounts does not fit 128 bits, those of their whole units and of the rest do.
    """
    unit = 10**18
    return f"""{size} // {unit} * {price}
        + {size} % {unit} * ({price} // {unit})
        + {size} % {unit} * ({price} % {unit}) // {unit}"""


VALUED = """
-- each moment with the price before it, and what would be held had no fill of the period happened
SELECT *,
    found_price AS price,
    lag(found_price, 1, found_price) OVER in_order AS price_before,
    base_before - coalesce(
        sum(base_change) FILTER (WHERE is_fill) OVER (
            PARTITION BY pool, period ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0
    ) AS untouched
FROM begun
WINDOW in_order AS (PARTITION BY pool, is_placed ORDER BY place)"""

# Products of amounts take most of the time of the question, so none is computed twice.
WORTH = f"""
-- what base tokens are worth at each moment
SELECT *,
    {product_sql("base_before", "price")} AS worth_before,
    {product_sql("base_after", "price")} AS worth_after,
    -- without the balances, what the change itself is worth
    CASE
        WHEN NOT is_placed THEN {product_sql("abs(base_change)", "price")}
    END AS worth_changed,
    CASE
        WHEN base_change > 0 THEN {product_sql("fee", "price")}
        ELSE fee
    END AS fee_value,
    -- what is untouched gains from where it began to where it changes or the period ends
    CASE
        WHEN untouched = lag(untouched) OVER of_period THEN 0
        ELSE {product_sql("untouched", "price_before")}
    END AS untouched_from,
    CASE
        WHEN untouched = lead(untouched) OVER of_period THEN 0
        ELSE {product_sql("untouched", "price")}
    END AS untouched_to
FROM valued
WINDOW of_period AS (PARTITION BY pool, is_placed, period ORDER BY place)"""

PARTS = """
-- how much the value of a position changed since the moment before, by cause
SELECT *,
    is_placed AND (base_after IS NULL OR quote_after IS NULL) AS is_gap,
    worth_before + quote_before AS value_before,
    worth_after + quote_after AS value_after,
    worth_before - lag(worth_after, 1, worth_before) OVER in_order AS gain,
    CASE
        WHEN is_placed THEN worth_after - worth_before
        ELSE sign(base_change)::INT * worth_changed
    END + quote_change AS moved,
    fee_value - moved AS loss,
    untouched_to - untouched_from AS untouched_gain
FROM worths
WINDOW in_order AS (PARTITION BY pool, is_placed ORDER BY place)"""


def whole_sum(expression: str, name: str, where: str = "TRUE") -> str:
    """Return a sum as SQL: 0 where it has no terms, null where one is unknown, or where blocks are missing."""
    filtered = f"FILTER (WHERE {where})"
    return f"""CASE WHEN count(*) {filtered} = count({expression}) {filtered} AND NOT bool_or(is_gap)
        THEN coalesce(sum({expression}) {filtered}, 0::HUGEINT) END AS {name}"""


def lost_to(flow: str) -> str:
    """Return which rows are fills of a class of flow, as SQL."""
    return f"is_fill AND flow = {literal(flow)}"


# Whatever changes a balance and is no fill: transfers, deposits, withdrawals.
ADDED = "is_event AND NOT is_fill"
# Columns with what fills brought. Without prices, these are not even known to be 0.
FLOWS = ("fees", "lost_to_arbitrage", "lost_to_users", "lost_to_unknown")


def sums_sql(keys: Keys) -> str:
    """Return the step with the sums of each period and pool."""
    named = zip(keys.aliases, keys.names, strict=True)
    group = ", ".join(f"{name} AS {alias}" for alias, name in named)
    return f"""
-- sums of each period and pool; of a position also its value when the period begins and ends
WITH counted AS (  -- each period and pool, with all fills
    SELECT
        0 AS everything,
        {group},
        count(*) FILTER (WHERE is_fill) AS fills,
        count(*) FILTER (
            WHERE is_lost OR is_event AND (moved IS NULL OR is_fill AND fee_value IS NULL)
        ) AS unpriced
    FROM parts
    GROUP BY ALL
),
summed AS (  -- each period and pool, without lost fills
    SELECT
        0 AS everything,
        {group},
        count(*) FILTER (WHERE is_fill) AS known_fills,
        count(*) FILTER (WHERE is_measured) AS measured,
        bool_and(is_placed) AS is_placed,
        {whole_sum("abs(quote_change)", "notional", "is_fill")},
        last(base_after ORDER BY place) AS base_held,
        last(quote_after ORDER BY place) AS quote_held,
        {whole_sum("base_change", "base_added", ADDED)},
        {whole_sum("quote_change", "quote_added", ADDED)},
        {whole_sum("fee", "base_fees", "is_fill AND coalesce(base_change > 0, TRUE)")},
        {whole_sum("fee", "quote_fees", "is_fill AND coalesce(base_change <= 0, TRUE)")},
        first(value_before ORDER BY place) AS first_value,
        last(value_after ORDER BY place) AS closed,
        {whole_sum("gain", "rebalanced")},
        {whole_sum("fee_value", "fees", "is_fill")},
        {whole_sum("loss", "lost_to_arbitrage", lost_to("arbitrage"))},
        {whole_sum("loss", "lost_to_users", lost_to("user"))},
        {whole_sum("loss", "lost_to_unknown", lost_to("unknown"))},
        {whole_sum("moved", "added", ADDED)},
        {whole_sum("untouched_gain", "held")}
    FROM parts
    WHERE NOT is_lost
    GROUP BY ALL
)
SELECT c.*, s.* EXCLUDE ({keys.columns()})
FROM counted AS c
LEFT JOIN summed AS s ON {keys.same("c", "s")}"""


def answer_sql(keys: Keys, kind: str) -> str:
    """Return the last step, which says of each period how it began, and what follows from its sums."""
    period, *pool = keys.aliases
    of_pool = ", ".join(pool)
    reference = "NULL::VARCHAR"
    flows = [f"NULL::HUGEINT AS {name}" for name in FLOWS]
    net = "NULL::HUGEINT"
    if kind:
        reference = literal(kind)
        flows = list(FLOWS)
        net = "fees - lost_to_arbitrage - lost_to_users - lost_to_unknown"
    return f"""
WITH opened AS (  -- a period begins with the value with which the one before it ended
    SELECT *,
        CASE
            WHEN row_number() OVER in_order = 1 THEN first_value
            ELSE lag(closed) OVER in_order
        END AS opened
    FROM sums
    WINDOW in_order AS (PARTITION BY {of_pool} ORDER BY {period})
)
SELECT {keys.columns()},
    fills::BIGINT AS fills,
    unpriced::BIGINT AS unpriced,
    notional,
    base_held,
    quote_held,
    CASE WHEN is_placed THEN base_added END AS base_added,
    CASE WHEN is_placed THEN quote_added END AS quote_added,
    base_fees,
    quote_fees,
    opened,
    closed,
    closed - opened AS change,
    rebalanced,
    {", ".join(flows)},
    CASE WHEN is_placed THEN added END AS added,
    {net} AS net,
    held,
    rebalanced + net - held AS against_held,
    CASE
        WHEN known_fills > 0 AND measured = known_fills THEN 'measured'
        WHEN known_fills > 0 AND measured = 0 THEN 'assumed'
        WHEN known_fills > 0 THEN 'partly measured'
    END AS fee_source,
    {reference} AS reference
FROM opened
{keys.sorted_by()}"""


def _check_pools(trades: Given[Any]) -> None:
    """Raise a `LabError` where trades have no fills of a pool."""
    found = counts(
        trades,
        ("fill_type", "role"),
        rows="count(*)",
        own="count(*) FILTER (WHERE fill_type = 'amm' AND role = 'maker')",
    )
    if found["rows"] and not found["own"]:
        raise LabError(
            f"{trades.caller}: these trades have no fills of a pool. Give client.trades(account_id) of a pool's "
            "account; where rows have no role, lab.fills.with_roles(trades) fills it in."
        )
