"""Exact analyses beside float ones, over archives larger than memory, and on one and two processes.

python tests/benchmarks/bench_any_size.py floats [trades] [rounds]
    The same analyses on float columns in pandas, as a careful user would write them.
python tests/benchmarks/bench_any_size.py large SMALL LARGE
    A table of time and peak memory of DuckDB over two archives of large_archive.py, each in a process of its own.
python tests/benchmarks/bench_any_size.py workers ARCHIVE
    Dask on one process and on two.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster
from matplotlib.figure import Figure
from support import large_archive
from timing import alone, paired, seconds

import loopring_lab as lab

AMOUNTS = ["size", "price", "notional", "fee"]
HOUR, WEEK = pd.Timedelta(hours=1), pd.Timedelta(days=7)
TOKEN, HUB = "USDC", "ETH"
FIGURE_SECONDS, MOST_BYTES, MOST_TIMES, LEAST_GAIN = 0.8, 2 << 30, 11, 1.6
BY = ["market", "fill_type"]
ROUNDS = 5


def float_columns(trades: pd.DataFrame) -> pd.DataFrame:
    """Return the same trades with float64 amounts and times without a zone, oldest first."""
    columns = {name: lab.to_float(trades[name]) for name in AMOUNTS}
    columns["created_at"] = trades["created_at"].dt.tz_localize(None)
    return trades.assign(**columns).sort_values("created_at", ignore_index=True)


def sign(trades: pd.DataFrame) -> np.ndarray:
    return np.where(trades["side"] == "BUY", 1.0, -1.0)


def summary(trades: pd.DataFrame) -> pd.DataFrame:
    return trades.groupby([*BY, "fee_token"], observed=True, dropna=False).agg(
        fills=("size", "size"),
        volume=("size", "sum"),
        notional=("notional", "sum"),
        fee=("fee", "sum"),
        median_bps=("fee_bps", "median"),
    )


def all_in_cost(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the first trade of the market within an hour after the end of each order."""
    end = trades.groupby("order_hash", observed=True)["created_at"].transform("max")
    left = trades.assign(end=end.fillna(trades["created_at"])).sort_values("end")
    known = trades[["created_at", "market", "price"]].rename(columns={"price": "reference_price"})
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
    cost = (found["price"] - found["reference_price"]) / found["reference_price"] * 1e4 * sign(found)
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "quote", "notional", "price"]
    rates = {"price_bps": cost, "all_in_bps": cost + found["fee_bps"]}
    return found[[*shown, "reference_price", "fee_bps", "order_hash"]].assign(**rates)


def costs_by_type(trades: pd.DataFrame) -> pd.DataFrame:
    """Aggregate costs by fill type: counts, means, medians and means by value, without intervals."""
    costs = all_in_cost(trades).assign(orders=lambda rows: rows["order_hash"])
    rates = ["price_bps", "fee_bps", "all_in_bps"]
    how: dict[str, Any] = {"fills": ("price", "size"), "orders": ("orders", "nunique")}
    how |= {f"mean_{name}": (name, "mean") for name in rates} | {
        f"median_{name}": (name, "median") for name in rates
    }
    found = costs.groupby("fill_type", observed=True).agg(**how)
    weights = {name: costs["notional"].where(costs[name].notna()) for name in rates}
    for name in rates:
        product = (costs[name] * weights[name]).groupby(costs["fill_type"], observed=True).sum()
        found[f"weighted_{name}"] = product / weights[name].groupby(costs["fill_type"], observed=True).sum()
    return found


