"""The library's analyses on float64 columns, as a careful user would write them by hand in pandas.

They give the same answers but for rounding where no two fills of a market share a millisecond: prices are before or
after the whole order, both sides of a fill are counted, and means by value have an interval from a bootstrap clustered
by order. compare_venues weighs by prices nearest in time, and leaves out which cells might have had both venues.
in_token differs in more: it follows the freshest path of markets and skips an order's own prices one by one.
"""

from itertools import chain, groupby
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import loopring_lab as lab

AMOUNTS = ["size", "price", "notional", "fee"]
HOUR = pd.Timedelta(hours=1)
WEEK = pd.Timedelta(days=7)
TOKEN = "USDC"
BY = ["market", "fill_type"]
RATES = ["price_bps", "fee_bps", "all_in_bps"]
UNITS = 1 << 12
DRAWS = 1000
UNIT_OF = {"USDT": 1e-6, "USDC": 1e-6, "WBTC": 1e-8}
HOPS = 3
FEWEST = 20


def float_columns(trades: pd.DataFrame) -> pd.DataFrame:
    """Return the same trades with float64 amounts and times without a zone, oldest first."""
    columns = {name: lab.to_float(trades[name]) for name in AMOUNTS}
    columns["created_at"] = trades["created_at"].dt.tz_localize(None)
    columns |= {
        name: trades[name].astype(int)
        for name in ("trade_id", "block_id", "index_in_block")
    }
    columns |= {
        name: trades[name].astype(int)
        for name in ("account_id", "token_id", "storage_id")
    }
    in_order = ["created_at", "block_id", "index_in_block", "trade_id"]
    return trades.assign(**columns).sort_values(in_order, ignore_index=True)


def sign(trades: pd.DataFrame) -> np.ndarray:
    return np.where(trades["side"] == "BUY", 1.0, -1.0)


def orders(trades: pd.DataFrame) -> np.ndarray:
    """Number orders from 1: by hash, or without one by who sold which token under which storage id."""
    numbers = trades["order_hash"].factorize()[0] + 1
    unhashed = numbers == 0
    sold = trades.loc[unhashed, ["account_id", "token_id", "storage_id"]]
    numbers[unhashed] = numbers.max() + 1 + sold.groupby([*sold], sort=False).ngroup()
    return numbers


def other_orders(trades: pd.DataFrame, order: np.ndarray) -> np.ndarray:
    """Return the order of the other side of each fill, 0 where that is not there."""
    return (
        pd.Series(order)
        .groupby(trades["trade_id"].to_numpy())
        .transform("sum")
        .to_numpy()
        - order
    )


def both_sides(trades: pd.DataFrame, by: Any = None) -> Any:
    """Count the fills of which both sides are there."""
    second = trades.duplicated("trade_id")
    return (
        int(second.sum())
        if by is None
        else second.groupby([trades[name] for name in by], observed=True).sum()
    )


def summary(trades: pd.DataFrame) -> pd.DataFrame:
    in_base = (
        trades["fee_token"].astype(str).to_numpy()
        == trades["base"].astype(str).to_numpy()
    )
    rows = trades.assign(
        received=np.where(in_base, trades["size"], trades["notional"]),
        free=trades["fee"] == 0,
        unknown=trades["fee"].isna(),
        fee_bps=trades["fee_bps"].round(3),
    )
    found = rows.groupby([*BY, "fee_token"], observed=True, dropna=False).agg(
        fills=("size", "size"),
        volume=("size", "sum"),
        notional=("notional", "sum"),
        received=("received", "sum"),
        fee=("fee", "sum"),
        median_bps=("fee_bps", "median"),
        zero_fee_share=("free", "mean"),
        unknown=("unknown", "sum"),
    )
    found["bps"] = found["fee"] / found["received"] * 1e4
    return found.join(both_sides(trades, BY).rename("both_sides"), on=BY).reset_index()


