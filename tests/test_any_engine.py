"""Every public function gives the same digits on every engine, in one window of time and in many."""

import functools
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import ENGINES, collected, on, without_warnings
from support.questions import QUESTIONS, Ask
from support.settled_block import client_of, trades_of
from test_order_of_rows import drawn

import loopring_lab as lab
from loopring_lab import cores
from loopring_lab.engines import limits, windows
from loopring_lab.errors import LabError

BEFORE_1970 = pd.Timedelta(days=60 * 365)
FEW = 16  # rows of a window
ALL_QUESTIONS = ("pyarrow", "polars", "polars, lazy")
ASKED = [
    (engine, question)
    for engine in ENGINES[1:]
    for question in QUESTIONS
    if engine in ALL_QUESTIONS or "," not in question
]
"""Engines that read rows in windows are asked everything below, and here with the defaults only."""


@functools.cache
def adversarial() -> pd.DataFrame:
    """Return drawn rows, many at one moment, some of them long before 1970, in files of their own order."""
    frame = drawn(3)
    early = frame.assign(created_at=frame["created_at"] - BEFORE_1970, trade_id=frame["trade_id"] + 1000)
    return pd.concat([frame, early], ignore_index=True)


def content(result: Any) -> tuple[list[str], Counter[tuple[Any, ...]] | str]:
    """Return the columns of a result of any engine, and how often each row occurs."""
    if isinstance(result, str):
        return [], result
    table = without_warnings(collected, result)
    return table.column_names, Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@functools.cache
def on_pandas(question: str) -> Any:
    return content(QUESTIONS[question](adversarial()))


def answer(ask: Ask, engine: str, frame: pd.DataFrame) -> Any:
    return content(without_warnings(ask, frame, functools.partial(on, engine)))


@pytest.mark.parametrize(("engine", "question"), ASKED)
def test_every_engine_gives_the_same_digits(engine: str, question: str) -> None:
    assert answer(QUESTIONS[question], engine, adversarial()) == on_pandas(question)


def with_odd_categories(frame: pd.DataFrame) -> pa.Table:
    """Give texts of pyarrow two codes each, one that is not used, and one whose text is unknown."""
    table = on("pyarrow", frame)
    for place, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
            codes = plain.dictionary_encode()
            words = ["not used", None, *codes.dictionary.to_pylist(), *codes.dictionary.to_pylist()]
            seconds = len(codes.dictionary) * (np.arange(len(plain)) % 2)
            numbers = codes.indices.fill_null(-1).to_numpy() + 2 + seconds * np.asarray(plain.is_valid())
            odd = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(words, pa.large_string()))
            table = table.set_column(place, name, odd)
    return table


@pytest.mark.parametrize("question", QUESTIONS)
def test_categories_are_their_texts(question: str) -> None:
    asked = without_warnings(QUESTIONS[question], adversarial(), with_odd_categories)
    assert content(asked) == on_pandas(question)


@pytest.mark.thorough
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_many_windows_give_the_same_digits(
    engine: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = on_pandas(question)
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: FEW)
    assert answer(QUESTIONS[question], engine, adversarial()) == expected


@pytest.mark.parametrize("question", QUESTIONS)
def test_two_cores_give_the_same_rows(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = adversarial().dropna(subset=["created_at"]).sort_values("created_at", ignore_index=True)
    on_one = content(QUESTIONS[question](frame))
    monkeypatch.setattr(windows, "LEAST_ROWS", 3)
    monkeypatch.setattr(cores, "count", lambda: 2)
    found = content(QUESTIONS[question](frame))
    assert found == on_one
    assert [*found[1]] == [*on_one[1]]


def test_rows_in_the_order_of_time_are_cut_for_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = adversarial().dropna(subset=["created_at"]).sort_values("created_at").reset_index(names="number")
    monkeypatch.setattr(windows, "LEAST_ROWS", 3)
    monkeypatch.setattr(cores, "count", lambda: 2)
    seen: list[windows.Window] = []

    def work(window: windows.Window) -> pa.Table:
        seen.append(window)
        return window.own(window.rows).select(["number"])

    for rows, count in ((frame, 4), (frame[::-1], 1)):
        parts = windows.over(rows, "here", ["created_at", "number"], work=work)
        assert pa.concat_tables(parts)["number"].to_pylist() == rows["number"].to_list()
        assert len(seen) == count
        seen.clear()


def test_an_error_does_not_wait_for_what_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    running, end = threading.Event(), threading.Event()

    def wrong() -> None:
        running.wait()
        raise LabError("wrong")

    def long() -> None:
        running.set()
        end.wait()

    with pytest.raises(LabError, match="wrong"):
        cores.share(wrong, long)
    end.set()


def test_threads_of_others_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    names = [lambda: threading.current_thread().name] * 2
    with ThreadPoolExecutor(1) as pool:
        assert len({*pool.submit(cores.share, *names).result()}) == 1
    assert threading.main_thread().name not in cores.share(*names)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs a system that can forbid cores")
def test_cores_that_this_process_may_not_use_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores.threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores.count() == len(allowed)


@pytest.fixture(scope="module")
def block(any_block_folder: Path) -> pd.DataFrame:
    frame: pd.DataFrame = trades_of(client_of(any_block_folder))
    return frame


@pytest.mark.thorough
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_real_block_gives_the_same_digits(block: pd.DataFrame, question: str) -> None:
    assert answer(QUESTIONS[question], "duckdb", block) == content(QUESTIONS[question](block))


def test_duckdb_joins_results_in_files_with_their_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    trades = on("duckdb", adversarial())
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: FEW)
    found = lab.fills.price_gap(trades).set_alias("found")
    joined = trades.set_alias("trades").join(found, "trades.trade_id = found.trade_id")
    assert joined.count("*").fetchall()[0][0] > len(adversarial())
