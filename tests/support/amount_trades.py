"""A frame of trades with amounts, the same with floats, and what operations on both give, as numbers."""

import contextlib
import copy
import importlib
import io
import json
import math
import pickle
import re
import sqlite3
import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import loopring_lab.amounts  # noqa: F401 - pandas knows "amount" from here on

AMOUNTS = ["size", "price", "notional", "fee"]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# By the name that operations use.
PACKAGES = {
    "duckdb": "duckdb",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "plt": "matplotlib.pyplot",
    "seaborn": "seaborn",
    "plotly": "plotly",
    "statsmodels": "statsmodels.api",
    "formulas": "statsmodels.formula.api",
    "scipy": "scipy",
}


def trades(exact: bool = True, rows: int = 120) -> pd.DataFrame:
    """Make trades like a relayer's: prices of 8 decimals, fees that are zero for makers, one unknown notional."""
    random = np.random.default_rng(1)
    markets = np.array(["LRC-ETH", "WBTC-ETH", "ETH-USDC"])
    market = markets[random.integers(0, 3, rows)]
    size = [Decimal(int(one)) / 1000 for one in random.lognormal(9, 2, rows)]
    price = [Decimal(int(one)) / 10**8 for one in random.lognormal(14, 3, rows)]
    exactly = Decimal("1e-18")
    notional = [
        (one * other).quantize(exactly) for one, other in zip(size, price, strict=True)
    ]
    maker = random.random(rows) < 0.3
    fee = [
        Decimal(0) if free else (one / 1000).quantize(exactly)
        for one, free in zip(notional, maker, strict=True)
    ]
    side = np.where(random.random(rows) < 0.5, "BUY", "SELL")
    frame = pd.DataFrame(
        {
            "created_at": pd.date_range(
                "2022-01-01", periods=rows, freq="97min", tz="UTC", unit="ms"
            ),
            "trade_id": pd.array(range(rows), dtype=pd.ArrowDtype(pa.int64())),
            "account_id": pd.array([10083] * rows, dtype=pd.ArrowDtype(pa.int64())),
            "market": pd.Categorical(market),
            "side": pd.Categorical(side),
            "size": size,
            "price": price,
            "notional": notional,
            "fee_token": pd.Categorical(market),
            "fee": fee,
            "fee_bps": np.where(maker, 0.0, 10.0),
            "order_hash": [f"0x{one:064x}" for one in range(rows)],
        }
    )
    frame = frame.astype(dict.fromkeys(AMOUNTS, "amount"))
    frame.loc[7, ["notional", "fee"]] = None
    if not exact:
        frame = frame.astype(dict.fromkeys(AMOUNTS, "float64"))
    return frame


def names(exact: bool, folder: Path) -> dict[str, Any]:
    """Return what operations may name."""
    frame = trades(exact)
    return {
        "t": frame,
        "fee": frame["fee"],
        "notional": frame["notional"],
        "g": frame.groupby("market", observed=True),
        "limit": 0.001,
        "exact": exact,
        "change": change,
        "back": lambda one, kind: back(one, kind, folder / f"trades.{kind}"),
        "sql": sql,
        "excel": lambda one: excel(one, folder / "trades.xlsx"),
        "hash_of": lambda one: pd.util.hash_pandas_object(one).shape,
        **{one.__name__: one for one in (regress, scale, cluster, forest, split)},
        **{one.__name__: one for one in (copy, io, json, math, pickle, statistics)},
        "np": np,
        "pd": pd,
    }


def packages(operation: str) -> dict[str, Any]:
    """Import the packages that an operation names, as loading all of them takes long."""
    found = {
        name: importlib.import_module(module)
        for name, module in PACKAGES.items()
        if f"{name}." in operation
    }
    for module in ("plotly.express", "plotly.graph_objects", "scipy.stats"):
        if module.partition(".")[0] in found:
            importlib.import_module(module)
    return found


def change(frame: pd.DataFrame, how) -> pd.DataFrame:
    changed = frame.copy()
    how(changed)
    return changed


def back(frame: pd.DataFrame, kind: str, path: Path) -> pd.DataFrame:
    """Write a frame to a file and read it again."""
    getattr(frame, f"to_{kind}")(path)
    return getattr(pd, f"read_{kind}")(path)


def sql(frame: pd.DataFrame):
    plain = frame.astype({"created_at": str, "trade_id": int, "account_id": int})
    # Left open by an error, a connection warns when garbage is searched for, in another test.
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        plain.to_sql("trades", connection, index=False)
        return pd.read_sql(
            "select sum(fee) as fees, max(notional) as most, typeof(fee) as kind from trades",
            connection,
        )


def excel(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    # Excel has no time zones.
    frame.drop(columns="created_at").to_excel(path, index=False)
    return pd.read_excel(path)


def regress(features, target):
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(features, target).coef_


def scale(features):
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit_transform(features)


def cluster(features):
    from sklearn.cluster import KMeans

    return KMeans(2, n_init=1, random_state=1).fit(features).labels_


def forest(features, target):
    from sklearn.ensemble import RandomForestClassifier

    return (
        RandomForestClassifier(5, random_state=1)
        .fit(features, target)
        .predict(features)
        .tolist()
    )


def split(frame):
    from sklearn.model_selection import train_test_split

    return train_test_split(frame, random_state=1)[0]


def as_numbers(found):  # noqa: C901 - one line for each kind of result
    """Return a result so that those of amounts and of floats can be compared."""
    if isinstance(found, pd.DataFrame):
        return [
            as_numbers(found.index),
            [as_numbers(column) for _, column in found.items()],
        ]
    if isinstance(found, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return [as_numbers(one) for one in found.astype(object)]
    if isinstance(found, np.ndarray):
        return [as_numbers(one) for one in found.astype(object).ravel()]
    if isinstance(found, (list, tuple)):
        return [as_numbers(one) for one in found]
    if isinstance(found, dict):
        return {str(name): as_numbers(value) for name, value in found.items()}
    if isinstance(found, (bool, np.bool_)):
        return bool(found)
    if isinstance(found, (int, float, Decimal, np.integer, np.floating)):
        return None if math.isnan(found) else float(found)
    if found is None or found is pd.NA or found is pd.NaT:
        return None
    if isinstance(found, str):
        return [float(one) for one in NUMBER.findall(found)]
    if isinstance(found, pd.Interval):
        return [float(found.left), float(found.right)]
    # Figures, models, times: that they came about is what counts.
    return None


def differences(ours, theirs) -> list[str]:
    """Name numbers that differ by more than a billionth."""
    if isinstance(ours, float) and isinstance(theirs, float):
        near = math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
        return [] if near else [f"{ours!r} for {theirs!r}"]
    if (
        isinstance(ours, dict)
        and isinstance(theirs, dict)
        and ours.keys() == theirs.keys()
    ):
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{len(ours)} values for {len(theirs)}"]
        pairs = zip(ours, theirs, strict=True)
        return [one for pair in pairs for one in differences(*pair)]
    return [] if ours == theirs else [f"{ours!r} for {theirs!r}"]
