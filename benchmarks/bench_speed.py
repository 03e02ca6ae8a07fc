"""Speed: questions and amounts beside floats in pandas, Polars and DuckDB, and questions over archives of two sizes.

python benchmarks/bench_speed.py [rows] [rounds]
    The table: of each question, seconds of the processor and of the clock, exact and on floats. DuckDB and Polars use
    two threads and pandas one, so both are said. Every answer on floats is compared with ours before it is timed, on
    fills that share no millisecond with another of their market: floats put those in any order. The tables of
    bench_prices.py follow.
python benchmarks/bench_speed.py large FILE... [question...]
    Time, peak memory and room on the disk of questions that look up prices, over archives of large_archive.py from
    small to large: each question in a process of its own, which reads them from disk.
"""

import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench_prices
import duckdb
import large_archive
import numpy as np
import pandas as pd
import polars as pl
from timing import alone, in_turns, most_on_disk, processor_seconds

import loopring_lab as lab

ROWS = 1_000_000
ROUNDS = 3
AMOUNT_ROWS = 300_000
MOST_BYTES = 2 << 30
# Ten times the rows may take a little more than ten times the time: more of them is on disk.
MOST_TIMES = 11
MOST_OF_ARCHIVE = 1 / 3
HOUR = "1h"
TOKEN = "USDC"
BY = ["market", "fill_type"]
AMOUNTS = ["size", "price", "notional", "fee"]
CODES = ["market", "base", "quote", "fee_token", "fill_type", "side"]
UNITS = {"USDT": 1e-6, "USDC": 1e-6, "WBTC": 1e-8}


# Floats in pandas


def float_columns(trades: pd.DataFrame) -> pd.DataFrame:
    """Return the trades as a careful user of floats has them: NumPy's types, and categories that can be compared."""
    tokens = sorted({*trades["base"].cat.categories, *trades["quote"].cat.categories})
    columns = {name: lab.to_float(trades[name]) for name in AMOUNTS}
    columns["created_at"] = trades["created_at"].dt.tz_localize(None)
    for name in ("trade_id", "account_id", "token_id", "storage_id"):
        columns[name] = trades[name].astype("int64")
    for name in ("base", "quote", "fee_token"):
        columns[name] = trades[name].cat.set_categories(tokens)
    return trades.assign(**columns).drop(columns=["extra", "role"])


def pandas_summary(trades: pd.DataFrame) -> pd.DataFrame:
    in_base = trades["fee_token"] == trades["base"]
    rows = trades.assign(
        received=np.where(in_base, trades["size"], trades["notional"]),
        fee_bps=trades["fee_bps"].round(3),
        free=trades["fee"] == 0,
    )
    found = rows.groupby([*BY, "fee_token"], observed=True).agg(
        fills=("size", "size"), size=("size", "sum"), notional=("notional", "sum"), received=("received", "sum"),
        fee=("fee", "sum"), free=("free", "mean"),
    )  # fmt: skip
    medians = rows.groupby(BY, observed=True)["fee_bps"].median()
    second = (
        trades.duplicated("trade_id")
        .groupby([trades[name] for name in BY], observed=True)
        .sum()
    )
    return (
        found.join(medians, on=BY)
        .join(second.rename("both_sides"), on=BY)
        .reset_index()
    )


def pandas_tiers(trades: pd.DataFrame) -> pd.DataFrame:
    in_base = trades["fee_token"] == trades["base"]
    least = np.where(in_base, trades["size"], trades["notional"])
    most = np.where(in_base, trades["size"], trades["notional"] + trades["size"] * 1e-8)
    units = [UNITS.get(token, 1e-18) for token in trades["fee_token"].cat.categories]
    unit = np.array(units)[trades["fee_token"].cat.codes]
    low = np.ceil(trades["fee"] * 1e4 / most - 1e-9) + 0.0
    high = np.ceil((trades["fee"] + unit) * 1e4 / least + 1e-9) - 1
    tier = np.where(low == high, low, np.nan)
    rows = pd.DataFrame(
        {"tier": tier, "fits": np.sign(high - low), "at": trades["created_at"]}
    )
    found = rows.groupby(["tier", "fits"], dropna=False)["at"].agg(
        ["size", "min", "max"]
    )
    found["both_sides"] = trades["trade_id"].duplicated().sum()
    return found.reset_index()


