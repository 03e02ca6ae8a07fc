"""The regression behind cost curves: its columns, what it expects of an order, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

# Costs depend on these factors besides venue, size and week. Orders of one cell have all of them in common.
FACTORS = ("market", "side", "hour")
CELL = (*FACTORS, "fill_type", "step")
# Sizes are rounded to so many steps of the natural logarithm: costs differ by less within a step than between
# orders, and orders of one step can be added up.
STEPS = 4
# Where the pieces of a cubic spline meet: quantiles of the sizes that Harrell recommends for four knots.
KNOTS = (0.05, 0.35, 0.65, 0.95)
# A curve that follows from the orders is reproduced by the fit up to rounding; any other misses by far more.
ROUNDING = 1e-6
# What orders know of a coefficient is rounding below this part of what they would know of it alone. What the orders
# without a cluster know is made larger by it, so that they can be solved; that changes no digit of a coefficient that
# follows from them.
KEPT = 1e-12


class CostFit:
    """All-in costs of orders, regressed on a curve of size for each venue, and on effects of weeks and other factors.

    An archive of ten years has 520 weeks. A regression on what orders cost beyond the mean of their week has the same
    coefficients as one with an effect for each week (Frisch, Waugh and Lovell), and no more columns for more weeks.

    Parameters
    ----------
    cells : pandas.DataFrame
        A row for each `CELL`, with ``orders`` and the sum ``cost`` of their costs.
    parts : pandas.DataFrame
        The same orders by ``week`` and ``place``, that of their cell among `cells`.
    """

    def __init__(self, cells: pd.DataFrame, parts: pd.DataFrame) -> None:
        self.cells = cells
        self._venues = list(cells["fill_type"].unique())
        self._knots = np.unique(sizes_at(cells, KNOTS))
        curves = self._curves(cells["fill_type"], cells["step"])
        self._width = curves.shape[1]
        self._rows = np.column_stack([curves, *_effects(cells)])

        # Sums of each week. Rows come in any order, and a sum of floats has its last digits from theirs.
        by_week = parts.sort_values(["week", "place"]).groupby("week")
        self._weeks = np.array(list(by_week.groups))
        self._totals = np.array([self._sum_of(own) for _, own in by_week])
        self._counts = by_week["orders"].sum().to_numpy(np.float64)
        self._paid = by_week["cost"].sum().to_numpy()
        self._means = self._totals / self._counts[:, None]

        # A mean of several orders says as much as they do; its weight is their number.
        weighted = self._rows * cells["orders"].to_numpy(np.float64)[:, None]
        whole = self._rows.T @ weighted
        self._square = whole - self._means.T @ self._totals
        product = self._rows.T @ cells["cost"].to_numpy()
        self._product = product - self._means.T @ self._paid
        # A size that all orders have has no slope, and nothing to scale.
        scale = np.diag(whole).copy()
        scale[scale == 0] = 1
        self._kept = np.diag(KEPT * scale)
        root = np.sqrt(scale)
        # Of what the orders do not tell apart, the shortest solution is found, and `estimates` gives nothing.
        scaled = self._square / np.outer(root, root)
        inverse = np.linalg.pinv(scaled, KEPT, hermitian=True) / np.outer(root, root)
        # This gives back the rows that follow from the orders, and no others.
        self._told = inverse @ self._square
        self._coefficients = inverse @ self._product

    def curve(self, venue: str, steps: np.ndarray) -> np.ndarray:
        """Return the rows of orders of these sizes at a venue, in the mean of all markets, sides, hours and weeks.

        The last column says how often this mean is in a row: once, and not in a difference of two.
        """
        venues = pd.Series([venue] * len(steps))
        rows = self._curves(venues, pd.Series(steps))
        return np.column_stack([rows, np.ones(len(steps))])

    def estimates(self, rows: np.ndarray) -> np.ndarray:
        """Return what the fit says of rows; NaN where it does not follow from the orders."""
        sums = self._totals.sum(axis=0), self._paid.sum(), self._counts.sum()
        curves, expected = self._expected(rows, self._coefficients, *sums)
        told = curves @ self._told[: self._width]
        told[:, : self._width] -= curves
        expected[np.abs(told).max(axis=1) > ROUNDING] = np.nan
        return expected

    def errors(self, rows: np.ndarray, parts: pd.DataFrame) -> np.ndarray:
        """Return the standard errors of rows, by leaving out each cluster in turn (CRV3), see `engine.clusters`.

        `parts` are the orders of each ``cluster``, by ``week`` and ``place``. An error has no end where a row does not
        follow from the orders without one of the clusters.
        """
        estimates = self.estimates(rows)
        squares = np.zeros(len(rows))
        # Parts are nearly as many as orders, so that only their numbers are put in order.
        clusters = parts["cluster"].to_numpy()
        in_order = np.lexsort((parts["place"], parts["week"], clusters))
        starts = np.flatnonzero(np.diff(clusters[in_order])) + 1
        own_parts = np.split(in_order, starts)
        for own in own_parts:
            moved = self._without(parts.iloc[own], rows) - estimates
            squares += np.where(np.isnan(moved), np.inf, moved**2)
        count = len(own_parts)
        errors: np.ndarray = np.sqrt((count - 1) / count * squares)
        return errors

    def _without(self, own: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
        """Return what orders say of rows without these, which are in order of weeks; NaN where that does not follow."""
        seen = self._rows[own["place"]]
        paid = own["cost"].to_numpy()
        orders = own["orders"].to_numpy(np.float64)
        weighted = seen * orders[:, None]
        weeks, starts = np.unique(own["week"], return_index=True)
        at = np.searchsorted(self._weeks, weeks)
        # Sums of these weeks without the orders; a week that has no others has nothing that a mean could change.
        totals = self._totals[at] - np.add.reduceat(weighted, starts)
        left_paid = self._paid[at] - np.add.reduceat(paid, starts)
        counts = self._counts[at] - np.add.reduceat(orders, starts)
        means = totals / np.maximum(counts, 1)[:, None]
        square = self._square - seen.T @ weighted
        square += self._means[at].T @ self._totals[at] - means.T @ totals
        product = self._product - seen.T @ paid
        product += self._means[at].T @ self._paid[at] - means.T @ left_paid

        rest = product - square @ self._coefficients
        curves_only = np.eye(len(square))[:, : self._width]
        solved = np.linalg.solve(
            square + self._kept, np.column_stack([rest, curves_only])
        )
        all_totals = self._totals.sum(axis=0) - weighted.sum(axis=0)
        curves, expected = self._expected(
            rows,
            self._coefficients + solved[:, 0],
            all_totals,
            self._paid.sum() - paid.sum(),
            self._counts.sum() - orders.sum(),
        )
        # What was added to be solved is all that is known of what does not follow.
        added = curves @ solved[:, 1:].T @ self._kept
        expected[np.abs(added).max(axis=1) > ROUNDING] = np.nan
        return expected

    def _expected(
        self,
        rows: np.ndarray,
        coefficients: np.ndarray,
        totals: np.ndarray,
        paid: float,
        count: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return how far the curves of rows are from the mean of all orders, and what is expected of the rows.

        The mean order costs the mean, so that effects of weeks, markets, sides and hours need not be known.
        """
        mean = rows[:, -1]
        curves = rows[:, :-1] - np.outer(mean, totals[: self._width] / count)
        return curves, mean * paid / count + curves @ coefficients[: self._width]

    def _sum_of(self, own: pd.DataFrame) -> np.ndarray:
        total: np.ndarray = (
            own["orders"].to_numpy(np.float64) @ self._rows[own["place"]]
        )
        return total

    def _curves(self, venues: pd.Series, steps: pd.Series) -> np.ndarray:
        """Return a spline of size for each venue, which is 0 at others."""
        spline = list(natural_spline(steps.to_numpy(np.float64), self._knots))
        columns = []
        for venue in self._venues:
            is_here = (venues == venue).to_numpy()
            columns += [np.where(is_here, column, 0.0) for column in spline]
        return np.column_stack(columns)


def _effects(cells: pd.DataFrame) -> Iterator[np.ndarray]:
    """Yield the columns of effects, which are differences from the first value of each factor."""
    for name in FACTORS:
        for value in sorted(cells[name].unique())[1:]:
            yield (cells[name] == value).to_numpy(np.float64)


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
