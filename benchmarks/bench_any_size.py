"""Exact analyses beside float ones, over archives larger than memory, and on one and two processes.

python benchmarks/bench_any_size.py floats [trades] [rounds]
    The same analyses on float columns in pandas, as a careful user would write them. Before, that both agree where
    they mean the same: on fills that share no millisecond with another of their market, which floats put in any order.
python benchmarks/bench_any_size.py large SMALL LARGE
    A table of time and peak memory of DuckDB over two archives of large_archive.py, each in a process of its own,
    which reads them from disk: medians of three runs of the small one, and one run of the large one.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import float_analyses as on_floats
import large_archive
import numpy as np
import pandas as pd
from float_analyses import BY, TOKEN
from matplotlib.figure import Figure
from timing import alone, paired

import loopring_lab as lab

FIGURE_SECONDS = 0.8
MOST_BYTES = 2 << 30
# Ten times the rows may take a little more than ten times the time: more of them is on disk.
MOST_TIMES = 11
# Exact decimals may cost this much more than floats in one function, and nothing in the median of all.
MOST_RATIO = 1.5
ROUNDS = 5
SMALL_RUNS = 3
CLOSE = 1e-4
DRAWN = 0.25
"""How far answers on floats may be off; ends of intervals, a bootstrap's there, by this part of what they hold."""
# Basis points that means by value may be off: values are converted at mean prices of the day, on floats at the nearest.
WEIGHED = 0.01
# The same of differences between venues, which have few fills in common.
COMPARED = 0.05


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


FILL = ("trade_id", "side")
PAIRS: dict[str, tuple[Callable[[pd.DataFrame], Any], Callable[[pd.DataFrame], Any], Sequence[str]]] = {
    "fees.summary(by=[market, fill_type])": (lambda t: lab.fees.summary(t, by=BY), on_floats.summary, (*BY, "fee_token")),
    "fills.all_in_cost": (lab.fills.all_in_cost, on_floats.all_in_cost, FILL),
    "fills.all_in_cost(by=fill_type)": (
        lambda t: lab.fills.all_in_cost(t, by="fill_type"), on_floats.costs_by_type, ("fill_type",)
    ),
    "fills.compare_venues": (lab.fills.compare_venues, on_floats.compare_venues, ("reference",)),
    "fills.price_gap": (lab.fills.price_gap, on_floats.price_gap, FILL),
    "fees.in_token(by=[])": (lambda t: lab.fees.in_token(t, TOKEN, by=[]), on_floats.in_token, ("fee_token",)),
    "fees.tiers": (lab.fees.tiers, on_floats.tiers, ("tier_bps", "certainty")),
    "fees.with_tiers": (lab.fees.with_tiers, on_floats.with_tiers, FILL),
    "fills.size_profile": (lab.fills.size_profile, on_floats.size_profile, ("quote", "quantile", "fill_type")),
    "figures.cost_curve": (lambda t: drawn(lab.figures.cost_curve(t)), on_floats.cost_curve, ()),
    "figures.volume": (lambda t: drawn(lab.figures.volume(t)), on_floats.volume, ()),
}  # fmt: skip
"""Exact analyses, the same ones on floats, and what tells the rows of their answers apart."""


LARGE: dict[str, Callable[[Any], Any]] = {
    "fees.summary(by=market)": lambda t: lab.fees.summary(t, by="market"),
    "fees.tiers": lab.fees.tiers,
    "fees.in_token(by=[])": lambda t: lab.fees.in_token(t, TOKEN, by=[]),
    "fills.all_in_cost(by=fill_type)": lambda t: lab.fills.all_in_cost(
        t, by="fill_type"
    ),
    "fills.price_gap(by=[])": lambda t: lab.fills.price_gap(t, by=[]),
    "fills.compare_venues": lab.fills.compare_venues,
    "figures.volume": lambda t: drawn(lab.figures.volume(t)),
    "figures.fee_tiers": lambda t: drawn(lab.figures.fee_tiers(t)),
    "figures.cost_curve": lambda t: drawn(lab.figures.cost_curve(t)),
}
"""What is asked of archives that do not fit into memory."""


# What the float version of a function means differently: it values fees along the freshest path of markets.
DIFFERENT = {
    "fees.in_token(by=[])": [
        "unpriced",
        "fee_value",
        "within_bps",
        "median_age",
        "max_age",
    ]
}


def without_ties(trades: pd.DataFrame) -> pd.DataFrame:
    """Return the fills that are alone in their market and millisecond, with both of their sides."""
    fills = trades.groupby(["market", "created_at"], observed=True)["trade_id"]
    return trades[fills.transform("min") == fills.transform("max")].reset_index(
        drop=True
    )


def numbers(column: pd.Series) -> np.ndarray:
    if column.dtype.kind == "M":
        column = column.dt.tz_localize(None) - pd.Timestamp(0)
    if column.dtype.kind == "m":
        return (column / pd.Timedelta("1ms")).to_numpy(float)
    return np.asarray(
        lab.to_float(column)
        if "decimal" in str(column.dtype)
        else pd.to_numeric(column),
        float,
    )


