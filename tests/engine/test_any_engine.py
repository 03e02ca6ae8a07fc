"""Every public function gives the same answer on every kind of frame."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from engine.test_order_of_rows import drawn
from support.engines import ENGINES, assert_same, on, without_warnings
from support.questions import NOT_BY_MARKET, QUESTIONS, Ask

import loopring_lab as lab
from loopring_lab.engine import running
from loopring_lab.errors import LabError

BEFORE_1970 = pd.Timedelta(days=60 * 365)
# Every question on the kind that is furthest from a frame of pandas; test_engines.py asks some on each kind.
# Further arguments of questions, and all questions on the other kinds, are asked with the slow tests.
OFTEN_ASKED = "archive"
# With its defaults, no question but compare_venues looks up prices for groups.
ASKED_BY_GROUP = "fills.price_gap, by"

ASKED = [
    pytest.param(
        engine,
        question,
        marks=[]
        if engine == OFTEN_ASKED and ("," not in question or question == ASKED_BY_GROUP)
        else [pytest.mark.thorough],
    )
    for engine in ENGINES[1:]
    for question in QUESTIONS
    # Spark takes a second for the smallest question, so there each is asked with its defaults only.
    if engine != "spark" or "," not in question
]


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


def answer(ask: Ask, engine: str, frame: pd.DataFrame) -> Any:
    return without_warnings(ask, frame, functools.partial(on, engine))


@pytest.mark.parametrize(("engine", "question"), ASKED)
def test_every_engine_gives_the_same_digits(engine, question, monkeypatch):
    # An archive looks up prices as it does among 10 million trades: market by market.
    monkeypatch.setattr(running, "ROWS_OF_A_PART", 1)
    if engine == "spark" and question in NOT_BY_MARKET:
        with pytest.raises(LabError, match="needs the rows of all markets at once"):
            answer(QUESTIONS[question], engine, adversarial())
    else:
        assert_same(
            answer(QUESTIONS[question], engine, adversarial()), on_pandas(question)
        )


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["spark", "archive"])
def test_values_are_weighed_alike_where_markets_share_their_tokens(engine):
    frame = adversarial()
    market = frame["market"].astype(object)
    doubled = frame.assign(market=market.where(frame.index % 2 == 0, market + "-2"))

    def ask(trades: pd.DataFrame, kind: Callable[[pd.DataFrame], Any]) -> Any:
        return lab.fills.all_in_cost(kind(trades), by="side")

    assert_same(answer(ask, engine, doubled), ask(doubled, pd.DataFrame))


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
    assert_same(outcome(lambda: answer(ask, "duckdb", frame)), expected)


def with_odd_categories(frame: pd.DataFrame) -> pa.Table:
    """Give texts of pyarrow two codes each, one that is not used, and one whose text is unknown."""
    table = on("pyarrow", frame)
    for place, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        plain = (
            column.dictionary_decode()
            if pa.types.is_dictionary(column.type)
            else column
        )
        if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
            codes = plain.dictionary_encode()
            words = [
                "not used",
                None,
                *codes.dictionary.to_pylist(),
                *codes.dictionary.to_pylist(),
            ]
            seconds = len(codes.dictionary) * (np.arange(len(plain)) % 2)
            numbers = (
                codes.indices.fill_null(-1).to_numpy()
                + 2
                + seconds * np.asarray(plain.is_valid())
            )
            odd = pa.DictionaryArray.from_arrays(
                pa.array(numbers), pa.array(words, pa.large_string())
            )
            table = table.set_column(place, name, odd)
    return table


@pytest.mark.thorough
@pytest.mark.parametrize("question", QUESTIONS)
def test_categories_are_their_texts(question):
    asked = without_warnings(QUESTIONS[question], adversarial(), with_odd_categories)
    assert_same(asked, on_pandas(question))


def test_duckdb_joins_answers_with_their_trades():
    trades = on("duckdb", adversarial())
    found = lab.fills.price_gap(trades).set_alias("found")
    joined = trades.set_alias("trades").join(found, "trades.trade_id = found.trade_id")
    assert joined.count("*").fetchall()[0][0] > len(adversarial())
