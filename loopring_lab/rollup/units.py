"""Symbols and units beside the token ids and smallest units of a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, as_series, scale_what_fits
from loopring_lab.tables.listings import TEXT, check_frame

_TOKEN_OF = {
    **dict.fromkeys(("amount", "balance", "change", "published", "recomputed"), "token_id"),
    **dict.fromkeys(("amount_in", "balance_in", "kept"), "token_in_id"),
    **dict.fromkeys(("amount_out", "balance_out"), "token_out_id"),
    "fee": "fee_token_id",
    "fill_a": "sell_a", "fill_b": "sell_b", "fee_a": "fee_token_a", "fee_b": "fee_token_b",
}  # fmt: skip


def with_units(frame: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """Add symbols after token ids and units after amounts."""
    check_frame("tokens", tokens, {"token_id", "decimals"})
    listed = pd.Index(tokens["token_id"])
    decimals = np.append(tokens["decimals"].fillna(-1).to_numpy(np.int64), -1)
    symbols = pd.CategoricalDtype(pd.Index(tokens.index, dtype=TEXT))
    found: dict[str, Any] = {}
    for name, column in frame.items():
        found[str(name)] = column
        if name in _TOKEN_OF.values():
            codes = listed.get_indexer(column.to_numpy(np.int64))
            label = str(name).removesuffix("_id") if str(name).endswith("_id") else f"{name}_symbol"
            found[label] = pd.Categorical.from_codes(codes, dtype=symbols)
        elif name in _TOKEN_OF and _TOKEN_OF[str(name)] in frame:
            codes = listed.get_indexer(frame[_TOKEN_OF[str(name)]].to_numpy(np.int64))
            found[f"{name}_units"] = _units(column, decimals[codes], str(name))
    return pd.DataFrame(found, copy=False)


def _units(column: pd.Series, decimals: np.ndarray, name: str) -> pd.Series:
    """Convert smallest units; null where the token is not listed, or where its decimals do not fit."""
    numbers, to = pa.array(column.array).cast(WHOLE), AMOUNT.pyarrow_dtype
    numbers = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    return as_series(scale_what_fits(numbers, decimals, to, name)[0])
