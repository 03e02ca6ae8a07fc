"""Fees of many tokens valued in one, at the last prices before each fill's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from loopring_lab.engine import sums
from loopring_lab.engine.groups import Keys, keys_of, literal
from loopring_lab.engine.query import ORDER_COLUMNS, PLACE, Question, ask, collected
from loopring_lab.engine.worth import Pair, Step, busiest_paths, day_sql
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.query import parse_tolerance

CALLER = "lab.fees.in_token"
# Ends of a 95 % interval of a normal distribution, in standard deviations.
REACH = 1.96
PRICE_COLUMNS = ("created_at", "base", "quote", "price")
SUMMED = ("fills", "unpriced", "fee_value", "value_token", "within_bps", "median_age", "max_age", "both_sides")


def in_token(
    trades: Any,
    token: str,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    tolerance: str | pd.Timedelta | None = "7d",
) -> Any:
    """Value each fill's fee in one token.

    The value follows a path of at most three markets from the fee token to `token`, using the last price at
    or before the fill in each: of all such paths the one whose oldest price is the most recent, and of
    equally recent ones the shortest. Later prices are never used, nor a fill's own price, its counterpart's
    or that of another fill of its order: they carry the cost of that trade.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars or DuckDB, or an Archive
        From `Client.trades`.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow, Polars or DuckDB, or an Archive, optional
        Prices or trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``. By default
        `trades`; the prices of an account that trades rarely are old, those of a busier one, of all accounts
        or of a price file are better.
    by : str or sequence of str, optional
        Sum by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the oldest price of a path; None for any age, which with `by` reads all rows into
        memory.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (units of ``value_token``, which is `token`; each step truncated to 18
        decimals), ``value_path``, such as ``"LRC>ETH>USDT"``, and ``priced_at``, the time of the oldest
        price used; null where no path has prices within `tolerance`. With `by`, one row per group: ``fills``,
        ``unpriced`` (fills without a value), ``fee``, ``fee_value``, ``value_token``, ``within_bps``
        (float64, rounded up to 6 decimals), ``median_age`` and ``max_age``, how old the oldest price of each
        value was (ms), and ``both_sides``, as for `summary`; sums cover known amounts only.

    Raises
    ------
    LabError, AmountError
        As for `with_tiers`, or no market trades `token`, a value does not fit, or `tolerance` is not valid.

    Notes
    -----
    Prices are estimates, so a sum has fewer certain digits than it prints: ``within_bps`` says how far, in
    basis points of ``fee_value``, it may be from the sum at true prices, in 19 of 20 cases. It adds up how
    much the prices of the markets used vary over the time that passed and from one trade to the next, all
    fills at one price being off together, and how much the sum would change at the first prices after the
    fills, which tells where an account trades when prices move. For
    several groups, add up their errors. `show` cuts ``fee_value`` after the first digit that is uncertain.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fee", "fee_value"]].tail(2)
      fee_token                   fee             fee_value
    8      USDT  5.019345000000000000  4.996739944847081109
    9      WBTC  0.000021820000000000  0.819385962311854916
    """
    limit = parse_tolerance(tolerance, CALLER)
    outer = keys_of(trades, by, CALLER, *SUMMED)
    paths = _paths(trades, prices, token)
    steps = {
        "paths": _paths_sql(paths),
        "known": KNOWN.format(source="trades" if prices is None else "prices"),
        "orders": ORDERS,
        "rates": _rates_sql(max(map(len, paths.values()))),
    }
    question = Question(
        CALLER,
        steps,
        needs=("created_at", "fee_token", "fee"),
        may_have=("base", "quote", "price", *PLACE, *ORDER_COLUMNS),
        derived=("ms", "moment", "order_id"),
        price_needs=PRICE_COLUMNS,
        split_by=(),
    )
    if by is None:
        rows = f"SELECT row, fee_value, {literal(token)} AS value_token, value_path, priced_at FROM valued"
        steps |= {"valued": _valued_sql("row, ", limit), "rows": rows}
        question = replace(question, steps=steps, shown=None)
    else:
        question = _summed(question, outer, limit, token, sums.has_sides(trades, CALLER))
    return ask(question, trades, prices)


# Paths


def _paths(trades: Any, prices: Any, token: Any) -> dict[str, list[Step]]:
    """Return the markets that lead from each token to `token`, of which trades or prices must tell something."""
    caller = CALLER if prices is None else f"{CALLER}: prices="
    counts = _counts(trades if prices is None else prices, PRICE_COLUMNS, ("base", "quote"), caller)
    known = {name for row in counts for name in (row["base"], row["quote"])}
    if not isinstance(token, str) or token not in known:
        fee_tokens = {row["fee_token"] for row in _counts(trades, (), ("fee_token",), CALLER)}
        # Without trades, there is nothing to value.
        if fee_tokens and token not in list(fee_tokens):
            names = sorted(name for name in known | fee_tokens if name is not None)
            hint = did_you_mean(token, names, f"Known tokens: {', '.join(names) or 'none'}.")
            raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")
    fills = Counter[Pair]()
    for row in counts:
        if row["fills"] and row["base"] is not None and row["quote"] is not None:
            fills[row["base"], row["quote"]] = row["fills"]
    return busiest_paths(fills, token)


def _counts(frame: Any, needs: Sequence[str], columns: Sequence[str], caller: str) -> list[dict[str, Any]]:
    """Count the rows with a price by columns of a frame."""
    listed = ", ".join(columns)
    steps = {
        "sums": f"SELECT {listed}, count(*) FILTER (WHERE price > 0) AS fills FROM trades GROUP BY {listed}",
        "answer": f"SELECT {listed}, CAST(sum(fills) AS BIGINT) AS fills FROM sums GROUP BY {listed}",
    }
    question = Question(caller, steps, (*needs, *columns), may_have=("price",), split_by=())
    return collected(ask(question, frame), caller).to_pylist()


# Steps


# A market is known by 64 bits of its tokens' names, as joins by one number are fast.
KNOWN = """
-- the price of each market at each moment, of several the mean
SELECT hash(base, quote) AS pair, moment, min(created_at) AS created_at, avg(CAST(price AS DOUBLE)) / 1e18 AS price
FROM {source}
WHERE price > 0 AND moment IS NOT NULL AND base IS NOT NULL AND quote IS NOT NULL
GROUP BY pair, moment"""
ORDER_NUMBER = "coalesce(order_id, hash(moment))"
ORDERS = f"""
-- orders and the token of their fees; fills of unknown orders stand for themselves
SELECT {ORDER_NUMBER} AS number, fee_token, min(moment) AS first, max(moment) AS last
FROM trades
WHERE moment IS NOT NULL
GROUP BY number, fee_token"""


def _paths_sql(paths: dict[str, list[Step]]) -> str:
    """Return the step ``paths``: for each token its path, and its markets one after the other."""
    longest = max(map(len, paths.values()))
    columns = ["token", "value_path"]
    for place in range(1, longest + 1):
        columns += [f"pair_{place}", f"power_{place}"]
    rows = [_path_row(token, path, longest) for token, path in paths.items()]
    return f"""
