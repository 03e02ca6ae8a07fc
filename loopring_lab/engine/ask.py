"""The door of the engine: frames of any kind, and questions asked of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.engine.kinds import (
    Arrow,
    Asked,
    FrameT,
    Given,
    Pandas,
    Polars,
    Relation,
    Stored,
    Trades,
)
from loopring_lab.engine.question import Question
from loopring_lab.engine.running import translated
from loopring_lab.errors import LabError

TAKEN = "Pass a pandas, pyarrow, Polars, DuckDB or Spark frame, or an Archive, such as client.trades(...) returns."


def given(frame: Trades[FrameT], caller: str) -> Given[FrameT]:
    """Say which kind of frame a call was given; `caller` is what its errors begin with."""
    found: Given[Any] = _kind_of(frame, caller)(frame, caller)
    return found


def _kind_of(frame: Any, caller: str) -> type[Given[Any]]:
    if isinstance(frame, pd.DataFrame):
        return Pandas
    if isinstance(frame, pa.Table):
        return Arrow
    package = type(frame).__module__.partition(".")[0]
    name = type(frame).__name__
    if package == "polars" and name in ("DataFrame", "LazyFrame"):
        return Polars
    if name == "DuckDBPyRelation":
        return Relation
    if package == "pyspark" and name == "DataFrame":
        from loopring_lab.engine.spark import Spark

        return Spark
    if hasattr(frame, "scan") and hasattr(frame, "opened"):
        return Stored
    full_name = name if package == "builtins" else f"{package}.{name}"
    raise LabError(f"{caller}: expected a frame, got {full_name}. {TAKEN}")


def given_prices(prices: Any, caller: str) -> Given[Any] | None:
    """Say which kind of frame the prices of a call are, if there are any."""
    if prices is None:
        return None
    if isinstance(prices, (str, os.PathLike)):
        raise LabError(
            f"{caller}: prices= takes a frame. Read a file first, with lab.tables.prices(file)."
        )
    return given(prices, f"{caller}: prices=")


def ask(
    question: Question,
    trades: Given[FrameT],
    prices: Given[Any] | None = None,
    **tables: pa.Table,
) -> FrameT:
    """Ask a question of trades.

    Parameters
    ----------
    question : Question
        Its steps name the tables ``trades``, ``prices`` and those of `tables`.
    trades : Given
        A frame of any kind.
    prices : Given, optional
        Prices from outside the exchange, in a frame of any kind.
    tables : pyarrow.Table
        Small tables, such as ``worth``, from `worth.worth_by_day`.

    Returns
    -------
    frame of the same kind as `trades`, of an archive a pandas one
    """
    with translated(question.caller):
        return trades.answer(Asked(question, prices, tables))


def ask_table(
    question: Question,
    trades: Given[Any],
    prices: Given[Any] | None = None,
    **tables: pa.Table,
) -> pa.Table:
    """Ask a question with a row for each group; the answer is an Arrow table, whatever kind of frame the trades are."""
    with translated(question.caller):
        return trades.groups(Asked(question, prices, tables))


def counts(
    trades: Given[Any],
    needs: Sequence[str],
    prices: Given[Any] | None = None,
    **counted: str,
) -> dict[str, int]:
    """Count rows of trades, by an aggregate of SQL for each count; of no rows all are 0."""
    listed = ", ".join(f"{sql} AS {name}" for name, sql in counted.items())
    steps = {
        "sums": f"-- counts of each market\nSELECT {listed} FROM trades",
        "answer": "-- counts of all\nSELECT coalesce(sum(COLUMNS(*)), 0)::BIGINT FROM sums",
    }
    found = ask_table(Question(trades.caller, steps, needs), trades, prices)
    numbers: dict[str, int] = found.to_pylist()[0]
    return numbers
