"""Periods of time: fixed lengths are cut on the engine, months and years from days afterwards."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from loopring_lab.errors import LabError

__all__ = ["Period"]

SECOND = 1000
DAY = 86_400 * SECOND
FIXED = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
MONTHS = {"mo": 1, "q": 3, "y": 12}
MONDAY = 4 * DAY


class Period(NamedTuple):
    """A length of time: `fine` milliseconds for the engine, counted from `origin`, and calendar `months`."""

    fine: int
    origin: int = 0
    months: int = 0

    @classmethod
    def of(cls, every: str) -> Period:
        """Read a length such as ``"1d"``.

        Parameters
        ----------
        every : str
            A number and a unit: ``s``, ``min``, ``h``, ``d``, ``w`` (from Monday), ``mo``, ``q`` or ``y``.

        Returns
        -------
        Period
            That length.

        Raises
        ------
        LabError
            It is something else.

        Examples
        --------
        >>> Period.of("6h").fine
        21600000
        """
        found = re.fullmatch(r"([1-9]\d{0,3})?(s|min|h|d|w|mo|q|y)", str(every).lower())
        if not found:
            raise LabError(
                f"every={every!r} is not a period. Give a number and a unit, such as '1h', '1d', '1w' (from "
                "Monday), '1mo', '1q' or '1y'; 'min' is a minute."
            )
        number, unit = int(found[1] or 1), found[2]
        if unit in MONTHS:
            return cls(DAY, 0, number * MONTHS[unit])
        return cls(number * FIXED[unit], MONDAY if unit == "w" else 0)

    def starts(self, cells: np.ndarray) -> np.ndarray:
        """Turn the engine's cells into moments at which periods start.

        Parameters
        ----------
        cells : numpy.ndarray of int64, shape (n,)
            How many times `fine` a moment lies after the origin, cut down.

        Returns
        -------
        numpy.ndarray of int64, shape (n,)
            Milliseconds since 1970, UTC.
        """
        moments = cells * self.fine + self.origin
        if not self.months:
            return moments
        months = moments.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        first = months // self.months * self.months
        return first.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
