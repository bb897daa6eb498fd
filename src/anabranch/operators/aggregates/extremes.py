"""The least and the greatest value, what stands beside it, and bits of all values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.lists import Flat, flat, join_flat, lengths_of, offsets_of
from anabranch.operators.aggregates.port import FunctionSpec, Segments, State, numbers, valid
from anabranch.operators.order.sort_columns import codes
from anabranch.records.layout import nullable


@dataclass(frozen=True, slots=True)
class Extreme:
    """``min``, ``max`` and their like for truth values, ``bool_and`` and ``bool_or``."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value."""
        return [("", self.given.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """The lesser or greater of what was and what came."""
        if self.given.function in ("min", "bool_and"):
            return [
                reduce.lesser(before[0], reduce.least_of_segments(step.values, step.shape.starts))
            ]
        return [
            reduce.greater(before[0], reduce.greatest_of_segments(step.values, step.shape.starts))
        ]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The value."""
        return kept[0]


@dataclass(frozen=True, slots=True)
class BestBy:
    """``min_by`` and ``max_by``: the value beside the least or greatest; of equals, the first.

    With a number, the values beside so many of the least or greatest, in that order.
    """

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The values and what they were chosen by."""
        return [
            ("values", pa.list_(self.given.kind)),
            ("by", pa.list_(nullable(self.given.kinds[1]))),
        ]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Choose among what was and what came."""
        counts = np.flatnonzero(valid(step.columns[1]))
        arrived = Flat(step.columns, step.shape.segment).take(counts)
        everything = join_flat(flat(before), arrived)
        by, owner = codes(everything.columns[1]), everything.owner
        # Inverting the bits of numbers turns their order around.
        upwards = by if self.given.function == "min_by" else ~by
        order = np.lexsort((upwards, owner))
        place = np.arange(len(order)) - offsets_of(owner, len(step))[owner[order]]
        return everything.take(order[place < self._wanted]).lists(len(step), step.where)

    def shown(self, kept: State, where: str) -> pa.Array:
        """The values, or the only one; NULL where there is none."""
        some = pa.array(lengths_of(kept[0]) > 0)
        if self.given.parameters[0]:
            return pc.if_else(some, kept[0], pa.scalar(None, kept[0].type))
        place = np.cumsum(lengths_of(kept[0])) - 1
        return (
            kept[0].flatten().take(pc.if_else(some, pa.array(place), pa.scalar(None, pa.int64())))
        )

    @property
    def _wanted(self) -> int:
        number = self.given.parameters[0]
        assert not isinstance(number, tuple | str)
        return max(int(number), 1)


_Reduceat = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.NDArray[Any]]
_BITS: dict[str, tuple[int, _Reduceat, Callable[..., pa.Array]]] = {
    "bit_and": (-1, np.bitwise_and.reduceat, pc.bit_wise_and),
    "bit_or": (0, np.bitwise_or.reduceat, pc.bit_wise_or),
    "bit_xor": (0, np.bitwise_xor.reduceat, pc.bit_wise_xor),
}


@dataclass(frozen=True, slots=True)
class BitwiseExtreme:
    """``bit_and``, ``bit_or``, ``bit_xor``."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The bits."""
        return [("", self.given.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Combine the bits; NULL is nothing."""
        neutral, reduceat, both = _BITS[self.given.function]
        column, starts = step.values, step.shape.starts
        kind = self.given.kind.to_pandas_dtype()
        dense = np.where(valid(column), numbers(column, kind), kind(neutral))
        none = reduce.count(column, starts, step.shape.rows) == 0
        part = pa.array(reduceat(dense, starts), type=self.given.kind, mask=none)
        return [pc.coalesce(both(before[0], part), before[0], part)]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The bits."""
        return kept[0]
