"""Pools' balances over time, as `rollup.Blocks.balances` gives them, as a table that queries read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined, with_scale
from loopring_lab.engine import frames
from loopring_lab.errors import LabError

TIMES_AND_PLACES = ("created_at", "block_id", "index_in_block", "kind", "token")
AMOUNTS = ("change", "published", "recomputed")
COLUMNS = (*TIMES_AND_PLACES, *AMOUNTS, *(f"{name}_units" for name in AMOUNTS))
# Queries count amounts in 1e-18 of a token. DuckDB casts these to its HUGEINT without touching them.
WHOLE = pa.decimal128(38, 0)


def ledger_of(balances: Any, caller: str) -> pa.Table:
    """Return balances with ``ms``, amounts as whole numbers of 1e-18 units, and the ``unit`` of each token's smallest.

    Of several pools, `balances` have the column ``account_id``; of one, the account may be their attribute.
    """
    names = frames.column_names(balances, caller)
    if "change" in names and "change_units" not in names:
        raise LabError(
            f"{caller}: balances= has no amounts in units. Make it with blocks.balances(pool, tokens)."
        )
    frames.check_columns(COLUMNS, names, f"{caller}: balances=")
    account = getattr(balances, "attrs", {}).get("account_id")
    if "account_id" in names:
        table = frames.to_table(balances, caller, [*COLUMNS, "account_id"])
    elif account is None:
        raise LabError(
            f"{caller}: balances= does not say whose they are. Add a column account_id, such as with "
            "blocks.balances(pool, tokens).assign(account_id=pool)."
        )
    else:
        table = frames.to_table(balances, caller, COLUMNS)
        accounts = pa.array(np.full(len(table), account, np.int64))
        table = table.append_column("account_id", accounts)
    columns = {
        "account_id": table["account_id"].cast(pa.int64()),
        "ms": table["created_at"].cast(frames.TIMESTAMP).cast(pa.int64()),
        "block_id": table["block_id"].cast(pa.int64()),
        "index_in_block": table["index_in_block"].cast(pa.int64()),
        "kind": table["kind"].cast(pa.string()),
        "token": table["token"].cast(pa.string()),
        "unit": pa.array(_smallest_units(table)),
    }
    for name in AMOUNTS:
        units = frames.exact(table[f"{name}_units"], f"{name}_units", caller)
        columns[name] = with_scale(combined(units), WHOLE)
    return pa.table(columns)


def _smallest_units(table: pa.Table) -> np.ndarray:
    """Return for each row the smallest unit of its token in 1e-18 of the token; 1 where no amount shows it."""
    smallest = pc.coalesce(table["change"], table["published"])
    units = pc.coalesce(table["change_units"], table["published_units"])
    tokens = table["token"].cast(pa.string()).to_pandas()
    with np.errstate(divide="ignore", invalid="ignore"):
        # A power of ten, so the exponent of a quotient of floats tells it.
        exponents = np.log10(1e18 * _floats(units) / _floats(smallest)).round()
    # Changes of nothing show no unit.
    shown = pd.Series(exponents).where(np.isfinite(exponents))
    of_token = shown.groupby(tokens).max()
    return np.asarray(10 ** tokens.map(of_token).fillna(0).to_numpy(np.int64))


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))
