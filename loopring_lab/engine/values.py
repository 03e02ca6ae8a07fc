"""The values that questions take in the columns that they know; whatever else is in one is refused.

A cast makes something of nearly everything, such as another id of a fraction and no hash of bytes, without a word.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from loopring_lab.engine.frames import TYPES, exact
from loopring_lab.engine.hashes import known_hashes
from loopring_lab.errors import LabError


def checked(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    """Return a column of a frame in memory as queries take it; a LabError where it holds something else."""
    wanted = TYPES.get(name)
    if wanted == "HUGEINT":
        return exact(column, name, caller)
    if wanted == "VARCHAR":
        return _texts(column, name, caller)
    return column


def _texts(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    if column.null_count == len(column):
        # Nothing is known, whatever its type: pandas reads an empty column of a CSV file as floats.
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    is_dictionary = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if is_dictionary else column.type
    if pa.types.is_string_view(kind):
        column = column.cast(pa.large_string())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise not_text(name, kind, caller)
    return known_hashes(column) if name == "order_hash" else column


def is_text(kind: str) -> bool:
    """Tell whether a column of DuckDB of a type holds texts, or nothing at all."""
    return kind in ("VARCHAR", '"NULL"') or kind.startswith("ENUM")


def not_text(name: str, kind: Any, caller: str) -> LabError:
    """Build the error for a column of texts that holds something else."""
    return LabError(
        f"{caller}: {name} is {kind}, not text. Convert it to text, such as bytes with .str.decode('ascii') in pandas, "
        "or leave the column out if nothing in it is known."
    )
