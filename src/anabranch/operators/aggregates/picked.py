"""``first``, ``last``, ``any_value``: the value of one row, by the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import FunctionSpec, Mask, Segments, State, valid


@dataclass(frozen=True, slots=True)
class Picked:
    """The first or the last value; ``any_value`` is the first.

    Unless NULLs are ignored, NULL is a value like any other, and ``seen`` tells it from none.
    """

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value, and whether there is one where that cannot be told from it."""
        value = ("", self.given.kind)
        return [value] if self.given.parameters[0] else [value, ("seen", pa.bool_())]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Keep what was, or take the step's; for the last, the other way round."""
        keys, starts = len(step), step.shape.starts
        rows = np.arange(step.shape.rows)
        counts = self._counts(step)
        if self.given.function == "last":
            place = np.maximum.reduceat(np.where(counts, rows, -1), starts)
            some = place >= 0
            use_old = ~some
        else:
            place = np.minimum.reduceat(np.where(counts, rows, step.shape.rows), starts)
            some = place < step.shape.rows
            use_old = self._seen(before) | ~some
        chosen = np.where(use_old, np.arange(keys), keys + place)
        value = pa.concat_arrays([before[0], step.values]).take(pa.array(chosen))
        if self.given.parameters[0]:
            return [value]
        return [value, pa.array(self._seen(before) | some)]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The value."""
        return kept[0]

    def _counts(self, step: Segments) -> Mask:
        """Which rows count."""
        if self.given.parameters[0]:
            return valid(step.values)
        if len(step.columns) == 1:
            return np.ones(step.shape.rows, dtype=np.bool_)
        kept: Mask = step.columns[1].to_numpy(zero_copy_only=False)
        return kept

    def _seen(self, before: State) -> Mask:
        if self.given.parameters[0]:
            return valid(before[0])
        seen: Mask = before[1].fill_null(False).to_numpy(zero_copy_only=False)
        return seen