def pandas_all_in_cost(trades: pd.DataFrame) -> pd.DataFrame:
    """Find the first trade of the market within an hour after the end of each order."""
    order = trades["order_hash"].factorize()[0]
    unhashed = order < 0
    sold = trades.loc[unhashed, ["account_id", "token_id", "storage_id"]]
    order[unhashed] = order.max() + 1 + sold.groupby([*sold], sort=False).ngroup()
    end = trades["created_at"].groupby(order).transform("max")
    known = trades[["created_at", "market", "price"]].sort_values("created_at")
    found = pd.merge_asof(
        trades.assign(end=end).sort_values("end"),
        known.rename(columns={"created_at": "reference_at", "price": "reference_price"}),
        left_on="end", right_on="reference_at", by="market", direction="forward", allow_exact_matches=False,
        tolerance=pd.Timedelta(HOUR),
    )  # fmt: skip
    sign = np.where(found["side"] == "BUY", 1e4, -1e4)
    found["price_bps"] = (found["price"] / found["reference_price"] - 1) * sign
    return found.assign(all_in_bps=found["price_bps"] + found["fee_bps"])


# Floats in Polars


def polars_summary(trades: pl.DataFrame) -> pl.DataFrame:
    in_base = pl.col("fee_token") == pl.col("base")
    rows = trades.lazy().with_columns(
        received=pl.when(in_base).then("size").otherwise("notional"),
        fee_bps=pl.col("fee_bps").round(3),
    )
    sums = rows.group_by([*BY, "fee_token"]).agg(
        pl.len(),
        pl.sum("size", "notional", "received", "fee"),
        (pl.col("fee") == 0).mean().alias("free"),
    )
    medians = rows.group_by(BY).agg(
        pl.median("fee_bps").alias("median_bps"),
        (pl.len() - pl.n_unique("trade_id")).alias("both_sides"),
    )
    return sums.join(medians, on=BY).collect()


def polars_tiers(trades: pl.DataFrame) -> pl.DataFrame:
    in_base = pl.col("fee_token") == pl.col("base")
    least = pl.when(in_base).then("size").otherwise("notional")
    most = (
        pl.when(in_base)
        .then("size")
        .otherwise(pl.col("notional") + pl.col("size") * 1e-8)
    )
    unit = (
        pl.col("fee_token")
        .cast(pl.String)
        .replace_strict(UNITS, default=1e-18, return_dtype=pl.Float64)
    )
    low = (pl.col("fee") * 1e4 / most - 1e-9).ceil()
    high = ((pl.col("fee") + unit) * 1e4 / least + 1e-9).ceil() - 1
    rows = trades.lazy().select("created_at", low=low, high=high)
    fits = (pl.col("high") - pl.col("low")).sign()
    tier = pl.when(fits == 0).then("low")
    found = rows.group_by(tier=tier, fits=fits).agg(
        pl.len().alias("size"),
        pl.min("created_at").alias("min"),
        pl.max("created_at").alias("max"),
    )
    both = trades.lazy().select(both_sides=pl.len() - pl.n_unique("trade_id"))
    return found.join(both, how="cross").collect()


