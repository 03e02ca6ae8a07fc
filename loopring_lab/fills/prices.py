"""Prices of fills compared with the other fill type's, or with a reference price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.arguments import parse_tolerance
from loopring_lab.engine.ask import ask, ask_table, counts, given, given_prices
from loopring_lab.engine.asof import (
    PRICE_COLUMNS,
    Nearest,
    asof_sql,
    before_sql,
    prices_sql,
    spans_sql,
    time_sql,
    with_spans_sql,
)
from loopring_lab.engine.clusters import check_intervals
from loopring_lab.engine.estimates import names_of, with_estimates
from loopring_lab.engine.groups import DAY, Keys, keys_of, literal
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import prices_near
from loopring_lab.engine.notes import Answer, with_note
from loopring_lab.engine.question import PLACE_BITS, Question, Spanned, Streamed
from loopring_lab.engine.sums import with_key
from loopring_lab.engine.worth import worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.sides import TAKEN

SHOWN = (
    "created_at",
    "trade_id",
    "market",
    "side",
    "fill_type",
    "quote",
    "notional",
    "price",
)
GAPS_SHOWN = ("created_at", "trade_id", "market", "side", "fill_type", "price")
GAP_PRICES = ("created_at", "market", "side", "fill_type", "price")
GAPS = ("gap_bps", "worse_bps")
COSTS = ("price_bps", "fee_bps", "all_in_bps")
# Columns of answers by group that no key may be called.
RESERVED = (
    "horizon",
    "fills",
    "unpriced",
    "unmatched",
    "orders",
    "both_sides",
    "reference",
    *names_of(*GAPS, *COSTS),
)

OUTSIDE_PRICES = "outside prices"
OWN_TRADES = "own trades"
OWN_TRADES_NOTE = (
    "The reference prices are trades of this exchange, which carry their own venue's cost: intervals cover "
    "sampling only, and trades as reference pull the difference towards 0, at times beyond it. Pass prices "
    "from an outside market to avoid that."
)
# Prices without trade ids are taken for trades if more fills than this show theirs in the same millisecond, which an
# outside market does by chance only.
CHANCE = 0.01

# A feed that has stopped has one price for all trades of a day and more; of two daily closes both may well be the same.
# What one stable token costs in another stays within a percent, as do the prices of fills of one moment.
STILL = {
    "standing": f"""
-- prices that stand still for a day and more
WITH beside AS (  -- prices, and whether each is another one than that before, and than that after
    SELECT market, ms,
        row_number() OVER in_time AS number,
        price IS DISTINCT FROM lag(price) OVER in_time AS is_first,
        price IS DISTINCT FROM lead(price) OVER in_time AS is_last
    FROM prices
    WHERE price > 0 AND ms IS NOT NULL
    WINDOW in_time AS (PARTITION BY market ORDER BY ms, price)
),
spans AS (  -- where a price begins to be repeated, and after that row the one where it ends
    SELECT market, is_first,
        ms AS since,
        lead(ms) OVER in_time AS until,
        lead(number) OVER in_time - number AS repeats
    FROM beside
    WHERE is_first <> is_last
    WINDOW in_time AS (PARTITION BY market ORDER BY number)
)
SELECT market, since, until
FROM spans
WHERE is_first AND until - since >= {DAY} AND repeats > 1""",
    "sums": """
-- those in which the trades of the market moved; a fill at an odd price is no move
SELECT s.market, since, until,
    quantile_disc(price, 0.9) / quantile_disc(price, 0.1) - 1 AS moved
FROM standing AS s
JOIN trades AS t ON s.market = t.market AND ms BETWEEN since AND until
WHERE price > 0
GROUP BY ALL
HAVING moved > 0.01""",
    "answer": """
SELECT market, make_timestamptz(since * 1000) AS since, make_timestamptz(until * 1000) AS until, moved
FROM sums
ORDER BY ALL""",
}

# The time at which an order was filled for the last time, in milliseconds.
LAST_FILL_MS = f"(last_fill >> {PLACE_BITS})"


def is_near_sql(kind: str, horizon: int) -> str:
    """Return whether a price before the horizon of `LAST_FILL_MS` may be an order's reference, as SQL."""
    if kind == OWN_TRADES:
        # A trade after the order is not one of its own fills.
        return "found_moment > last_fill"
    return f"found_moment >> {PLACE_BITS} >= {LAST_FILL_MS} - {horizon}"


