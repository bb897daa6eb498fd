"""``collect_list``, ``listagg``, and everything over different values, kept as a sorted set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators import reduce
from anabranch.operators.aggregates.lists import (
    Flat,
    flat,
    join_flat,
    lengths_of,
    offsets_of,
    one_zero,
)
from anabranch.operators.aggregates.port import FunctionSpec, Segments, State
from anabranch.operators.aggregates.sums import divide_sums, mean_sum_kind


@dataclass(frozen=True, slots=True)
class CollectList:
    """``collect_list``: all values but NULL, in the order of the rows."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The list."""
        return [("", pa.list_(self.given.kind))]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Append."""
        values, owner = step.present()
        everything = join_flat(flat(before), Flat((values,), owner))
        return everything.by_owner().lists(len(step), step.where)

    def shown(self, kept: State, where: str) -> pa.Array:
        """The list."""
        return kept[0]


@dataclass(frozen=True, slots=True)
class Joined:
    """``listagg``: texts one after the other, in the order of the rows, a delimiter between."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The text so far."""
        return [("", self.given.kind)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Append."""
        values, owner = step.present()
        part = _joined_texts(Flat((values,), owner), len(step), self.given, step.where)
        both = pc.binary_join_element_wise(before[0], part, self.given.parameters[0])
        return [pc.coalesce(both, before[0], part)]

    def shown(self, kept: State, where: str) -> pa.Array:
        """The text."""
        return kept[0]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Every function of different values: they are kept as a set, sorted.

    ``collect_set`` shows it. NaN is one value, and so are 0.0 and -0.0.
    """

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The set as a sorted list."""
        return [("", pa.list_(self.given.kind))]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Add what is new to the sets."""
        values, owner = step.present()
        arrived = Flat((one_zero(values),), owner).distinct()
        everything = join_flat(flat(before), arrived)
        merged = arrived if everything is arrived else everything.distinct()
        return merged.lists(len(step), step.where)

    def shown(self, kept: State, where: str) -> pa.Array:
        """The set, its size, its sum, its mean or its texts in a row."""
        function = self.given.function
        if function == "collect_set":
            return kept[0]
        if function == "count_distinct":
            return pa.array(lengths_of(kept[0]), type=pa.int64())
        if function == "listagg_distinct":
            return _joined_texts(flat(kept), len(kept[0]), self.given, where)
        if function == "sum_distinct":
            return _sums(kept[0], self.given.result, where)
        sums = _sums(kept[0], mean_sum_kind(self.given.kinds[0]), where)
        counts = pa.array(lengths_of(kept[0]), type=pa.int64())
        return divide_sums(sums, counts, self.given.result, where)


def _sums(lists: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """The sum of each list; NULL for an empty one."""
    found = flat([lists])
    some = lengths_of(lists) > 0
    if not some.any():
        return pa.nulls(len(lists), kind)
    starts = offsets_of(found.owner, len(lists))[:-1][some]
    sums = reduce.sum_segments(found.values, starts, kind, where)
    place = np.cumsum(some) - 1
    return sums.take(pa.array(place, mask=~some))


def _joined_texts(texts: Flat, owners: int, given: FunctionSpec, where: str) -> pa.Array:
    """The texts of each owner as one; NULL where there is none."""
    lists = texts.lists(owners, where)[0]
    rows = pc.binary_join(lists, given.parameters[0])
    return pc.if_else(pa.array(lengths_of(lists) > 0), rows, pa.scalar(None, rows.type))
