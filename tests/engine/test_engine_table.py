"""Every function of the table in docs/data-sources.md takes every kind of frame, and gives one of its kind."""

import re
from pathlib import Path

from support.questions import NOT_BY_MARKET

import loopring_lab as lab

TABLE = Path(__file__).parents[2] / "docs" / "data-sources.md"
NOT_OF_TRADES = {"figures.Figure", "figures.pool_balance", "research.figures"}


def rows() -> dict[str, list[str]]:
    """Return the cells beside each function of the table."""
    lines = [
        line.split("|")[1:-1]
        for line in TABLE.read_text().splitlines()
        if line.startswith("| `f")
    ]
    return {
        name: [cell.strip() for cell in cells]
        for first, *cells in lines
        for name in re.findall(r"`([\w.]+)`", first)
    }


def test_every_public_function_is_in_the_table_once():
    rooms = {
        "fees": lab.fees,
        "fills": lab.fills,
        "figures": lab.figures,
        "research": lab.research,
        "research.figures": lab.research.figures,
    }
    public = {
        f"{room}.{name}" for room, module in rooms.items() for name in module.__all__
    }
    assert set(rows()) == public - NOT_OF_TRADES


def test_the_table_says_what_spark_cannot_do():
    """On Spark itself tests/engine/test_any_engine.py asks all of them."""
    refused = {
        name for name, cells in rows().items() if cells[1].startswith(("no", "with"))
    }
    assert refused == NOT_BY_MARKET | {"figures.fees_by_token"}
