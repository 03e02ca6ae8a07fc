"""Speed: questions about a few trades with a year of minute closes, the README's tour, and sums on Spark.

Each question runs in a process of its own, about the 2,217 fills of one account of the synthetic world. The closes are
one a minute for its 16 markets, 8.4 million, in a Parquet file; beside them the same hours with one close each say how
much more memory the rest takes. Spark is left out where it is not installed.
Run: python benchmarks/bench_prices.py
"""

import os
import re
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import large_archive
import matplotlib
import pandas as pd
from timing import alone, both_seconds

import loopring_lab as lab

ACCOUNT = 10083
POOL = 1
MINUTES = """
SELECT created_at + to_minutes(minute::INTEGER) AS created_at, market, base, quote,
    (price::DOUBLE * (1 + hash(created_at, market, minute) % 1000 / 1e7))::DECIMAL(38, 18) AS price
FROM hours, range(60) AS minutes(minute)
ORDER BY created_at, market"""
"""About a basis point of noise within each hour."""
TOUR = re.compile(r"```python\n(import loopring_lab as lab.*?)```", re.DOTALL)
SPARK_ROWS = 60_000
ROUNDS = 3

Question = Callable[[pd.DataFrame, Any], Any]
QUESTIONS: dict[str, Question] = {
    "fees.in_token": lambda t, p: lab.fees.in_token(t, "USDC", p),
    "fees.in_token(by=[])": lambda t, p: lab.fees.in_token(t, "USDC", p, by=[]),
    "fees.in_token(tolerance=None)": lambda t, p: lab.fees.in_token(
        t, "ETH", p, by=[], tolerance=None
    ),
    "fills.all_in_cost": lab.fills.all_in_cost,
    "fills.all_in_cost(by=fill_type)": lambda t, p: lab.fills.all_in_cost(
        t, "last", prices=p, by="fill_type"
    ),
    "fills.compare_venues": lab.fills.compare_venues,
    "fills.compare_parts": lab.fills.compare_parts,
    "fills.markouts": lab.fills.markouts,
    "fills.markouts(by=fill_type)": lambda t, p: lab.fills.markouts(
        t, p, by="fill_type"
    ),
    "fills.shortfall": lab.fills.shortfall,
    "research.with_flow": lab.research.with_flow,
    "research.changes": lab.research.changes,
    "research.cost_curves": lab.research.cost_curves,
    "research.liquidity": lambda t, p: lab.research.liquidity(t, None, p),
}
OF_A_POOL = ("research.liquidity",)


def write(folder: Path) -> None:
    """Write the trades, and closes by the minute and by the hour."""
    client = lab.connect()
    trades = client.trades(ACCOUNT)
    trades.to_pickle(folder / "trades.pkl")
    client.trades(POOL, limit=len(trades)).to_pickle(folder / "pool.pkl")
    hours = lab.engine.portable(client.outside_prices(trades, every="1h"))
    with duckdb.connect() as connection:
        connection.register("hours", hours)
        for name, closes in {"minutes": MINUTES, "hours": "FROM hours"}.items():
            file = folder / f"{name}.parquet"
            connection.execute(f"COPY ({closes}) TO '{file}'")


def asked(folder: str, name: str, closes: str) -> tuple[float, float]:
    """Return the time of processor and clock that a question with closes of a file takes."""
    warnings.simplefilter("ignore", UserWarning)
    of = "pool" if name in OF_A_POOL else "trades"
    trades = pd.read_pickle(Path(folder) / f"{of}.pkl")
    with duckdb.connect() as connection:
        prices = connection.read_parquet(f"{folder}/{closes}.parquet")
        return both_seconds(lambda: QUESTIONS[name](trades, prices))


def with_closes(folder: str) -> None:
    print("| with 8.4 million closes | processor, wall (s) | with hours | MiB more |")
    print("|---|---|---|---|")
    for name in QUESTIONS:
        many, _, most = alone(asked, folder, name, "minutes")
        few, _, least = alone(asked, folder, name, "hours")
        cells = [f"{cpu:.2f}, {wall:.2f}" for cpu, wall in (many, few)]
        print(
            f"| `{name}`",
            *cells,
            f"{(most - least) / 2**20:.0f} |",
            sep=" | ",
            flush=True,
        )


def tour() -> tuple[float, float]:
    """Return the time of processor and clock that the README's tour takes."""
    matplotlib.use("agg")
    readme = Path(__file__).parents[1] / "README.md"
    found = TOUR.search(readme.read_text(encoding="utf-8"))
    assert found
    return both_seconds(lambda: exec(found[1], {}))


def outside_prices() -> tuple[float, float]:
    client = lab.connect()
    trades = client.trades(ACCOUNT)
    return both_seconds(lambda: client.outside_prices(trades))


def spark_summary(file: str) -> dict[str, float]:
    """Return the seconds by the clock that `fees.summary` takes of rows in twenty markets, and in one."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    trades = lab.Archive(file).trades()
    in_one = trades.assign(market=trades["market"].cat.categories[0])
    builder = SparkSession.builder.master("local[2]")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    taken = {}
    for name, rows in {"20 markets": trades, "1 market": in_one}.items():
        frame = spark.createDataFrame(lab.engine.portable(rows)).cache()
        # It is read before it is timed.
        frame.count()

        def ask(frame: Any = frame) -> Any:
            return lab.fees.summary(frame, by="market").toPandas()

        rounds = [both_seconds(ask)[1] for _ in range(ROUNDS)]
        taken[name] = statistics.median(rounds)
    spark.stop()
    return taken


def table() -> None:
    """Print everything."""
    with tempfile.TemporaryDirectory() as home:
        write(Path(home))
        with_closes(home)
        (cpu, wall), _, _ = alone(tour)
        print(f"\nREADME's tour: {cpu:.1f} s of the processor, {wall:.1f} s")
        (cpu, wall), _, _ = alone(outside_prices)
        print(f"client.outside_prices: {cpu:.1f} s of the processor, {wall:.1f} s")
        if find_spec("pyspark") is None:
            print("Spark is not installed.")
            return
        file = Path(home) / "a.duckdb"
        large_archive.write(file, SPARK_ROWS)
        for name, seconds in alone(spark_summary, str(file))[0].items():
            print(
                f"fees.summary on Spark, {SPARK_ROWS:,} rows in {name}: {seconds:.1f} s"
            )


if __name__ == "__main__":
    table()