-- how each token is converted: along which markets, by their prices (power 1) or divided by them (-1)
SELECT * FROM (VALUES {", ".join(rows)}) AS v({", ".join(columns)})"""


def _path_row(token: str, path: list[Step], longest: int) -> str:
    names = [token]
    cells = []
    for (base, quote), divides in path:
        names.append(base if divides else quote)
        cells += [f"hash({literal(base)}, {literal(quote)})", "-1" if divides else "1"]
    missing = ["CAST(NULL AS UBIGINT)", "0"] * (longest - len(path))
    return f"({', '.join([literal(token), literal('>'.join(names)), *cells, *missing])})"


def _rates_sql(longest: int) -> str:
    """Return the step ``rates``, with a pair of joins for each market of the longest path."""
    joins = []
    rates = ["1.0"]
    later_rates = ["1.0"]
    times = ["CAST(NULL AS TIMESTAMPTZ)"]
    for place in range(1, longest + 1):
        joins.append(f"""
ASOF LEFT JOIN known AS before_{place} ON pair_{place} = before_{place}.pair AND first > before_{place}.moment
ASOF LEFT JOIN known AS after_{place} ON pair_{place} = after_{place}.pair AND last < after_{place}.moment""")
        price = f"before_{place}.price"
        rates.append(f"CASE WHEN pair_{place} IS NULL THEN 1 ELSE pow({price}, power_{place}) END")
        later_rates.append(f"pow(coalesce(after_{place}.price, {price}, 1), power_{place})")
        times.append(f"before_{place}.created_at")
    return f"""
