"""The trades of an archive on engines, in SQL, and as Parquet."""

from __future__ import annotations

import filecmp
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from loopring_lab.amounts.dtype import AmountType
from loopring_lab.archive.holdings import RowFilter
from loopring_lab.archive.schema import TABLES
from loopring_lab.bounded import MAX_INT64, printable, shown
from loopring_lab.engine import frames, session
from loopring_lab.engine.database import StoredFile, bound_source, naming_refusals
from loopring_lab.errors import ArchiveError, DamagedArchive, LabError
from loopring_lab.origin import Source

if TYPE_CHECKING:
    import duckdb

# The rows of a group in an exported file: a reader who wants one period skips most of a large file, which has 7 % more
# bytes for it; streams hand over as many at once.
ROWS_AT_ONCE = 1 << 16
PARTITIONS = ["account_id", "year"]


class CurrentTrades:
    """Current trades of an archive as a stream of Arrow, which opens the file each time it is read.

    An engine may read it several times, or never; the file is not locked in between. A reading after the
    archive has changed is an error, so that no result mixes two states.
    """

    def __init__(self, file: StoredFile, wanted: RowFilter) -> None:
        self._file = file
        self._query = wanted.query()
        with file.reading() as connection:
            self._stamp = file.stamp()
            empty = connection.sql(f"{self._query} LIMIT 0").to_arrow_table()
        self.schema = empty.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows as they are now."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__()

    def table(self) -> pa.Table:
        """Read all rows into memory; its errors keep their types, as those of a stream do not."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._file.reading() as connection:
            # Whoever has the file open is waited for, and may change it until then.
            if self._file.stamp() != self._stamp:
                raise ArchiveError(
                    f"{self._file.shown}: the archive has changed since. Call archive.scan(...) again."
                )
            yield from self._file.batches(connection.sql(self._query), ROWS_AT_ONCE)


def scan(file: StoredFile, engine: str, wanted: RowFilter) -> Any:
    """Open the current versions of trades on an engine."""
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(
            f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades(), and others read "
            "the files of export(folder)."
        )
    try:
        return ENGINES[engine](CurrentTrades(file, wanted))
    except ImportError as error:
        raise LabError(
            f"engine={engine!r} needs the package {error.name}. Install it, or use another engine."
        ) from None


def _duckdb(trades: CurrentTrades) -> duckdb.DuckDBPyRelation:
    return session.shared().from_arrow(trades)


def _polars(trades: CurrentTrades) -> Any:
    import polars

    return polars.DataFrame(trades.table()).lazy()


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
    try:
        sql.encode()
    except (AttributeError, ValueError):
        # Half of a surrogate pair is refused as well, as it is no text to DuckDB.
        raise LabError(
            "query: expected SQL as text. Give a SELECT, such as 'SELECT count(*) FROM trades'."
        ) from None
    amounts = ", ".join(frames.decimal_sql(name) for name in frames.AMOUNTS)
    views = {name: f"FROM held.{name}" for name in TABLES}
    views["rows"] = f"SELECT * REPLACE ({amounts}) FROM held.main.rows"
    views["trades"] = RowFilter().query()
    with file.reading() as connection:
        for name, view in views.items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {view}")
        if len(connection.extract_statements(sql)) > 1:
            raise LabError(
                "query: these are several statements, and each has an answer. Give one at a time."
            )
        found = connection.sql(sql)
        if found is None:
            raise LabError(
                "query: the statement has no result. Give a SELECT, such as 'SELECT count(*) FROM trades'."
            )
        repeated = [name for name, count in Counter(found.columns).items() if count > 1]
        if repeated:
            raise LabError(
                f"query: several columns of the result are named {shown(repeated[0])}. Give each its own name, with AS."
            )
        # Amounts are decimals here, so these are whole numbers; Arrow gets their bytes.
        signed = {
            name: str(kind) == "HUGEINT"
            for name, kind in zip(found.columns, found.types, strict=True)
            if str(kind) in ("HUGEINT", "UHUGEINT")
        }
        table = found.to_arrow_table()
    return _as_frame(table, signed)


def _as_frame(table: pa.Table, signed: dict[str, bool]) -> pd.DataFrame:
    """Make a frame of an answer; `signed` are its columns of 128 bits, and whether these have a sign."""
    integers = {name: _integers(table[name], one) for name, one in signed.items()}
    for name, column in integers.items():
        # Their places are kept, by what any column of numbers may hold.
        table = frames.replaced(table, name, pa.nulls(len(column), pa.int64()))
    for entry in table.schema:
        if "arrow.opaque" in str(entry.type) or _has_infinity(table[entry.name]):
            raise _not_in_a_frame(shown(entry.name))
    try:
        result = frames.to_pandas(frames.with_truth_values(table))
    except LabError:
        raise
    except (ValueError, NotImplementedError) as error:
        # Such as a day after the year 9999, the time 24:00, or a union.
        raise _not_in_a_frame(f"a column ({printable(str(error))})") from None
    for name, column in integers.items():
        result[name] = column
    return result


def _has_infinity(column: pa.ChunkedArray) -> bool:
    """Tell whether a time is DuckDB's infinity, which Arrow takes for one of the year 294247."""
    if not pa.types.is_timestamp(column.type):
        return False
    endless = pa.array([MAX_INT64, -MAX_INT64])
    return bool(pc.any(pc.is_in(column.cast(pa.int64()), endless)).as_py())


def _not_in_a_frame(what: str) -> LabError:
    return LabError(
        f"query: {what} has a type or a value of DuckDB's own, which a frame cannot hold. Convert it in the query, "
        "such as with CAST(... AS VARCHAR)."
    )


