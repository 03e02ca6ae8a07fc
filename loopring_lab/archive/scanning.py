"""The trades of an archive on other engines, opened from its Parquet files and not yet read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from loopring_lab.archive.disk import TRADES, Disk
from loopring_lab.archive.shape import SCHEMAS
from loopring_lab.archive.stored import TYPED
from loopring_lab.errors import LabError

__all__ = ["ENGINES", "scan"]


def scan(disk: Disk, engine: str) -> Any:
    """Open the current versions of all trades on an engine.

    Parameters
    ----------
    disk : Disk
        Of the archive.
    engine : str
        One of `ENGINES`.

    Returns
    -------
    frame of that engine
        As `Archive.scan` describes.

    Raises
    ------
    LabError
        The engine is not known, or not installed.
    """
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise LabError(f"engine={engine!r} is not known. Use one of {known}; for pandas there is trades().")
    try:
        return ENGINES[engine](disk)
    except ImportError as error:
        hint = "Install it, or use another engine."
        raise LabError(f"engine={engine!r} needs the package {error.name}. {hint}") from None


def _pyarrow(disk: Disk) -> pa.Table:
    return disk.read(TRADES, TYPED, pc.field("current"))


def _duckdb(disk: Disk) -> Any:
    import duckdb

    files = disk.files()
    if not files:
        return duckdb.from_arrow(_pyarrow(disk))
    duckdb.execute("SET TimeZone = 'UTC'")
    opened = duckdb.read_parquet(files, hive_partitioning=True)
    return opened.filter("current").project(", ".join(TYPED))


def _polars(disk: Disk) -> Any:
    import polars

    files = disk.files()
    if not files:
        return polars.LazyFrame(polars.from_arrow(_pyarrow(disk)))
    opened = polars.scan_parquet(
        files, glob=False, hive_partitioning=True, hive_schema={"account_id": polars.Int64}
    )
    return opened.filter("current").select(TYPED)


def _dask(disk: Disk) -> Any:
    import dask.dataframe as dd

    files = disk.files()
    meta = _part(None)
    return dd.from_map(_part, files or [None], meta=meta)  # type: ignore[no-untyped-call]


def _spark(disk: Disk) -> Any:
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


ENGINES: dict[str, Callable[[Disk], Any]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "dask": _dask,
    "spark": _spark,
    "pyarrow": _pyarrow,
}
