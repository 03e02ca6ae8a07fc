"""Every kind of frame: a pandas frame turned into it, and answers read back in one Arrow form."""

import atexit
import contextlib
import functools
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from support import oracle
from support.optional import package_or_skip, skip_without_java

from loopring_lab.engine import portable, session

ZONE = "Asia/Kolkata"  # of the sessions: not UTC, and no whole number of hours from it
AMOUNT = pa.decimal128(38, 18)
MOMENT = pa.timestamp("ms", "UTC")
IN_MEMORY = ("pandas", "pyarrow", "polars", "polars, lazy")
OTHERS = ("duckdb", "archive", "spark")
ENGINES = (*IN_MEMORY, *OTHERS)
QUICK = ENGINES[:-1]  # all but Spark
EQUAL_DIGITS = 12


class InArchive:
    """Rows as a question finds them in an `Archive`: on a connection to the engine's own database."""

    def __init__(self, frame: pd.DataFrame):
        self.rows = portable(frame)

    def scan(self, engine: str):
        assert engine == "duckdb"
        connection = session.cursor()
        connection.execute("SET python_enable_replacements = true")
        return connection.from_arrow(self.rows)

    @contextlib.contextmanager
    def opened(self, **tables: pa.Table) -> Iterator[Any]:
        connection = session.cursor()
        for name, table in tables.items():
            connection.register(name, table)
        yield connection.from_arrow(self.rows)


def on(engine: str, frame: pd.DataFrame):
    """Convert a pandas frame to another kind."""
    if engine == "pandas":
        return frame
    if engine == "pyarrow":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if engine == "archive":
        return InArchive(frame)
    return from_arrow(engine, portable(frame))


def from_arrow(engine: str, table: pa.Table):
    """Convert an Arrow table to a frame of Polars, DuckDB or Spark."""
    if engine == "duckdb":
        return duckdb_session().from_arrow(table)
    if engine == "spark":
        return without_warnings(spark_session().createDataFrame, table)
    polars = package_or_skip("polars")
    made = polars.from_arrow(table)
    return made.lazy() if engine == "polars, lazy" else made


def read_from(engine: str, folder: Path):
    """Open the Parquet files of a folder with the engine's own reader."""
    files = f"{folder}/*.parquet"
    if engine == "pandas":
        return pd.read_parquet(folder, dtype_backend="pyarrow")
    if engine == "pyarrow":
        return pq.read_table(folder)
    if engine == "archive":
        return InArchive(pq.read_table(folder))
    if engine == "duckdb":
        return duckdb_session().read_parquet(files)
    if engine == "spark":
        return spark_session().read.parquet(str(folder))
    polars = package_or_skip("polars")
    return (
        polars.scan_parquet(files)
        if engine == "polars, lazy"
        else polars.read_parquet(files)
    )


def assert_same_rows(found: oracle.Rows, expected: oracle.Rows):
    """Compare rows in their order: floats to 12 digits, everything else exactly."""
    assert len(found) == len(expected)
    for number, (row, other) in enumerate(zip(found, expected, strict=True)):
        assert list(row) == list(other)
        for name, value in row.items():
            assert alike(value, other[name]), (
                f"row {number}, {name}: {value!r} is not {other[name]!r}"
            )


def assert_same(found, expected):
    """Compare answers of any kind in any order of rows: floats to 12 digits, everything else exactly."""
    if isinstance(found, str):
        assert found == expected
        return
    tables = [without_warnings(collected, answer) for answer in (found, expected)]
    assert tables[0].schema.names == tables[1].schema.names
    assert_same_rows(
        *(sorted(oracle.to_rows(table), key=order_of_row) for table in tables)
    )


def alike(value, other) -> bool:
    """Tell whether values are equal, floats to 12 digits; rates of 0 may differ by a billionth of a basis point."""
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=10**-EQUAL_DIGITS, abs_tol=1e-9)
    return type(value) is type(other) and bool(value == other)


def order_of_row(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return what rows are sorted by: first what is compared exactly."""
    floats = [name for name, value in row.items() if isinstance(value, float)]
    exact = [str(row[name]) for name in row if name not in floats]
    return exact, [f"{row[name]:.6g}" for name in floats]


def collected(frame) -> pa.Table:
    """Collect a frame of any engine as Arrow: exact amounts as 128-bit decimals, times in UTC."""
    table = _collected(frame)
    for place, field in enumerate(table.schema):
        column = table[field.name]
        if pa.types.is_decimal(field.type) or isinstance(field.type, pa.ExtensionType):
            column = column.cast(AMOUNT)
        elif pa.types.is_timestamp(field.type):
            assert field.type.tz is not None
            column = column.cast(MOMENT)
        elif pa.types.is_interval(field.type):
            column = pa.array(
                [length(value) for value in column.to_pylist()], pa.duration("ms")
            )
        elif pa.types.is_dictionary(field.type) or pa.types.is_large_string(field.type):
            column = column.cast(pa.string())
        table = table.set_column(place, field.name, column)
    return table.replace_schema_metadata(None)


def length(interval: pa.MonthDayNano | None) -> timedelta | None:
    """Return DuckDB's interval as a length of time, as the other engines have it."""
    if interval is None:
        return None
    assert interval.months == 0
    return timedelta(days=interval.days, microseconds=interval.nanoseconds // 1000)


def result_rows(frame) -> oracle.Rows:
    """Collect a result of any engine as rows, to compare with the oracle's."""
    return oracle.to_rows(collected(frame))


def _collected(frame):
    if isinstance(frame, pa.Table):
        return frame
    if hasattr(
        frame, "sparkSession"
    ):  # first: frames of Spark Connect have every attribute
        return without_warnings(frame.toArrow)
    if isinstance(frame, pd.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(frame, "to_arrow_table"):
        return frame.to_arrow_table()
    return frame.lazy().collect().to_arrow()


def without_warnings(work: Callable[..., Any], *arguments):
    """Call a function without the warnings of engines that do not know pandas 3.1 yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PySpark does not yet fully support pandas", FutureWarning
        )
        warnings.filterwarnings(
            "ignore", "The inplace keyword in DataFrame.reset_index", DeprecationWarning
        )
        return work(*arguments)


@functools.cache
def duckdb_session():
    session = package_or_skip("duckdb").connect()
    session.execute(f"SET TimeZone = '{ZONE}'")
    return session


@functools.cache
def spark_session():
    package_or_skip("pyspark")
    skip_without_java()
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # of the workers, which need this package too
    return without_warnings(_spark_session)


def _spark_session():
    from pyspark.sql import SparkSession

    folder = tempfile.TemporaryDirectory(prefix="loopring-lab-spark-")
    settings = {
        "spark.sql.session.timeZone": ZONE,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone={ZONE} -Dderby.system.home={folder.name}",
        "spark.local.dir": folder.name,
        "spark.sql.warehouse.dir": f"{folder.name}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master("local[2]").appName("loopring-lab tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    atexit.register(folder.cleanup)
    atexit.register(session.stop)
    return session
