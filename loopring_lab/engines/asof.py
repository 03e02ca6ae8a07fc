"""As-of joins: the nearest row before, or after, a moment."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Literal

import numpy as np
import pandas as pd

from loopring_lab.errors import LabError

NAT = np.iinfo(np.int64).min
"""An unknown time in milliseconds."""


def as_of(
    rows: pd.DataFrame,
    known: pd.DataFrame,
    *,
    direction: Literal["backward", "forward"] = "backward",
    same_time: bool = True,
    tolerance: int | None = None,
) -> np.ndarray:
    """Find the nearest row of `known` by ``time`` where all other columns are equal; -1 where there is none.

    Of several at that time the last one counts. Nulls match nothing.
    """
    keys = [name for name in rows.columns if name != "time"]
    left, right = (_sorted(frame, keys) for frame in (rows, known))
    positions = np.full(len(rows), -1, np.int64)
    if left.empty or right.empty:  # merge_asof of pandas 3.1 fails on empty columns of strings
        return positions
    matches = pd.merge_asof(
        left,
        right.drop_duplicates([*keys, "time"], keep="last"),
        on="time",
        by=keys,
        suffixes=("", "_known"),
        direction=direction,
        allow_exact_matches=same_time,
        tolerance=tolerance,
    ).dropna()
    positions[matches["position"]] = matches["position_known"]
    return positions


def milliseconds(times: pd.Series) -> np.ndarray:
    """Convert times to milliseconds since 1970 in UTC, unknown ones to `NAT`."""
    utc = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(utc.to_numpy("datetime64[ms]"), "datetime64[ms]").astype(np.int64)


def parse_tolerance(tolerance: Any, caller: str) -> int | None:
    """Parse a tolerance such as ``"60s"`` as milliseconds, or raise a `LabError`."""
    if tolerance is None:
        return None
    if isinstance(tolerance, str):  # pandas reads days and weeks in capitals only
        tolerance = re.sub(r"(?<=[\d ])[dw]$", lambda unit: unit[0].upper(), tolerance)
    is_length = isinstance(tolerance, (str, timedelta, np.timedelta64))
    length: Any = pd.to_timedelta(tolerance, errors="coerce") if is_length else None
    if not isinstance(length, pd.Timedelta) or length < pd.Timedelta(0):
        raise LabError(
            f"{caller}: tolerance={tolerance!r} is not a length of time. Give one such as '60s', or None."
        )
    return int(length // pd.Timedelta(1, "ms"))


def _sorted(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    known = frame.assign(position=np.arange(len(frame)))[frame["time"] != NAT].dropna()
    return known.astype(dict.fromkeys(keys, "str")).sort_values("time", kind="stable")
