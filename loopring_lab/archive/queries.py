"""What an archive holds: the report, and its trades on other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

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
from loopring_lab.errors import LabError

KEYS = ["account_id", "fill_type"]
ACCOUNT = r"account_id=(-?[0-9]+)/[^/]*$"
"""The account in the path of a file: of the last folder, whatever the folders above are called."""
COUNTED = {
    "rows": pc.field("version") == 1,
    "second_versions": pc.field("version") > 1,
    "odd": pc.field("extra").is_valid() & pc.field("current"),
}
MOMENT = "datetime64[ms, UTC]"
DTYPES: dict[str, Any] = {
    "rows": "int64",
    "total": "Int64",
    "missing": "Int64",
    "complete": "bool",
    **dict.fromkeys(("first", "last", "synced_at", "checked_at"), MOMENT),
    "second_versions": "int64",
    "odd": "int64",
}


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
        scanner = data.scanner(columns=columns, filter=where)
        parts = [_add_up(pa.Table.from_batches([batch])) for batch in scanner.to_batches() if batch.num_rows]
        return _add_up(pa.concat_tables(parts) if parts else scanner.head(0))


def _add_up(table: pa.Table) -> pa.Table:
    sums = [*((name, "sum") for name in COUNTED), ("first", "min"), ("last", "max")]
    added = table.group_by(KEYS).aggregate(sums)
    return added.rename_columns({f"{name}_{how}": name for name, how in sums})


def scan(folder: AnyFolder, engine: str) -> Any:
    """Open the current versions of all trades on an engine."""
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades().")
    try:
        return ENGINES[engine](folder)
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(f"engine={engine!r} needs the package {error.name}. {hint}") from None


def _pyarrow(folder: AnyFolder) -> pa.Table:
    if isinstance(folder, SettledFolder):
        return folder.read(SETTLED)
    return folder.read(TRADES, TYPED, pc.field("current"))


def _duckdb(folder: AnyFolder) -> Any:
    import duckdb

    files = folder.files()
    if not files:
        return duckdb.from_arrow(_pyarrow(folder))
    duckdb.execute("SET TimeZone = 'UTC'")
    if isinstance(folder, SettledFolder):
        return duckdb.read_parquet(files, hive_partitioning=False)
    opened = duckdb.read_parquet(files, hive_partitioning=False, filename=True)
    account = f"CAST(regexp_extract(filename, '{ACCOUNT}', 1) AS BIGINT) AS account_id"
    columns = (account if name == "account_id" else name for name in TYPED)
    return opened.filter("current").project(", ".join(columns))


def _polars(folder: AnyFolder) -> Any:
    import polars

    files = folder.files()
    if not files:
        return polars.LazyFrame(polars.from_arrow(_pyarrow(folder)))
    if isinstance(folder, SettledFolder):
        return polars.scan_parquet(files, glob=False, hive_partitioning=False)
    opened = polars.scan_parquet(files, glob=False, hive_partitioning=False, include_file_paths="file")
    account = polars.col("file").str.extract(ACCOUNT).cast(polars.Int64)
    return opened.with_columns(account_id=account).filter("current").select(TYPED)


def _dask(folder: AnyFolder) -> Any:
    import dask.dataframe as dd

    files: list[str | None] = [*folder.files()] or [None]
    read = _read_settled if isinstance(folder, SettledFolder) else _read_file
    return dd.from_map(read, files, meta=_read_file(None))  # type: ignore[no-untyped-call]


def _spark(folder: AnyFolder) -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    files = folder.files()
    if not files:
        return spark.createDataFrame(_pyarrow(folder))
    if isinstance(folder, SettledFolder):
        return spark.read.parquet(*files)
    reader = spark.read.option("basePath", str((folder.path / TRADES).resolve()))
    opened = reader.parquet(*files).where("current")
    return opened.withColumn("account_id", opened["account_id"].cast("bigint")).select(*TYPED)


def _read_file(file: str | None, columns: list[str] | None = None) -> pd.DataFrame:
    """Read one file, in a worker of Dask; without a file, an empty frame."""
    wanted = columns or TYPED
    if file is None:
        table = SCHEMAS[TRADES].empty_table().select(wanted)
    else:
        partitioning = pads.partitioning(pa.schema([("account_id", pa.int64())]), flavor="hive")
        base = str(Path(file).parents[1])
        opened = pads.dataset(file, SCHEMAS[TRADES], partitioning=partitioning, partition_base_dir=base)
        table = opened.to_table(columns=list(wanted), filter=pc.field("current"))
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _read_settled(file: str | None, columns: list[str] | None = None) -> pd.DataFrame:
    """Read one file of trades from blocks, in a worker of Dask."""
    if file is None:
        return _read_file(None, columns)
    table = pads.dataset(file, SETTLED_SCHEMAS[SETTLED], partitioning=None).to_table(columns or TYPED)
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


ENGINES: dict[str, Callable[[AnyFolder], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "dask": _dask,
    "spark": _spark,
    "pyarrow": _pyarrow,
}
