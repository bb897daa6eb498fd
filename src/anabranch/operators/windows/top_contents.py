"""The first rows of each window by an order: only those that can still be among them are kept.

The state has a list for each column of the rows, with the rows in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.dataflow.order_by import OrderColumn
from anabranch.operators.aggregates.lists import (
    FlatLists,
    concat_lists,
    flatten_lists,
    normalize_zeros,
    offsets_of,
)
from anabranch.operators.aggregates.port import State, valid
from anabranch.operators.order.row_order import Int64s, begins
from anabranch.operators.order.sort_columns import codes
from anabranch.operators.windows.contents import KeyedWindows, fit_columns
from anabranch.records.bins import Mask
from anabranch.records.layout import nullable
from anabranch.runs.keys import one_chunk

RANK_TYPE = pa.int32()


@dataclass(frozen=True)
class TopContents:
    """The first ``count`` rows, ordered by the columns ``by``, NULL last.

    Of equal rows the first to come is the first. With ``ties``, all rows that equal the last one
    are kept, and equal rows have one rank. ``rows`` are the columns of the input, ``schema`` those
    of the output: the input's, the window's if the input has none, and the rank.
    """

    operator: str
    count: int
    by: tuple[OrderColumn, ...]
    ties: bool
    rows: pa.Schema
    schema: pa.Schema

    @cached_property
    def state(self) -> pa.Schema:
        """A list for each column."""
        return pa.schema(
            [pa.field(column.name, pa.list_(nullable(column.type))) for column in self.rows]
        )

    def reduce(self, values: pa.Table, places: Int64s, starts: Int64s) -> State:
        """The first rows of each segment."""
        lengths = np.diff(np.append(starts, len(places)))
        index = pa.array(places)
        columns = tuple(
            fit_column(one_chunk(values.column(i)).take(index), list_field.type.value_type)
            for i, list_field in enumerate(self.state)
        )
        flat = FlatLists(columns, np.repeat(np.arange(len(starts)), lengths))
        return self._lists(self._first(flat, len(starts)), len(starts))

    def merge(self, before: State, after: State) -> State:
        """The first rows of both."""
        return self.merge_marked(before, after)[0]

    def merge_marked(self, before: State, after: State) -> tuple[State, Mask]:
        """The first rows of both, and which of the lists a row of ``after`` has changed."""
        owners = len(before[0])
        held = flatten_lists(before)
        both = concat_lists(held, flatten_lists(after))
        chosen, _ = self._chosen(both, owners)
        kept = both.take(chosen)
        changed = np.zeros(owners, dtype=np.bool_)
        changed[kept.owner[chosen >= len(held)]] = True
        return self._lists(kept, owners), changed

    def output(self, windows: KeyedWindows) -> tuple[pa.Table, Int64s | None]:
        """The rows of each window, with the window if the input has none, and the rank."""
        flat = flatten_lists(windows.state)
        _, ranks = self._chosen(flat, len(windows))
        columns = list(flat.columns)
        if len(self.schema) > len(self.rows) + 1:
            index = pa.array(flat.owner)
            columns += [column.take(index) for column in windows.window_columns()]
        columns.append(pa.array(ranks + 1, type=RANK_TYPE))
        return fit_columns(columns, self.schema), flat.owner

    def _first(self, flat: FlatLists, owners: int) -> FlatLists:
        return flat.take(self._chosen(flat, owners)[0])

    def _chosen(self, flat: FlatLists, owners: int) -> tuple[Int64s, Int64s]:
        """The places of the rows to keep, sorted, and the rank of each from 0."""
        numbers = [part for column in self.by for part in self._order(flat, column)]
        order = np.lexsort((*reversed(numbers), flat.owner)).astype(np.int64, copy=False)
        owner = flat.owner[order]
        place = np.arange(len(order)) - offsets_of(flat.owner, owners)[owner]
        if self.ties and len(order):
            new = begins(owner, *(part[order] for part in numbers))
            place = place[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
        kept = place < self.count
        return order[kept], place[kept]

    def _order(self, flat: FlatLists, by: OrderColumn) -> tuple[Int64s, Int64s]:
        """Whether there is no value, and numbers that compare as the values should."""
        column = flat.columns[self.rows.get_field_index(by.name)]
        some = valid(column)
        numbers = np.zeros(len(column), dtype=np.int64)
        found = codes(normalize_zeros(column.drop_null() if column.null_count else column))
        # Inverting the bits of numbers reverses their order.
        numbers[some] = ~found if by.descending else found
        return (~some).astype(np.int64), numbers

    def _lists(self, flat: FlatLists, owners: int) -> State:
        return flat.lists(owners, f"operator {self.operator}")


def fit_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in a type that differs at most in which nested fields may be NULL."""
    return column if column.type == kind else column.cast(kind)


def by_text(by: Sequence[OrderColumn]) -> str:
    """The order as the user writes it.

    >>> by_text([OrderColumn("n", True), OrderColumn("id")])
    'n desc, id'
    """
    return ", ".join(f"{each.name} desc" if each.descending else each.name for each in by)
