"""The columns of trades, and what every column of every public frame means, from columns.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

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
TOKEN_COLUMNS = {
    "base token": "base",
    "quote token": "quote",
    "quote per base token": "quote",
    "fee token": "fee_token",
    "value token": "value_token",
    "token": "token",
}
"""The column that names the token of an amount, by the words of its unit."""
SQL = {
    "time": "TIMESTAMPTZ",
    "id": "BIGINT",
    "text": "VARCHAR",
    "amount": "HUGEINT",
    "price": "HUGEINT",
    "rate": "DOUBLE",
}
"""The SQL type of each kind of column that trades have; amounts are whole numbers of 1e-18."""
ARROW = {
    "time": pa.timestamp("ms", "UTC"),
    "id": pa.int64(),
    "text": pa.string(),
    "amount": pa.decimal128(38, 18),
    "price": pa.decimal128(38, 18),
    "rate": pa.float64(),
}
"""The Arrow type of each of these kinds."""


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
    def is_estimate(self) -> bool:
        """Whether an amount is a value at prices of others, of which few digits are known."""
        return self.exact.startswith("a value")

    @property
    def help(self) -> str:
        """The text that a heading shows when it is pointed at."""
        parts = [self.meaning]
        if self.unit:
            parts.append(f"Unit: {self.unit}.")
        if self.exact != "exact":
            parts.append(f"Not exact: {self.exact}.")
        return " ".join(parts)


class TradeColumn(NamedTuple):
    """A column of trades as columns.toml declares it, with which frames, files and archives of trades are made."""

    name: str
    kind: str
    words: tuple[str, ...]  # the only values that it has, if there are such
    names: str  # "tokens" or "markets", whose names are its values, or nothing
    is_computed: bool  # follows from other columns
    is_reference: bool  # finds the row elsewhere

    @property
    def sql(self) -> str:
        """Its type in queries and in an archive."""
        return SQL[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """Its type in Arrow's tables."""
        return ARROW[self.kind]


_DECLARED = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TRADES = {
    name: TradeColumn(
        name,
        entry["kind"],
        tuple(entry.get("words", ())),
        entry.get("names", ""),
        entry.get("computed", False),
        entry.get("reference", False),
    )
    for name, entry in _DECLARED["trades"].items()
}
"""The columns of trades by name, in the order in which every frame has them."""


@cache
def frames() -> dict[str, dict[str, Column]]:
    """Return the columns of every public frame, by the name of the function that returns it first."""
    listed = _DECLARED["frames"]
    of_trades = _DECLARED["trades"]
    everywhere = _DECLARED["columns"]

    def columns(frame: dict[str, Any]) -> Iterator[Column]:
        # A frame may begin with all columns of trades, or of another one.
        own = frame.get("own", {})
        if frame.get("trades"):
            for name in of_trades:
                yield _column(name, [own, of_trades], frame["source"])
        if "with" in frame:
            yield from columns(listed[frame["with"]])
        # A meaning of its own goes before the one that the name has everywhere.
        places = [own, of_trades | everywhere]
        for name in frame.get("columns", "").split():
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
    return any(column.kind == "id" for column in _described(name))


def is_price(name: str) -> bool:
    """Tell whether amounts under a name are prices."""
    return any(column.kind == "price" for column in _described(name))


def token_column(name: str) -> str:
    """Return the column that names the token of amounts under a name; nothing where no unit says it."""
    for column in _described(name):
        if column.unit in TOKEN_COLUMNS:
            return TOKEN_COLUMNS[column.unit]
    return ""


@cache
def _described(name: str) -> list[Column]:
    """Return what a name means in each of the frames that have it."""
    return [columns[name] for columns in frames().values() if name in columns]


def reference() -> pd.DataFrame:
    """List every column of every public frame; ``frame`` names the functions that return it.

    ``(by)`` marks what a function returns if it is called with `by`.
    """
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
