"""What an archive holds: the report, and its trades on other engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.folder import (
    IMPORTS,
    SCHEMAS,
    SETTLED,
    SETTLED_SCHEMAS,
    TRADES,
    TYPED,
    AnyFolder,
    ArchiveFolder,
    SettledFolder,
)
from loopring_lab.archive.records import last_sync_records, read_in_order
from loopring_lab.bounded import MAX_INT64
from loopring_lab.engine import session
from loopring_lab.errors import LabError

if TYPE_CHECKING:
    import polars

KEYS = ["account_id", "fill_type"]
IN_TURN: dict[str, Any] = {"batch_readahead": 2, "fragment_readahead": 1}
"""How a table is read in bounded memory: one file after the other."""
ACCOUNT = r"account_id=(-?[0-9]+)/[^/]*$"
"""The account in the path of a file: of the last folder, whatever the folders above are called."""
COUNTED = {
    "rows": pc.field("version") == 1,
    "second_versions": pc.field("version") > 1,
    "odd": pc.field("extra").is_valid() & pc.field("current"),
}
MOMENT = "datetime64[ms, UTC]"
PARTITION = "partition.account_id"
MOST_NAMED = 10
NOTHING = SETTLED_SCHEMAS[SETTLED].empty_table()
DTYPES: dict[str, Any] = {
    "rows": "int64",
    "total": "Int64",
    "missing": "Int64",
    "complete": "bool",
    **dict.fromkeys(("first", "last", "synced_at", "checked_at"), MOMENT),
    "second_versions": "int64",
    "odd": "int64",
}


class Rows(NamedTuple):
    """Which rows are asked for: from a time, before another, of some accounts; of unknown time always."""

    since: pd.Timestamp | None = None
    until: pd.Timestamp | None = None
    accounts: list[int] | None = None

    def expression(self) -> pc.Expression:
        """Select the rows with Arrow."""
        moment, selected = pc.field("created_at"), pc.scalar(True)
        if self.since is not None:
            selected &= moment.is_null() | (moment >= _scalar(self.since))
        if self.until is not None:
            selected &= moment.is_null() | (moment < _scalar(self.until))
        return selected if self.accounts is None else selected & pc.field("account_id").isin(self.accounts)

    def sql(self, time_type: str) -> str:
        """Select the rows in SQL, of DuckDB or Spark, in which a time with a time zone is of `time_type`."""
        conditions = ["TRUE"]
        for sign, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                time = f"CAST('{moment.as_unit('us').isoformat()}' AS {time_type})"
                conditions.append(f"(created_at IS NULL OR created_at {sign} {time})")
        if self.accounts is not None:
            listed = ", ".join(map(str, self.accounts)) or "NULL"
            conditions.append(f"account_id IN ({listed})")
        return " AND ".join(conditions)

    def select(self, frame: polars.LazyFrame) -> polars.LazyFrame:
        """Select the rows of a frame of Polars."""
        from polars import col, lit

        moment = col("created_at")
        if self.since is not None:
            frame = frame.filter(moment.is_null() | (moment >= lit(self.since.to_pydatetime())))
        if self.until is not None:
            frame = frame.filter(moment.is_null() | (moment < lit(self.until.to_pydatetime())))
        if self.accounts is not None:
            frame = frame.filter(col("account_id").is_in(self.accounts))
        return frame

    def may_be_in(self, files: pa.Table) -> pa.ChunkedArray:
        """Tell in which files the rows may be, by the statistics in the log; where there are none, in all."""
        may = pa.chunked_array([np.ones(len(files), bool)])
        if self.accounts is not None:
            asked = np.sort(np.array(self.accounts, np.int64))
            last = np.searchsorted(asked, _account(files, "max", MAX_INT64), "right")
            may = pa.chunked_array([np.searchsorted(asked, _account(files, "min", 0)) < last])
        for name, is_inside, moment in (("max", pc.greater_equal, self.since), ("min", pc.less, self.until)):
            if moment is not None and f"{name}.created_at" in files.column_names:
                known = pc.equal(files["null_count.created_at"], 0)
                inside = is_inside(files[f"{name}.created_at"], _scalar(moment))
                may = pc.and_(may, pc.or_(inside, pc.invert(known)).fill_null(True))
        return may


EVERY = Rows()


def _account(files: pa.Table, end: str, unknown: int) -> np.ndarray:
    """Return each file's least or largest account; of a file of one account, that."""
    name = f"{end}.account_id"
    column = files[name if name in files.column_names else PARTITION]
    return np.asarray(column.fill_null(unknown))


