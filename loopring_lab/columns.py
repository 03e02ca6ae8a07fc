"""What every column of every public frame means, from columns.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

TYPES = {
    **dict.fromkeys(("amount", "price", "limit"), "decimal"),
    **dict.fromkeys(("count", "id", "integer"), "integer"),
    **dict.fromkeys(("rate", "share", "float"), "float"),
    "flag": "yes or no",
}
"""The type of values of each kind of column; other kinds are their own type."""
UNITS = {
    "rate": "basis points",
    "share": "0 to 1",
    "time": "UTC",
}
FLOAT = "nearest float64"


class Column(NamedTuple):
    """What a column holds; `kind` is one of those that columns.toml lists."""

    name: str
    kind: str
    meaning: str
    unit: str
    source: str
    exact: str

    @property
    def adds(self) -> bool:
        """Whether a total of its values means something."""
        return self.kind in ("amount", "count")

    @property
    def help(self) -> str:
        """The text that a heading shows when it is pointed at."""
        parts = [self.meaning]
        if self.unit:
            parts.append(f"Unit: {self.unit}.")
        if self.exact != "exact":
            parts.append(f"Not exact: {self.exact}.")
        return " ".join(parts)


@cache
def frames() -> dict[str, dict[str, Column]]:
    """Return the columns of every public frame, by the name of the function that returns it first."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    listed = found["frames"]

    def columns(frame: dict[str, Any]) -> Iterator[Column]:
        # A frame may begin with all columns of another one.
        if "with" in frame:
            yield from columns(listed[frame["with"]])
        # A meaning of its own goes before the one that the name has everywhere.
        places = [frame.get("own", {}), found["columns"]]
        for name in frame["columns"].split():
            yield _column(name, places, frame["source"])

    described = {}
    for first, frame in listed.items():
        functions = ", ".join([first, *frame.get("also", [])])
        described[functions] = {column.name: column for column in columns(frame)}
    return described


def describe(names: Iterable[Any]) -> dict[str, Column]:
    """Describe the columns of a frame: as in the public frame with most of them, others as elsewhere.

    A frame of which no public frame has half the columns is somebody's own, and stays without help.
    """
    wanted = [name for name in names if isinstance(name, str)]

    def found(columns: dict[str, Column]) -> int:
        return len([name for name in wanted if name in columns])

    best = max(frames().values(), key=found)
    if 2 * found(best) < len(wanted):
        return {}
    everywhere: dict[str, Column] = {}
    # The first frame that has a column describes it best.
    for columns in reversed(frames().values()):
        everywhere |= columns
    everywhere |= best
    return {name: everywhere[name] for name in wanted if name in everywhere}


def is_id(name: str) -> bool:
    """Tell whether whole numbers under a name are numbers of something, not counts."""
    if name.endswith("_id") or name == "year":
        return True
    return any(
        name in columns and columns[name].kind == "id" for columns in frames().values()
    )


def reference() -> pd.DataFrame:
    """List every column of every public frame; ``frame`` names the functions that return it.

    ``(by)`` marks what a function returns if it is called with `by`.
    """
    # Here, so that `import loopring_lab` stays fast.
    import pandas as pd

    rows = []
    for frame, columns in frames().items():
        for one in columns.values():
            row = {
                "frame": frame,
                "column": one.name,
                "type": TYPES.get(one.kind, one.kind),
                "unit": one.unit,
                "source": one.source,
                "exact": one.exact,
                "meaning": one.meaning,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _column(
    name: str,
    places: list[dict[str, Any]],
    source: str,
) -> Column:
    """Find a column's description, under its name or a pattern, in the first place that has it."""
    for place in places:
        patterns = [key for key in place if "*" in key or "?" in key]
        for pattern in [name, *patterns]:
            expression = pattern.replace("*", "(.+)").replace("?", "(.)")
            match = re.fullmatch(expression, name)
            if match and pattern in place:
                entry = place[pattern]
                kind = entry["kind"]
                # A pattern's meaning names what its stars stand for.
                meaning = entry["meaning"].format(*match.groups() or ("",))
                usual = FLOAT if TYPES.get(kind) == "float" else "exact"
                return Column(
                    name,
                    kind,
                    meaning,
                    unit=entry.get("unit", UNITS.get(kind, "")),
                    source=entry.get("source", source),
                    exact=entry.get("exact", usual),
                )
    raise KeyError(name)
