"""Every question on every kind of frame, and on rows in any order: one answer, of the kind that was given."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.drawn_trades import drawn, rearranged
from support.engines import (
    AMOUNT,
    ENGINES,
    assert_same,
    assert_same_rows,
    collected,
    on,
    result_rows,
    without_warnings,
)
from support.optional import thorough
from support.questions import NOT_BY_MARKET, QUESTIONS, ROOMS, Give

import loopring_lab as lab
from loopring_lab.engine import slices
from loopring_lab.errors import LabError

BEFORE_1970 = pd.Timedelta(days=60 * 365)


@functools.cache
def adversarial() -> pd.DataFrame:
    """Return drawn rows, many at one moment, some of them long before 1970, in files of their own order."""
    frame = drawn(3)
    early = frame.assign(
        created_at=frame["created_at"] - BEFORE_1970, trade_id=frame["trade_id"] + 1000
    )
    return pd.concat([frame, early], ignore_index=True)


@functools.cache
def on_pandas(question: str) -> Any:
    return QUESTIONS[question](adversarial())


def with_odd_categories(frame: pd.DataFrame) -> pa.Table:
    """Give texts of pyarrow two codes each, one that is not used, and one whose text is unknown."""
    table = on("pyarrow", frame)
    for place, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            codes = column.dictionary_encode()
            words = codes.dictionary.to_pylist()
            seconds = len(words) * (np.arange(len(column)) % 2)
            numbers = codes.indices.fill_null(-1).to_numpy() + 2
            numbers = numbers + seconds * np.asarray(column.is_valid())
            texts = pa.array(["not used", None, *words, *words], pa.large_string())
            odd = pa.DictionaryArray.from_arrays(pa.array(numbers), texts)
            table = table.set_column(place, name, odd)
    return table


GIVEN: dict[str, Give] = {
    **{engine: functools.partial(on, engine) for engine in ENGINES[1:]},
    "pandas, backwards": lambda frame: rearranged(frame, 0),
    "pandas, shuffled": lambda frame: rearranged(frame, 1),
    "pandas, in parts": lambda frame: rearranged(frame, 2),
    "pyarrow, odd categories": with_odd_categories,
}


# What is asked with every run, on the kind that is furthest from a frame of pandas: sums, rows and groups, with and
# without looking up prices, and words.
OFTEN = (
    "fees.describe",
    "fees.in_token",
    "fees.schedule_check",
    "fees.tiers",
    "fills.all_in_cost",
    "fills.markouts",
    "fills.orders",
    "fills.price_gap, by",
    "fills.size_profile",
    "fills.with_roles",
    "research.liquidity",
    "research.pool_quotes",
)

MATRIX = [
    (given, question)
    if given == "archive" and question in OFTEN
    else thorough(given, question)
    for given in GIVEN
    for question in QUESTIONS
    # Spark takes a second for the smallest question, so there each is asked with its defaults only.
    if given != "spark" or "," not in question
]


@pytest.mark.parametrize(("given", "question"), MATRIX)
def test_every_question_has_one_answer(given, question, monkeypatch):
    # An archive looks up prices as it does among 10 million trades: in one slice of time after the other.
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", 1)
    if given == "spark" and question in NOT_BY_MARKET:
        with pytest.raises(LabError, match="needs the rows of all markets at once"):
            without_warnings(QUESTIONS[question], adversarial(), GIVEN[given])
        return
    found = without_warnings(QUESTIONS[question], adversarial(), GIVEN[given])
    expected = on_pandas(question)
    assert_same(found, expected)
    if isinstance(found, str):
        return
    assert type(found) is kind_of_answer(given)
    schema = collected(found).schema
    assert schema.equals(collected(expected).schema)
    for field in schema:
        assert not pa.types.is_decimal(field.type) or field.type == AMOUNT
    if given.startswith("pandas"):
        assert found.attrs.get("notes") == expected.attrs.get("notes")
        # Groups stand in their order, rows in that of the trades.
        if not {"trade_id", "order_hash"} & {*found.columns}:
            assert_same_rows(result_rows(found), result_rows(expected))


def kind_of_answer(given: str) -> type:
    return (
        pd.DataFrame if given == "archive" else type(GIVEN[given](adversarial().head()))
    )


def test_anomalies_are_those_of_the_rows_in_any_order():
    for seed in range(3):
        found = lab.anomalies(rearranged(drawn(0), seed))
        assert_same(found, lab.anomalies(drawn(0)))
    assert set(lab.anomalies(drawn(0))["reason"]) >= {
        "read twice: identical to another row",
        "id is missing",
    }


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["spark", "archive"])
def test_values_are_weighed_alike_where_markets_share_their_tokens(engine):
    frame = adversarial()
    market = frame["market"].astype(object)
    doubled = frame.assign(market=market.where(frame.index % 2 == 0, market + "-2"))
    found = without_warnings(
        lambda: lab.fills.all_in_cost(on(engine, doubled), by="side")
    )
    assert_same(found, lab.fills.all_in_cost(doubled, by="side"))


def test_duckdb_joins_answers_with_their_trades():
    trades = on("duckdb", adversarial())
    found = lab.fills.price_gap(trades).set_alias("found")
    joined = trades.set_alias("trades").join(found, "trades.trade_id = found.trade_id")
    assert joined.count("*").fetchall()[0][0] > len(adversarial())


# Frames that lack something


EDGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "no rows": lambda f: f.iloc[:0],
    "only pools": lambda f: f[f["fill_type"] == "amm"],
    "unknown fee tokens": lambda f: f.assign(fee_token=None),
    "unknown fill types": lambda f: f.assign(fill_type=None),
    "unknown accounts": lambda f: f.assign(account_id=None),
    "unknown times": lambda f: f.assign(
        created_at=f["created_at"].where(f["created_at"].isna())
    ),
    "unknown amounts": lambda f: f.assign(
        **{
            name: f[name].where(f[name].isna())
            for name in ("size", "price", "notional", "fee")
        },
        fee_bps=np.nan,
    ),
}


def outcome(ask: Callable[[], Any]) -> Any:
    """Return an answer, or the text of the error where there is none."""
    try:
        return ask()
    except LabError as error:
        return str(error)


@pytest.mark.thorough
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_edges_are_answered_alike(question, edge):
    frame = EDGES[edge](adversarial())
    ask = QUESTIONS[question]
    expected = outcome(lambda: ask(frame))
    found = outcome(lambda: without_warnings(ask, frame, GIVEN["duckdb"]))
    assert_same(found, expected)


# What is asked, and what the documentation says of it


TABLE = Path(__file__).parents[2] / "docs" / "data-sources.md"
NOT_OF_TRADES = {"figures.Figure", "figures.pool_balance", "research.figures"}


def test_every_public_function_is_asked():
    asked = {name.partition(",")[0] for name in QUESTIONS}
    public = {
        f"{room}.{name}" for room, module in ROOMS.items() for name in module.__all__
    }
    assert asked == public - {"research.figures"}


def cells_of_table() -> dict[str, list[str]]:
    """Return the cells beside each function of the table."""
    lines = [
        line.split("|")[1:-1]
        for line in TABLE.read_text().splitlines()
        if line.startswith(("| `fees.", "| `fills.", "| `figures."))
    ]
    return {
        name: [cell.strip() for cell in cells]
        for first, *cells in lines
        for name in re.findall(r"`([\w.]+)`", first)
    }


def test_the_documentation_lists_every_function_and_what_spark_cannot_do():
    rooms = ROOMS | {
        "figures": lab.figures,
        "research.figures": lab.research.figures,
    }
    public = {
        f"{room}.{name}" for room, module in rooms.items() for name in module.__all__
    }
    cells = cells_of_table()
    assert set(cells) == public - NOT_OF_TRADES
    refused = {
        name for name, others in cells.items() if others[1].startswith(("no", "with"))
    }
    assert refused == NOT_BY_MARKET | {"figures.fees_by_token"}
