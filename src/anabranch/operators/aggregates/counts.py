"""``count``, ``count_if``, ``regr_count``: the number of rows, or of values that are not NULL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from anabranch.operators import reduce
from anabranch.operators.aggregates.port import PlainFunction, Segments, State


@dataclass(frozen=True, slots=True)
class Count(PlainFunction):
    """Counts values that are not NULL, or every row if the function has no argument."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The count."""
        return [("", pa.int64())]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Add the step's rows."""
        column = step.columns[0] if step.columns else None
        found = reduce.count(column, step.shape.starts, step.shape.rows)
        return [reduce.add_columns(before[0], pa.array(found, type=pa.int64()), step.where)]