def price_gap(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the last fill of the other type in the same market and side, at most an hour old."""
    parts = []
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "price"]
    for mine, other in (("amm", "dex"), ("dex", "amm")):
        here = trades.loc[trades["fill_type"] == mine, shown]
        there = trades.loc[trades["fill_type"] == other, ["created_at", "market", "side", "price"]]
        there = there.rename(columns={"price": "other_price"}).assign(other_at=there["created_at"])
        parts.append(pd.merge_asof(here, there, on="created_at", by=["market", "side"], tolerance=HOUR))
    found = pd.concat(parts)
    gap = (found["price"] - found["other_price"]) / found["other_price"] * 1e4
    return found.assign(gap_bps=gap, worse_bps=gap * sign(found)).sort_values("created_at")


def in_token(trades: pd.DataFrame) -> pd.DataFrame:
    """Value fees along at most two markets, by the last price of each within a week."""
    known = trades[["created_at", "base", "quote", "price"]].assign(priced_at=trades["created_at"])
    fills = trades[["created_at", "fee_token", "fee"]].assign(value=np.nan, oldest=pd.NaT)
    hub = _last(fills, known, HUB, TOKEN)
    value, oldest = (
        pd.Series(np.nan, fills.index),
        pd.Series(pd.NaT, fills.index, dtype=known["priced_at"].dtype),
    )
    for token in (
        fills["fee_token"].cat.categories
        if hasattr(fills["fee_token"], "cat")
        else fills["fee_token"].unique()
    ):
        rows = (fills["fee_token"] == token).to_numpy()
        if token == TOKEN:
            value[rows], oldest[rows] = fills["fee"][rows], fills["created_at"][rows]
            continue
        part = fills[rows]
        direct = _last(part, known, token, TOKEN)
        step = _last(part, known, token, HUB) if token != HUB else direct
        through = step["price"].to_numpy() * (hub["price"].to_numpy()[rows] if token != HUB else 1.0)
        older = np.minimum(step["priced_at"].to_numpy(), hub["priced_at"].to_numpy()[rows])
        fresher = direct["priced_at"].notna().to_numpy() & ~(older > direct["priced_at"].to_numpy())
        value[rows] = part["fee"].to_numpy() * np.where(fresher, direct["price"].to_numpy(), through)
        oldest[rows] = np.where(fresher, direct["priced_at"].to_numpy(), older)
    fills = fills.assign(value=value, age=fills["created_at"] - oldest)
    groups = fills.groupby("fee_token", observed=True)
    return groups.agg(
        fills=("fee", "size"), fee=("fee", "sum"), value=("value", "sum"), unpriced=("value", lambda v: v.isna().sum()),
        median_age=("age", "median"), max_age=("age", "max"),
    )  # fmt: skip


def _last(fills: pd.DataFrame, known: pd.DataFrame, base: str, quote: str) -> pd.DataFrame:
    forward = known[(known["base"] == base) & (known["quote"] == quote)]
    back = known[(known["base"] == quote) & (known["quote"] == base)]
    prices = forward if len(forward) else back.assign(price=1 / back["price"])
    columns = prices[["created_at", "price", "priced_at"]]
    return pd.merge_asof(fills[["created_at"]], columns, on="created_at", tolerance=WEEK)


def with_tiers(trades: pd.DataFrame) -> pd.DataFrame:
    """Round the fee rate where only one whole number of basis points fits a fee that was cut to 1e-6."""
    in_base = trades["fee_token"].astype(str).to_numpy() == trades["base"].astype(str).to_numpy()
    size, notional, fee = (trades[name].to_numpy() for name in ("size", "notional", "fee"))
    least = np.where(in_base, size, notional)
    most = np.where(in_base, size, notional + size * 1e-8)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.ceil(fee * 1e4 / most - 1e-9), np.ceil((fee + 1e-6) * 1e4 / least) - 1
    certainty = np.select([low == high, low < high], ["exact", "ambiguous"], "none")
    return trades.assign(tier_bps=np.where(low == high, low, np.nan), certainty=certainty)


def tiers(trades: pd.DataFrame) -> pd.DataFrame:
    known = with_tiers(trades[["created_at", "base", "quote", "fee_token", "size", "notional", "fee"]])
    groups = known.groupby(["tier_bps", "certainty"], dropna=False)["created_at"]
    found = groups.agg(fills="size", first="min", last="max")
    return found.assign(share=found["fills"] / len(trades))


def size_profile(trades: pd.DataFrame) -> pd.DataFrame:
    sizes = trades.groupby("quote", observed=True)["notional"]
    rank, count = sizes.rank("min"), sizes.transform("size")
    rows = trades[["quote", "fill_type", "notional", "fee_bps"]].assign(
        quantile=((rank - 1) * 10 // count).astype(int)
    )
    parts = rows.groupby(["quote", "quantile", "fill_type"], observed=True)
    found = parts.agg(
        fills=("notional", "size"), notional=("notional", "sum"), median_bps=("fee_bps", "median")
    )
    ends = rows.groupby(["quote", "quantile"], observed=True)["notional"].agg(["min", "max", "size", "sum"])
    return found.reset_index().merge(ends.reset_index(), on=["quote", "quantile"])


def cost_curve(trades: pd.DataFrame) -> Figure:
    costs = all_in_cost(trades[trades["quote"] == trades["quote"].mode()[0]])
    part = ((costs["notional"].rank() - 1) * 10 // len(costs)).astype(int)
    means = costs.assign(part=part, product=costs["all_in_bps"] * costs["notional"])
    sums = (
        means.dropna(subset="all_in_bps")
        .groupby(["fill_type", "part"], observed=True)[["product", "notional"]]
        .sum()
    )
    figure = Figure((9, 4.2))
    axes = figure.subplots()
    for name, rows in (sums["product"] / sums["notional"]).groupby(level=0, observed=True):
        axes.plot(rows.index.get_level_values(1), rows.to_numpy(), label=name)
    figure.draw_without_rendering()
    return figure


def volume(trades: pd.DataFrame) -> Figure:
    rows = trades[trades["quote"] == trades["quote"].mode()[0]]
    sums = (
        rows.groupby([rows["created_at"].dt.floor("D"), "fill_type"], observed=True)["notional"]
        .sum()
        .unstack()
    )
    figure = Figure((9, 4.2))
    axes = figure.subplots()
    weekly = sums.resample("7D").sum()
    bottom = np.zeros(len(weekly))
    for name in weekly:
        axes.bar(weekly.index, weekly[name].to_numpy(), 6, bottom)
        bottom += weekly[name].to_numpy()
    figure.draw_without_rendering()
    return figure


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


PAIRS: dict[str, tuple[Callable[[pd.DataFrame], Any], Callable[[pd.DataFrame], Any]]] = {
    "fees.summary(by=[market, fill_type])": (lambda t: lab.fees.summary(t, by=BY), summary),
    "fills.all_in_cost": (lab.fills.all_in_cost, all_in_cost),
    "fills.all_in_cost(by=fill_type)": (lambda t: lab.fills.all_in_cost(t, by="fill_type"), costs_by_type),
    "fills.price_gap": (lab.fills.price_gap, price_gap),
    "fees.in_token(by=[])": (lambda t: lab.fees.in_token(t, TOKEN, by=[]), in_token),
    "fees.tiers": (lab.fees.tiers, tiers),
    "fees.with_tiers": (lab.fees.with_tiers, with_tiers),
    "fills.size_profile": (lab.fills.size_profile, size_profile),
    "figures.cost_curve": (lambda t: drawn(lab.figures.cost_curve(t)), cost_curve),
    "figures.volume": (lambda t: drawn(lab.figures.volume(t)), volume),
}
"""Exact analyses, and the same ones on floats."""


LARGE: dict[str, Callable[[Any], Any]] = {
    "fees.summary(by=market)": lambda t: lab.fees.summary(t, by="market"),
    "fees.tiers": lab.fees.tiers,
    "fees.in_token(by=[])": lambda t: lab.fees.in_token(t, TOKEN, by=[]),
    "fills.all_in_cost(by=fill_type)": lambda t: lab.fills.all_in_cost(t, by="fill_type"),
    "fills.price_gap(by=[])": lambda t: lab.fills.price_gap(t, by=[]),
    "fills.compare_venues": lab.fills.compare_venues,
    "figures.volume": lambda t: drawn(lab.figures.volume(t)),
    "figures.fee_tiers": lambda t: drawn(lab.figures.fee_tiers(t)),
    "figures.cost_curve": lambda t: drawn(lab.figures.cost_curve(t)),
}
"""What is asked of archives that do not fit into memory."""
SHARED = ("fills.all_in_cost(by=fill_type)", "fills.price_gap(by=[])", "fees.in_token(by=[])")


def beside_floats(trades: int = 1_000_000, rounds: int = ROUNDS) -> None:
    """Print each analysis beside its float version."""
    with tempfile.TemporaryDirectory() as folder:
        large_archive.write(Path(folder), trades)
        exact = lab.Archive(folder).trades()
    floats = float_columns(exact)
    print(f"{len(exact):,} trades, medians of {rounds}, in turns")
    print(f"{'analysis':36} {'exact':>8} {'floats':>8} {'ratio':>6}")
    for name, (ours, theirs) in PAIRS.items():
        mine, other, ratios = paired(
            lambda ours=ours: ours(exact), lambda theirs=theirs: theirs(floats), rounds
        )
        ratio = statistics.median(ratios)
        verdict = "" if ratio <= 1 else "  SLOWER"
        if name.startswith("figures") and mine > FIGURE_SECONDS:
            verdict += f"  over {FIGURE_SECONDS} s"
        print(f"{name:36} {mine:7.3f}s {other:7.3f}s {ratio:6.2f}{verdict}", flush=True)


def ask(folder: str, name: str) -> float:
    """Return the seconds of the processor that an analysis of an archive takes."""
    begin = time.process_time()
    found = LARGE[name](lab.Archive(folder).scan("duckdb"))
    assert isinstance(found, Figure) or found.fetchall()
    return time.process_time() - begin


def larger_than_memory(small: str, large: str, *names: str) -> None:
    """Print processor time, which other work on the machine stretches less, wall time and peak memory."""
    opened = (lab.Archive(folder).scan("duckdb") for folder in (small, large))
    rows = [trades.aggregate("count(*)").fetchall()[0][0] for trades in opened]
    heads = (f"{count:,} trades: processor, wall, peak" for count in rows)
    print("| on DuckDB", *heads, "times, of wall time |\n|---|---|---|---|", sep=" | ")
    for name in names or LARGE:
        (short, begun, _), (long, ended, peak) = runs = [
            alone(ask, folder, name) for folder in (small, large)
        ]
        verdict = " NOT LINEAR" if long > MOST_TIMES * short else ""
        verdict += " OVER 2 GiB" if peak > MOST_BYTES else ""
        cells = (f"{used:.1f} s, {wall:.1f} s, {most / 2**30:.2f} GiB" for used, wall, most in runs)
        times = f"{long / short:.1f}, {ended / begun:.1f}{verdict} |"
        print(f"| `{name}`", *cells, times, sep=" | ", flush=True)


def counting(_: int) -> int:
    return sum(range(30_000_000))


def machine_gain() -> float:
    """Measure how much sooner two processes are done than one with pure Python, on this machine as it is."""
    times = []
    for workers in (1, 2):
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            pool.map(counting, range(workers))
            times.append(seconds(lambda pool=pool: pool.map(counting, range(4), chunksize=1)))
    return times[0] / times[1]


def on_workers(folder: str, workers: int) -> dict[str, float]:
    """Time the analyses that look up prices in time on this many processes of Dask."""
    options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster):
        trades = lab.Archive(folder).scan("dask")
        asked = {name: lambda name=name: LARGE[name](trades).compute() for name in SHARED}
        lab.fees.summary(trades.partitions[:2]).compute()
        return {name: statistics.median(seconds(ask) for _ in range(3)) for name, ask in asked.items()}


def one_and_two_processes(folder: str) -> None:
    """Print how much sooner Dask is done on two processes than on one."""
    print(f"two pure Python processes beside one: {machine_gain():.2f}")
    one, two = on_workers(folder, 1), on_workers(folder, 2)
    for name in SHARED:
        gain = one[name] / two[name]
        verdict = "" if gain >= LEAST_GAIN else f"  under {LEAST_GAIN}"
        print(f"{name:34} {one[name]:6.2f}s {two[name]:6.2f}s {gain:5.2f}{verdict}", flush=True)


def main(command: str, *arguments: str) -> None:
    if command == "floats":
        beside_floats(*map(int, arguments))
    elif command == "large":
        larger_than_memory(*arguments)
    else:
        one_and_two_processes(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
