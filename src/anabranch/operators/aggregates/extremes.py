"""``min``, ``max``, ``min_by``, ``max_by`` and bitwise functions."""

from __future__ import annotations

from collections.abc import Callable
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
from anabranch.operators.aggregates.port import Function, Segments, State, numbers, valid
from anabranch.operators.order.sort_columns import codes
from anabranch.records.layout import nullable


class Extreme(Function):
    """``min``, ``max``, and ``bool_and``, ``bool_or``, which are the same for booleans."""

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The least or greatest of the step's values."""
        return [reduce.extreme_of_segments(step.values, step.shape.starts, least=self._least)]

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The lesser or greater of both."""
        return [reduce.extreme_of_two(before[0], after[0], least=self._least)]

    @property
    def _least(self) -> bool:
        return self.spec.function in ("min", "bool_and")


class BestBy(Function):
    """``min_by``, ``max_by``: the value in the row of the minimum or maximum; of ties, the first.

    With a number *n*, the values in the rows of the *n* least or greatest, in that order.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The values and their sort keys."""
        return [
            ("values", pa.list_(self.spec.kind)),
            ("by", pa.list_(nullable(self.spec.kinds[1]))),
        ]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The best of the step's rows."""
        counts = np.flatnonzero(valid(step.columns[1]))
        rows = FlatLists(step.columns, step.shape.segment).take(counts)
        return self._best(rows, len(step)).lists(len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The best of both."""
        both = concat_lists(flatten_lists(before), flatten_lists(after))
        return self._best(both, len(before[0])).lists(len(before[0]), where)

    def _best(self, rows: FlatLists, owners: int) -> FlatLists:
        by, owner = codes(rows.columns[1]), rows.owner
        # Inverting the bits of numbers reverses their order.
        upwards = by if self.spec.function == "min_by" else ~by
        order = np.lexsort((upwards, owner))
        place = np.arange(len(order)) - offsets_of(owner, owners)[owner[order]]
        return rows.take(order[place < self._limit])

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


class BitwiseExtreme(Function):
    """``bit_and``, ``bit_or``, ``bit_xor``, which ignore NULL."""

    def reduce(self, step: Segments) -> list[pa.Array]:
        """Combine the bits of the step's values."""
        neutral, reduceat, _ = _BITS[self.spec.function]
        column, starts = step.values, step.shape.starts
        kind = self.spec.kind.to_pandas_dtype()
        dense = np.where(valid(column), numbers(column, kind), kind(neutral))
        none = reduce.count(column, starts, step.shape.rows) == 0
        return [pa.array(reduceat(dense, starts), type=self.spec.kind, mask=none)]

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Combine the bits of both."""
        both = _BITS[self.spec.function][2](before[0], after[0])
        return [pc.coalesce(both, before[0], after[0])]
