"""Exact fee summaries of many trades on three engines, compared with a float group-by in pandas.

Run: python tests/benchmarks/bench_engines.py [trades]
"""

import multiprocessing
import statistics
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask import dataframe
from distributed import Client, LocalCluster
from timing import paired, seconds

import loopring_lab as lab
from loopring_lab.engines import portable
from loopring_lab.relayer import World

TRADES = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
ROUNDS = 5
FILES = 8
BY = ["market", "fill_type"]
AMOUNTS = ["size", "notional", "fee"]
COLUMNS = ["created_at", *BY, "base", "quote", "fee_token", *AMOUNTS, "fee_bps"]


def made_up(trades: int) -> pd.DataFrame:
    """Repeat the trades of the synthetic world."""
    client = lab.connect()
    known = [client.trades(account) for account in World(seed=1).accounts]
    world = pd.concat(known, ignore_index=True)[COLUMNS]
    place = np.arange(trades) % len(world)
    table = pa.Table.from_pandas(world, preserve_index=False).take(pa.array(place))
    return table.to_pandas(types_mapper=lambda t: pd.ArrowDtype(t) if pa.types.is_decimal(t) else None)


def on_floats(floats: pd.DataFrame) -> pd.DataFrame:
    """Do in plain pandas what `fees.summary` does exactly: counts, sums and the median of each group."""
    return floats.groupby([*BY, "fee_token"], observed=True, dropna=False).agg(
        fills=("size", "size"),
        volume=("size", "sum"),
        notional=("notional", "sum"),
        fee=("fee", "sum"),
        median_bps=("fee_bps", "median"),
    )


def on_duckdb(folder: Path) -> pa.Table:
    relation = duckdb.connect().read_parquet(f"{folder}/*.parquet")
    return lab.fees.summary(relation, by=BY).to_arrow_table()


def peak(folder: Path, channel: Any) -> None:
    """Measure a process of its own that does nothing else; ru_maxrss would count its parent's memory too."""
    found = on_duckdb(folder)
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    channel.send((int(line.split()[1]) * 1024, len(found)))


def peak_memory(folder: Path) -> int:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=peak, args=(folder, theirs))
    process.start()
    found, groups = ours.recv()
    process.join()
    assert groups
    return int(found)


def on_workers(folder: Path, workers: int) -> float:
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster),
    ):
        trades = dataframe.read_parquet(folder, dtype_backend="pyarrow")
        lab.fees.summary(trades.partitions[:1], by=BY).compute()
        return statistics.median(seconds(lambda: lab.fees.summary(trades, by=BY).compute()) for _ in range(3))


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


def written(trades: pd.DataFrame, folder: Path) -> Path:
    for number, start in enumerate(range(0, len(trades), -(-len(trades) // FILES))):
        part = trades.iloc[start : start + -(-len(trades) // FILES)]
        pq.write_table(portable(part), folder / f"{number}.parquet")
    return folder


def floats_of(trades: pd.DataFrame) -> pd.DataFrame:
    return trades.assign(**{name: trades[name].astype("float64").to_numpy() for name in AMOUNTS})


def show(what: str, mine: float, other: float, ratio: float, target: str) -> None:
    print(f"{what:<54} {mine:7.2f} s {other:7.2f} s   {ratio:5.2f}   {target}", flush=True)


def in_memory(trades: pd.DataFrame, floats: pd.DataFrame) -> None:
    both = paired(lambda: lab.fees.summary(trades, by=BY), lambda: on_floats(floats), ROUNDS)
    show("exact summary on pandas, float group-by in pandas", *both, "at most 2.5")
    tenth = trades.iloc[: TRADES // 10]
    both = paired(lambda: lab.fees.summary(trades, by=BY), lambda: lab.fees.summary(tenth, by=BY), ROUNDS)
    show("exact summary on pandas, of a tenth of the trades", *both, "at most 10")


def from_parquet(folder: Path, floats: pd.DataFrame) -> None:
    both = paired(lambda: on_duckdb(folder), lambda: on_floats(floats), ROUNDS)
    show("exact summary on DuckDB over Parquet, float group-by", *both, "at most 1.2")
    print(f"peak memory of the DuckDB path alone: {peak_memory(folder) / 2**30:.2f} GiB (under 2 GiB)")
    print(f"speed-up of two pure Python processes over one on this machine: {machine_gain():.2f}")
    one, two = on_workers(folder, 1), on_workers(folder, 2)
    show("exact summary on Dask, one worker and two", one, two, one / two, "at least 1.5")


def main() -> None:
    trades = made_up(TRADES)
    floats = floats_of(trades)
    exact, loose = lab.fees.summary(trades, by=BY), on_floats(floats)
    assert sorted(exact["fills"]) == sorted(loose["fills"])
    print(f"{TRADES:,} trades in {len(exact)} groups; medians of {ROUNDS} rounds, taken in turns")
    in_memory(trades, floats)
    with tempfile.TemporaryDirectory() as name:
        folder = written(trades, Path(name))
        del trades
        assert sorted(on_duckdb(folder)["fills"].to_pylist()) == sorted(exact["fills"])
        from_parquet(folder, floats)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # Dask's reader does not know pandas 3.1
    main()