def price_gap(
    trades: Trades[FrameT],
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
    intervals: float = 0.95,
    cluster: str | None = None,
) -> FrameT:
    """Compare each fill's price with the last fill of the other type, in its market and side, before its order.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the other fill when the order was first filled; None for any age.
    by : str or sequence of str, optional
        Aggregate by these columns and ``fill_type``; ``[]`` for ``fill_type`` alone.
    prices : frame of any of these kinds, optional
        Trades among which to look for the other fill, such as those of all accounts; by default `trades`.
    intervals : float
        Level of the intervals, between 0 and 1.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one, as for `all_in_cost`.

    Returns
    -------
    frame of the same kind, one row per fill of known type
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``price``, ``other_price`` and
        ``other_at`` (null where unmatched), ``gap_bps``, how much higher the price is than the other, and
        ``worse_bps``, the same as a cost to the account, which paid more or received less. Float64 basis
        points. With `by`, one row per group: ``fills``, ``unmatched``, ``orders``, the estimates of
        ``gap_bps`` and ``worse_bps`` that `all_in_cost` describes, and ``both_sides``.

    Raises
    ------
    LabError, AmountError
        As for `fees.with_tiers`, or `tolerance` or `intervals` is not valid.

    Notes
    -----
    This is not an effective spread, such as Rule 605's, which is measured from the midpoint of quotes when the order
    is received: the other fill is one trade, on one side of the midpoint, and up to `tolerance` old.

    The other fill is older than the first fill of the order, so it is never of the order itself. Rows of blocks are
    in the order of the block, others in that of their milliseconds; of several at once the last by trade id counts.

    Examples
    --------
    >>> trades = client.trades(account_id=71468)
    >>> gaps = lab.fills.price_gap(trades, tolerance="10min")
    >>> gaps[["side", "price", "other_price", "worse_bps"]].dropna().tail(2)
        side       price  other_price  worse_bps
    159  BUY  0.00064749   0.00064914 -25.418246
    160  BUY  0.00064759   0.00064914 -23.877746
    """
    caller = "lab.fills.price_gap"
    fills = given(trades, caller)
    beside = given_prices(prices, caller)
    keys = keys_of(fills, by, *RESERVED)
    if by is not None:
        keys = with_key(keys, "fill_type")
    within = parse_tolerance(tolerance, caller)
    steps = {
        "typed": Streamed(
            "-- fills of known type\nSELECT * FROM trades WHERE fill_type IN ('amm', 'dex')"
        ),
        **price_steps(beside, "last", "market", "side", "fill_type", rows="typed"),
        "lookups": Streamed("""
-- with the other type, which is looked up before their order
SELECT *, CASE fill_type WHEN 'amm' THEN 'dex' ELSE 'amm' END AS other_type,
    CASE WHEN price > 0 THEN began END AS anchor
FROM fills"""),
        "found": asof_sql(
            "lookups", "last", "market", "side", "other_type", within=within
        ),
        "costs": f"""
-- how much higher than the other price each fill's is, and how much worse for the account
SELECT *, found_price AS other_price, {time_sql("found_moment")} AS other_at,
    10000 * (price - found_price)::DOUBLE / found_price AS gap_bps,
    {worse_sql("price", "found_price")} AS worse_bps
FROM found""",
    }
    question = question_of_prices(
        caller,
        steps,
        GAPS_SHOWN if by is None else SHOWN,
        keys,
        shown=GAPS_SHOWN,
        price_needs=GAP_PRICES,
        reach=within,
    )
    return asked(
        question,
        fills,
        beside,
        GAPS,
        by,
        intervals,
        cluster,
        shown=("other_price", "other_at"),
        missing="unmatched",
        sides="typed",
    )


