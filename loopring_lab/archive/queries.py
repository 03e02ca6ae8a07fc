"""What an archive holds: the report, and its trades on other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from loopring_lab.archive.folder import SCHEMAS, TRADES, ArchiveFolder
from loopring_lab.archive.records import TYPED, last_sync_records
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


def report(folder: ArchiveFolder, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Report per account and fill type what is held and what is missing."""
    lines = {(line["account_id"], line["fill_type"]): line for line in _count_rows(folder, accounts)}
    for key, record in last_sync_records(folder).items():
        if accounts is None or key[0] in accounts:
            line = lines.setdefault(key, dict(zip(KEYS, key, strict=True)) | dict.fromkeys(COUNTED, 0))
            missing = max(0, record.total + (record.gone or 0) - line["rows"])
            line |= {"total": record.total, "missing": missing, "complete": missing == 0}
            line |= {"synced_at": record.synced_at, "checked_at": record.checked_at}
    ordered = [{"complete": False} | lines[key] for key in sorted(lines)]
    frame = pd.DataFrame(ordered, columns=[*KEYS, *DTYPES])
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
    with folder.translate_errors("reading trades/"):
        scanner = folder.dataset(TRADES, accounts).scanner(columns=columns)
        parts = [_add_up(pa.Table.from_batches([batch])) for batch in scanner.to_batches() if batch.num_rows]
    return _add_up(pa.concat_tables(parts)).to_pylist() if parts else []


def _add_up(table: pa.Table) -> pa.Table:
    sums = [*((name, "sum") for name in COUNTED), ("first", "min"), ("last", "max")]
    added = table.group_by(KEYS).aggregate(sums)
    return added.rename_columns({f"{name}_{how}": name for name, how in sums})


def scan(folder: ArchiveFolder, engine: str) -> Any:
    """Open the current versions of all trades on an engine."""
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades().")
    try:
        return ENGINES[engine](folder)
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(f"engine={engine!r} needs the package {error.name}. {hint}") from None


def _pyarrow(folder: ArchiveFolder) -> pa.Table:
    return folder.read(TRADES, TYPED, pc.field("current"))


def _duckdb(folder: ArchiveFolder) -> Any:
    import duckdb

    files = folder.files()
    if not files:
        return duckdb.from_arrow(_pyarrow(folder))
    duckdb.execute("SET TimeZone = 'UTC'")
    opened = duckdb.read_parquet(files, hive_partitioning=False, filename=True)
    account = f"CAST(regexp_extract(filename, '{ACCOUNT}', 1) AS BIGINT) AS account_id"
    columns = (account if name == "account_id" else name for name in TYPED)
    return opened.filter("current").project(", ".join(columns))


def _polars(folder: ArchiveFolder) -> Any:
    import polars

    files = folder.files()
    if not files:
        return polars.LazyFrame(polars.from_arrow(_pyarrow(folder)))
    opened = polars.scan_parquet(files, glob=False, hive_partitioning=False, include_file_paths="file")
    account = polars.col("file").str.extract(ACCOUNT).cast(polars.Int64)
    return opened.with_columns(account_id=account).filter("current").select(TYPED)


def _dask(folder: ArchiveFolder) -> Any:
    import dask.dataframe as dd

    files: list[str | None] = [*folder.files()] or [None]
    return dd.from_map(_read_file, files, meta=_read_file(None))  # type: ignore[no-untyped-call]


def _spark(folder: ArchiveFolder) -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    files = folder.files()
    if not files:
        return spark.createDataFrame(_pyarrow(folder))
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


ENGINES: dict[str, Callable[[ArchiveFolder], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "dask": _dask,
    "spark": _spark,
    "pyarrow": _pyarrow,
}
