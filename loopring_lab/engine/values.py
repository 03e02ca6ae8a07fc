"""The values that questions take in the columns that they know; whatever else is in one is refused.

A cast makes something of nearly everything, such as another id of a fraction and no hash of bytes, without a word.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.columns import TRADES
from loopring_lab.engine.frames import TYPES, exact
from loopring_lab.engine.groups import WHOLE_NUMBER, literal
from loopring_lab.engine.hashes import known_hashes
from loopring_lab.errors import LabError

# The type of a column of which nothing is known, by that which queries take.
UNKNOWN = {"VARCHAR": pa.string(), "BIGINT": pa.int64()}
# Types of texts that become Arrow's usual one.
AS_TEXT = (pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
# Not every whole number from here on is a float.
FLOATS_END = 2.0**53


def checked(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    """Return a column of a frame in memory as queries take it; a LabError where it holds something else."""
    wanted = TYPES.get(name)
    if wanted == "HUGEINT":
        return exact(column, name, caller)
    if wanted in UNKNOWN and column.null_count == len(column):
        # Nothing is known, whatever its type: pandas reads an empty column of a CSV file as floats.
        return pa.chunked_array([pa.nulls(len(column), UNKNOWN[wanted])])
    if wanted == "VARCHAR":
        return _texts(column, name, caller)
    if wanted == "BIGINT":
        return _whole_numbers(column, name, caller)
    if wanted == "DOUBLE" and pa.types.is_decimal(column.type):
        # A query has decimals of 18 places as whole numbers of 1e-18, which a rate is not.
        return column.cast(pa.float64())
    if wanted is None:
        _refuse_finer(column, name, caller)
    return column


def _refuse_finer(column: pa.ChunkedArray, name: str, caller: str) -> None:
    """Refuse times and lengths of time that answers, which have milliseconds, would make alike."""
    kind = column.type
    if pa.types.is_duration(kind):
        least = pa.duration("ms")
    elif pa.types.is_timestamp(kind) and kind.tz:
        least = pa.timestamp("ms", kind.tz)
    else:
        return
    try:
        column.cast(least)
    except pa.ArrowInvalid:
        raise LabError(
            f"{caller}: {name} is finer than a millisecond. Round it down with .dt.floor('ms')."
        ) from None


def _texts(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    is_dictionary = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if is_dictionary else column.type
    if kind in AS_TEXT:
        # Bytes are what a Parquet file without a type of text has.
        try:
            column = column.cast(kind).cast(pa.large_string())
        except pa.ArrowInvalid:
            raise not_text(name, kind, caller) from None
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise not_text(name, kind, caller)
    if name == "order_hash":
        return known_hashes(column)
    return column


def _whole_numbers(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    try:
        # pandas makes floats of whole numbers of which some are unknown.
        if kind == pa.float64():
            if pc.all(pc.less(pc.abs(column), FLOATS_END)).as_py():
                return column.cast(pa.int64())
        elif pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return column.cast(pa.int64())
    except pa.ArrowInvalid:
        pass  # not all are whole numbers of 64 bits
    raise not_whole(name, kind, caller)


def is_whole(kind: str) -> bool:
    """Tell whether a column of DuckDB of a type holds whole numbers, or nothing at all."""
    if kind.startswith("DECIMAL"):
        return kind.endswith(",0)")
    return kind == '"NULL"' or kind.endswith(("INT", "INTEGER", WHOLE_NUMBER))


def not_whole(name: str, kind: Any, caller: str) -> LabError:
    """Build the error for a column of numbers of something that does not hold these."""
    return LabError(
        f"{caller}: {name} is {kind}, and not all of it is whole numbers of 64 bits that are exact. Convert it to "
        "integers, such as with .astype('Int64') in pandas, from where these were read as texts or integers."
    )


def is_text(kind: str) -> bool:
    """Tell whether a column of DuckDB of a type holds texts, or nothing at all."""
    return kind in ("VARCHAR", '"NULL"') or kind.startswith("ENUM")


def only_words(source: str, name: str, caller: str) -> str:
    """Return a column of texts as SQL; a word that its column does not have is an error, null is none."""
    words = TRADES[name].words if name in TRADES else ()
    if not words:
        return source
    problem = (
        f"{caller}: {name} has words that questions would count as nothing. Write it as {' or '.join(words)}, or null "
        'where it is unknown, not as "'
    )
    wrong = f"error(concat({literal(problem)}, {source}, '\".'))"
    return f"CASE WHEN {source} NOT IN {words} THEN {wrong} ELSE {source} END"


def not_text(name: str, kind: Any, caller: str) -> LabError:
    """Build the error for a column of texts that holds something else."""
    return LabError(
        f"{caller}: {name} is {kind}, not text. Convert it to text, or fill the column with nulls if nothing in it is "
        "known."
    )


def no_moment(name: str, kind: Any, caller: str) -> LabError:
    """Build the error for a column of times that have no time zone, or of something else."""
    return LabError(
        f"{caller}: {name} is {kind}, not a time with a time zone. Convert it, such as with "
        "pandas.to_datetime(..., utc=True)."
    )
