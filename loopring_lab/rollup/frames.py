"""Columns of blocks as columns of pandas: hex text, units of tokens, unpacked keys, joined NFT data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, as_series, fit, scale
from loopring_lab.errors import AmountError, ProtocolError
from loopring_lab.tables.listings import TEXT, check_frame

TOKEN_OF = {
    **dict.fromkeys(("amount", "balance", "change", "published", "recomputed"), "token_id"),
    **dict.fromkeys(("amount_in", "balance_in", "kept"), "token_in_id"),
    **dict.fromkeys(("amount_out", "balance_out"), "token_out_id"),
    "fee": "fee_token_id",
    "fill_a": "sell_a", "fill_b": "sell_b", "fee_a": "fee_token_a", "fee_b": "fee_token_b",
}  # fmt: skip
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)


def with_units(frame: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """Add symbols after token ids and units after amounts."""
    check_frame("tokens", tokens, {"token_id", "decimals"})
    listed = pd.Index(tokens["token_id"])
    decimals = np.append(tokens["decimals"].fillna(-1).to_numpy(np.int64), -1)
    symbols = pd.CategoricalDtype(pd.Index(tokens.index, dtype=TEXT))
    found: dict[str, Any] = {}
    for name, column in frame.items():
        found[str(name)] = column
        if name in TOKEN_OF.values():
            codes = listed.get_indexer(column.to_numpy(np.int64))
            label = str(name).removesuffix("_id") if str(name).endswith("_id") else f"{name}_symbol"
            found[label] = pd.Categorical.from_codes(codes, dtype=symbols)
        elif name in TOKEN_OF and TOKEN_OF[str(name)] in frame:
            codes = listed.get_indexer(frame[TOKEN_OF[str(name)]].to_numpy(np.int64))
            found[f"{name}_units"] = _units(column, decimals[codes], str(name))
    return pd.DataFrame(found, copy=False)


def _units(column: pd.Series, decimals: np.ndarray, name: str) -> pd.Series:
    """Convert smallest units; null where the token is not listed, or where its decimals do not fit."""
    numbers, to = pa.array(column.array).cast(WHOLE), AMOUNT.pyarrow_dtype
    numbers = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    try:
        return as_series(scale(numbers, decimals, to, name))
    except AmountError:
        held = pa.array(fit(numbers, decimals, to))
    return as_series(scale(pc.if_else(held, numbers, None), decimals, to, name))


def with_nft_data(mints: pd.DataFrame, data: pd.DataFrame) -> pd.DataFrame:
    """Fill in what the two slots after a mint say, if they are of the same receiver and token."""
    keys = ["block", "index_in_block", "receiver_id", "to_token_id"]
    data = data.rename(columns={"account_id": "receiver_id", "token_id": "to_token_id"})
    for scheme, address in enumerate(("minter", "token_address")):
        part = data[data["scheme"] == scheme].drop(columns="scheme")
        part = part.assign(index_in_block=part["index_in_block"] - 1 - scheme)
        joined = mints[keys].merge(part, on=keys, how="left", validate="m:1")
        is_other = (mints["kind"] != 0).to_numpy(bool)
        mints[address] = joined["address"].where(is_other)
        for name in ("nft_type", "nft_id", "creator_bips"):
            mints[name] = mints[name].where(~is_other | mints[name].notna(), joined[name])
    return mints


def series(column: pa.Array | pa.ChunkedArray) -> pd.Series:
    """Make a series of a column; binary becomes text in hex."""
    if pa.types.is_fixed_size_binary(column.type):
        column = _hex(column)
    if pa.types.is_string(column.type):
        return pd.Series(TEXT.__from_arrow__(column))  # type: ignore[attr-defined]
    return as_series(column)


def _hex(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    content = as_bytes(column)
    digits = np.empty((len(content), 2 + 2 * content.shape[1]), np.uint8)
    digits[:, :2] = np.frombuffer(b"0x", np.uint8)
    digits[:, 2:] = _HEX[content].reshape(len(content), 2 * content.shape[1])
    offsets = np.arange(len(content) + 1, dtype=np.int32) * np.int32(digits.shape[1])
    text = pa.StringArray.from_buffers(len(content), pa.py_buffer(offsets), pa.py_buffer(digits))
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def as_bytes(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    width = array.type.byte_width
    content = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return content[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def as_binary(content: np.ndarray) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(content))
    return pa.Array.from_buffers(pa.binary(content.shape[1]), len(content), [None, buffer])


@lru_cache(100_000)
def unpacked(packed: bytes) -> tuple[str, str] | None:
    from loopring_lab.protocol import unpack_public_key

    try:
        x, y = unpack_public_key(packed)
    except ProtocolError:
        return None
    return f"0x{x:064x}", f"0x{y:064x}"