def _scalar(moment: pd.Timestamp) -> pa.Scalar:
    return pa.scalar(moment.as_unit("us").to_pydatetime(), SCHEMAS[TRADES].field("created_at").type)


def report(folder: AnyFolder, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Report per account and fill type what is held and what is missing."""
    if isinstance(folder, SettledFolder):
        return _report_on_blocks(folder, accounts)
    lines = {(line["account_id"], line["fill_type"]): line for line in _count_rows(folder, accounts)}
    for key, record in last_sync_records(folder).items():
        if accounts is None or key[0] in accounts:
            line = lines.setdefault(key, dict(zip(KEYS, key, strict=True)) | dict.fromkeys(COUNTED, 0))
            missing = max(0, record.total + (record.gone or 0) - line["rows"])
            line |= {"total": record.total, "missing": missing, "complete": missing == 0}
            line |= {"synced_at": record.synced_at, "checked_at": record.checked_at}
    ordered = [{"complete": False} | lines[key] for key in sorted(lines)]
    return _with_dtypes(pd.DataFrame(ordered, columns=[*KEYS, *DTYPES]))


def _report_on_blocks(folder: SettledFolder, accounts: Sequence[int] | None) -> pd.DataFrame:
    """Report what is held of blocks, and whether these are without a gap."""
    milliseconds = pc.field("created_at").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    columns = {name: pc.field(name) for name in KEYS} | {"first": milliseconds, "last": milliseconds}
    columns |= {"rows": pc.scalar(1), "odd": pc.field("extra").is_valid().cast(pa.int64())}
    columns |= {"second_versions": pc.scalar(0)}
    where = None if accounts is None else pc.field("account_id").isin(accounts)
    frame = _count(folder, folder.dataset(SETTLED, where=where), columns, where).sort_by(
        [(name, "ascending") for name in KEYS]
    )
    imports = read_in_order(folder, IMPORTS, "imported_at")
    last = max((row["imported_at"] for row in imports), default=None)
    known = {"complete": _is_whole(folder, imports), "synced_at": last}
    return _with_dtypes(frame.to_pandas().assign(**known).reindex(columns=[*KEYS, *DTYPES]))


def _is_whole(folder: SettledFolder, imports: Sequence[dict[str, Any]]) -> bool:
    """Tell whether the blocks imported have no gap, and all of their rows are held."""
    end = None
    for first, last in sorted((row["first"], row["last"]) for row in imports):
        if end is not None and first > end + 1:
            return False
        end = last if end is None else max(end, last)
    held: int = folder.dataset(SETTLED).count_rows()
    return bool(imports) and held == max(row["rows"] for row in imports)


def _with_dtypes(frame: pd.DataFrame) -> pd.DataFrame:
    for name, dtype in DTYPES.items():
        column = pd.to_datetime(frame[name], unit="ms", utc=True) if dtype == MOMENT else frame[name]
        frame[name] = column.astype(dtype)
    return frame


def _count_rows(folder: ArchiveFolder, accounts: Sequence[int] | None) -> list[dict[str, Any]]:
    milliseconds = pc.field("created_at").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    columns = {
        "account_id": pc.field("account_id"),
        "fill_type": pc.field("asked"),
        **{name: condition.cast(pa.int64()) for name, condition in COUNTED.items()},
        "first": milliseconds,
        "last": milliseconds,
    }
    lines: list[dict[str, Any]] = _count(folder, folder.dataset(TRADES, accounts), columns).to_pylist()
    return lines


def _count(folder: AnyFolder, data: Any, columns: dict[str, Any], where: Any = None) -> pa.Table:
    """Count rows by account and fill type, in parts."""
    with folder.translate_errors(f"reading {folder.kind.main}/"):
        scanner = data.scanner(columns=columns, filter=where, **IN_TURN)
        parts = [_add_up(pa.Table.from_batches([batch])) for batch in scanner.to_batches() if batch.num_rows]
        return _add_up(pa.concat_tables(parts) if parts else scanner.head(0))


def _add_up(table: pa.Table) -> pa.Table:
    sums = [*((name, "sum") for name in COUNTED), ("first", "min"), ("last", "max")]
    added = table.group_by(KEYS).aggregate(sums)
    return added.rename_columns({f"{name}_{how}": name for name, how in sums})


def refuse_unknown(folder: AnyFolder, accounts: Sequence[int] | None) -> None:
    """Refuse accounts of which an archive holds no trades, and no record that there were none."""
    if not accounts:
        return
    if isinstance(folder, SettledFolder):
        where = pc.field("account_id").isin(accounts)
        asked = folder.dataset(SETTLED, where=where).to_table(["account_id"], filter=where)
        held = set(pc.unique(asked["account_id"]).to_pylist())
    else:
        held = {int(found[1]) for file in folder.data_files(TRADES) if (found := re.search(ACCOUNT, file))}
        held |= set() if held >= set(accounts) else {account for account, _ in last_sync_records(folder)}
    unknown = [account for account in accounts if account not in held]
    if unknown:
        there = sorted(set(report(folder)["account_id"]) if isinstance(folder, SettledFolder) else held)
        some = ", ".join(map(str, there[:MOST_NAMED])) + (", ..." if len(there) > MOST_NAMED else "")
        raise LabError(
            f"{folder.shown}: the archive does not hold account {unknown[0]}. It holds {some}: give one of "
            f"these, or fill it first: {folder.kind.fill}."
        )


def scan(folder: AnyFolder, engine: str, rows: Rows) -> Any:
    """Open the current versions of trades on an engine."""
    if engine == "dask":
        raise LabError(
            "engine='dask' is not supported any more. Read the archive with scan('duckdb') or scan('spark')."
        )
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades().")
    try:
        return ENGINES[engine](folder, rows)
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(f"engine={engine!r} needs the package {error.name}. {hint}") from None


def list_files(folder: AnyFolder, rows: Rows = EVERY) -> dict[str, int]:
    """List the files that may hold such rows, by account and time, each checked; with their bytes."""
    held = pa.table(folder.table(folder.kind.main).get_add_actions(flatten=True))
    held = held.filter(rows.may_be_in(held))
    by = [name for name in (PARTITION, "min.created_at", "path") if name in held.column_names]
    held = held.sort_by([(name, "ascending") for name in by])
    names = [f"{folder.kind.main}/{path}" for path in held["path"].to_pylist()]
    with folder.translate_errors(f"reading {folder.kind.main}/"):
        folder.digests.check(names)
    base = folder.path.resolve()
    return {str(base / name): size for name, size in zip(names, held["size_bytes"].to_pylist(), strict=True)}


def _pyarrow(folder: AnyFolder, rows: Rows) -> pa.Table:
    if isinstance(folder, SettledFolder):
        return folder.read(SETTLED, where=rows.expression())
    return folder.read(TRADES, TYPED, rows.expression() & pc.field("current"), rows.accounts)


def _duckdb(folder: AnyFolder, rows: Rows) -> Any:
    connection = session.cursor()  # lives as long as the relation
    # Questions about a relation are asked on its own connection, and find their small tables by variable.
    connection.execute("SET python_enable_replacements = true")
    files = list(list_files(folder, rows))
    if not files:
        return connection.from_arrow(NOTHING)
    if isinstance(folder, SettledFolder):
        return connection.read_parquet(files, hive_partitioning=False).filter(rows.sql("TIMESTAMPTZ"))
    opened = connection.read_parquet(files, hive_partitioning=False, filename=True)
    account = f"CAST(regexp_extract(filename, '{ACCOUNT}', 1) AS BIGINT) AS account_id"
    columns = [account if name == "account_id" else name for name in TYPED]
    return opened.filter("current").project(", ".join(columns)).filter(rows.sql("TIMESTAMPTZ"))


def _polars(folder: AnyFolder, rows: Rows) -> Any:
    import polars

    files = [*list_files(folder, rows)]
    if not files:
        return polars.LazyFrame(polars.from_arrow(NOTHING))
    if isinstance(folder, SettledFolder):
        return rows.select(polars.scan_parquet(files, glob=False, hive_partitioning=False))
    opened = polars.scan_parquet(files, glob=False, hive_partitioning=False, include_file_paths="file")
    account = polars.col("file").str.extract(ACCOUNT).cast(polars.Int64)
    return rows.select(opened.with_columns(account_id=account).filter("current").select(TYPED))


def _spark(folder: AnyFolder, rows: Rows) -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    files = [*list_files(folder, rows)]
    if not files:
        return spark.createDataFrame(NOTHING)
    if isinstance(folder, SettledFolder):
        return spark.read.parquet(*files).where(rows.sql("TIMESTAMP"))
    reader = spark.read.option("basePath", str((folder.path / TRADES).resolve()))
    opened = reader.parquet(*files).where("current")
    typed = opened.withColumn("account_id", opened["account_id"].cast("bigint")).select(*TYPED)
    return typed.where(rows.sql("TIMESTAMP"))


ENGINES: dict[str, Callable[[AnyFolder, Rows], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "spark": _spark,
    "pyarrow": _pyarrow,
}
