"""Amounts beside floats and beside pandas' own Arrow decimals, a million rows: milliseconds of processor time."""

import argparse
import gc
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.dtype import AmountArray

# What frames of trades held before amounts.
WIDE = pd.ArrowDtype(pa.decimal256(37, 18))
OPERATIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "astype(float)": lambda t: t["fee"].astype(float),
    "to_numpy()": lambda t: t["fee"].to_numpy(),
    "sort_values": lambda t: t["fee"].sort_values(),
    "frame.sort_values": lambda t: t.sort_values("fee"),
    "rank": lambda t: t["fee"].rank(),
    "fee + size": lambda t: t["fee"] + t["size"],
    "fee - size": lambda t: t["fee"] - t["size"],
    "fee + 1": lambda t: t["fee"] + 1,
    "fee * 2": lambda t: t["fee"] * 2,
    "fee * integers": lambda t: t["fee"] * t["count"],
    "fee * 1.5": lambda t: t["fee"] * 1.5,
    "fee / size": lambda t: t["fee"] / t["size"],
    "fee > size": lambda t: t["fee"] > t["size"],
    "fee > 1": lambda t: t["fee"] > 1,
    "fee > floats": lambda t: t["fee"] > t["rate"],
    "fee[fee > 1]": lambda t: t["fee"][t["fee"] > 1],
    "sum": lambda t: t["fee"].sum(),
    "mean": lambda t: t["fee"].mean(),
    "max": lambda t: t["fee"].max(),
    "median": lambda t: t["fee"].median(),
    "std": lambda t: t["fee"].std(),
    "describe": lambda t: t["fee"].describe(),
    "cumsum": lambda t: t["fee"].cumsum(),
    "cummax": lambda t: t["fee"].cummax(),
    "diff": lambda t: t["fee"].diff(),
    "shift": lambda t: t["fee"].shift(),
    "rolling.mean": lambda t: t["fee"].rolling(10).mean(),
    "where": lambda t: t["fee"].where(t["fee"] > 1, 0),
    "fillna": lambda t: t["fee"].fillna(0),
    "clip": lambda t: t["fee"].clip(0, 1),
    "round": lambda t: t["fee"].round(4),
    "isin": lambda t: t["fee"].isin([0, 1]),
    "unique": lambda t: t["fee"].unique(),
    "value_counts": lambda t: t["fee"].value_counts(),
    "drop_duplicates": lambda t: t["fee"].drop_duplicates(),
    "group sum": lambda t: t.groupby("market")["fee"].sum(),
    "group mean": lambda t: t.groupby("market")["fee"].mean(),
    "group max": lambda t: t.groupby("market")["fee"].max(),
    "group first": lambda t: t.groupby("market")["fee"].first(),
    "group cumsum": lambda t: t.groupby("market")["fee"].cumsum(),
    "group median": lambda t: t.groupby("market")["fee"].median(),
    "concat": lambda t: pd.concat([t["fee"], t["size"]]),
    "take": lambda t: t["fee"].iloc[::-1],
    "to_csv (a tenth)": lambda t: t["fee"].head(len(t) // 10).to_csv(),
    "astype(str)": lambda t: t["fee"].astype(str),
    "list (a tenth)": lambda t: list(t["fee"].head(len(t) // 10)),
    "map (a tenth)": lambda t: t["fee"].head(len(t) // 10).map(lambda fee: fee * 2),
    "to_parquet": lambda t: t[["fee", "size"]].to_parquet(io.BytesIO()),
    "arrow": lambda t: pa.array(t["fee"]),
}


def frame(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(1)
    units = [pa.array(random.integers(0, 2**62, rows)) for _ in range(2)]
    # Units as amounts of 18 decimals
    decimals = [one.cast(pa.decimal128(38, 0)) for one in units]
    fee, size = (
        pa.Array.from_buffers(pa.decimal128(38, 18), rows, one.buffers())
        for one in decimals
    )
    return pd.DataFrame(
        {
            "market": pd.Categorical.from_codes(
                random.integers(0, 100, rows), range(100)
            ),
            "fee": AmountArray(fee),
            "size": AmountArray(size),
            "rate": random.random(rows),
            "count": random.integers(-5, 5, rows),
        }
    )


def milliseconds(
    operation: Callable[[pd.DataFrame], Any], table: pd.DataFrame, rounds: int
) -> float:
    """Return the least processor time of some runs; nan where the operation raises."""
    best = np.inf
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time()
        try:
            operation(table)
        except (ArithmeticError, TypeError, ValueError, NotImplementedError):
            return np.nan
        best = min(best, time.process_time() - begin)
    return best * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    amounts = frame(chosen.rows)
    columns = ["fee", "size"]
    tables = {
        "amount": amounts,
        "decimal256": amounts.astype(dict.fromkeys(columns, WIDE)),
        "float64": amounts.astype(dict.fromkeys(columns, "float64")),
    }
    rows = []
    for name, operation in OPERATIONS.items():
        taken = {
            kind: milliseconds(operation, table, chosen.rounds)
            for kind, table in tables.items()
        }
        rows.append(
            {"operation": name}
            | taken
            | {"amount / decimal256": taken["amount"] / taken["decimal256"]}
        )
    table = pd.DataFrame(rows).round(2)
    print(table.to_string(index=False))
    slower = table[table["amount / decimal256"] > 2]
    print(
        f"\n{len(slower)} of {len(table)} take more than twice as long: {', '.join(slower['operation'])}"
    )


if __name__ == "__main__":
    main()
