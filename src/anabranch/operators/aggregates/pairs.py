"""Covariance, correlation and regression, from central moments of pairs of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.moments import CentralMoments, Floats, deviations
from anabranch.operators.aggregates.port import Segments
from anabranch.records.bins import Mask

_COVARIANCES = ("covar_pop", "covar_samp", "regr_sxy")


class Pairs(CentralMoments):
    """The functions of pairs (y, x) that follow from their second moments.

    The state is the number of pairs, both means, the sum of the products of the deviations and,
    except for covariances, the sums of their squares. Pairs with a NULL are ignored.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The count, the means and the moments."""
        names = ["mean_y", "mean_x", "c"]
        if self.spec.function not in _COVARIANCES:
            names += ["m2_y", "m2_x"]
        return [("n", pa.int64()), *((name, pa.float64()) for name in names)]

    def _of_step(self, step: Segments) -> list[Floats]:
        y, x = step.columns
        starts = step.shape.starts
        if y.null_count or x.null_count:
            lost = pc.or_(y.is_null(), x.is_null())
            nothing = pa.scalar(None, pa.float64())
            y, x = pc.if_else(lost, nothing, y), pc.if_else(lost, nothing, x)
        n = reduce.count(y, starts, step.shape.rows).astype(np.float64)
        some = np.maximum(n, 1)
        mean_y, away_y = deviations(replace(step, columns=(y,)), y, some)
        mean_x, away_x = deviations(replace(step, columns=(x,)), x, some)
        moments = [n, mean_y, mean_x, np.add.reduceat(away_y * away_x, starts)]
        if self.spec.function not in _COVARIANCES:
            moments += [np.add.reduceat(away**2, starts) for away in (away_y, away_x)]
        return moments

    def _union(self, old: list[Floats], new: list[Floats]) -> list[Floats]:
        (na, ya, xa, ca, *a_squares), (nb, yb, xb, cb, *b_squares) = old, new
        n = na + nb
        some = np.where(n == 0, 1.0, n)
        dy, dx = yb - ya, xb - xa
        weight = na * nb / some
        both = [n, ya + dy * nb / some, xa + dx * nb / some, ca + cb + dy * dx * weight]
        pairs = zip(a_squares, b_squares, (dy, dx), strict=False)
        return both + [a + b + delta * delta * weight for a, b, delta in pairs]

    def _value(self, state: list[Floats]) -> tuple[Floats, Mask]:
        n, mean_y, mean_x, c, *squares = state
        match self.spec.function:
            case "covar_pop":
                return c / n, n == 0
            case "covar_samp":
                return c / (n - 1), n <= 1
            case "regr_sxy":
                return c, n == 0
            case "corr":
                both = squares[0] * squares[1]
                return c / np.sqrt(both), (n <= 1) | (both == 0)
        return self._regression(mean_y, mean_x, c, *squares), (n <= 1) | (squares[1] == 0)

    def _regression(
        self, mean_y: Floats, mean_x: Floats, c: Floats, m2_y: Floats, m2_x: Floats
    ) -> Floats:
        """The slope, intercept or R² of the regression line."""
        slope = c / m2_x
        if self.spec.function == "regr_slope":
            return slope
        if self.spec.function == "regr_intercept":
            return mean_y - slope * mean_x
        return np.where(m2_y == 0, 1.0, c * slope / m2_y)
