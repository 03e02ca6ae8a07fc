"""Orders: the fills of each put together."""

from __future__ import annotations

from dataclasses import replace

from loopring_lab.engine import sums
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import keys_of
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.engine.question import ORDER_COLUMNS
from loopring_lab.fills.averages import KNOWN_SUMS, with_average

# The exchange counts what an order has filled by account, token sold and storage id. Orders with a hash need none.
STORAGE_ID = """CASE WHEN order_hash IS NULL AND account_id IS NOT NULL AND token_id IS NOT NULL THEN storage_id END"""

# Sums of an order, besides those of a summary.
OF_ORDERS = (
    "min(created_at) AS first",
    "max(created_at) AS last",
    "count(*) FILTER (WHERE fill_type = 'amm') AS amm_fills",
    "sum(size) FILTER (WHERE role = 'maker' AND base IS NOT NULL) AS made",
    "sum(size) FILTER (WHERE role = 'taker' AND base IS NOT NULL) AS taken",
)
TOTALS = (
    "min(first) AS first",
    "max(last) AS last",
    "sum(amm_fills)::BIGINT AS amm_fills",
    "coalesce(sum(made), 0) AS made",
    "coalesce(sum(taken), 0) AS taken",
)


def orders(trades: Trades[FrameT]) -> FrameT:
    """Aggregate fills into the orders they belong to.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per order
        ``order_hash``, ``account_id``, ``market``, ``side``, ``storage_id`` (of an order without a hash),
        ``fee_token``, ``first`` and ``last`` (times of its fills), ``fills`` (more than one for an order
        filled in parts), ``amm_fills``, ``average_price`` (quote per base, truncated to 18 decimals),
        ``maker_share`` and ``taker_share`` of its volume (0 to 1; the rest has an unknown role), then the
        columns of `fees.summary`. Fills of unknown orders are grouped by the other columns that tell orders apart.

    Raises
    ------
    LabError, AmountError
        As for `fees.summary`.

    Notes
    -----
    Rows of blocks have no order hash, which is ``0x`` and 64 hexadecimal digits, not all of them 0: any other text
    counts as none. Without one, fills with the same account, token sold (``token_id``) and
    storage id are one order: the exchange counts what an order has filled under these three.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fills.orders(trades).nlargest(2, "fills")[["market", "fills", "average_price"]]
           market  fills             average_price
    57  WBTC-USDC      5  45299.740082555985604572
    71    LRC-ETH      4      0.000572781593778306
    """
    fills = given(trades, "lab.fills.orders")
    keys = keys_of(fills, ["order_hash", "account_id", "market", "side", "fee_token"])
    keys = replace(
        keys, names=(*keys.names[:4], "storage_id", "fee_token"), added=("storage_id",)
    )
    own = f"{keys.columns()}, fills, first, last, amm_fills, made, taken, known_size, known_notional, average, rest"
    totals = sums.totals_sql(keys, *TOTALS, *KNOWN_SUMS)
    shown = f"""
-- with the average price of each order, and the share of it that was made and taken
SELECT {keys.columns()}, first, last, fills, amm_fills,
    average AS average_price,
    made / nullif(volume, 0) AS maker_share,
    taken / nullif(volume, 0) AS taker_share,
    * EXCLUDE ({own})
FROM ({with_average(f"({totals})")})"""
    steps = {
        "filed": f"""
-- fills with what else tells their orders apart
SELECT *,
    {STORAGE_ID} AS {keys.aliases[4]}
FROM trades""",
        "rows": sums.rates_sql(keys, "filed"),
        "sums": sums.sums_sql(keys, *OF_ORDERS, rows="filed"),
    }
    return sums.asked(
        fills,
        keys,
        steps,
        shown,
        rows="filed",
        needs=(*sums.NEEDS, "fill_type", "role"),
        may_have=ORDER_COLUMNS,
        medians=["median_bps"],
    )