def check_agreement(
    exact: pd.DataFrame, floats: pd.DataFrame, keys: Sequence[str]
) -> None:
    """Raise an `AssertionError` unless two answers have the same rows and numbers, but for rounding."""
    exact, floats = (
        found.astype(dict.fromkeys(keys, str)).sort_values([*keys], ignore_index=True)
        for found in (exact, floats)
    )
    for name in exact.columns.intersection(floats.columns):
        mine = exact[name]
        other = floats[name]
        if mine.dtype.kind in "biufmM" or "[pyarrow]" in str(mine.dtype):
            mine, other, is_time = numbers(mine), numbers(other), mine.dtype.kind == "M"
            reach = 1e-10 + CLOSE * np.abs(mine) * (not is_time)
            if "reference" in keys:
                reach = np.full(len(mine), COMPARED)
            if name.startswith("weighted_"):
                reach = np.full(len(mine), WEIGHED)
            if name.startswith(("low_", "high_")):
                rate = name.partition("_")[2]
                reach = (
                    numbers(exact[f"high_{rate}"]) - numbers(exact[f"low_{rate}"])
                ) * DRAWN
            same = np.isclose(
                mine, other, rtol=0, atol=np.nan_to_num(reach), equal_nan=True
            )
        else:
            same = (
                mine.astype(str).fillna("") == other.astype(str).fillna("")
            ).to_numpy()
        assert same.all(), (
            f"{name}: {np.count_nonzero(~same):,} of {len(same):,} rows differ"
        )


def beside_floats(trades: int = 1_000_000, rounds: int = ROUNDS) -> None:
    """Print each analysis beside its float version."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.duckdb"
        large_archive.write(file, trades)
        exact = lab.Archive(file).trades()
    floats = on_floats.float_columns(exact)
    compared = without_ties(exact)
    compared_floats = on_floats.float_columns(compared)
    print(f"{len(exact):,} trades, medians of {rounds}, in turns")
    print(f"{'analysis':36} {'exact':>8} {'floats':>8} {'ratio':>6}")
    all_ratios = []
    for name, (ours, theirs, keys) in PAIRS.items():
        if keys:
            answer = ours(compared).drop(columns=DIFFERENT.get(name, []))
            check_agreement(answer, theirs(compared_floats), keys)
        mine, other, ratios = paired(
            lambda ours=ours: ours(exact), lambda theirs=theirs: theirs(floats), rounds
        )
        ratio = statistics.median(ratios)
        all_ratios.append(ratio)
        verdict = "" if ratio <= MOST_RATIO else "  SLOWER"
        if name.startswith("figures") and mine > FIGURE_SECONDS:
            verdict += f"  over {FIGURE_SECONDS} s"
        print(f"{name:36} {mine:7.3f}s {other:7.3f}s {ratio:6.2f}{verdict}", flush=True)
    print(f"{'median of all':36} {'':8} {'':8} {statistics.median(all_ratios):6.2f}")


def ask(folder: str, name: str) -> float:
    """Return the seconds of the processor that an analysis of an archive takes."""
    begin = time.process_time()
    found = LARGE[name](lab.Archive(folder))
    assert isinstance(found, Figure) or len(found)
    return time.process_time() - begin


def from_disk(folder: str, name: str, runs: int) -> list[float]:
    """Return medians of seconds of the processor, seconds and peak memory of runs that read the disk.

    Else a small archive would be in memory from the run before, and a large one not.
    """
    found = []
    for _ in range(runs):
        with Path(folder).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found.append(alone(ask, folder, name))
    return [statistics.median(column) for column in zip(*found, strict=True)]


def larger_than_memory(small: str, large: str, *names: str) -> None:
    """Print processor time, which other work on the machine stretches less, wall time and peak memory."""
    opened = (lab.Archive(folder).scan("duckdb") for folder in (small, large))
    rows = [trades.aggregate("count(*)").fetchall()[0][0] for trades in opened]
    heads = (f"{count:,} trades: processor, wall, peak" for count in rows)
    print("| on DuckDB", *heads, "times, of wall time |\n|---|---|---|---|", sep=" | ")
    for name in names or LARGE:
        runs = [from_disk(small, name, SMALL_RUNS), from_disk(large, name, 1)]
        (short, begun, _), (long, ended, peak) = runs
        verdict = " NOT LINEAR" if long > MOST_TIMES * short else ""
        verdict += " OVER 2 GiB" if peak > MOST_BYTES else ""
        cells = (
            f"{used:.1f} s, {wall:.1f} s, {most / 2**30:.2f} GiB"
            for used, wall, most in runs
        )
        times = f"{long / short:.1f}, {ended / begun:.1f}{verdict} |"
        print(f"| `{name}`", *cells, times, sep=" | ", flush=True)


def main(command: str, *arguments: str) -> None:
    if command == "floats":
        beside_floats(*map(int, arguments))
    else:
        larger_than_memory(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
