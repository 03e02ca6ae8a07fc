"""The trades of an archive on engines, in SQL, and as Parquet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads

from loopring_lab.archive.queries import Rows
from loopring_lab.archive.schema import SHOWN, TABLES, decimal
from loopring_lab.engine import frames, session
from loopring_lab.engine.groups import quoted
from loopring_lab.errors import ArchiveError, DiskRefused, LabError
from loopring_lab.storage import StoredFile

if TYPE_CHECKING:
    import duckdb

ROWS_AT_ONCE = 1 << 16
# So that readers of a time skip most of a large file, for 7 % more bytes.
ROWS_OF_A_GROUP = 1 << 16


class CurrentTrades:
    """Current trades of an archive as a stream of Arrow, which opens the file each time it is read.

    An engine may read it several times, or never; the file is not locked in between. A reading after the
    archive has changed is an error, so that no result mixes two states.
    """

    def __init__(self, file: StoredFile, rows: Rows) -> None:
        self._file = file
        self._condition = rows.condition()
        self._stamp = file.stamp()
        with file.reading() as connection:
            self.schema = (
                connection.sql(f"{self._query()} LIMIT 0").to_arrow_table().schema
            )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows as they are now."""
        return pa.RecordBatchReader.from_batches(
            self.schema, self._batches()
        ).__arrow_c_stream__()

    def table(self) -> pa.Table:
        """Read all rows into memory."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def _query(self) -> str:
        return f"SELECT {SHOWN} FROM held.main.rows WHERE {self._condition}"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._file.stamp() != self._stamp:
            raise ArchiveError(
                f"{self._file.shown}: the archive has changed since. Call archive.scan(...) again."
            )
        with self._file.reading() as connection:
            yield from connection.sql(self._query()).to_arrow_reader(ROWS_AT_ONCE)


def scan(file: StoredFile, engine: str, rows: Rows) -> Any:
    """Open the current versions of trades on an engine."""
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(
            f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades(), and others read "
            "the files of export(folder)."
        )
    try:
        return ENGINES[engine](CurrentTrades(file, rows))
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(
            f"engine={engine!r} needs the package {error.name}. {hint}"
        ) from None


def _duckdb(trades: CurrentTrades) -> duckdb.DuckDBPyRelation:
    return session.shared().from_arrow(trades)


def _polars(trades: CurrentTrades) -> Any:
    import polars

    return polars.LazyFrame(polars.from_arrow(trades.table()))


def _spark(trades: CurrentTrades) -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark.createDataFrame(trades.table().combine_chunks())


ENGINES: dict[str, Callable[[CurrentTrades], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "spark": _spark,
    "pyarrow": CurrentTrades.table,
}


def query(file: StoredFile, sql: str) -> pd.DataFrame:
    """Run SQL over the tables of an archive, amounts as decimals."""
    amounts = ", ".join(decimal(name) for name in frames.AMOUNTS)
    views = {
        name: f"FROM held.main.{name}"
        for name in ("source", "listings", "syncs", "blocks")
    }
    views["rows"] = f"SELECT * REPLACE ({amounts}) FROM held.main.rows"
    views["trades"] = f"SELECT {SHOWN} FROM held.main.rows WHERE current"
    with file.reading() as connection:
        for name, view in views.items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {view}")
        found = connection.sql(sql)
        if found is None:
            raise LabError(
                "query: the statement has no result. Give a SELECT, such as 'SELECT count(*) FROM trades'."
            )
        # DuckDB's sums of whole numbers are HUGEINT.
        whole = [
            name
            for name, kind in zip(found.columns, found.types, strict=True)
            if str(kind) == "HUGEINT"
        ]
        for name in whole:
            found = found.project(
                f"* REPLACE (CAST({quoted(name)} AS BIGINT) AS {quoted(name)})"
            )
        return frames.to_pandas(found.to_arrow_table())


def verify(file: StoredFile) -> pd.DataFrame:
    """Read every block of every table, and list the tables that cannot be read."""
    problems = []
    with file.reading():
        pass  # what the file says it holds can be read
    for name in TABLES:
        try:
            with file.reading() as connection:
                connection.execute(
                    f"SELECT bit_xor(hash(stored)) FROM held.main.{name} AS stored"
                ).fetchall()
        except ArchiveError as error:
            problems.append(
                {"table": name, "problem": str(error), "advice": file.advice}
            )
    return pd.DataFrame(problems, columns=["table", "problem", "advice"])


def export(file: StoredFile, folder: Path, rows: Rows) -> int:
    """Write current trades as Parquet, a folder for each account and year; return the number of rows."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise LabError(
                f"{folder}: is there already. Give a folder that does not exist yet, or is empty."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{folder.name}.", dir=folder.parent
        ) as partial:
            count = _write(file, Path(partial, "trades"), rows)
            if folder.exists():
                folder.rmdir()
            Path(partial, "trades").rename(folder)
    except OSError as error:
        raise DiskRefused(
            f"{folder}: the export cannot be written ({error.strerror or error}). The archive is as it was. Make "
            "room, or give another folder."
        ) from None
    return count


def _write(file: StoredFile, folder: Path, rows: Rows) -> int:
    by = pads.partitioning(
        pa.schema([("account_id", pa.int64()), ("year", pa.int64())]), flavor="hive"
    )
    parquet = pads.ParquetFileFormat()
    with file.reading() as connection:
        trades = f"FROM held.main.rows WHERE {rows.condition()}"
        [(count,)] = connection.execute(f"SELECT count(*) {trades}").fetchall()
        # In this order, no more than one file is open at a time.
        found = connection.sql(
            f"SELECT {SHOWN}, year(created_at) AS year {trades} "
            "ORDER BY account_id, year, rows.created_at, trade_id, role DESC"
        )
        pads.write_dataset(
            found.to_arrow_reader(ROWS_AT_ONCE),
            folder,
            format=parquet,
            partitioning=by,
            file_options=parquet.make_write_options(
                compression="zstd", write_page_checksum=True
            ),
            max_rows_per_group=ROWS_OF_A_GROUP,
            max_partitions=1
            << 24,  # no limit: years and accounts are as many as they are
            use_threads=False,
        )
    return int(count)
