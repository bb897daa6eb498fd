"""``collect_list``, ``listagg``, and all functions of distinct values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.lists import (
    FlatLists,
    concat_lists,
    flatten_lists,
    lengths_of,
    normalize_zeros,
    offsets_of,
)
from anabranch.operators.aggregates.port import Function, FunctionSpec, Segments, State
from anabranch.operators.aggregates.sums import divide_sums, mean_sum_kind


class CollectList(Function):
    """``collect_list``: all values except NULL, in the order of the rows."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The list."""
        return [("", pa.list_(self.spec.kind))]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's values."""
        values, owner = step.present()
        return FlatLists((values,), owner).lists(len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Append."""
        both = concat_lists(flatten_lists(before), flatten_lists(after))
        return both.by_owner().lists(len(before[0]), where)


class ListAgg(Function):
    """``listagg``: the texts joined by a delimiter, in the order of the rows."""

    def reduce(self, step: Segments) -> list[pa.Array]:
        """Join the step's texts."""
        values, owner = step.present()
        return [_join_texts(FlatLists((values,), owner), len(step), self.spec, step.where)]

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Append."""
        both = pc.binary_join_element_wise(before[0], after[0], self.spec.parameters[0])
        return [pc.coalesce(both, before[0], after[0])]


class Distinct(Function):
    """The functions of distinct values, which are kept as a sorted set.

    ``collect_set`` returns the set. NaN is one value, and so are 0.0 and -0.0.
    """

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The set as a sorted list."""
        return [("", pa.list_(self.spec.kind))]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's values."""
        values, owner = step.present()
        return FlatLists((normalize_zeros(values),), owner).distinct().lists(len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The union of both sets."""
        both = concat_lists(flatten_lists(before), flatten_lists(after))
        return both.distinct().lists(len(before[0]), where)

    def result(self, state: State, where: str) -> pa.Array:
        """The set, its size, its sum, its mean or its joined texts."""
        function = self.spec.function
        if function == "collect_set":
            return state[0]
        if function == "count_distinct":
            return pa.array(lengths_of(state[0]), type=pa.int64())
        if function == "listagg_distinct":
            return _join_texts(flatten_lists(state), len(state[0]), self.spec, where)
        if function == "sum_distinct":
            return _sums(state[0], self.spec.result, where)
        sums = _sums(state[0], mean_sum_kind(self.spec.kinds[0]), where)
        counts = pa.array(lengths_of(state[0]), type=pa.int64())
        return divide_sums(sums, counts, self.spec.result, where)


def _sums(lists: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """The sum of each list; NULL for an empty list."""
    values = flatten_lists([lists])
    some = lengths_of(lists) > 0
    if not some.any():
        return pa.nulls(len(lists), kind)
    starts = offsets_of(values.owner, len(lists))[:-1][some]
    sums = reduce.sum_segments(values.values, starts, kind, where)
    place = np.cumsum(some) - 1
    return sums.take(pa.array(place, mask=~some))


def _join_texts(texts: FlatLists, owners: int, spec: FunctionSpec, where: str) -> pa.Array:
    """The joined texts of each owner; NULL if it has none."""
    lists = texts.lists(owners, where)[0]
    rows = pc.binary_join(lists, spec.parameters[0])
    return pc.if_else(pa.array(lengths_of(lists) > 0), rows, pa.scalar(None, rows.type))