def all_in_cost(
    trades: Trades[FrameT],
    reference: Any = "next",
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
    intervals: float = 0.95,
    cluster: str | None = None,
) -> FrameT:
    """Compute the all-in cost of fills: the fee plus the difference from a reference price.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns.
    reference : 'next', 'last', or frame of any of these kinds
        ``'next'``: the first trade in the market after the order's last fill, which shows what the position
        turned out to be worth (a markout). ``'last'``: the last trade before the order's first fill, its
        arrival price; where trades are rare this is stale, and makes fills that react to price moves, such as
        those at a pool, look more expensive. Both use trades of either type and side. A frame: prices with
        ``created_at``, ``market`` and ``price``, of which the last one at or before the fill is used; if they
        are trades of this exchange, the last one before the order's first fill.
    tolerance : str or pandas.Timedelta, optional
        Maximum distance in time of the reference: from the order's last fill for ``'next'``, from its first for
        ``'last'`` and a frame of trades, from the fill itself for prices from outside; None for any distance.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all fills together.
    prices : frame of any of these kinds, optional
        Trades among which to look for the next or last one, such as those of all accounts. By default
        `trades`: the next trade is then the next in that frame, not in the whole market.
    intervals : float
        Level of the intervals, between 0 and 1.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one. By default each of these of which there are at least 8 is tried, and the widest
        interval counts.

    Returns
    -------
    frame of the same kind, one row per fill
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``quote``, ``notional``,
        ``price``, ``reference_price``, ``price_bps`` (positive: worse for the account), ``fee_bps`` and
        ``all_in_bps``, their sum; float64 basis points, null without a reference; and ``reference``, either
        ``outside prices`` or ``own trades``. With `by`, one row per group: ``fills``, ``unpriced``,
        ``orders``, and of each rate, over the fills that have all of them: ``mean_…``, ``weighted_…`` (by
        value), ``median_…``, and ``low_…`` to ``high_…``, the interval of the weighted mean; null where no level has
        enough clusters, and where there are several accounts, but fewer than 8: they say nothing about others,
        unless `cluster` asks for days or weeks; and ``both_sides``, of how many fills both sides are counted.

    Raises
    ------
    LabError, AmountError
        As for `price_gap`, or `reference` is not valid.

    Notes
    -----
    Trades are in the order of their blocks, or else of their milliseconds; of several at once the one whose trade
    id is nearest counts. Several prices of one moment without ids, such as those of two outside markets or a bid and
    an ask, count as their mean. As a reference is older or newer than the whole order, which `orders` tells apart, no
    fill is compared with itself, its other side or another fill of its order; one whose order is not known, nor its
    ``trade_id`` or ``side``, has no reference among trades. Values are weighed in the quote token,
    or where a group has several, in the most frequent one, at the mean prices of the day.

    Intervals are those of a cluster jackknife (CRV3) with Student's t, see `engine.clusters`: the mean is computed
    again without each account, each day or each week. Of fewer than 8 days or weeks they hold for these alone: what all
    fills of one have in common, such as few references, does not vary in them. Weeks are taken to be independent: where
    costs drift for weeks on end, fewer intervals hold. Where two or three of many accounts have nearly all of the
    value, some 85 % of intervals of 95 % hold.

    Trades as a reference carry their own venue's cost, which pulls differences between venues towards 0: then
    the intervals cover sampling only. Prices from outside do not have this bias.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> costs = lab.fills.all_in_cost(trades, client.outside_prices(trades), by="fill_type")
    >>> costs[["fill_type", "fills", "weighted_all_in_bps", "low_all_in_bps", "high_all_in_bps"]]
      fill_type  fills  weighted_all_in_bps  low_all_in_bps  high_all_in_bps
    0       amm     56            38.045630       31.383774        44.707485
    1       dex     44            30.418034       15.798776        45.037292
    """
    return cost_of(COSTS, trades, reference, tolerance, by, prices, intervals, cluster)