def _integers(column: pa.ChunkedArray, is_signed: bool) -> pd.Series:
    """Read whole numbers of 128 bits: as others of a query, or as Python's where one has more than 64 bits."""
    found = [
        None if one is None else int.from_bytes(one, "little", signed=is_signed)
        for one in pc.cast(column, pa.binary(16)).to_pylist()
    ]
    if any(one is not None and abs(one) > MAX_INT64 for one in found):
        return pd.Series(found, dtype=object)
    return pd.Series(found, dtype="Int64" if None in found else "int64")


def verify(file: StoredFile) -> pd.DataFrame:
    """Read every block of every table, and list the tables that cannot be read, and rows that are stored twice."""
    problems = []
    # Opening raises where the file is damaged before any table: no table is at fault then.
    with file.reading():
        pass
    for name in TABLES:
        try:
            with file.reading() as connection:
                # DuckDB compares the checksum of every block that it reads.
                [(repeated,)] = connection.execute(
                    f"SELECT count(*) - count(DISTINCT hash(stored)) FROM held.{name} AS stored"
                ).fetchall()
            # Another program may have written to the file: no row of ours is stored twice, and questions count both.
            if name == "rows" and repeated:
                raise DamagedArchive(f"{repeated:,} rows are stored more than once.")
        except DamagedArchive as error:
            problems.append((name, str(error), file.advice))
    return pd.DataFrame(problems, columns=["table", "problem", "advice"])


def export(
    file: StoredFile, folder: Path, wanted: RowFilter, *, source_columns: bool
) -> int:
    """Write current trades as Parquet, a folder for each account and year; return the number of rows."""
    parquet = pads.ParquetFileFormat()
    counts = []
    with naming_refusals(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # What is written gets its place when all of it is written.
        partial = session.unfinished(folder.parent)
        with partial as place, file.reading() as connection:
            source = bound_source(connection)
            rows = connection.sql(_exported(wanted, source, source_columns))
            reader = rows.to_arrow_reader(ROWS_AT_ONCE)
            schema = _described(reader.schema, wanted, source)
            _refuse_other_folder(folder, schema)
            written = place / "trades"
            pads.write_dataset(
                reader.cast(schema),
                written,
                format=parquet,
                partitioning=PARTITIONS,
                partitioning_flavor="hive",
                file_options=parquet.make_write_options(
                    compression="zstd", write_page_checksum=True
                ),
                max_rows_per_group=ROWS_AT_ONCE,
                # This is no limit in practice: there may be any number of years and accounts.
                max_partitions=1 << 24,
                use_threads=False,
                file_visitor=lambda one: counts.append(one.metadata.num_rows),
            )
            # If there are no rows, no file and no folder is written.
            if not counts:
                raise LabError(
                    f"{folder}: no trades are selected, so that nothing is exported. Change since=, until= or "
                    "accounts=; archive.report() lists what is held."
                )
            if folder.exists():
                _replace_files(written, folder)
            else:
                written.rename(folder)
    return sum(counts)


def _exported(wanted: RowFilter, source: Source, source_columns: bool) -> str:
    # Trades of unknown time have the year 0, as pandas does not read a partition without a value.
    further = ", coalesce(year(created_at), 0) AS year"
    if source_columns:
        name = source.name.replace("'", "''")
        further += f", '{name}' AS source, {source.synthetic} AS synthetic"
    # In this order, no more than one file is open at a time.
    return f"{wanted.query(further)} ORDER BY account_id, year, rows.created_at, trade_id, role DESC"


def _described(schema: pa.Schema, wanted: RowFilter, source: Source) -> pa.Schema:
    """Mark amounts for pandas, and say where the trades are from, and which they are."""
    types = dict.fromkeys(frames.AMOUNTS, AmountType()) | {"synthetic": pa.bool_()}
    fields = [field.with_type(types.get(field.name, field.type)) for field in schema]
    attrs = {"source": source.name, "synthetic": source.synthetic}
    facts = {
        "source": source.name,
        "synthetic": json.dumps(source.synthetic),
        "since": str(wanted.since or ""),
        "until": str(wanted.until or ""),
        # pandas gives these attrs to the frame that it reads.
        "PANDAS_ATTRS": json.dumps(attrs),
    }
    return pa.schema(fields, facts)


def _refuse_other_folder(folder: Path, schema: pa.Schema) -> None:
    """Refuse a folder that is there, unless it has an export of the same source, columns and time."""
    if not folder.exists():
        return
    earlier = next(folder.glob("*/*/*.parquet"), None)
    expected = pa.schema(
        [field for field in schema if field.name not in PARTITIONS], schema.metadata
    )
    with suppress(pa.ArrowInvalid):
        if earlier and pq.read_schema(earlier).equals(expected, check_metadata=True):
            return
    raise LabError(
        f"{folder}: is there already, and is no export of this archive with the same since=, until= and columns. "
        "Give these, or a folder that does not exist yet."
    )


def _replace_files(written: Path, folder: Path) -> None:
    """Move files to their places in an earlier export; those of the same trades stay as they are."""
    for account in written.iterdir():
        for earlier in (folder / account.name).glob("*/part-*.parquet"):
            # Trades whose times were corrected may have been all of a year; they are in another file now.
            if not (account / earlier.parent.name).exists():
                earlier.unlink()
    for file in written.rglob("*.parquet"):
        target = folder / file.relative_to(written)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and filecmp.cmp(file, target, shallow=False)):
            file.replace(target)
