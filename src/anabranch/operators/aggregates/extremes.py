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
from anabranch.operators.aggregates.port import Given, Segments, State, numbers, valid
from anabranch.operators.ordering import codes
from anabranch.state.layout import nullable


@dataclass(frozen=True, slots=True)
class Extreme:
    """``min``, ``max`` and their like for truth values, ``bool_and`` and ``bool_or``."""

    given: Given
    depends_on_order = False

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value."""
        return [("", self.given.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """The lesser or greater of what was and what came."""
        if self.given.function in ("min", "bool_and"):
            return [reduce.lesser(before[0], reduce.least(step.values, step.shape.starts))]
        return [reduce.greater(before[0], reduce.greatest(step.values, step.shape.starts))]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The value."""
        return kept[0]


@dataclass(frozen=True, slots=True)
class BestBy:
    """``min_by`` and ``max_by``: the value beside the least or greatest; of equals, the first."""

    given: Given
    depends_on_order = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The value and what it was chosen by, which is NULL while there is none."""
        return [("", self.given.kind), ("by", nullable(self.given.kinds[1]))]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Choose among what was and what came."""
        everything = [
            pa.concat_arrays([old, new]) for old, new in zip(before, step.columns, strict=True)
        ]
        owner = np.concatenate((np.arange(len(step)), step.shape.segment))
        rows = np.flatnonzero(valid(everything[1]))
        owner, by = owner[rows], codes(everything[1].take(pa.array(rows)))
        # Codes count upwards from any number: inverting their bits turns their order around.
        order = np.lexsort((rows, by if self.given.function == "min_by" else ~by, owner))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = owner[order][1:] != owner[order][:-1]
        best = order[first]
        place = np.zeros(len(step), dtype=np.int64)
        found = np.zeros(len(step), dtype=np.bool_)
        place[owner[best]], found[owner[best]] = rows[best], True
        chosen = pa.array(place, mask=~found)
        return [column.take(chosen) for column in everything]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The value."""
        return kept[0]


_Reduceat = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.NDArray[Any]]
_BITS: dict[str, tuple[int, _Reduceat, Callable[..., pa.Array]]] = {
    "bit_and": (-1, np.bitwise_and.reduceat, pc.bit_wise_and),
    "bit_or": (0, np.bitwise_or.reduceat, pc.bit_wise_or),
    "bit_xor": (0, np.bitwise_xor.reduceat, pc.bit_wise_xor),
}


@dataclass(frozen=True, slots=True)
class Bits:
    """``bit_and``, ``bit_or``, ``bit_xor``."""

    given: Given
    depends_on_order = False

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