def cost_of(
    rates: Sequence[str],
    trades: Trades[FrameT],
    reference: Any,
    tolerance: Any,
    by: Any,
    prices: Any,
    intervals: float = 0.95,
    cluster: str | None = None,
    rows: Mapping[str, str] | None = None,
) -> FrameT:
    """Return the answer of `all_in_cost` with some of its rates, as each takes its time.

    `rows` is a step that selects the rows asked about; `by` may be keys which it adds to them.
    """
    caller = "lab.fills.all_in_cost"
    fills = given(trades, caller)
    looked_up = prices
    if not isinstance(reference, str):
        if prices is not None:
            raise LabError(
                f"{caller}: reference= and prices= are both frames. Give one of them."
            )
        looked_up = reference
        reference = "given"
    elif reference not in ("next", "last"):
        raise LabError(
            f"{caller}: reference={reference!r} is not known. Give 'next', 'last', or a frame of prices."
        )
    nearest: Nearest = "first" if reference == "next" else "last"
    within = parse_tolerance(tolerance, caller)
    beside = prices_near(looked_up, fills, nearest=nearest, within=within)
    kind = kind_of_prices(beside, fills)
    anchor = "ended" if reference == "next" else "began"
    (asked_of,) = rows or ("trades",)
    steps = {
        **(rows or {}),
        **price_steps(
            beside,
            nearest,
            rows=asked_of,
            source=asked_of,
            kind=kind if reference == "given" else OWN_TRADES,
        ),
        "lookups": Streamed(
            f"-- fills with the moment to look from\nSELECT *, {anchor} AS anchor FROM fills"
        ),
        "found": asof_sql("lookups", nearest, within=within),
        "priced": f"""
-- how much worse each fill's price is than its reference
SELECT *, found_price AS reference_price, {worse_sql("price", "found_price")} AS price_bps
FROM found""",
        "costs": "-- with the fee\nSELECT *, price_bps + fee_bps AS all_in_bps FROM priced",
    }
    keys = by if isinstance(by, Keys) else keys_of(fills, by, *RESERVED)
    question = question_of_prices(
        caller, steps, (*SHOWN, "fee_bps"), keys, shown=SHOWN, reach=within
    )
    return asked(
        question,
        fills,
        beside,
        rates,
        by,
        intervals,
        cluster,
        shown=("reference_price",),
        kind=kind,
        sides=asked_of,
    )


def price_steps(
    prices: Given[Any] | None,
    nearest: Nearest,
    *keys: str,
    rows: str = "trades",
    source: str = "trades",
    kind: str = OWN_TRADES,
) -> dict[str, str]:
    """Return the steps ``spans``, ``known_prices``, and ``fills``: `rows` with when their order began and ended.

    Prices before an order are older than the moment ``began``, those after it newer than ``ended``. `source` is the
    step with all fills of these orders, and with the prices where there are no others.
    """
    began = before_sql(prices)
    ended = "last_fill"
    if kind == OUTSIDE_PRICES:
        # Outside prices are never of the order itself, so those up to each fill and after it count.
        began = "moment + 1"
        ended = "moment"
    return {
        "spans": spans_sql(with_prices=prices is not None, trades=source),
        "known_prices": prices_sql(prices, nearest, *keys, source=source),
        "fills": Spanned(f"""
-- fills with the time of their order
SELECT *, {began} AS began, {ended} AS ended
FROM ({with_spans_sql(rows)})"""),
    }


def taker_steps(prices: Given[Any] | None, kind: str) -> dict[str, str]:
    """Return the steps from roles to ``takers``, with ``spans`` and ``known_prices`` of the last price before each.

    What is left of an order may be filled later, as a maker: when depends on the price, and it is no part of what the
    taker paid. Only where the prices are trades is that its own too, and none of its references.
    """
    is_own = kind == OWN_TRADES
    taken = "(FROM trades WHERE role IS DISTINCT FROM 'maker')"
    return {
        **TAKEN,
        "spans": spans_sql(
            with_prices=is_own and prices is not None,
            trades="trades" if is_own else taken,
        ),
        "known_prices": prices_sql(prices, "last"),
    }


def question_of_prices(
    caller: str,
    steps: Mapping[str, str],
    needs: Sequence[str],
    keys: Keys,
    **others: Any,
) -> Question:
    """Return a question with `price_steps`."""
    return Question(
        caller,
        steps,
        needs,
        PRICE_COLUMNS,
        keys=keys,
        price_may_have=PRICE_COLUMNS,
        **others,
    )


