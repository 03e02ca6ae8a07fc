"""The regression behind cost curves: its columns, what it expects of an order, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

# Costs depend on these factors besides venue and size. Orders of one cell have all of them in common.
FACTORS = ("market", "side", "hour")
CELL = (*FACTORS, "fill_type", "step")
# Sizes are rounded to so many steps of the natural logarithm: costs differ by less within a step than between
# orders, and orders of one step can be added up.
STEPS = 4
# Where the pieces of a cubic spline meet: quantiles of the sizes that Harrell recommends for four knots.
KNOTS = (0.05, 0.35, 0.65, 0.95)
# A curve that follows from the orders is reproduced by the fit up to rounding; any other misses by far more.
ROUNDING = 1e-6
# What the orders without a cluster know of the coefficients is made larger by this part of what all orders know. It
# changes no digit of a coefficient that follows from them; one that does not follow stays as it is.
KEPT = 1e-12


class CostFit:
    """All-in costs of orders, regressed on a curve of size for each venue, and on effects of the other factors.

    Parameters
    ----------
    cells : pandas.DataFrame
        A row for each `CELL`, with ``orders`` and the sum ``cost`` of their costs.
    """

    def __init__(self, cells: pd.DataFrame) -> None:
        self.cells = cells
        self._orders = cells["orders"].to_numpy(np.float64)
        self._venues = list(cells["fill_type"].unique())
        self._knots = np.unique(sizes_at(cells, KNOTS))
        # Effects are differences from the first value of each factor.
        self._effects = [
            (name, value)
            for name in FACTORS
            for value in sorted(cells[name].unique())[1:]
        ]
        self._rows = self._design(cells)
        self._mean_row = self._mean(self._rows)
        # A mean of several orders says as much as they do; its weight is their number. Of what the orders do not tell
        # apart, the shortest solution is found, and `estimates` gives nothing.
        root = np.sqrt(self._orders)
        weighted = self._rows * root[:, None]
        inverse = np.linalg.pinv(weighted)
        # This gives back the rows that follow from the orders, and no others.
        self._told = inverse @ weighted
        self._coefficients = inverse @ (cells["cost"].to_numpy() / root)
        self.expected = self._rows @ self._coefficients
        # The last columns are the effects.
        self._first_effect = self._rows.shape[1] - len(self._effects)

    def jackknife(self, parts: pd.DataFrame) -> np.ndarray:
        """Return the covariance of the coefficients by leaving out each cluster (CRV3), see `engine.clusters`.

        `parts` are the cells of each ``cluster``, by their ``place`` among those of the fit, with ``orders`` and the
        sum ``cost``.
        """
        whole = self._rows.T @ (self._rows * self._orders[:, None])
        kept = np.diag(KEPT * np.diag(whole))
        # Rows come in any order, and a sum of floats has its last digits from theirs.
        in_order = parts.sort_values(["cluster", "place"])
        moved = []
        for _, own in in_order.groupby("cluster"):
            cells = own["place"].to_numpy()
            rows = self._rows[cells]
            orders = own["orders"].to_numpy(np.float64)
            rest = own["cost"].to_numpy() - orders * self.expected[cells]
            left = whole - rows.T @ (rows * orders[:, None]) + kept
            moved.append(np.linalg.solve(left, -rows.T @ rest))
        moves = np.array(moved)
        covariance: np.ndarray = (len(moves) - 1) / len(moves) * moves.T @ moves
        return covariance

    def variance_of_mix(self) -> float:
        """Return the variance of a curve's level that comes from which markets, sides and hours orders were in."""
        first = self._first_effect
        effects = self._rows[:, first:] @ self._coefficients[first:]
        off = effects - self._mean(effects)
        return float(self._mean(off**2) / self._orders.sum())

    def curve(self, venue: str, steps: np.ndarray) -> np.ndarray:
        """Return the rows of orders of these sizes at a venue, in the mean of all markets, sides and hours."""
        orders = pd.DataFrame({"fill_type": venue, "step": steps})
        rows = self._design(orders)
        first = self._first_effect
        rows[:, first:] = self._mean_row[first:]
        return rows

    def estimates(self, rows: np.ndarray) -> np.ndarray:
        """Return what the fit says of rows; NaN where it does not follow from the orders."""
        off = np.abs(rows @ self._told - rows).max(axis=1)
        follows = np.where(off < ROUNDING, 1.0, np.nan)
        expected: np.ndarray = rows @ self._coefficients
        return expected * follows

    def errors(
        self, rows: np.ndarray, covariance: np.ndarray, more_variance: float
    ) -> np.ndarray:
        """Return the standard errors of these."""
        variances = np.einsum("ij,jk,ik->i", rows, covariance, rows)
        errors: np.ndarray = np.sqrt(variances + more_variance)
        return errors

    def _mean(self, values: np.ndarray) -> Any:
        """Return the mean of all orders, of values or rows of the cells."""
        return self._orders @ values / self._orders.sum()

    def _design(self, orders: pd.DataFrame) -> np.ndarray:
        return np.column_stack(list(self._columns(orders)))

    def _columns(self, orders: pd.DataFrame) -> Iterator[np.ndarray]:
        """Yield the columns of the regression; of a factor that is not known, all are 0."""
        steps = orders["step"].to_numpy(np.float64)
        curve = list(natural_spline(steps, self._knots))
        for venue in self._venues:
            is_here = (orders["fill_type"] == venue).to_numpy()
            for column in curve:
                yield np.where(is_here, column, 0.0)
        unknown = pd.Series(index=orders.index, dtype=object)
        for name, value in self._effects:
            known = orders.get(name, unknown)
            has_value = known.isin([value])
            yield has_value.to_numpy(np.float64)


def sizes_at(cells: pd.DataFrame, parts: tuple[float, ...]) -> np.ndarray:
    """Return the steps of size below which these parts of the orders are."""
    by_step = cells.groupby("step")["orders"].sum().cumsum()
    wanted = np.array(parts) * by_step.iloc[-1]
    places = np.searchsorted(by_step, wanted)
    steps: np.ndarray = by_step.index.to_numpy(np.float64)[places]
    return steps


def natural_spline(steps: np.ndarray, knots: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the columns of a natural cubic spline: a constant, a line, and one for each inner knot.

    Beyond the first and the last knot it is straight (Harrell, "Regression Modeling Strategies", 2.4.5). With fewer
    than three knots it is a line.
    """
    # Sizes are in units of the natural logarithm, from the middle of the sizes.
    middle = np.median(knots)
    yield np.ones_like(steps)
    yield (steps - middle) / STEPS
    if len(knots) < 3:
        return

    def beyond(knot: float) -> np.ndarray:
        return np.clip(steps - knot, 0, None) ** 3

    last = knots[-1]
    previous = knots[-2]
    between = last - previous
    scale = STEPS * (last - knots[0]) ** 2
    for knot in knots[:-2]:
        bent = beyond(knot)
        bent -= beyond(previous) * (last - knot) / between
        bent += beyond(last) * (previous - knot) / between
        yield bent / scale
