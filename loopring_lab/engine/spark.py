"""The same questions on Spark: DuckDB on each worker, on the rows of some markets; no second dialect of SQL.

Spark deals out the rows of trades by market, each task runs the steps of a question on all markets that it was dealt,
and the few rows that come back are put together by DuckDB here. Spark's own decimals are not computed with: without
a setting, it returns sums and products with fewer places, silently.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
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
# Names of what rows are dealt out as: trades, and prices from outside the exchange.
DEALT_OUT = ("dealt_trades", "dealt_prices")
VERSION = "{}.{}".format(*sys.version_info)
# A worker needs this package, and the same version of Python.
TRIED = (
    f"import sys, loopring_lab.engine.spark as s; sys.exit(s.VERSION != {VERSION!r})"
)


class Spark(Given[Any]):
    """A frame of Spark."""

    is_dealt_out = True

    def groups(self, asked: Asked) -> pa.Table:
        question = asked.question
        tables = dict(asked.tables)
        asked = replace(self._on_spark(asked), tables=tables)
        for name, text in question.all_steps().items():
            if name in OVERALL:
                tables[name] = running.run(text, question.caller, **tables)
            elif name in GATHERED:
                tables[name] = _gathered(self._on_workers(asked, name))
            elif name == "medians":
                tables[name] = self._medians(asked)
        return running.named(tables["answer"], question.keys)

    def rows(self, asked: Asked) -> Any:
        return self._on_workers(self._on_spark(asked))

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
        _check_python(self.frame.sparkSession)
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
        rows = self._on_workers(asked, "rows", *keys, *names)
        middles = [functions.median(name).alias(name) for name in names]
        return _gathered(rows.groupBy(*keys).agg(*middles))

    def _on_workers(self, asked: Asked, last: str = "", *columns: str) -> Any:
        """Ask workers about the trades of each task, by row or up to the `last` step, by default all its columns.

        DuckDB itself says which columns come out.
        """
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        # Workers get what these functions hold, so that no frame of Spark may be among it.
        caller = self.caller
        question = asked.question
        tables = asked.tables

        def answer(part: pa.Table, part_prices: pa.Table | None = None) -> pa.Table:
            trades = Arrow(part, caller)
            prices = None if part_prices is None else Arrow(part_prices, caller)
            here = Asked(question, prices, tables)
            found = trades.up_to(here, last) if last else trades.rows(here)
            return _for_spark(found.select(columns or found.column_names))

        def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # Spark has tasks without rows, too.
            dealt_out = list(batches)
            if dealt_out:
                yield from answer(*_parts(dealt_out)).to_batches()

        given = [self.frame]
        if asked.prices is not None:
            given.append(asked.prices.frame)
        empty = [
            to_arrow_schema(frame.schema, timezone="UTC").empty_table()
            for frame in given
        ]
        schema = from_arrow_schema(answer(*empty).schema)
        with warnings.catch_warnings():
            # Spark warns of a pandas newer than itself, of which nothing is used here: rows travel as Arrow.
            warnings.filterwarnings(
                "ignore", "PySpark does not yet fully support pandas", FutureWarning
            )
            # A task is given several markets if these are small, as each question of DuckDB's has a cost of its own.
            dealt = _together(given, question.split_by).repartition(*question.split_by)
            return dealt.mapInArrow(answers, schema)


def _together(given: list[Any], split_by: tuple[str, ...]) -> Any:
    """Return the rows of trades, and of prices if there are any, as one frame with a column for each of the two."""
    from pyspark.sql import functions

    together = None
    for name, frame in zip(DEALT_OUT, given, strict=False):
        # Whole rows keep their types: Spark would convert columns of one name to a type that holds both.
        row = functions.struct(*[functions.col(f"`{one}`") for one in frame.columns])
        dealt = frame.select(*split_by, row.alias(name))
        if together is not None:
            dealt = together.unionByName(dealt, allowMissingColumns=True)
        together = dealt
    return together


def _parts(batches: list[pa.RecordBatch]) -> list[pa.Table]:
    """Take what was dealt out to a task apart again: its trades, and its prices if there are any."""
    dealt = pa.Table.from_batches(batches)
    names = [name for name in DEALT_OUT if name in dealt.column_names]
    rows = [dealt[name].filter(dealt[name].is_valid()) for name in names]
    return [pa.Table.from_struct_array(one.combine_chunks()) for one in rows]


def _check_python(session: Any) -> None:
    """Raise a `LabError` where workers on this machine run a Python that cannot answer."""
    # A session of Spark Connect does not know what its server runs.
    context = getattr(session, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        return
    if not _can_answer(context.pythonExec):
        raise LabError(
            f"Spark's workers would run {context.pythonExec!r}, which is not Python {VERSION} with loopring_lab. Stop "
            f"the Spark session, set os.environ['PYSPARK_PYTHON'] = {sys.executable!r}, and start it again."
        )


@cache
def _can_answer(python: str) -> bool:
    # Starting another one takes a second.
    if shutil.which(python) == sys.executable:
        return True
    try:
        ran = subprocess.run([python, "-c", TRIED], capture_output=True, check=False)
    except OSError:
        return False
    return ran.returncode == 0


def _gathered(frame: Any) -> pa.Table:
    """Bring the rows of a Spark frame here; an error of a worker is that of the question."""
    try:
        found: pa.Table = frame.toArrow()
        return found
    except Exception as error:
        # Spark hands on the text of a worker's error, of which one line has its class and message.
        told = re.search(r"loopring_lab\.errors\.(\w+): (.+)", str(error))
        if not told:
            raise
        kind = AmountError if told[1] == "AmountError" else LabError
        raise kind(told[2]) from None


def _for_spark(table: pa.Table) -> pa.Table:
    """Return a table with times as Spark expects them of workers, which get them in the time zone of the session."""
    for entry in table.schema:
        if pa.types.is_timestamp(entry.type) and entry.type.tz is not None:
            times = table[entry.name].cast(pa.timestamp("us", "UTC"))
            table = frames.replaced(table, entry.name, times)
    return table