def polars_all_in_cost(trades: pl.DataFrame) -> pl.DataFrame:
    hashed = pl.col("order_hash").hash()
    sold = pl.struct("account_id", "token_id", "storage_id").hash()
    order = pl.when(pl.col("order_hash").is_null()).then(sold).otherwise(hashed)
    rows = trades.lazy().with_columns(order=order)
    ends = rows.group_by("order").agg(pl.max("created_at").alias("end"))
    known = trades.lazy().select(
        "market",
        pl.col("created_at").alias("end"),
        pl.col("price").alias("reference_price"),
    )
    found = rows.join(ends, on="order").sort("end").join_asof(
        known.sort("end"), on="end", by="market", strategy="forward", tolerance=HOUR, allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    sign = pl.when(pl.col("side") == "BUY").then(1e4).otherwise(-1e4)
    cost = (pl.col("price") / pl.col("reference_price") - 1) * sign
    return (
        found.with_columns(price_bps=cost)
        .with_columns(all_in_bps=pl.col("price_bps") + pl.col("fee_bps"))
        .collect()
    )


# Floats in DuckDB

DUCKDB = {
    "summary": """
WITH rows AS (SELECT *, CASE WHEN fee_token = base THEN size ELSE notional END AS received FROM trades),
medians AS (
    SELECT market, fill_type, median(round(fee_bps, 3)) AS median_bps, count(*) - count(DISTINCT trade_id) AS both_sides
    FROM rows GROUP BY ALL
)
SELECT s.*, median_bps, both_sides
FROM (
    SELECT market, fill_type, fee_token, count(*) AS fills, sum(size) AS size, sum(notional) AS notional,
        sum(received) AS received, sum(fee) AS fee, avg((fee = 0)::INT) AS free
    FROM rows GROUP BY ALL
) AS s JOIN medians USING (market, fill_type)""",
    "tiers": """
WITH rows AS (
    SELECT created_at, fee, CASE WHEN fee_token = base THEN size ELSE notional END AS least,
        CASE WHEN fee_token = base THEN size ELSE notional + size * 1e-8 END AS most,
        CASE fee_token WHEN 'USDT' THEN 1e-6 WHEN 'USDC' THEN 1e-6 WHEN 'WBTC' THEN 1e-8 ELSE 1e-18 END AS unit
    FROM trades
),
bounds AS (
    SELECT created_at, ceil(fee * 1e4 / most - 1e-9) AS low, ceil((fee + unit) * 1e4 / least + 1e-9) - 1 AS high
    FROM rows
)
SELECT CASE WHEN low = high THEN low END AS tier, sign(high - low) AS fits, count(*) AS size, min(created_at) AS min,
    max(created_at) AS max, (SELECT count(*) - count(DISTINCT trade_id) FROM trades) AS both_sides
FROM bounds GROUP BY ALL""",
    "all_in_cost": """
WITH rows AS (
    SELECT *, CASE WHEN order_hash IS NULL THEN hash(account_id, token_id, storage_id) ELSE hash(order_hash) END AS o
    FROM trades
),
ended AS (SELECT rows.*, e.ended_at FROM rows JOIN (SELECT o, max(created_at) AS ended_at FROM rows GROUP BY o) AS e USING (o)),
found AS (
    SELECT ended.*, CASE WHEN known.created_at <= ended_at + INTERVAL 1 HOUR THEN known.price END AS reference_price
    FROM ended ASOF LEFT JOIN trades AS known ON ended.market = known.market AND ended.ended_at < known.created_at
)
SELECT *, (price / reference_price - 1) * CASE side WHEN 'BUY' THEN 1e4 ELSE -1e4 END AS price_bps,
    price_bps + fee_bps AS all_in_bps
FROM found""",
}


# The questions, what is compared of their answers, and the table

QUESTIONS: dict[str, tuple[Callable[[pd.DataFrame], Any], Sequence[str]]] = {
    "summary": (lambda trades: lab.fees.summary(trades, by=BY), ("fee", "received")),
    "tiers": (lab.fees.tiers, ("fills", "both_sides")),
    "all_in_cost": (lab.fills.all_in_cost, ("reference_price", "all_in_bps")),
}
ON_PANDAS = {
    "summary": pandas_summary,
    "tiers": pandas_tiers,
    "all_in_cost": pandas_all_in_cost,
}
ON_POLARS = {
    "summary": polars_summary,
    "tiers": polars_tiers,
    "all_in_cost": polars_all_in_cost,
}
OTHER_NAMES = {"fills": "size"}
OPERATIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "fee + size": lambda t: t["fee"] + t["size"],
    "fee * 2": lambda t: t["fee"] * 2,
    "fee / size": lambda t: t["fee"] / t["size"],
    "fee > size": lambda t: t["fee"] > t["size"],
    "sum": lambda t: t["fee"].sum(),
    "cumsum": lambda t: t["fee"].cumsum(),
    "diff": lambda t: t["fee"].diff(),
    "sort_values": lambda t: t["fee"].sort_values(),
    "group sum": lambda t: t.groupby("market", observed=True)["fee"].sum(),
    "group cumsum": lambda t: t.groupby("market", observed=True)["fee"].cumsum(),
}


