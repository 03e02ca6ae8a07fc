"""Columns of blocks as frames of pandas: names, places, times, text in hex, units of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import WHOLE, combined, scale_what_fits
from loopring_lab.amounts.series import as_series
from loopring_lab.rollup.calldata import to_hex
from loopring_lab.tables.listings import TEXT, check_frame, to_utc

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

# Names of the protocol that frames replace, so that ids end in _id as those of the relayer do.
_IDS = (
    "account",
    "token",
    "fee_token",
    "storage",
    "sender",
    "receiver",
    "to_token",
    "minter",
    "token_account",
)
NAMES = {name: f"{name}_id" for name in _IDS}
NAMES["to"] = "to_address"
NAMES["from_"] = "from_address"
# Each column of amounts, with the column that has their token.
TOKEN_OF = {
    "amount": "token_id",
    "balance": "token_id",
    "change": "token_id",
    "published": "token_id",
    "recomputed": "token_id",
    "amount_in": "token_in_id",
    "balance_in": "token_in_id",
    "kept": "token_in_id",
    "amount_out": "token_out_id",
    "balance_out": "token_out_id",
    "fee": "fee_token_id",
    "sent": "sent_token_id",
    "received": "received_token_id",
    "fill_a": "sell_a",
    "fill_b": "sell_b",
    "fee_a": "fee_token_a",
    "fee_b": "fee_token_b",
}


def places(blocks: Blocks, rows: Any) -> pd.DataFrame:
    """Return the columns that all frames of transactions begin with, for rows that name ``block`` and place."""
    block = np.asarray(rows["block"])
    within = np.asarray(rows["index_in_block"])
    block_id = blocks.headers_table["block_id"].take(pa.array(block))
    frame = pd.DataFrame(
        {
            "block": as_series(pa.array(block.astype(np.int32))),
            "block_id": as_series(block_id),
            "index_in_block": as_series(pa.array(within.astype(np.int32))),
        }
    )
    frame["created_at"] = created_at(blocks, block)
    return frame


def created_at(blocks: Blocks, block: np.ndarray) -> pd.Series:
    """Return the times of blocks, of which headers have the seconds."""
    seconds = blocks.headers_table["timestamp"].to_numpy()[block]
    return to_utc(as_series(pa.array(seconds * 1_000)))


def renamed(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame, under the names of frames."""
    columns = zip(table.column_names, table.columns, strict=True)
    return pd.DataFrame(
        {NAMES.get(name, name): series(column) for name, column in columns}
    )


def finished(
    frame: pd.DataFrame,
    blocks: Blocks,
    tokens: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return a frame with units, if tokens are given, and the source of the blocks."""
    if tokens is not None:
        frame = with_units(frame, tokens)
    frame.attrs |= blocks.attrs
    return frame


def with_units(frame: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """Add symbols after token ids and units after amounts."""
    check_frame("tokens", tokens, {"token_id", "decimals"})
    listed = pd.Index(tokens["token_id"])
    known = tokens["decimals"].fillna(-1).to_numpy(np.int64)
    # The code of an unlisted token is -1, which finds the last element.
    decimals = np.append(known, -1)
    # The symbols are in the listing's own order, as in frames of trades.
    symbols = pd.CategoricalDtype(pd.Index(tokens.index, dtype=TEXT))
    columns: dict[str, Any] = {}
    for label, column in frame.items():
        name = str(label)
        columns[name] = column
        # A column of token ids is followed by their symbols, one of amounts by its units.
        if name in TOKEN_OF.values():
            codes = listed.get_indexer(column.to_numpy(np.int64))
            symbol = f"{name}_symbol"
            if name.endswith("_id"):
                symbol = name.removesuffix("_id")
            columns[symbol] = pd.Categorical.from_codes(codes, dtype=symbols)
        elif name in TOKEN_OF and TOKEN_OF[name] in frame:
            codes = listed.get_indexer(frame[TOKEN_OF[name]].to_numpy(np.int64))
            numbers = pa.array(column.array)
            columns[f"{name}_units"] = units(numbers, decimals[codes], name)
    return pd.DataFrame(columns, copy=False)


def units(
    numbers: pa.Array | pa.ChunkedArray, decimals: np.ndarray, name: str
) -> pd.Series:
    """Convert smallest units; null where the token is not listed, or where its decimals do not fit."""
    whole = combined(numbers.cast(WHOLE))
    found, _ = scale_what_fits(whole, decimals, AMOUNT_TYPE, name)
    return as_series(found)


def series(column: pa.Array | pa.ChunkedArray) -> pd.Series:
    """Make a series of a column; binary becomes text in hex."""
    if pa.types.is_fixed_size_binary(column.type):
        texts = [None if one is None else to_hex(one) for one in column.to_pylist()]
        column = pa.array(texts, pa.string())
    if pa.types.is_string(column.type):
        return pd.Series(TEXT.__from_arrow__(column))  # type: ignore[attr-defined]
    return as_series(column)
