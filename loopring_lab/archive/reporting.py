"""What an archive holds and whether anything is missing, without reading it into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.disk import TRADES, Disk
from loopring_lab.archive.records import counts

__all__ = ["report"]

KEYS = ["account_id", "fill_type"]
COUNTED = {
    "rows": pc.field("version") == 1,
    "second_versions": pc.field("version") > 1,
    "odd": pc.field("extra").is_valid() & pc.field("current"),
}
MOMENT = "datetime64[ms, UTC]"


def report(disk: Disk, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Say per account and fill type what is held and what is missing.

    Parameters
    ----------
    disk : Disk
        Of the archive.
    accounts : sequence of int, optional
        Only these.

    Returns
    -------
    pandas.DataFrame
        As `Archive.report` describes.
    """
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


def _sums(disk: Disk, accounts: Sequence[int] | None) -> pa.Table:
    columns = {
        "account_id": pc.field("account_id"),
        "fill_type": pc.field("asked"),
        "moment": pc.field("created_at"),
        **{name: condition.cast(pa.int64()) for name, condition in COUNTED.items()},
    }
    sums = [(name, "sum") for name in COUNTED]
    with disk.told("reading trades/"):
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
