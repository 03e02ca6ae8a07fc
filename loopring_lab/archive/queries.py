"""What an archive holds: its report, and its trades on other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from loopring_lab.archive.delta import SCHEMAS, TRADES, DeltaFolder
from loopring_lab.archive.records import TYPED, counts
from loopring_lab.errors import LabError

KEYS = ["account_id", "fill_type"]
COUNTED = {
    "rows": pc.field("version") == 1,
    "second_versions": pc.field("version") > 1,
    "odd": pc.field("extra").is_valid() & pc.field("current"),
}
MOMENT = "datetime64[ms, UTC]"


def report(disk: DeltaFolder, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Say per account and fill type what is held and what is missing."""
    last = {
        history: one for history, one in counts(disk).items() if accounts is None or history[0] in accounts
    }
    found = {(row.pop("account_id"), row.pop("fill_type")): row for row in _sums(disk, accounts).to_pylist()}
    nothing = {"rows": 0, "second_versions": 0, "odd": 0, "first": None, "last": None}
    lines: list[dict[str, Any]] = []
    for history in sorted(found.keys() | last.keys()):
        line = dict(zip(KEYS, history, strict=True)) | (found.get(history) or nothing)
        one = last.get(history)
        due = None if one is None else max(0, one.total + (one.gone or 0) - line["rows"])
        line |= {
            "total": one and one.total,
            "missing": due,
            "complete": due == 0,
            "synced_at": one and one.synced_at,
        }
        lines.append(line)
    frame = pd.DataFrame(lines, columns=[*KEYS, *_TYPES])
    for name, kind in _TYPES.items():
        column = pd.to_datetime(frame[name], unit="ms", utc=True) if kind == MOMENT else frame[name]
        frame[name] = column.astype(kind)
    return frame


_TYPES: dict[str, Any] = {
    "rows": "int64",
    "total": "Int64",
    "missing": "Int64",
    "complete": "bool",
    "first": MOMENT,
    "last": MOMENT,
    "synced_at": MOMENT,
    "second_versions": "int64",
    "odd": "int64",
}


def _sums(disk: DeltaFolder, accounts: Sequence[int] | None) -> pa.Table:
    columns = {
        "account_id": pc.field("account_id"),
        "fill_type": pc.field("asked"),
        "moment": pc.field("created_at"),
        **{name: condition.cast(pa.int64()) for name, condition in COUNTED.items()},
    }
    sums = [(name, "sum") for name in COUNTED]
    with disk.translate_errors("reading trades/"):
        scanner = disk.dataset(TRADES, accounts).scanner(columns=columns)
        parts = [
            pa.Table.from_batches([batch])
            .group_by(KEYS)
            .aggregate([*sums, ("moment", "min"), ("moment", "max")])
            for batch in scanner.to_batches()
            if batch.num_rows
        ]
    if not parts:
        return pa.table({name: [] for name in (*KEYS, *COUNTED)})
    again = [*((f"{name}_sum", "sum") for name in COUNTED), ("moment_min", "min"), ("moment_max", "max")]
    whole = pa.concat_tables(parts).group_by(KEYS).aggregate(again)
    for name in ("moment_min_min", "moment_max_max"):
        milliseconds = whole[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        whole = whole.set_column(whole.schema.get_field_index(name), name, milliseconds)
    names = {f"{name}_sum_sum": name for name in COUNTED} | {
        "moment_min_min": "first",
        "moment_max_max": "last",
    }
    return whole.rename_columns([names.get(name, name) for name in whole.column_names])


def scan(disk: DeltaFolder, engine: str) -> Any:
    """Open the current versions of all trades on an engine."""
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades().")
    try:
        return ENGINES[engine](disk)
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(f"engine={engine!r} needs the package {error.name}. {hint}") from None


def _pyarrow(disk: DeltaFolder) -> pa.Table:
    return disk.read(TRADES, TYPED, pc.field("current"))


def _duckdb(disk: DeltaFolder) -> Any:
    import duckdb

    files = disk.files()
    if not files:
        return duckdb.from_arrow(_pyarrow(disk))
    duckdb.execute("SET TimeZone = 'UTC'")
    opened = duckdb.read_parquet(files, hive_partitioning=True)
    return opened.filter("current").project(", ".join(TYPED))


def _polars(disk: DeltaFolder) -> Any:
    import polars

    files = disk.files()
    if not files:
        return polars.LazyFrame(polars.from_arrow(_pyarrow(disk)))
    opened = polars.scan_parquet(
        files, glob=False, hive_partitioning=True, hive_schema={"account_id": polars.Int64}
    )
    return opened.filter("current").select(TYPED)


def _dask(disk: DeltaFolder) -> Any:
    import dask.dataframe as dd

    files = disk.files()
    meta = _part(None)
    return dd.from_map(_part, files or [None], meta=meta)  # type: ignore[no-untyped-call]


def _spark(disk: DeltaFolder) -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    files = disk.files()
    if not files:
        return spark.createDataFrame(_pyarrow(disk))
    opened = (
        spark.read.option("basePath", str((disk.path / TRADES).resolve())).parquet(*files).where("current")
    )
    return opened.withColumn("account_id", opened["account_id"].cast("bigint")).select(*TYPED)


def _part(file: str | None, columns: list[str] | None = None) -> pd.DataFrame:
    """Read one file, wherever Dask's worker runs."""
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


ENGINES: dict[str, Callable[[DeltaFolder], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "dask": _dask,
    "spark": _spark,
    "pyarrow": _pyarrow,
}
