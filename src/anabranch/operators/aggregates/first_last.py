"""``first``, ``last``, ``any_value``: the value of the first or last row in order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import Function, Segments, State, valid
from anabranch.records.bins import Mask


class FirstOrLast(Function):
    """The first or the last value; ``any_value`` is the first.

    Unless NULLs are ignored, NULL is a value, and ``seen`` distinguishes it from no value.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value and, unless NULLs are ignored, whether there is one."""
        value = ("", self.spec.kind)
        return [value] if self.spec.parameters[0] else [value, ("seen", pa.bool_())]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The first or last value of the step."""
        starts, rows = step.shape.starts, np.arange(step.shape.rows)
        counts = self._counts(step)
        if self.spec.function == "last":
            place = np.maximum.reduceat(np.where(counts, rows, -1), starts)
            some = place >= 0
        else:
            place = np.minimum.reduceat(np.where(counts, rows, step.shape.rows), starts)
            some = place < step.shape.rows
        value = step.values.take(pa.array(place, mask=~some))
        return [value] if self.spec.parameters[0] else [value, pa.array(some)]

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Prefer the old value for the first, the new one for the last."""
        had, has = self._has_value(before), self._has_value(after)
        use_old = ~has if self.spec.function == "last" else had | ~has
        places = np.arange(len(had)) + np.where(use_old, 0, len(had))
        value = pa.concat_arrays([before[0], after[0]]).take(pa.array(places))
        return [value] if self.spec.parameters[0] else [value, pa.array(had | has)]

    def _counts(self, step: Segments) -> Mask:
        """Which rows count."""
        if self.spec.parameters[0]:
            return valid(step.values)
        if len(step.columns) == 1:
            return np.ones(step.shape.rows, dtype=np.bool_)
        counts: Mask = step.columns[1].to_numpy(zero_copy_only=False)
        return counts

    def _has_value(self, state: State) -> Mask:
        if self.spec.parameters[0]:
            return valid(state[0])
        seen: Mask = state[1].fill_null(False).to_numpy(zero_copy_only=False)
        return seen
