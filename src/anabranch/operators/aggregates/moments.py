"""Variance, skewness and kurtosis, from central moments.

A step's moments are computed in two passes (the mean, then deviations from it) and merged with the
state by Chan's and Pébay's formulas, which do not lose digits as sums of powers do.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.operators import reduce
from anabranch.operators.aggregates.port import Function, Segments, State, numbers, valid
from anabranch.records.bins import Mask

Floats: TypeAlias = npt.NDArray[np.float64]

_ORDERS = {"skewness": 3, "kurtosis": 4}
_NEEDS_TWO = ("var_samp", "stddev_samp")


class CentralMoments(Function):
    """The base of functions that follow from a number of rows, and means and moments of them."""

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's moments."""
        with np.errstate(all="ignore"):
            return _columns(self._of_step(step))

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The moments of the union; if one part is empty, those of the other."""
        old, new = [numbers(column) for column in before], [numbers(column) for column in after]
        with np.errstate(all="ignore"):
            both = self._union(old, new)
        parts = zip(old, new, both, strict=True)
        return _columns(
            [np.where(new[0] == 0, a, np.where(old[0] == 0, b, merged)) for a, b, merged in parts]
        )

    def result(self, state: State, where: str) -> pa.Array:
        """The function's value; NULL if it is not defined."""
        with np.errstate(all="ignore"):
            value, undefined = self._value([numbers(column) for column in state])
        return pa.array(value, mask=undefined)

    def _of_step(self, step: Segments) -> list[Floats]:
        raise NotImplementedError

    def _union(self, old: list[Floats], new: list[Floats]) -> list[Floats]:
        raise NotImplementedError

    def _value(self, state: list[Floats]) -> tuple[Floats, Mask]:
        raise NotImplementedError


class Moments(CentralMoments):
    """The functions of one number that follow from its central moments.

    The state is the number of values, their mean, and the sums of the second and, if needed, the
    third and fourth powers of the deviations from it.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The count, the mean and as many moments as the function needs."""
        moments = [(f"m{order}", pa.float64()) for order in range(2, self._highest + 1)]
        return [("n", pa.int64()), ("mean", pa.float64()), *moments]

    @property
    def _highest(self) -> int:
        return _ORDERS.get(self.spec.function, 2)

    def _of_step(self, step: Segments) -> list[Floats]:
        column, starts = step.values, step.shape.starts
        n = reduce.count(column, starts, step.shape.rows).astype(np.float64)
        mean, away = deviations(step, column, np.maximum(n, 1))
        powers = [np.add.reduceat(away**order, starts) for order in range(2, self._highest + 1)]
        return [n, mean, *powers]

    def _union(self, old: list[Floats], new: list[Floats]) -> list[Floats]:
        (na, mean, a2, *a_more), (nb, other, b2, *b_more) = old, new
        n = na + nb
        delta = other - mean
        share = delta / np.where(n == 0, 1.0, n)
        both = [n, mean + share * nb, a2 + b2 + delta * share * na * nb]
        if a_more:
            cubes = share**2 * delta * na * nb * (na - nb) + 3.0 * share * (na * b2 - nb * a2)
            both.append(a_more[0] + b_more[0] + cubes)
        if len(a_more) > 1:
            both.append(
                a_more[1]
                + b_more[1]
                + share**3 * delta * na * nb * (na * na - na * nb + nb * nb)
                + 6.0 * share**2 * (na * na * b2 + nb * nb * a2)
                + 4.0 * share * (na * b_more[0] - nb * a_more[0])
            )
        return both

    def _value(self, state: list[Floats]) -> tuple[Floats, Mask]:
        n, _, m2, *more = state
        match self.spec.function:
            case "regr_sxx" | "regr_syy":
                return m2, n == 0
            case "skewness":
                return np.sqrt(n) * more[0] / np.sqrt(m2 * m2 * m2), (n == 0) | (m2 == 0)
            case "kurtosis":
                return n * more[1] / (m2 * m2) - 3.0, (n == 0) | (m2 == 0)
        few = 1 if self.spec.function in _NEEDS_TWO else 0
        variance = m2 / (n - few)
        wants_root = self.spec.function.startswith("stddev")
        return np.sqrt(variance) if wants_root else variance, n <= few


def deviations(step: Segments, column: pa.Array, n: Floats) -> tuple[Floats, Floats]:
    """The mean of each segment, and the deviation of each value from it; 0 for NULL.

    The mean is computed from differences to the segment's first value, so equal values deviate by
    exactly 0. It is then corrected by the mean of the deviations.
    """
    starts, segment = step.shape.starts, step.shape.segment
    values, some = numbers(column), valid(column)
    rows = np.where(some, np.arange(len(values)), len(values))
    first = np.minimum(np.minimum.reduceat(rows, starts), len(values) - 1)
    base = values[first]
    rough = base + np.add.reduceat(np.where(some, values - base[segment], 0.0), starts) / n
    away = np.where(some, values - rough[segment], 0.0)
    left = np.add.reduceat(away, starts) / n
    return rough + left, np.where(some, away - left[segment], 0.0)


def _columns(moments: list[Floats]) -> list[pa.Array]:
    return [pa.array(moments[0].astype(np.int64)), *map(pa.array, moments[1:])]
