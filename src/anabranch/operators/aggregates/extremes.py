"""``min``, ``max``, ``min_by``, ``max_by`` and bitwise functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.lists import (
    FlatLists,
    concat_lists,
    flatten_lists,
    lengths_of,
    offsets_of,
)
from anabranch.operators.aggregates.port import (
    FunctionSpec,
    PlainFunction,
    Segments,
    State,
    numbers,
    valid,
)
from anabranch.operators.order.sort_columns import codes
from anabranch.records.layout import nullable


@dataclass(frozen=True, slots=True)
class Extreme(PlainFunction):
    """``min``, ``max``, and ``bool_and``, ``bool_or``, which are the same for booleans."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value."""
        return [("", self.spec.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Keep the lesser or greater of the state and the step's values."""
        if self.spec.function in ("min", "bool_and"):
            return [
                reduce.lesser(before[0], reduce.least_of_segments(step.values, step.shape.starts))
            ]
        return [
            reduce.greater(before[0], reduce.greatest_of_segments(step.values, step.shape.starts))
        ]


@dataclass(frozen=True, slots=True)
class BestBy:
    """``min_by``, ``max_by``: the value in the row of the minimum or maximum; of ties, the first.

    With a number *n*, the values in the rows of the *n* least or greatest, in that order.
    """

    spec: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The values and their sort keys."""
        return [
            ("values", pa.list_(self.spec.kind)),
            ("by", pa.list_(nullable(self.spec.kinds[1]))),
        ]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Choose among the state and the step's rows."""
        counts = np.flatnonzero(valid(step.columns[1]))
        arrived = FlatLists(step.columns, step.shape.segment).take(counts)
        everything = concat_lists(flatten_lists(before), arrived)
        by, owner = codes(everything.columns[1]), everything.owner
        # Inverting the bits of numbers reverses their order.
        upwards = by if self.spec.function == "min_by" else ~by
        order = np.lexsort((upwards, owner))
        place = np.arange(len(order)) - offsets_of(owner, len(step))[owner[order]]
        return everything.take(order[place < self._limit]).lists(len(step), step.where)

    def result(self, state: State, where: str) -> pa.Array:
        """The values, or the only one; NULL if there are none."""
        some = pa.array(lengths_of(state[0]) > 0)
        if self.spec.parameters[0]:
            return pc.if_else(some, state[0], pa.scalar(None, state[0].type))
        place = np.cumsum(lengths_of(state[0])) - 1
        return (
            state[0].flatten().take(pc.if_else(some, pa.array(place), pa.scalar(None, pa.int64())))
        )

    @property
    def _limit(self) -> int:
        number = self.spec.parameters[0]
        assert not isinstance(number, tuple | str)
        return max(int(number), 1)


_Reduceat = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.NDArray[Any]]
_BITS: dict[str, tuple[int, _Reduceat, Callable[..., pa.Array]]] = {
    "bit_and": (-1, np.bitwise_and.reduceat, pc.bit_wise_and),
    "bit_or": (0, np.bitwise_or.reduceat, pc.bit_wise_or),
    "bit_xor": (0, np.bitwise_xor.reduceat, pc.bit_wise_xor),
}


@dataclass(frozen=True, slots=True)
class BitwiseExtreme(PlainFunction):
    """``bit_and``, ``bit_or``, ``bit_xor``."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The bits."""
        return [("", self.spec.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Combine the bits, ignoring NULL."""
        neutral, reduceat, both = _BITS[self.spec.function]
        column, starts = step.values, step.shape.starts
        kind = self.spec.kind.to_pandas_dtype()
        dense = np.where(valid(column), numbers(column, kind), kind(neutral))
        none = reduce.count(column, starts, step.shape.rows) == 0
        part = pa.array(reduceat(dense, starts), type=self.spec.kind, mask=none)
        return [pc.coalesce(both(before[0], part), before[0], part)]
