"""Routing: what orders on the book would have cost at the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import from_integers, to_integers
from loopring_lab.engine.ask import ask, ask_table, given
from loopring_lab.engine.asof import asof_sql, before_sql
from loopring_lab.engine.clusters import check_intervals
from loopring_lab.engine.estimates import names_of, with_estimates
from loopring_lab.engine.groups import EVERYTHING, Keys, keys_of, several
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.notes import with_attrs, with_note
from loopring_lab.engine.question import ORDER_COLUMNS, PLACE, Large, Prices, Question
from loopring_lab.engine.sums import RECEIVED
from loopring_lab.engine.worth import worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.orders import STORAGE_ID
from loopring_lab.fills.prices import RESERVED
from loopring_lab.fills.sides import ONCE, ROLE_COLUMNS, role_steps
from loopring_lab.fills.sizes import ends_sql, part_sql
from loopring_lab.research.reserves import BALANCES, PLACES, check_fee

CALLER = "lab.research.pool_quotes"
BPS = 10_000
# The chain holds both amounts of a fill as float24: a mantissa of 19 bits, times a power of ten.
MANTISSA = 2**19 - 1
# Amounts of frames have 38 digits.
LARGEST = 10**38
# Classes of size are quintiles.
SIZE_CLASSES = 5

RATES = ("before_fees_bps", "opportunity_bps")
# Columns of answers by group that no key may be called.
TAKEN = (*RESERVED, "unquoted", *names_of(*RATES))
# Columns with what is known of each order, in the order of the answer.
OF_ORDERS = (
    "first",
    "order_hash",
    "account_id",
    "market",
    "side",
    "storage_id",
    "size_class",
    "fills",
    "base",
    "size",
    "quote",
    "notional",
    "fee_token",
    "fee",
)
NEEDS = (*ROLE_COLUMNS, "base", "quote", "size", "price", "notional", "fee_token")

# The last step before `asof_sql`: what that finds as a price is the state of a pool.
KNOWN_STATES = """
-- the reserves of each pool from a moment on: of two states at one moment it is not known which came last, so then
-- nothing is, which is a state as well
SELECT
    hash(market) AS keys,
    moment,
    struct_pack(
        base := if(count(*) = 1, min(base_balance), NULL),
        quote := if(count(*) = 1, min(quote_balance), NULL),
        base_decimals := min(base_decimals),
        quote_decimals := min(quote_decimals)
    ) AS price