def all_in_cost(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the first trade of the market within an hour after the end of each order."""
    order = orders(trades)
    end = trades["created_at"].groupby(order).transform("max")
    left = trades.assign(end=end, order=order).sort_values("end")
    known = trades[["created_at", "market", "price"]].rename(
        columns={"price": "reference_price"}
    )
    found = pd.merge_asof(
        left,
        known.rename(columns={"created_at": "reference_at"}),
        left_on="end",
        right_on="reference_at",
        by="market",
        direction="forward",
        allow_exact_matches=False,
        tolerance=HOUR,
    )
    cost = (
        (found["price"] - found["reference_price"])
        / found["reference_price"]
        * 1e4
        * sign(found)
    )
    shown = [
        "created_at",
        "trade_id",
        "market",
        "side",
        "fill_type",
        "quote",
        "notional",
        "price",
    ]
    rates = {"price_bps": cost, "all_in_bps": cost + found["fee_bps"]}
    return found[[*shown, "reference_price", "fee_bps", "order"]].assign(**rates)


def values(rows: pd.DataFrame, trades: pd.DataFrame) -> np.ndarray:
    """Convert notionals to the quote token of most fills, at the prices nearest in time."""
    most = rows["quote"].mode()[0]
    value = np.where(rows["quote"] == most, rows["notional"], np.nan)
    for token in rows["quote"].cat.categories.drop(most):
        part = rows.loc[rows["quote"] == token, ["created_at", "notional"]].sort_values(
            "created_at"
        )
        market = trades.loc[
            (trades["base"] == most) & (trades["quote"] == token),
            ["created_at", "price"],
        ]
        if len(part):
            lowest = market.groupby("created_at", as_index=False).min()
            price = pd.merge_asof(part, lowest, on="created_at", direction="nearest")[
                "price"
            ]
            value[part.index] = part["notional"].to_numpy() / price.to_numpy()
    return value


def estimates(
    costs: pd.DataFrame, by: list[str], rates: list[str], weight: np.ndarray
) -> pd.DataFrame:
    """Return means, means by value, medians, and intervals from a bootstrap of whole orders."""
    groups = costs.groupby(by, observed=True)
    named: dict[str, Any] = {
        "fills": (rates[0], "size"),
        "orders": ("order", "nunique"),
    }
    for name in rates:
        named |= {f"mean_{name}": (name, "mean"), f"median_{name}": (name, "median")}
    found = groups.agg(**named)
    group = groups.ngroup().to_numpy()
    order = costs["order"].to_numpy()
    drawn = np.random.default_rng(0).poisson(1, (DRAWS, UNITS)).astype(float)
    unit = group * UNITS + order % UNITS
    for name in rates:
        known = costs[name].notna().to_numpy() & ~np.isnan(weight)
        weighed = np.where(known, weight, 0.0)
        product = np.where(known, costs[name] * weight, 0.0)
        sums = [
            np.bincount(unit, part, len(found) * UNITS).reshape(-1, UNITS)
            for part in (weighed, product)
        ]
        total = sums[0].sum(axis=1)
        found[f"weighted_{name}"] = sums[1].sum(axis=1) / total
        with np.errstate(invalid="ignore"):
            ends = np.nanquantile(
                drawn @ sums[1].T / (drawn @ sums[0].T), [0.025, 0.975], axis=0
            )
        of_orders = pd.Series(weighed).groupby([group, order]).sum()
        effective = total**2 / (of_orders**2).groupby(level=0).sum().to_numpy()
        enough = (
            np.minimum(np.bincount(group[known], minlength=len(found)), effective)
            >= FEWEST
        )
        found[f"low_{name}"], found[f"high_{name}"] = np.where(enough, ends, np.nan)
    return found.reset_index()


def costs_by_type(trades: pd.DataFrame) -> pd.DataFrame:
    costs = all_in_cost(trades)
    # All rates are over the same fills.
    costs["fee_bps"] = costs["fee_bps"].where(costs["price_bps"].notna())
    found = estimates(costs, ["fill_type"], RATES, values(costs, trades))
    unpriced = (
        costs["price_bps"].isna().groupby(costs["fill_type"], observed=True).sum()
    )
    sides = both_sides(trades, ["fill_type"])
    return found.assign(unpriced=unpriced.to_numpy(), both_sides=sides.to_numpy())


def venue_costs(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the prices before each taker's order and a minute after it, both among trades, and what its fills cost."""
    order = orders(trades)
    times = trades["created_at"].groupby(order)
    ends = pd.DataFrame({"first": times.min(), "last": times.max()})
    takers = trades.assign(order=order)[trades["role"] == "taker"]
    takers = takers.drop_duplicates("trade_id").join(ends, on="order")
    sizes = takers.groupby("market", observed=True)["size"]
    takers["class"] = (sizes.rank("min") - 1) * 5 // sizes.transform("size")
    known = trades[["created_at", "market", "price"]]
    before = known.rename(columns={"created_at": "before_at", "price": "before"})
    later = known.rename(columns={"created_at": "later_at", "price": "later"})
    # Of the unit of the prices' times, or they do not merge.
    takers["horizon"] = (takers["last"] + pd.Timedelta("1min")).astype(
        takers["last"].dtype
    )
    takers = pd.merge_asof(
        takers.sort_values("first"),
        before,
        left_on="first",
        right_on="before_at",
        by="market",
        allow_exact_matches=False,
        tolerance=HOUR,
    )
    takers = pd.merge_asof(
        takers.sort_values("horizon"),
        later,
        left_on="horizon",
        right_on="later_at",
        by="market",
    ).reset_index(drop=True)
    takers.loc[takers["later_at"] <= takers["last"], "later"] = np.nan
    takers["value"] = values(takers, trades)
    worse = sign(takers) * 1e4
    takers["realized"] = (takers["price"] / takers["later"] - 1) * worse
    takers["effective"] = (takers["price"] / takers["before"] - 1) * worse
    takers["cost"] = takers["realized"] + takers["fee_bps"]
    return takers


CELL = ["market", "side", "class"]
WEIGHTS = {
    "difference_bps": lambda pool, book: pool + book,
    "overlap_bps": lambda pool, book: pool * book / (pool + book),
    "pool_weighted_bps": lambda pool, book: pool,
    "book_weighted_bps": lambda pool, book: book,
}


def gap_of(cells: pd.DataFrame) -> pd.Series:
    return (
        cells["paid", "amm"] / cells["value", "amm"]
        - cells["paid", "dex"] / cells["value", "dex"]
    )


def compare_venues(trades: pd.DataFrame) -> pd.DataFrame:
    """Compare venues within cells by four weights of a cell, with a jackknife over orders, accounts and days."""
    costs = venue_costs(trades).dropna(subset=["cost", "value"])
    has_both = costs["effective"].notna()
    products = {
        "paid": costs["value"] * costs["cost"],
        "fees": costs["value"] * costs["fee_bps"],
        "split": costs["value"].where(has_both, 0.0),
        "effective_paid": (costs["value"] * costs["effective"]).where(has_both, 0.0),
        "realized_paid": (costs["value"] * costs["realized"]).where(has_both, 0.0),
    }
    day = costs["first"].dt.floor("D")
    costs = costs.assign(**products, day=day)
    keys = [*CELL, "fill_type", "order"]
    parts = (
        costs.groupby(keys, observed=True)
        .agg(
            value=("value", "sum"),
            **{name: (name, "sum") for name in products},
            account=("account_id", "first"),
            day=("day", "min"),
            fills=("value", "size"),
        )
        .reset_index()
    )
    sums = parts.groupby([*CELL, "fill_type"], observed=True)[
        ["value", *products, "fills"]
    ].sum()
    cells = sums.unstack().dropna()
    pool = cells["value", "amm"]
    book = cells["value", "dex"]
    gap = gap_of(cells)
    found: dict[str, Any] = {"fills": int(cells["fills"].to_numpy().sum())}
    weights = {}
    differences = {}
    for name, weight in WEIGHTS.items():
        weights[name] = weight(pool, book)
        found[name] = differences[name] = (weights[name] * gap).sum() / weights[
            name
        ].sum()
    both = parts.join(
        cells.index.to_frame(index=False).set_index(CELL), on=CELL, how="inner"
    )
    found["orders"] = both["order"].nunique()
    place = pd.Series(np.arange(len(cells)), cells.index, name="place")
    both = both.join(place, on=CELL)
    for level in ("order", "account", "day"):
        own = (
            both.groupby([level, "place", "fill_type"], observed=True)[
                ["value", "paid"]
            ]
            .sum()
            .unstack(fill_value=0.0)
        )
        at = own.index.get_level_values("place").to_numpy()
        rest = cells[["value", "paid"]].iloc[at].to_numpy() - own.to_numpy()
        rest[rest < 1e-9] = np.nan
        pool_rest, book_rest, pool_paid, book_paid = rest.T
        rest_gap = pool_paid / pool_rest - book_paid / book_rest
        for name, weight in WEIGHTS.items():
            left = weight(pool_rest, book_rest)
            mine = weights[name].to_numpy()[at]
            off = gap.to_numpy()[at] - differences[name]
            pull = np.nan_to_num(left * (rest_gap - differences[name])) - mine * off
            lost = np.nan_to_num(left) - mine
            moved = pd.DataFrame({"pull": pull, "lost": lost}).groupby(
                own.index.get_level_values(level).to_numpy()
            )
            shifts = moved.sum()
            shift = shifts["pull"] / (weights[name].sum() + shifts["lost"])
            count = len(shift)
            found[f"{level} {name}"] = np.sqrt((shift**2).sum() * (count - 1) / count)
            if level == "account" and name == "difference_bps":
                found["without_one_low_bps"] = found[name] + shift.min()
                found["without_one_high_bps"] = found[name] + shift.max()
    for name, paid, by in (
        ("fee", "fees", "value"),
        ("effective", "effective_paid", "split"),
        ("realized", "realized_paid", "split"),
    ):
        part = (
            cells[paid, "amm"] / cells[by, "amm"]
            - cells[paid, "dex"] / cells[by, "dex"]
        )
        whole = cells[by].sum(axis=1).where(part.notna())
        found[f"{name}_difference_bps"] = (whole * part).sum() / whole.sum()
    found["reference"] = "own trades"
    return pd.DataFrame([found])


def past_own(
    at: np.ndarray, rows: pd.DataFrame, prices: pd.DataFrame, step: int
) -> np.ndarray:
    """Move positions past prices of a row's own order, of its other side, and of later fills of its block.

    A fill without an order hash is only known by its block's time. Prices have positions group by group.
    """
    at, asked = at.copy(), np.flatnonzero(at >= 0)
    names = [
        "group",
        "trade_id",
        "order",
        "other_order",
        "created_at",
        "index_in_block",
    ]
    group, trade, order, other, moment, index = (
        prices[name].to_numpy() for name in names
    )
    row = {name: rows[name].to_numpy() for name in names}
    unhashed = rows["order_hash"].isna().to_numpy()
    while len(asked):
        there = at[asked]
        mine = {name: column[asked] for name, column in row.items()}
        own = (
            (trade[there] == mine["trade_id"])
            | (order[there] == mine["order"])
            | (other[there] == mine["order"])
        )
        if step < 0:
            later = (
                unhashed[asked]
                & (moment[there] == mine["created_at"])
                & (index[there] > mine["index_in_block"])
            )
            own |= later
        asked = asked[own]
        at[asked] += step
        outside = (at[asked] < 0) | (at[asked] >= len(prices))
        outside |= group[at[asked].clip(0, len(prices) - 1)] != row["group"][asked]
        at[asked[outside]] = -1
        asked = asked[~outside]
    return at


def price_gap(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the last fill of the other type in the same market and side before each order, at most an hour old."""
    first = trades["created_at"].groupby(orders(trades)).transform("min")
    rows = trades.assign(
        first=first, group=trades.groupby(["market", "side"], observed=True).ngroup()
    )
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "price"]
    parts = []
    for mine, other in (("amm", "dex"), ("dex", "amm")):
        here = rows[rows["fill_type"] == mine].sort_values("first")
        there = rows.loc[rows["fill_type"] == other, ["created_at", "group", "price"]]
        found = pd.merge_asof(
            here[[*shown, "group", "first"]],
            there.rename(columns={"created_at": "other_at", "price": "other_price"}),
            left_on="first",
            right_on="other_at",
            by="group",
            allow_exact_matches=False,
            tolerance=HOUR,
        )
        parts.append(found)
    found = pd.concat(parts, ignore_index=True)
    gap = (found["price"] - found["other_price"]) / found["other_price"] * 1e4
    return found.drop(columns=["group", "first"]).assign(
        gap_bps=gap, worse_bps=gap * sign(found)
    )


class Markets:
    """Prices by market, each fill once, oldest first, and the paths between tokens."""

    def __init__(self, trades: pd.DataFrame) -> None:
        order = orders(trades)
        rows = trades.assign(
            order=order,
            other_order=other_orders(trades, order),
            group=trades["market"].cat.codes,
        )
        self.fills = rows
        once = rows[~rows.duplicated("trade_id")].sort_values(
            "group", kind="stable", ignore_index=True
        )
        self.prices = once
        self.logs = np.log(once["price"].to_numpy())
        self.times = once["created_at"].to_numpy()
        pairs = once.drop_duplicates("group")[["group", "base", "quote"]].astype(
            {"base": str, "quote": str}
        )
        self.pairs = {
            group: (base, quote) for group, base, quote in pairs.itertuples(index=False)
        }
        ends = [*pairs.index, len(once)]
        self.parts = dict(zip(self.pairs, map(slice, ends[:-1], ends[1:]), strict=True))

    def paths(self, token: str) -> list[list[tuple[int, bool]]]:
        """Return the ways from a token to `TOKEN` by at most so many markets, short ones first."""
        found = []
        here = [(token, [], {token})]
        for _ in range(HOPS):
            further = []
            for at, path, seen in here:
                links = [
                    (quote if at == base else base, market, at == base)
                    for market, (base, quote) in self.pairs.items()
                    if at in (base, quote)
                ]
                for there, market, forward in sorted(links):
                    step = [*path, (market, forward)]
                    if there == TOKEN:
                        found.append(step)
                    elif there not in seen:
                        further.append((there, step, seen | {there}))
            here = further
        return found

    def around(self, rows: pd.DataFrame, market: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the last price at or before each row and of the first one after it."""
        part = self.parts[market]
        at = (
            np.searchsorted(self.times[part], rows["created_at"].to_numpy(), "right")
            + part.start
        )
        last = np.where(at > part.start, at - 1, -1)
        later = np.where(at < part.stop, at, -1)
        own = np.flatnonzero(rows["group"].to_numpy() == market)
        if len(own):
            last[own] = past_own(last[own], rows.iloc[own], self.prices, -1)
            later[own] = past_own(later[own], rows.iloc[own], self.prices, 1)
        return last, later

    def variances(self) -> dict[int, tuple[float, float]]:
        """Return how much log prices vary from one trade to the next, and with each millisecond."""
        found = {}
        for market, part in self.parts.items():
            gaps = np.diff(self.times[part]).astype("timedelta64[ms]").astype(float)
            squares = np.diff(self.logs[part])[gaps > 0] ** 2
            gaps = gaps[gaps > 0]
            short = np.sort(gaps)[: -(-len(gaps) // 4)]
            found[market] = (
                squares[gaps <= short[-1]].mean() / 2,
                squares.sum() / gaps.sum(),
            )
        return found


def _age(moments: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.where(
        np.isnat(times),
        1 << 60,
        (moments - times).astype("timedelta64[ms]").astype(int),
    )


def freshest(
    paths: list[list[tuple[int, bool]]], ages: dict[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the path whose oldest price is freshest, the shortest of equals, and the age of that price."""
    best = np.full(len(next(iter(ages.values()))), 1 << 60)
    chosen = None
    for _, alike in groupby(enumerate(paths), lambda one: (len(one[1]), one[1][0])):
        numbers, tails = zip(
            *((number, path[1:]) for number, path in alike), strict=True
        )
        first = ages[paths[numbers[0]][0][0]]
        rest = np.stack(
            [
                np.max([ages[market] for market, _ in tail] or [first * 0], axis=0)
                for tail in tails
            ]
        )
        age = np.maximum(first, rest.min(axis=0))
        number = np.array(numbers)[rest.argmin(axis=0)]
        chosen = number if chosen is None else np.where(age < best, number, chosen)
        best = np.minimum(best, age)
    return chosen, best


def in_token(trades: pd.DataFrame) -> pd.DataFrame:
    """Value fees along the freshest path of at most three markets, and say how far sums may be off."""
    markets = Markets(trades)
    variances = markets.variances()
    results = []
    for token, rows in markets.fills.groupby("fee_token", observed=True):
        count = len(rows)
        moments = rows["created_at"].to_numpy()
        rate = np.ones(count)
        change = np.zeros(count)
        oldest = moments
        uses = []
        if token != TOKEN:
            paths = markets.paths(str(token))
            found = {
                market: markets.around(rows, market) for market, _ in set(chain(*paths))
            }
            times = np.append(markets.times, np.datetime64("NaT"))
            age_of = {
                market: _age(moments, times[last])
                for market, (last, _) in found.items()
            }
            chosen, age = freshest(paths, age_of)
            oldest = np.where(
                age <= WEEK // pd.Timedelta("1ms"),
                moments - age.astype("timedelta64[ms]"),
                np.datetime64("NaT"),
            )
            rate = np.where(np.isnat(oldest), np.nan, 1.0)
            for number, path in enumerate(paths):
                mine = np.flatnonzero((chosen == number) & ~np.isnan(rate))
                for market, forward in path:
                    last, later = (positions[mine] for positions in found[market])
                    way = 1 if forward else -1
                    rate[mine] *= markets.prices["price"].to_numpy()[last] ** way
                    change[mine] += (
                        np.where(
                            later < 0, 0.0, markets.logs[later] - markets.logs[last]
                        )
                        * way
                    )
                    uses.append((mine, market, last))
        value = rows["fee"].to_numpy() * rate
        known = np.flatnonzero(~np.isnan(value))
        square = 0.0
        if uses:
            errors = []
            for mine, market, last in uses:
                noise, drift = variances[market]
                age = (
                    (moments[mine] - markets.times[last])
                    .astype("timedelta64[ms]")
                    .astype(float)
                )
                errors.append(np.abs(value[mine]) * np.sqrt(noise + drift * age))
            shared = np.bincount(
                np.concatenate([last for *_, last in uses]), np.concatenate(errors)
            )
            square = (shared**2).sum()
        off = 1.96 * np.sqrt(square) + abs((value * np.expm1(change))[known].sum())
        age = pd.Series(moments[known] - oldest[known])
        results.append(
            {
                "fee_token": token, "fills": count, "unpriced": count - len(known), "fee": rows["fee"].sum(),
                "fee_value": value[known].sum(), "within_bps": off / abs(value[known].sum()) * 1e4,
                "median_age": age.median(), "max_age": age.max(),
            }
        )  # fmt: skip
    return pd.DataFrame(results).assign(both_sides=both_sides(trades))


def with_tiers(trades: pd.DataFrame) -> pd.DataFrame:
    """Round the fee rate where only one whole number of basis points fits a fee that was cut."""
    in_base = (
        trades["fee_token"].astype(str).to_numpy()
        == trades["base"].astype(str).to_numpy()
    )
    size, notional, fee = (
        trades[name].to_numpy() for name in ("size", "notional", "fee")
    )
    least = np.where(in_base, size, notional)
    most = np.where(in_base, size, notional + size * 1e-8)
    unit = trades["fee_token"].astype(str).map(UNIT_OF).fillna(1e-18).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.ceil(fee * 1e4 / most - 1e-9) + 0.0
        high = np.ceil((fee + unit) * 1e4 / least + 1e-9) - 1
    certainty = np.select([low == high, low < high], ["exact", "ambiguous"], "none")
    tier = pd.array(np.where(low == high, low, np.nan)).astype("Int64")
    return trades.assign(tier_bps=tier, certainty=certainty)


def tiers(trades: pd.DataFrame) -> pd.DataFrame:
    known = with_tiers(
        trades[["created_at", "base", "quote", "fee_token", "size", "notional", "fee"]]
    )
    groups = known.groupby(["tier_bps", "certainty"], dropna=False)["created_at"]
    found = (
        groups.agg(fills="size", first="min", last="max")
        .reset_index()
        .astype({"tier_bps": "Int64"})
    )
    return found.assign(
        share=found["fills"] / len(trades), both_sides=both_sides(trades)
    )


def size_profile(trades: pd.DataFrame) -> pd.DataFrame:
    sizes = trades.groupby("quote", observed=True)["notional"]
    rank = sizes.rank("min")
    count = sizes.transform("size")
    rows = trades[["quote", "fill_type", "notional"]].assign(
        quantile=((rank - 1) * 10 // count).astype(int) + 1,
        second=trades.duplicated("trade_id"),
        fee_bps=trades["fee_bps"].round(3),
    )
    parts = rows.groupby(["quote", "quantile", "fill_type"], observed=True)
    found = parts.agg(
        fills=("notional", "size"), notional=("notional", "sum"), median_bps=("fee_bps", "median"), both_sides=("second", "sum")
    )  # fmt: skip
    ends = rows.groupby(["quote", "quantile"], observed=True)["notional"].agg(
        smallest="min", largest="max", all_fills="size", all_notional="sum"
    )
    found = found.reset_index().merge(ends.reset_index(), on=["quote", "quantile"])
    found["share"] = found["fills"] / found.pop("all_fills")
    found["notional_share"] = found["notional"] / found.pop("all_notional")
    return found


def cost_curve(trades: pd.DataFrame) -> Figure:
    most = trades["quote"].mode()[0]
    costs = all_in_cost(trades[trades["quote"] == most])
    costs = costs.assign(
        part=((costs["notional"].rank() - 1) * 10 // len(costs)).astype(int)
    )
    found = estimates(
        costs, ["fill_type", "part"], ["all_in_bps"], costs["notional"].to_numpy()
    )
    figure = Figure((9, 4.2))
    axes = figure.subplots()
    axes.axhline(0, color="grey", linewidth=0.8)
    for (name, rows), shift in zip(
        found.groupby("fill_type", observed=True), (-0.1, 0.1), strict=True
    ):
        middle = rows["weighted_all_in_bps"]
        at = rows["part"] + shift
        axes.errorbar(
            at, middle, np.abs(rows[["low_all_in_bps", "high_all_in_bps"]].to_numpy().T - middle.to_numpy()), fmt="o", label=name
        )  # fmt: skip
        for place, height, fills in zip(
            at, rows["high_all_in_bps"], rows["fills"], strict=True
        ):
            axes.annotate(f"{fills:,}", (place, height), fontsize=7, ha="center")
    axes.set_title(f"All-in cost by size, {most}-quoted markets")
    axes.set_ylabel("all-in cost (basis points)")
    axes.legend()
    figure.draw_without_rendering()
    return figure


def volume(trades: pd.DataFrame) -> Figure:
    most = trades["quote"].mode()[0]
    rows = trades[trades["quote"] == most]
    sums = (
        rows.groupby([rows["created_at"].dt.floor("D"), "fill_type"], observed=True)[
            "notional"
        ]
        .sum()
        .unstack()
    )
    counted = both_sides(rows)
    figure = Figure((9, 4.2))
    axes = figure.subplots()
    weekly = sums.resample("7D").sum()
    bottom = np.zeros(len(weekly))
    for name in weekly:
        axes.bar(weekly.index, weekly[name].to_numpy(), 6, bottom, label=name)
        bottom += weekly[name].to_numpy()
    axes.set_title(f"Volume, {most}-quoted markets; both sides of {counted:,} fills")
    axes.set_ylabel(most)
    axes.legend()
    figure.draw_without_rendering()
    return figure
