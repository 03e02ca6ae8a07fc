"""A second implementation of `compare_venues`, in pandas: each cluster is dropped from the orders, and all begins anew."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t

LEVELS = ("account", "day", "week")
FEWEST = 8
DAY = 86_400_000
VENUES = ("amm", "dex")


def orders_of(
    takers: pd.DataFrame, references: Any, values: Any, part: str = "all_in"
) -> pd.DataFrame:
    """Return takers' orders at each venue: what they cost, what they are worth, and what they may share."""
    sign = takers["side"].astype(str).map({"BUY": 1.0, "SELL": -1.0}).astype(float)
    worse = takers["price"].astype(float) / np.asarray(references, float) - 1
    price = worse * 10_000 * sign
    costs = {"all_in": price + takers["fee_bps"], "price": price}
    began = takers.groupby("order_hash")["created_at"].transform("min")
    fills = pd.DataFrame(
        {
            "market": takers["market"].astype(str),
            "side": takers["side"].astype(str),
            "venue": takers["fill_type"].astype(str),
            "order": takers["order_hash"].astype(str),
            "account": takers["account_id"].astype(int),
            "began": began,
            "size": takers["size"].astype(float),
            "value": np.asarray(values, float),
            "cost": costs[part],
        }
    )
    # What a token is worth is not known on days on which no market shows it.
    fills = fills.dropna(subset=["cost", "value"])
    fills["paid"] = fills["value"] * fills["cost"]
    one = ["market", "side", "venue", "order", "account", "began"]
    orders = fills.groupby(one)[["size", "value", "paid"]].sum().reset_index()
    ms = (orders["began"] - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1ms")
    # Sums of parts that are equal differ in the last digit of a float.
    orders["size"] = orders["size"].map(lambda size: float(f"{size:.12g}"))
    return orders.assign(
        cost=orders["paid"] / orders["value"],
        pool=(orders["venue"] == "amm").astype(float),
        day=ms // DAY,
        week=ms // (7 * DAY),
        month=orders["began"].dt.strftime("%Y-%m"),
        size_class=doublings(orders["size"]),
    )


def doublings(sizes: pd.Series) -> pd.Series:
    """Return the class of each size, in each of which the sizes double, counted from the smallest amount."""
    return np.floor(np.log2(sizes * 1e18)).astype(int)


def matched(orders: pd.DataFrame, *cell: str) -> pd.DataFrame:
    """Return the orders of cells that have both venues."""
    cells = orders.groupby(list(cell)).ngroup()
    has_both = orders.groupby(cells)["venue"].transform("nunique") == 2
    return orders.assign(cell=cells)[has_both]


def closes_after(takers: pd.DataFrame, closes: pd.DataFrame) -> pd.Series:
    """Return the close of the first whole minute after each taker's order."""
    prices = closes.set_index(["market", "created_at"])["price"]
    prices.index = prices.index.set_levels(prices.index.levels[0].astype(str), level=0)
    ends = takers.groupby("order_hash")["created_at"].transform("max")
    minutes = (ends + pd.Timedelta(1, "min")).dt.floor("min")
    keys = pd.MultiIndex.from_arrays([takers["market"].astype(str), minutes])
    return prices.reindex(keys)


class Comparison(NamedTuple):
    """What `compare_venues` answers in a row; ends of the interval are NaN where there is none."""

    orders: int
    accounts: int
    shares: dict[str, float]
    difference: float
    weighted: dict[str, float]
    low: float
    high: float
    cluster: str
    clusters: int


def comparison_of(
    orders: pd.DataFrame, cell: Sequence[str], level: float = 0.95
) -> Comparison:
    """Compare the venues over orders, by default with the widest interval of accounts, days and weeks."""
    both = matched(orders, *cell)
    found = _difference(both)
    least = both.groupby("venue")[list(LEVELS)].nunique().min()
    accounts = both["account"].nunique()
    reaches = {
        name: _reach(both, name, found["overlap"], level)
        for name in LEVELS
        if least[name] >= FEWEST and (accounts == 1 or least["account"] >= FEWEST)
    }
    cluster = max(reaches, key=lambda name: reaches[name], default="account")
    reach = reaches.get(cluster, np.nan)
    values = orders.groupby("venue")["value"].sum()
    return Comparison(
        orders=len(both),
        accounts=accounts,
        shares=(both.groupby("venue")["value"].sum() / values).to_dict(),
        difference=found["overlap"],
        weighted={venue: found[venue] for venue in VENUES},
        low=found["overlap"] - reach,
        high=found["overlap"] + reach,
        cluster=cluster,
        clusters=int(least[cluster]),
    )


def _difference(orders: pd.DataFrame) -> dict[str, float]:
    """Return the mean gap of cells with both venues, by overlap weights and by the value at each venue."""
    sums = orders.groupby(["cell", "venue"])[["value", "paid"]].sum().unstack("venue")
    sums = sums.dropna()
    values = sums["value"]
    gaps = sums["paid"]["amm"] / values["amm"] - sums["paid"]["dex"] / values["dex"]
    weights = {venue: values[venue] for venue in VENUES}
    weights["overlap"] = values["amm"] * values["dex"] / values.sum(axis=1)
    return {name: np.average(gaps, weights=one) for name, one in weights.items()}


def _reach(both: pd.DataFrame, name: str, whole: float, level: float) -> float:
    """Return how far the interval of a jackknife reaches to each side."""
    moved = [
        _difference(both[both[name] != one])["overlap"] - whole
        for one in both[name].unique()
    ]
    count = len(moved)
    error = ((count - 1) / count * np.square(moved).sum()) ** 0.5
    return error * t.ppf((1 + level) / 2, count - 1)
