"""What was known at a moment: the last row at or before it, never a later one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

from loopring_lab.errors import LabError

__all__ = ["latest"]

NEVER = np.iinfo(np.int64).min


def latest(
    moments: np.ndarray,
    keys: np.ndarray,
    known_moments: np.ndarray,
    known_keys: np.ndarray,
    *,
    strictly: bool = False,
    within: int | None = None,
) -> np.ndarray:
    """Find, for each moment, the last known row of the same key at or before it."""
    usable = np.flatnonzero((known_moments != NEVER) & (known_keys >= 0))
    order = usable[np.lexsort((known_moments[usable], known_keys[usable]))]
    sorted_keys, sorted_moments = known_keys[order], known_moments[order]
    found = np.full(len(moments), -1, np.int64)
    for key in np.unique(sorted_keys):
        start, stop = np.searchsorted(sorted_keys, key, "left"), np.searchsorted(sorted_keys, key, "right")
        mine = np.flatnonzero((keys == key) & (moments != NEVER))
        place = np.searchsorted(sorted_moments[start:stop], moments[mine] - strictly, "right") - 1
        found[mine] = np.where(place < 0, -1, order[start + np.maximum(place, 0)])
    if within is not None:
        some = np.flatnonzero(found >= 0)
        found[some[moments[some] - known_moments[found[some]] > within]] = -1
    return found


def milliseconds(moments: pd.Series) -> np.ndarray:
    """Read times as milliseconds since 1970 in UTC; unknown ones as `NEVER`."""
    utc = moments.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(utc.to_numpy("datetime64[ms]"), "datetime64[ms]").astype(np.int64)


def codes(*frames: tuple[pd.DataFrame, list[str]]) -> list[np.ndarray]:
    """Number the combinations of columns of several frames alike; -1 where one of them is null."""
    parts = [frame[columns].astype(object).set_axis(range(len(columns)), axis=1) for frame, columns in frames]
    whole = pd.concat(parts, ignore_index=True)
    numbers = whole.groupby(list(whole.columns), dropna=True, sort=True).ngroup().to_numpy()
    return np.split(numbers, np.cumsum([len(part) for part in parts])[:-1])


def window(tolerance: Any, what: str) -> int | None:
    """Read a tolerance such as ``"60s"`` as milliseconds, or raise a `LabError`."""
    if tolerance is None:
        return None
    if isinstance(tolerance, str):
        tolerance = re.sub(r"(?<=[\d ])[dw]$", lambda unit: unit[0].upper(), tolerance)
    told = isinstance(tolerance, (str, timedelta, np.timedelta64))
    span = pd.to_timedelta(tolerance, errors="coerce") if told else None
    if not isinstance(span, pd.Timedelta) or span < pd.Timedelta(0):
        raise LabError(
            f"{what}: tolerance={tolerance!r} is not a length of time. Give one like '60s' or '1h', or None."
        )
    return span // pd.Timedelta(1, "ms")