-- what a unit of each order's fee token is worth at the last prices before it, and at the first ones after it
SELECT number, fee_token, value_path,
    {" * ".join(rates)} AS rate,
    {" * ".join(later_rates)} AS later_rate,
    least({", ".join(times)}) AS priced_at
FROM orders JOIN paths ON fee_token = token{"".join(joins)}"""


def _valued_sql(kept: str, limit: int | None) -> str:
    """Return the step ``valued``: each fill with the value of its fee, beside columns that are `kept`."""
    is_fresh = "" if limit is None else f"AND ms - epoch_ms(price_time) <= {limit}"
    return f"""
-- each fill with the value of its fee, and by how much that would change at the first prices after its order
WITH joined AS (  -- fees in the token itself have their value at any time
    SELECT t.*, rate, later_rate, value_path, coalesce(priced_at, created_at) AS price_time
    FROM trades AS t LEFT JOIN rates AS r ON {ORDER_NUMBER} = number AND t.fee_token = r.fee_token
),
checked AS (
    SELECT *, CAST(fee AS DOUBLE) / 1e18 AS amount, ms IS NOT NULL AND rate IS NOT NULL {is_fresh} AS is_priced
    FROM joined
)
SELECT {kept}ms, fee,
    CASE WHEN is_priced THEN amount * rate END AS fee_value,
    CASE WHEN is_priced THEN amount * (later_rate - rate) END AS change,
    CASE WHEN is_priced AND fee IS NOT NULL THEN value_path END AS value_path,
    CASE WHEN is_priced AND fee IS NOT NULL THEN price_time END AS priced_at
FROM checked"""


def _summed(question: Question, outer: Keys, limit: int | None, token: str, has_sides: bool) -> Question:
    """Return the question with the last steps added: sums by the keys and fee token, and how far they may be off."""
    keys = sums.with_key(outer, "fee_token")
    rows = f"""
-- each fill with how old the oldest price of its value is
SELECT *, CAST(ms - epoch_ms(priced_at) AS DOUBLE) AS age FROM valued"""
    days = f"""
-- sums of each day, as what moves prices on a day moves all values of that day
SELECT {keys.columns(after=", ")}{day_sql()} AS day,
    count(*) AS fills, count(fee_value) AS valued, sum(fee) AS fee,
    sum(fee_value) AS fee_value, sum(change) AS change, max(age) AS max_age
FROM rows
{keys.grouped_by("day")}"""
    # All of the change counts, and its standard error: the days' changes as they would be if prices had no trend.
    answer = f"""
WITH totals AS (
    SELECT {keys.columns(after=", ")}
        CAST(sum(fills) AS BIGINT) AS fills,
        CAST(sum(fills - valued) AS BIGINT) AS unpriced,
        sum(fee) AS fee,
        sum(fee_value) AS fee_value,
        abs(sum(change)) + {REACH} * sqrt(sum(change * change)) AS error,
        CAST(max(max_age) AS BIGINT) AS max_age
    FROM sums
    {keys.grouped_by()}
),
both_sides AS ({sums.both_sides_sql(outer)}
)
SELECT {keys.columns("t", after=", ")}t.fills, unpriced, fee, fee_value, {literal(token)} AS value_token,
    CASE WHEN error = 0 THEN 0 ELSE 10000 * error / nullif(abs(fee_value), 0) END AS within_bps,
    to_milliseconds(CAST(round(m.age) AS BIGINT)) AS median_age,
    to_milliseconds(max_age) AS max_age,
    {sums.both_sides_columns(has_sides)}
FROM totals AS t JOIN medians AS m ON {keys.same("t", "m")}
LEFT JOIN both_sides AS b ON {outer.same("t", "b")}
{keys.sorted_by(table="t")}"""
    steps = {
        **question.steps,
        "valued": _valued_sql(keys.columns(after=", "), limit),
        "rows": rows,
        "sums": days,
        "pairs": sums.pairs_sql(outer),
        "answer": answer,
    }
    may_have = (*question.may_have, *sums.SIDES)
    return replace(question, steps=steps, keys=keys, may_have=may_have, medians=("age",))
