"""The lists of all keys at once, as flat values that each have an owner.

An owner is a key's place in the step. State lists are flattened, concatenated with the step's
values, sorted and cut with NumPy, and become lists again, without a loop over keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import Overflow
from anabranch.operators.order.row_order import Int64s, begins
from anabranch.operators.order.sort_columns import codes
from anabranch.records.bins import Mask

_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FlatLists:
    """Flattened lists: columns of equal length, and the owner of each row."""

    columns: tuple[pa.Array, ...]
    owner: Int64s

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def values(self) -> pa.Array:
        """The first column."""
        return self.columns[0]

    def take(self, places: Int64s) -> FlatLists:
        """The rows at these places."""
        index = pa.array(places)
        return FlatLists(tuple(c.take(index) for c in self.columns), self.owner[places])

    def by_owner(self) -> FlatLists:
        """The rows sorted by owner, stably."""
        return self.take(np.argsort(self.owner, kind="stable"))

    def order_by_value(self) -> tuple[Int64s, Mask]:
        """The places sorted by owner and value, and which of them begin a new value."""
        numbers = codes(self.values)
        order = np.lexsort((numbers, self.owner))
        return order, begins(numbers[order], self.owner[order])

    def distinct(self) -> FlatLists:
        """The distinct values of each owner, sorted."""
        order, new = self.order_by_value()
        return self.take(order[new])

    def lists(self, owners: int, where: str) -> list[pa.Array]:
        """A list per owner for each column; the rows must be sorted by owner."""
        if len(self) > _MOST:
            raise Overflow(
                f"the lists that one task changed in a step hold {len(self)} values, "
                f"more than {_MOST}",
                where=where,
                do="Use more workers or smaller steps, or an aggregate that keeps less.",
            )
        offsets = pa.array(offsets_of(self.owner, owners), type=pa.int32())
        return [pa.ListArray.from_arrays(offsets, column) for column in self.columns]


def offsets_of(owner: Int64s, owners: int) -> Int64s:
    """Where each owner's rows begin, and where the last end."""
    counts = np.bincount(owner, minlength=owners)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def flatten_lists(lists: Sequence[pa.Array]) -> FlatLists:
    """Flatten columns of lists, which have equal lengths row by row; NULL is an empty list."""
    lengths = lengths_of(lists[0])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return FlatLists(tuple(column.flatten() for column in lists), owner)


def lengths_of(lists: pa.Array) -> Int64s:
    """The length of each list; 0 for NULL."""
    lengths: Int64s = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def concat_lists(first: FlatLists, second: FlatLists) -> FlatLists:
    """The rows of the first, then those of the second, unsorted."""
    if not len(first):
        return second
    columns = tuple(
        pa.concat_arrays([one, two]) for one, two in zip(first.columns, second.columns, strict=True)
    )
    return FlatLists(columns, np.concatenate((first.owner, second.owner)))


def normalize_zeros(values: pa.Array) -> pa.Array:
    """The values with every -0.0 in them replaced by 0.0, which is equal in SQL."""
    kind = values.type
    if not _holds_floats(kind):
        return values
    if pa.types.is_struct(kind):
        parts = [normalize_zeros(part) for part in values.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(kind):
        offsets = np.concatenate(([0], np.cumsum(lengths_of(values))))
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), normalize_zeros(values.flatten()), mask=values.is_null()
        )
    zero = pa.scalar(0.0, kind)
    return pc.if_else(pc.equal(values, zero), zero, values)


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_floats(part.type) for part in kind)
    if pa.types.is_list(kind):
        return _holds_floats(kind.value_type)
    return bool(pa.types.is_floating(kind))
