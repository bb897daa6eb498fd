"""``first``, ``last``, ``any_value``: the value of the first or last row in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import Mask, PlainFunction, Segments, State, valid


@dataclass(frozen=True, slots=True)
class FirstOrLast(PlainFunction):
    """The first or the last value; ``any_value`` is the first.

    Unless NULLs are ignored, NULL is a value, and ``seen`` distinguishes it from no value.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value and, unless NULLs are ignored, whether there is one."""
        value = ("", self.spec.kind)
        return [value] if self.spec.parameters[0] else [value, ("seen", pa.bool_())]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Prefer the old value for the first, the step's value for the last."""
        keys, starts = len(step), step.shape.starts
        rows = np.arange(step.shape.rows)
        counts = self._counts(step)
        if self.spec.function == "last":
            place = np.maximum.reduceat(np.where(counts, rows, -1), starts)
            some = place >= 0
            use_old = ~some
        else:
            place = np.minimum.reduceat(np.where(counts, rows, step.shape.rows), starts)
            some = place < step.shape.rows
            use_old = self._has_value(before) | ~some
        chosen = np.where(use_old, np.arange(keys), keys + place)
        value = pa.concat_arrays([before[0], step.values]).take(pa.array(chosen))
        if self.spec.parameters[0]:
            return [value]
        return [value, pa.array(self._has_value(before) | some)]

    def _counts(self, step: Segments) -> Mask:
        """Which rows count."""
        if self.spec.parameters[0]:
            return valid(step.values)
        if len(step.columns) == 1:
            return np.ones(step.shape.rows, dtype=np.bool_)
        counts: Mask = step.columns[1].to_numpy(zero_copy_only=False)
        return counts

    def _has_value(self, before: State) -> Mask:
        if self.spec.parameters[0]:
            return valid(before[0])
        seen: Mask = before[1].fill_null(False).to_numpy(zero_copy_only=False)
        return seen