def on_floats(name: str, floats: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """Return a question on floats, by the name of what answers it."""
    in_polars = pl.from_pandas(floats)
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    connection.register("columns", floats.astype(dict.fromkeys(CODES, str)))
    connection.execute("CREATE TABLE trades AS FROM columns")
    return {
        "pandas": lambda: ON_PANDAS[name](floats),
        "Polars": lambda: ON_POLARS[name](in_polars),
        "DuckDB": lambda: connection.sql(DUCKDB[name]).to_arrow_table(),
    }


def without_ties(trades: pd.DataFrame) -> pd.DataFrame:
    """Return the fills that are alone in their market and millisecond, with both of their sides."""
    fills = trades.groupby(["market", "created_at"], observed=True)["trade_id"]
    return trades[fills.transform("min") == fills.transform("max")].reset_index(
        drop=True
    )


def check(name: str, trades: pd.DataFrame, floats: pd.DataFrame) -> None:
    """Raise an `AssertionError` unless the answers have the same numbers, but for rounding."""
    ask, compared = QUESTIONS[name]
    exact = ask(trades)
    for kind, answer in on_floats(name, floats).items():
        found = answer()
        found = (
            found
            if isinstance(found, pd.DataFrame)
            else pd.DataFrame(found.to_pandas())
        )
        for column in compared:
            other = column if column in found else OTHER_NAMES[column]
            ours, theirs = (
                np.sort(np.asarray(one, float))
                for one in (lab.to_float(exact[column]), found[other])
            )
            assert np.allclose(ours, theirs, rtol=1e-7, atol=1e-6, equal_nan=True), (
                f"{name}: {column} on {kind}"
            )


def in_cells(times: dict[str, tuple[float, float]]) -> str:
    """Write processor and wall time of ours, and of each other the ratio of ours to it."""
    processor, clock = times["exact"]
    cells = [f"{processor:.3f}, {clock:.3f}"]
    for kind, (cpu, wall) in times.items():
        if kind != "exact":
            cells.append(f"{processor / cpu:.1f}, {clock / wall:.1f}")
    return " | ".join(cells)


def table(rows: int = ROWS, rounds: int = ROUNDS) -> None:
    """Print questions and operations beside floats."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.duckdb"
        large_archive.write(file, rows)
        trades = lab.Archive(file).trades()
    floats = float_columns(trades)
    alone_there = without_ties(trades)
    print(
        f"{rows:,} trades: seconds (processor, wall), and how many times as long as on floats (processor, wall)\n"
    )
    print("| | exact | pandas | Polars | DuckDB |\n|---|---|---|---|---|")
    for name, (ask, _) in QUESTIONS.items():
        check(name, alone_there, float_columns(alone_there))
        calls = {"exact": lambda ask=ask: ask(trades)} | on_floats(name, floats)
        print(f"| `{name}` | {in_cells(in_turns(calls, rounds))} |", flush=True)
    # Sums over several tokens mean nothing, and take as long as others.
    warnings.filterwarnings("ignore", "This sum adds up amounts", UserWarning)
    amounts = pd.DataFrame(
        {name: trades[name].array for name in ("market", "size", "fee")}
    ).head(AMOUNT_ROWS)
    as_floats = amounts.astype({"size": "float64", "fee": "float64"})
    print(f"\n| {AMOUNT_ROWS:,} amounts | exact | pandas |\n|---|---|---|")
    for name, compute in OPERATIONS.items():
        calls = {
            "exact": lambda compute=compute: compute(amounts),
            "pandas": lambda compute=compute: compute(as_floats),
        }
        print(f"| `{name}` | {in_cells(in_turns(calls, 5 * rounds))} |", flush=True)


# Archives larger than memory

LARGE: dict[str, Callable[[Any], Any]] = {
    "fees.in_token": lambda t: lab.fees.in_token(t, TOKEN, by=[]),
    "fills.all_in_cost": lambda t: lab.fills.all_in_cost(t, by="fill_type"),
    "fills.compare_parts": lab.fills.compare_parts,
    "fills.compare_venues": lab.fills.compare_venues,
    "fills.markouts": lambda t: lab.fills.markouts(t, by="fill_type"),
    "fills.price_gap": lambda t: lab.fills.price_gap(t, by=[]),
    "fills.shortfall": lambda t: lab.fills.shortfall(t, by="fill_type"),
    "research.cost_curves": lab.research.cost_curves,
}
"""Questions that look up prices, with a row for each group."""


def ask_archive(file: str, name: str) -> tuple[float, int]:
    """Return the seconds of the processor that a question of an archive takes, and how much it keeps on the disk."""

    def ask() -> None:
        assert len(LARGE[name](lab.Archive(file)))

    with tempfile.TemporaryDirectory() as folder:
        lab.engine.set_memory(spill_folder=folder)
        with most_on_disk(Path(folder)) as sizes:
            used = processor_seconds(ask)
        lab.engine.set_memory()
    return used, max(sizes)


def from_disk(file: str, name: str) -> tuple[float, float, int, int]:
    """Return processor time, wall time, peak memory and peak room on the disk of a question that reads the disk.

    Else a small archive would be in memory from the run before, and a large one not.
    """
    with Path(file).open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    (used, spilled), wall, memory = alone(ask_archive, file, name)
    return used, wall, memory, spilled


def larger_than_memory(*words: str) -> None:
    """Print what questions take over archives, each of more rows than the one before; words are files and questions."""
    files = [word for word in words if word not in LARGE]
    asked = [word for word in words if word in LARGE]
    print(
        "| | rows | seconds: processor, wall | for ten times the rows | GiB of memory | MiB on the disk, of the archive |"
    )
    print("|---|---|---|---|---|---|")
    for name in asked or LARGE:
        before = math.nan
        for file in files:
            trades = lab.Archive(file).scan("duckdb")
            rows = trades.aggregate("count(*)").fetchall()[0][0]
            used, wall, memory, spilled = from_disk(file, name)
            times = 10 * (used / rows) / before
            share = spilled / Path(file).stat().st_size
            limits = {
                "NOT LINEAR": times > MOST_TIMES,
                "OVER 2 GiB": memory > MOST_BYTES,
                "OVER A THIRD": share > MOST_OF_ARCHIVE,
            }
            cells = [
                f"`{name}`",
                f"{rows:,}",
                f"{used:.1f}, {wall:.1f}",
                f"{times:.1f}",
                f"{memory / 2**30:.2f}",
                f"{spilled / 2**20:.0f}, {share:.0%}",
            ]
            missed = [limit for limit, is_missed in limits.items() if is_missed]
            print(f"| {' | '.join(cells)} |", *missed, flush=True)
            before = used / rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["large"]:
        larger_than_memory(*sys.argv[2:])
    else:
        table(*map(int, sys.argv[1:]))
        bench_prices.table()
