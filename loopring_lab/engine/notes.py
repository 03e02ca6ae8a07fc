"""Notes under an answer, which `lab.show` prints, and the columns of answers that they are made of."""

from __future__ import annotations

from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa

Answer = TypeVar("Answer")

# A column of answers that never reaches the user: it says of how many fills, in all of the trades, both sides are
# counted.
BOTH_SIDES = "both sides of all trades"
# Another such column: the number of fills that count nowhere, as their taker or their venue is unknown.
LEFT_OUT = "fills left out"
# Another one: the number of fills whose value is not known in the token of their group, so that they weigh nothing.
UNWEIGHED = "fills without a weight"


def without_note(found: pa.Table) -> pa.Table:
    """Leave out the columns that only the notes under an answer are made of."""
    return found.select([name for name in found.column_names if name not in NOTES])


def finished(result: Answer, found: pa.Table) -> Answer:
    """Add the notes that an answer has columns for."""
    for name, note in NOTES.items():
        if name in found.column_names and len(found):
            result = with_note(result, note(found[name][0].as_py() or 0))
    return result


def with_note(result: Answer, note: str) -> Answer:
    """Add a note to a pandas frame; other kinds of frames carry none."""
    if note and isinstance(result, pd.DataFrame):
        notes = [*result.attrs.get("notes", []), note]
        result.attrs["notes"] = list(dict.fromkeys(notes))
    return result


def with_attrs(result: Answer, **asked: Any) -> Answer:
    """Keep what an answer was asked with, for `describe`; other kinds of frames carry none of it."""
    if isinstance(result, pd.DataFrame):
        result.attrs |= asked
    return result


def note_on_both_sides(count: int) -> str:
    """Say of how many fills both sides are counted; empty where of none."""
    if not count:
        return ""
    fills = "1 fill" if count == 1 else f"{count:,} fills"
    return f"Both sides of {fills} are counted; lab.fills.one_side(trades) counts each fill once."


def note_on_left_out(count: int) -> str:
    """Say how many fills count nowhere; empty where none."""
    if not count:
        return ""
    fills = "1 fill is" if count == 1 else f"{count:,} fills are"
    return f"{fills} left out: taker or type unknown."


def note_on_unweighed(count: int) -> str:
    """Say how many fills have no weight in means by value; empty where none."""
    if not count:
        return ""
    fills = "1 fill weighs" if count == 1 else f"{count:,} fills weigh"
    return (
        f"{fills} nothing in weighted means: no market leads from the quote token to the most used one. Group by quote "
        "or market."
    )


NOTES = {
    BOTH_SIDES: note_on_both_sides,
    LEFT_OUT: note_on_left_out,
    UNWEIGHED: note_on_unweighed,
}
