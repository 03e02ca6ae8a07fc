"""Order hashes, and what is none: relayers and exports have many words for that, of which zeros are one.

Wallets and relayers write one hash in either case, or in both: here it has small letters, so that it is one order's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

HASH = "0x[0-9a-fA-F]{64}"
NO_HASH = "0x" + "0" * 64
HEX_DIGITS = "0123456789abcdef"
# Hashes of an archive are looked at in slices of 17 MB.
SLICE = 1 << 18


def hash_sql(column: str) -> str:
    """Return an order hash as SQL, null for what is none."""
    text = f"{column}::VARCHAR"
    return f"CASE WHEN regexp_full_match({text}, '{HASH}') AND {text} <> '{NO_HASH}' THEN lower({text}) END"


def known_hashes(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return texts that are order hashes, null for what is none, as `hash_sql` does in several times the time."""
    is_dictionary = pa.types.is_dictionary(values.type)
    # Each row of categories has a text of its own then, which together may take more than the 2 GB of Arrow's usual
    # texts.
    texts = values.cast(pa.large_string()) if is_dictionary else values
    is_hash = _are_hashes(texts, HEX_DIGITS + HEX_DIGITS.upper())
    return pc.ascii_lower(pc.if_else(is_hash, texts, None))


def _are_hashes(texts: pa.Array | pa.ChunkedArray, digits: str) -> Any:
    """Tell which texts are hashes of these digits."""
    has_length = pc.equal(pc.binary_length(texts), len(NO_HASH))
    # Without the digits at its end, only this is left of a hash.
    is_hash = pc.and_(has_length, pc.equal(pc.ascii_rtrim(texts, digits), "0x"))
    return pc.and_(is_hash, pc.not_equal(texts, NO_HASH))


def are_known(batches: Iterable[pa.RecordBatch]) -> bool:
    """Say whether each text in the first column is a hash in small letters: queries then take it as it is."""
    # A column of which nothing is known has no type.
    columns = (batch.column(0).cast(pa.string()) for batch in batches)
    # Of a slice of nulls all are known.
    return all(
        pc.all(_are_hashes(column, HEX_DIGITS), min_count=0).as_py()
        for column in columns
    )
