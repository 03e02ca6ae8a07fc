"""The same questions on Spark: DuckDB on each worker, market by market; no second dialect of SQL.

Spark deals out the rows of trades by market, each worker runs the steps of a question on its part, and the
few rows that come back are put together by DuckDB here. Spark's own decimals are not computed with: without
a setting, it returns sums and products with fewer places, silently.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from loopring_lab.engine import frames
from loopring_lab.engine.groups import EVERYTHING
from loopring_lab.engine.query import (
    Question,
    all_steps,
    ask_in_memory,
    beside_rows,
    named,
    prices_in_memory,
    run,
    without_note,
)
from loopring_lab.errors import AmountError, LabError

# Steps of all markets, which are run here on what the workers return; see `query`.
OVERALL = ("weights", "means", "answer")
# Steps of a market with few rows, which are brought here.
GATHERED = ("quotes", "sums", "spreads", "pairs")

Work = Callable[[pa.Table, pa.Table | None], pa.Table]
"""What a worker does with the trades of a market, and the prices of it where there are any."""


def ask(
    question: Question, trades: Any, prices: Any, given: Mapping[str, pa.Table]
) -> Any:
    """Ask a question of a Spark frame; a Spark frame comes out."""
    if not question.split_by:
        raise LabError(
            f"{question.caller} needs the rows of all markets at once, which Spark's workers do not have. Write "
            "the trades as Parquet (trades.write.parquet, or archive.export) and pass DuckDB's read_parquet(...) "
            "of it, or pass a part that fits one machine."
        )
    if prices is not None and frames.kind_of(prices) != "spark":
        prices = trades.sparkSession.createDataFrame(
            _for_spark(prices_in_memory(question, prices))
        )
    if not question.has_groups:

        def answer_by_row(part: pa.Table, part_prices: pa.Table | None) -> pa.Table:
            found = ask_in_memory(question, part, part_prices, given)
            return beside_rows(question, part, found)

        return _on_workers(question, trades, prices, answer_by_row)
    tables = dict(given)
    for name, text in all_steps(question).items():
        if name in OVERALL:
            tables[name] = run(text, question.caller, **tables)
        elif name in GATHERED:
            known = {
                step: table
                for step, table in tables.items()
                if step in (*given, *OVERALL)
            }
            work = _step(question, name, known)
            tables[name] = _gathered(_on_workers(question, trades, prices, work))
        elif name == "medians":
            tables[name] = _medians(question, trades, prices, given)
    return frames.like(trades, without_note(named(tables["answer"], question.keys)))


def _gathered(frame: Any) -> pa.Table:
    """Bring the rows of a Spark frame here; an error of a worker is that of the question."""
    try:
        found: pa.Table = frame.toArrow()
    except Exception as error:
        # Spark hands on the text of a worker's error, of which one line has its class and message.
        told = re.search(r"loopring_lab\.errors\.(\w+): (.+)", str(error))
        if not told:
            raise
        kind = AmountError if told[1] == "AmountError" else LabError
        raise kind(told[2]) from None
    return found.combine_chunks()


def _step(
    question: Question, name: str, known: Mapping[str, pa.Table], *columns: str
) -> Work:
    """Return work that ends with a step of a market, given what is known of all; `columns` are all of it by default."""

    def work(part: pa.Table, part_prices: pa.Table | None) -> pa.Table:
        found = ask_in_memory(question, part, part_prices, known, last=name)
        return found.select(columns or found.column_names)

    return work


def _medians(
    question: Question, trades: Any, prices: Any, given: Mapping[str, pa.Table]
) -> pa.Table:
    """Return medians of float64 columns by group, which Spark itself computes exactly."""
    from pyspark.sql import functions

    keys = [EVERYTHING, *question.keys.aliases]
    rows = _on_workers(
        question,
        trades,
        prices,
        _step(question, "rows", given, *keys, *question.medians),
    )
    middles = [functions.median(name).alias(name) for name in question.medians]
    return _gathered(rows.groupBy(*keys).agg(*middles))


def _on_workers(question: Question, trades: Any, prices: Any, work: Work) -> Any:
    """Do work on the trades of each market; DuckDB itself says which columns come out."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    def answer(part: pa.Table, part_prices: pa.Table | None = None) -> pa.Table:
        return _for_spark(work(part, part_prices))

    # Spark looks at how many arguments a function takes.
    def without_prices(part: pa.Table) -> pa.Table:
        return answer(part)

    frames_asked = [trades] if prices is None else [trades, prices]
    empty = [
        to_arrow_schema(frame.schema, timezone="UTC").empty_table()
        for frame in frames_asked
    ]
    schema = from_arrow_schema(answer(*empty).schema)
    groups = [frame.groupBy(*question.split_by) for frame in frames_asked]
    with warnings.catch_warnings():
        # Spark warns of a pandas newer than itself, of which nothing is used here: rows travel as Arrow.
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        if prices is None:
            return groups[0].applyInArrow(without_prices, schema)
        return groups[0].cogroup(groups[1]).applyInArrow(answer, schema)


def _for_spark(table: pa.Table) -> pa.Table:
    """Return amounts with the 38 digits that Spark's decimals have, and times as it expects them of workers."""
    for entry in table.schema:
        column = table[entry.name]
        if pa.types.is_decimal(entry.type):
            table = frames.replaced(
                table, entry.name, frames.exact(column, entry.name, "Spark")
            )
        elif pa.types.is_timestamp(entry.type) and entry.type.tz is not None:
            # A worker gets them in the time zone of the session.
            table = frames.replaced(
                table, entry.name, column.cast(pa.timestamp("us", "UTC"))
            )
    return table.combine_chunks()
