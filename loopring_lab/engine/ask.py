"""A question asked of trades of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from loopring_lab.engine import frames
from loopring_lab.engine.query import (
    Question,
    ask_in_memory,
    ask_relation,
    beside_rows,
    collected,
    finished,
    named,
    prices_in_memory,
    summed,
    with_hugeints,
    without_note,
)


def ask(question: Question, trades: Any, prices: Any = None, **tables: pa.Table) -> Any:
    """Ask a question of trades.

    Parameters
    ----------
    question : Question
        Its steps name the tables ``trades``, ``prices`` and those of `tables`.
    trades : frame of any kind
    prices : frame of any kind, optional
        Prices from outside the exchange.
    tables : pyarrow.Table
        Small tables of `TABLES`, such as ``worth``, from `worth.worth_by_day`.

    Returns
    -------
    frame of the same kind as `trades`, of an archive a pandas one
    """
    kind = frames.kind_of(trades)
    if kind == "spark":
        from loopring_lab.engine import spark

        return spark.ask(question, trades, prices, tables)
    if kind in ("archive", "duckdb") and not (
        prices is None or kind == frames.kind_of(prices) == "duckdb"
    ):
        prices = prices_in_memory(question, prices)
    if kind == "archive":
        # The database of an archive finds no variables, only tables that are registered.
        given = {
            f"given_{name}": with_hugeints(table) for name, table in tables.items()
        }
        if prices is not None:
            given["given_prices"] = prices
        with trades.opened(**given) as relation:
            answer = ask_relation(question, relation, prices, tables, is_archive=True)
            found = summed(question, answer)
    elif kind == "duckdb":
        answer = ask_relation(question, trades, prices, tables)
        if not question.has_groups:
            return answer
        found = summed(question, answer)
    else:
        found = named(ask_in_memory(question, trades, prices, tables), question.keys)
        if not question.has_groups:
            return beside_rows(question, trades, found)
    return finished(frames.like(trades, without_note(found)), found)


def counts(
    trades: Any, caller: str, needs: Sequence[str], prices: Any = None, **counted: str
) -> dict[str, int]:
    """Count rows of trades, by an aggregate of SQL for each count; of no rows all are 0."""
    listed = ", ".join(f"{sql} AS {name}" for name, sql in counted.items())
    steps = {
        "sums": f"-- counts of each market\nSELECT {listed} FROM trades",
        "answer": "-- counts of all\nSELECT coalesce(sum(COLUMNS(*)), 0)::BIGINT FROM sums",
    }
    found: dict[str, int] = collected(
        ask(Question(caller, steps, needs), trades, prices), caller
    ).to_pylist()[0]
    return found
