"""Every function of the table in docs/data-sources.md takes every kind of frame, and gives one of its kind."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from support.engines import QUICK, on
from support.questions import NOT_BY_MARKET

import loopring_lab as lab

TABLE = Path(__file__).parents[1] / "docs" / "data-sources.md"
POOL = 15
MORE: dict[str, tuple[Any, ...]] = {
    "fees.in_token": ("USDT",), "fees.over_time": ("1d",), "fees.schedule_check": (30,),
    "fees.schedule_lines": (30,), "fills.pool_returns": (POOL,),
}  # fmt: skip
NOT_OF_TRADES = {"figures.Figure", "figures.pool_balance"}


def rows() -> dict[str, list[str]]:
    """Return the cells beside each function of the table."""
    lines = [line.split("|")[1:-1] for line in TABLE.read_text().splitlines() if line.startswith("| `f")]
    return {
        name: [cell.strip() for cell in cells] for first, *cells in lines for name in re.findall(r"`([\w.]+)`", first)
    }


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    """A pool's fills, and an account's on the order book, near enough in time to be compared."""
    client = lab.connect()
    pool = client.trades(POOL, limit=300)
    others = [client.trades(account, since=pool["created_at"].min()) for account in (11519, 58344)]
    return pd.concat([pool, *others], ignore_index=True)


def test_every_public_function_is_in_the_table_once() -> None:
    public = {f"{room}.{name}" for room in ("fees", "fills", "figures") for name in getattr(lab, room).__all__}
    assert set(rows()) == public - NOT_OF_TRADES


@pytest.mark.thorough
@pytest.mark.parametrize("name", rows())
def test_functions_take_every_kind_of_frame(name: str, trades: pd.DataFrame) -> None:
    room, function = name.split(".")
    run = getattr(getattr(lab, room), function)
    frame = lab.fills.compare_venues(trades) if name == "fills.describe" else trades
    assert rows()[name][0] == "yes"
    # A comparison to be described is no trades, so it never lies in an archive.
    engines = [engine for engine in QUICK if engine != "archive" or name != "fills.describe"]
    for engine in engines:
        given = on(engine, frame)
        found = run(given, *MORE.get(name, ()))
        kind = pd.DataFrame if engine == "archive" else type(given)
        assert isinstance(found, (Figure, str, kind))


def test_the_table_says_what_spark_cannot_do() -> None:
    """On Spark itself tests/test_any_engine.py asks all of them."""
    refused = {name for name, cells in rows().items() if cells[1].startswith(("no", "with"))}
    assert refused == NOT_BY_MARKET | {"figures.fees_by_token"}
