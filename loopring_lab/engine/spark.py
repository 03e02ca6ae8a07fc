"""The same questions on Spark: DuckDB on each worker, market by market; no second dialect of SQL.

Spark deals out the rows of trades by market, each worker runs the steps of a question on its part, and the
few rows that come back are put together by DuckDB here. Spark's own decimals are not computed with: without
a setting, it returns sums and products with fewer places, silently.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from loopring_lab.engine import frames, running
from loopring_lab.engine.groups import EVERYTHING
from loopring_lab.engine.kinds import Arrow, Asked, Given
from loopring_lab.errors import AmountError, LabError

# Steps of all markets, which are run here on what the workers return; see `question`.
OVERALL = ("weights", "means", "answer")
# Steps of a market with few rows, which are brought here.
GATHERED = ("quotes", "sums", "spreads", "pairs")

Work = Callable[[Arrow, Asked], pa.Table]
"""What a worker does with the trades of a market, where it is asked a question about these."""


class Spark(Given[Any]):
    """A frame of Spark."""

    is_dealt_out = True

    def groups(self, asked: Asked) -> pa.Table:
        question = asked.question
        asked = self._on_spark(asked)
        tables = dict(asked.tables)
        for name, text in question.all_steps().items():
            if name in OVERALL:
                tables[name] = running.run(text, question.caller, **tables)
            elif name in GATHERED:
                known = {
                    step: table
                    for step, table in tables.items()
                    if step in (*asked.tables, *OVERALL)
                }
                rows = self._on_workers(replace(asked, tables=known), _up_to(name))
                tables[name] = _gathered(rows)
            elif name == "medians":
                tables[name] = self._medians(asked)
        return running.named(tables["answer"], question.keys)

    def rows(self, asked: Asked) -> Any:
        return self._on_workers(self._on_spark(asked), Arrow.rows)

    def like(self, table: pa.Table) -> Any:
        # Spark loses rows of tables whose columns are cut into differing chunks.
        return self.frame.sparkSession.createDataFrame(table.combine_chunks())

    def _read(self, names: list[Any]) -> pa.Table:
        return self.frame.toArrow().select(names)

    def _on_spark(self, asked: Asked) -> Asked:
        """Return what is asked, with prices that Spark can deal out; refuse what takes all markets at once."""
        if not asked.question.split_by:
            raise LabError(
                f"{self.caller} needs the rows of all markets at once, which Spark's workers do not have. Write "
                "the trades as Parquet (trades.write.parquet, or archive.export) and pass DuckDB's read_parquet(...) "
                "of it, or pass a part that fits one machine."
            )
        prices = asked.prices
        if prices is None or isinstance(prices, Spark):
            return asked
        converted = self.like(_for_spark(asked.prices_in_memory))
        return replace(asked, prices=Spark(converted, prices.caller))

    def _medians(self, asked: Asked) -> pa.Table:
        """Return medians of float64 columns by group, which Spark itself computes exactly."""
        from pyspark.sql import functions

        names = asked.question.medians
        keys = [EVERYTHING, *asked.question.keys.aliases]
        rows = self._on_workers(asked, _up_to("rows", *keys, *names))
        middles = [functions.median(name).alias(name) for name in names]
        return _gathered(rows.groupBy(*keys).agg(*middles))

    def _on_workers(self, asked: Asked, work: Work) -> Any:
        """Do work on the trades of each market; DuckDB itself says which columns come out."""
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        # Workers get what these functions hold, so that no frame of Spark may be among it.
        caller = self.caller
        question = asked.question
        tables = asked.tables

        def answer(part: pa.Table, part_prices: pa.Table | None = None) -> pa.Table:
            prices = None if part_prices is None else Arrow(part_prices, caller)
            here = Asked(question, prices, tables)
            return _for_spark(work(Arrow(part, caller), here))

        # Spark looks at how many arguments a function takes.
        def without_prices(part: pa.Table) -> pa.Table:
            return answer(part)

        dealt_out = [self.frame]
        if asked.prices is not None:
            dealt_out.append(asked.prices.frame)
        empty = [
            to_arrow_schema(frame.schema, timezone="UTC").empty_table()
            for frame in dealt_out
        ]
        schema = from_arrow_schema(answer(*empty).schema)
        trades, *prices = [frame.groupBy(*question.split_by) for frame in dealt_out]
        with warnings.catch_warnings():
            # Spark warns of a pandas newer than itself, of which nothing is used here: rows travel as Arrow.
            warnings.filterwarnings(
                "ignore", "PySpark does not yet fully support pandas", FutureWarning
            )
            if prices:
                return trades.cogroup(*prices).applyInArrow(answer, schema)
            return trades.applyInArrow(without_prices, schema)


def _up_to(name: str, *columns: str) -> Work:
    """Return work that ends with a step of a market; `columns` are all of it by default."""

    def work(trades: Arrow, asked: Asked) -> pa.Table:
        found = trades.up_to(asked, name)
        return found.select(columns or found.column_names)

    return work


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