FROM prices
WHERE market IN (SELECT market FROM trades) AND moment IS NOT NULL
GROUP BY market, moment"""


def pool_quotes(
    orders: Trades[FrameT],
    balances: Any,
    by: str | Sequence[str] | None = None,
    *,
    pool_fee_bps: int = 20,
    taker_fee_bps: float = 10,
    intervals: float = 0.95,
    cluster: str | None = None,
) -> FrameT:
    """Ask what each order that took the book would have cost at the pool at that moment: its opportunity cost.

    Parameters
    ----------
    orders : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Trades, from `Client.trades`. Of these, takers' fills on the order book count, put together by order.
    balances : frame of any of these kinds
        What each pool held, from one change to the next: ``created_at``, ``market``, ``base_balance`` and
        ``quote_balance`` (exact amounts, in tokens; null from where they are not known), ``base_decimals`` and
        ``quote_decimals`` (of the tokens), and ``block_id`` and ``index_in_block``, without which the order of what
        happened in the same millisecond is not known. `BlocksClient.pool_balances` gives such a frame.
    by : str or sequence of str, optional
        Aggregate by these columns of the orders, but for ``first``, or of the trades, such as ``market``,
        ``account_id``, ``size_class``, or ``flow`` of `with_flow`; ``[]`` for all orders together. Where the fills of
        an order differ in a column of the trades, the least of its values counts.
    pool_fee_bps : int
        Fee of the pools in basis points of the amount paid in; 20 in every pool of the exchange.
    taker_fee_bps : float
        What the exchange would have charged the taker at the pool, in basis points of the amount received: 10 for
        most accounts; `fees.tiers` with ``by="fill_type"`` shows what an account pays.
    intervals : float
        Level of the intervals, between 0 and 1.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one, as for `all_in_cost`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per order, oldest first
        ``first`` (time of its first fill), ``order_hash``, ``account_id``, ``market``, ``side``, ``storage_id`` (of an
        order without a hash), ``size_class`` (1 to 5: the quintile of its size in its market), ``fills``, ``base``,
        ``size``, ``quote``, ``notional`` (what it paid or received), ``fee_token``, ``fee``; ``pool_quote``, what the
        pool would have taken or given for ``size`` (quote units, pool's fee included, exact); and in basis points
        ``before_fees_bps``, how much worse than that the order did, and ``opportunity_bps``, the same with the fees of
        the taker at both venues: positive where the pool was cheaper. Null where no reserves are known, where the pool
        holds too little, or where an amount is unknown. With `by`, one row per group: ``fills``, ``unquoted`` (orders
        without a quote), ``orders``, and the estimates of both rates that `all_in_cost` describes, over orders.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`; `balances` lacks a column, or a fee is not valid.

    Notes
    -----
    A pool of a constant product that holds x of base and y of quote, and charges a fee f of what it is paid, takes
    y q / (x - q) / (1 - f) for q of base, and gives y q (1 - f) / (x + q (1 - f)), in smallest units, rounded for the
    pool, and then as the chain holds amounts (float24: 19 bits times a power of ten). That is what the order would
    have met: whatever happened to the pool before its first fill on the book counts, and nothing after. The quote
    takes the whole order at once; it does not say what later orders would have found.

    The orders are those that went to the book. Takers who look at both venues go where it is cheaper, so their mean
    says what they gained by their choice, not which venue is cheaper for everybody: `compare_venues` asks that.

    The other way round there is no such quote: what the book would have charged an order at the pool, only its resting
    orders say, and neither relayer nor blocks show them.

    References
    ----------
    G. Angeris, H.-T. Kao, R. Chiang, C. Noyes and T. Chitra, "An analysis of Uniswap markets", 2019, on the prices of
    constant products.

    Examples
    --------
    >>> blocks = lab.connect(blocks="sample")
    Sample blocks: one real block of Loopring Exchange v3.6, Ethereum transaction 0x71cf...
    >>> quotes = lab.research.pool_quotes(blocks.trades(market="LRC-USDC"), blocks.pool_balances())
    >>> quotes[["side", "size", "notional", "pool_quote", "opportunity_bps"]].dropna().head(2)
       side     size  notional  pool_quote  opportunity_bps
    0  SELL  2052.19   2298.45     2317.87        98.673032
    1   BUY   227.33    254.61     257.881      -128.817663
    """
    check_intervals(intervals, cluster, CALLER)
    check_fees(pool_fee_bps, taker_fee_bps, CALLER)
    if by is not None:
        by = several(by)
    fills = given(orders, CALLER)
    reserves = given(balances, f"{CALLER}: balances=")
    quoted = quoted_orders(fills, reserves, by, pool_fee_bps)
    answer = compared(fills, quoted, by, taker_fee_bps, intervals, cluster)
    unquoted = quoted["pool_quote"].null_count
    note = ""
    if unquoted:
        note = (
            f"{unquoted:,} of {len(quoted):,} orders have no quote: no reserves of a pool are known just before "
            "them, they are more than the pool held, or an amount is not known."
        )
    return with_note(with_attrs(fills.like(answer), intervals=intervals), note)


def quoted_orders(
    trades: Given[Any],
    balances: Given[Any],
    by: str | Sequence[str] | None,
    pool_fee_bps: int,
) -> pa.Table:
    """Return each taker's order on the book with the pool's quote, and the columns that it is grouped by."""
    # Orders have some columns of their own; others are those of their trades.
    own = [name for name in by or () if name not in OF_ORDERS]
    found = _with_reserves(trades, balances, keys_of(trades, own, *TAKEN))
    return _with_quotes(found, pool_fee_bps)


def check_fees(pool_fee_bps: Any, taker_fee_bps: Any, caller: str) -> None:
    check_fee(pool_fee_bps, caller)
    is_number = isinstance(taker_fee_bps, (int, float)) and taker_fee_bps is not True
    if not is_number or not 0 <= taker_fee_bps < BPS:
        raise LabError(
            f"{caller}: taker_fee_bps={taker_fee_bps!r} is not a fee. Give basis points, such as 10."
        )


def _with_reserves(trades: Given[Any], balances: Given[Any], keys: Keys) -> pa.Table:
    """Return each taker's order on the book with the reserves of the pool just before it."""
    roles, tables = role_steps(trades)
    own = "".join(f", min({name}) AS {name}" for name in (EVERYTHING, *keys.aliases))
    steps = {
        **roles,
        "once": ONCE,
        "filed": f"""
-- takers' fills on the book, with what tells orders without a hash apart
SELECT *,
    {STORAGE_ID} AS storage
FROM once
WHERE told_role = 'taker' AND fill_type = 'dex' AND market IS NOT NULL""",
        "orders": Large(f"""
-- the orders, with the moment of their first fill on the book; amounts are unknown if that of any fill is, and fills
-- of unknown orders are no order
SELECT market, side, base, quote, fee_token, account_id, order_hash,
    storage AS storage_id,
    order_id{own},
    count(*) AS fills,
    min(created_at) AS first,
    CASE
        WHEN count(*) = count(moment) AND count(*) = count(order_id) THEN min(moment)
    END AS first_fill,
    CASE WHEN count(*) = count(size) THEN sum(size) END AS size,
    CASE WHEN count(*) = count(notional) THEN sum(notional) END AS notional,
    CASE WHEN count(*) = count(fee) THEN sum(fee) END AS fee
FROM filed
GROUP BY ALL"""),
        "ends": ends_sql(
            "(FROM orders WHERE size > 0)", ["market"], "size", SIZE_CLASSES
        ),
        "classed": f"""
-- with the class of their size in the market; reserves must be older than `anchor`
SELECT *,
    {before_sql(balances)} AS anchor,
    CASE WHEN size > 0 THEN {part_sql("size", SIZE_CLASSES)} END AS size_class
FROM orders
LEFT JOIN ends USING (market)""",
        "known_prices": Prices(KNOWN_STATES),
        "found": asof_sql("classed", "last"),
        "sums": f"""
-- with the reserves, in tokens
SELECT {keys.columns()},
    {", ".join(OF_ORDERS)},
    first_fill,
    found_price.base AS base_balance,
    found_price.quote AS quote_balance,
    found_price.base_decimals AS base_decimals,
    found_price.quote_decimals AS quote_decimals
FROM found""",
        "answer": """
-- oldest first
SELECT * EXCLUDE (first_fill) FROM sums
ORDER BY first_fill, first, market, side, account_id, order_hash, storage_id, size, notional""",
    }
    question = Question(
        CALLER,
        steps,
        needs=NEEDS,
        may_have=(*PLACE, *ORDER_COLUMNS),
        keys=keys,
        price_needs=BALANCES,
    )
    return ask_table(question, trades, balances, **tables)


def _with_quotes(orders: pa.Table, pool_fee_bps: int) -> pa.Table:
    """Add what the pool would have taken or given for each order.

    Reserves and sizes have up to 96 bits each, and DuckDB's integers 128, so products are Python's: once an order.
    """
    columns = (
        orders["side"].to_pylist(),
        to_integers(orders["size"]),
        to_integers(orders["base_balance"]),
        to_integers(orders["quote_balance"]),
        orders["base_decimals"].to_pylist(),
        orders["quote_decimals"].to_pylist(),
    )
    asked = (_Asked(*row) for row in zip(*columns, strict=True))
    quotes = [_quote(one, pool_fee_bps) for one in asked]
    kept = orders.drop_columns(
        ["base_balance", "quote_balance", "base_decimals", "quote_decimals"]
    )
    return kept.append_column("pool_quote", from_integers(quotes, AMOUNT_TYPE))


class _Asked(NamedTuple):
    """What a quote follows from; amounts are in 1e-18 of a token. Any of it may be unknown."""

    side: Any
    size: Any
    base_balance: Any
    quote_balance: Any
    base_decimals: Any
    quote_decimals: Any


def _quote(asked: _Asked, pool_fee_bps: int) -> int | None:
    """Return a pool's quote for one order, in 1e-18 of the quote token; None where it has none."""
    if None in asked:
        return None
    decimals = (asked.base_decimals, asked.quote_decimals)
    if not all(0 <= count <= PLACES for count in decimals):
        return None
    base_unit = 10 ** (PLACES - asked.base_decimals)
    quote_unit: int = 10 ** (PLACES - asked.quote_decimals)
    q = asked.size // base_unit
    x = asked.base_balance // base_unit
    y = asked.quote_balance // quote_unit
    kept = BPS - pool_fee_bps
    if asked.side == "BUY" and 0 < q < x:
        # x * y stays the same, and the fee comes on top; each step is rounded up, for the pool.
        net = -(-y * q // (x - q))
        quote = _round_up(-(-net * BPS // kept))
    elif asked.side == "SELL" and q > 0 and x > 0:
        # x * y stays the same for what is left of q after the fee; rounded down, for the pool.
        quote = _round_down(y * q * kept // (x * BPS + q * kept))
    else:
        return None
    # The price of what is left in a pool that is all but emptied has no bounds, but amounts have.
    found = quote * quote_unit
    return found if 0 < found < LARGEST else None


def _float24_unit(amount: int) -> int:
    """Return the smallest power of ten of which the mantissa of a float24 can hold enough for an amount."""
    unit = 1
    while amount > MANTISSA * unit:
        unit *= 10
    return unit


def _round_up(amount: int) -> int:
    unit = _float24_unit(amount)
    return -(-amount // unit) * unit


def _round_down(amount: int) -> int:
    unit = _float24_unit(amount)
    # Just beyond a limit, the limit itself is nearer than a multiple of the larger unit.
    return max(amount // unit * unit, MANTISSA * (unit // 10))


def compared(
    trades: Given[Any],
    orders: pa.Table,
    by: str | Sequence[str] | None,
    taker_fee_bps: float,
    level: float,
    cluster: str | None = None,
) -> pa.Table:
    """Return how much worse orders did than the pool's quote, one row for each or, with ``by=``, for each group."""
    # The part of the received amount that a taker keeps, at the pool and on the book.
    at_pool = repr(float(BPS - taker_fee_bps) / BPS)
    on_book = f"(1 - fee::DOUBLE / ({RECEIVED})::DOUBLE)"
    paid = "notional::DOUBLE / nullif(pool_quote, 0)::DOUBLE"
    # Rows are orders already, and fewer than fills: grouping them once more, as `is_only` is FALSE, costs little.
    steps = {
        "costs": f"""
-- how much more each order paid than at the pool, or how much less it received; and the same with fees
SELECT *,
    row AS order_id,
    FALSE AS is_only,
    {BPS} * CASE side
        WHEN 'BUY' THEN {paid} - 1
        WHEN 'SELL' THEN 1 - {paid}
    END AS before_fees_bps,
    {BPS} * CASE side
        WHEN 'BUY' THEN {paid} * {at_pool} / {on_book} - 1
        WHEN 'SELL' THEN 1 - {paid} * {on_book} / {at_pool}
    END AS opportunity_bps
FROM trades"""
    }
    # Questions know when something was by this name.
    named = orders.rename_columns(
        ["created_at" if name == "first" else name for name in orders.column_names]
    )
    rows = given(named, CALLER)
    # Orders also have the caller's own columns, which may have any names.
    needs = (
        "created_at",
        "market",
        "side",
        "base",
        "quote",
        "size",
        "notional",
        "fee_token",
        "fee",
        "pool_quote",
        "fills",
        "account_id",
    )
    if by is None:
        steps["rows"] = (
            f"-- the rates of each order\nSELECT row, {', '.join(RATES)} FROM costs"
        )
        question = Question(CALLER, steps, needs, shown=None)
        found = ask(question, rows)
        return found.rename_columns([*orders.column_names, *RATES])
    keys = keys_of(rows, by, *TAKEN)
    question = Question(CALLER, steps, needs, ("trade_id",), keys=keys)
    question = with_estimates(
        question,
        RATES,
        level,
        cluster,
        fills="fills",
        missing="unquoted",
        sides="costs",
    )
    return ask(question, rows, worth=worth_by_day(trades))