def asked(
    question: Question,
    trades: Given[FrameT],
    prices: Given[Any] | None,
    rates: Sequence[str],
    by: Any,
    level: float,
    cluster: str | None,
    *,
    shown: Sequence[str] = (),
    order: str = "",
    kind: str = "",
    tables: Mapping[str, pa.Table] | None = None,
    **estimated: Any,
) -> FrameT:
    """Ask for estimates of rates, from the step ``costs``; without ``by=`` for its rows.

    Rows have the columns `shown` before the rates; `order` is that of rows of one fill. The `kind` of the prices, if
    given, is the last column.
    """
    check_intervals(level, cluster, question.caller)
    tables = dict(tables or {})
    last = [f"{literal(kind)} AS reference"] if kind else []
    if by is None:
        columns = ", ".join([*shown, *rates, *last])
        rows = f"-- what is shown beside each fill\nSELECT row, {columns} FROM costs {order}"
        question = replace(question, steps={**question.steps, "rows": rows})
    else:
        question = with_estimates(
            question, rates, level, cluster, columns=last, **estimated
        )
        tables["worth"] = worth_by_day(trades)
    return noted(ask(question, trades, prices, **tables), kind, trades, prices)


def worse_sql(price: str, reference: str, base: str = "") -> str:
    """Return how much worse a price is than a reference for the account, in basis points of `base`, as SQL.

    The difference is exact; what follows is the division of two doubles.
    """
    return f"""10000 * (CASE
        WHEN {price} > 0 AND side = 'BUY' THEN {price} - {reference}
        WHEN {price} > 0 AND side = 'SELL' THEN {reference} - {price}
    END)::DOUBLE / {base or reference}"""


def kind_of_prices(prices: Given[Any] | None, trades: Given[Any]) -> str:
    """Say what prices are: `OWN_TRADES` of this exchange, or `OUTSIDE_PRICES`."""
    if prices is None or "trade_id" in prices.names:
        return OWN_TRADES
    # An outside market shows a fill's price in the same millisecond by chance only.
    found = counts(
        trades,
        ("created_at", "market", "price"),
        prices,
        fills="count(*)",
        # Most prices are of other moments, and leaving these out first takes a fifth of the time.
        alike="""count(*) FILTER (WHERE (market, ms, price) IN (
    SELECT (market, ms, price) FROM prices WHERE ms IN (SELECT ms FROM trades)))""",
    )
    return OWN_TRADES if found["alike"] > found["fills"] * CHANCE else OUTSIDE_PRICES


def check_markets(fills: pa.ChunkedArray, trades: Given[Any], prices: Any) -> None:
    """Raise a `LabError` if no fill was compared, and there are prices, but none of the market of a fill."""
    beside = given_prices(prices, trades.caller)
    if beside is None or any(fills.to_pylist()):
        return
    asked_about = _markets_of(trades)
    listed = _markets_of(beside)
    if asked_about and listed and asked_about.isdisjoint(listed - {None}):
        raise LabError(
            f"{trades.caller}: prices= has no price of a market in trades. Give prices of those markets."
        )


def _markets_of(frame: Given[Any]) -> set[str | None]:
    """Return the different markets of trades or prices."""
    steps = {"sums": "-- each market\nSELECT DISTINCT market FROM trades"}
    found = ask_table(Question(frame.caller, steps, ("market",)), frame)
    return set(found["market"].to_pylist())


def noted(
    answer: Answer, kind: str, trades: Given[Any], prices: Given[Any] | None
) -> Answer:
    """Say under an answer what trades as reference prices mean, or that prices from outside stood still."""
    if kind == OWN_TRADES:
        return with_note(answer, OWN_TRADES_NOTE)
    # Only pandas frames carry notes.
    if prices is None or not isinstance(answer, pd.DataFrame):
        return answer
    return with_note(answer, _note_on_still(trades, prices))


def _note_on_still(trades: Given[Any], prices: Given[Any]) -> str:
    """Name a market whose prices stood still for a day and more while its trades moved; empty where none did."""
    question = Question(trades.caller, STILL, ("created_at", "market", "price"))
    found = ask_table(question, trades, prices).to_pylist()
    if not found:
        return ""
    first = found[0]
    more = f", and {len(found) - 1} more times" if len(found) > 1 else ""
    return (
        f"In prices=, that of {first['market']} stands still from {first['since']:%Y-%m-%d %H:%M} to "
        f"{first['until']:%Y-%m-%d %H:%M} (UTC) while its trades move by {first['moved']:.1%}{more}, as that of a feed "
        "does that has stopped. Leave these prices out."
    )
