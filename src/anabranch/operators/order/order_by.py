"""``order_by``: orders rows by their columns instead of the order in which they were read.

The order consists of the columns' values, not of their ranks within a task. So it means the same on
every worker, and rows can be compared with others anywhere downstream (R9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import AggregateNode, StatefulNode
from anabranch.dataflow.order_by import OrderColumn
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.order import sortable_ints
from anabranch.operators.order.row_order import READER_COLUMNS, Int64s, RowOrder, digits_of
from anabranch.operators.order.sort_columns import ranks
from anabranch.operators.rows import Rows
from anabranch.operators.tally import row_hashes
from anabranch.runs.keys import one_chunk


class Ordering(msgspec.Struct, frozen=True):
    """The order in which an operator gets its rows: by columns, then by their own order.

    If their own order is unknown (``keeps_order`` is false), ties are ordered by the content of the
    rows. Identical rows are numbered: which is which does not matter.
    """

    columns: tuple[OrderColumn, ...]
    keeps_order: bool

    def digits(self, given: int) -> int:
        """The number of order digits of rows that had ``given`` digits before."""
        width = 2 * len(self.columns)
        return width + given if self.keeps_order else width + 2 - READER_COLUMNS

    def apply(self, rows: Rows) -> Rows:
        """The same rows in the new order."""
        columns = [part for c in self.columns for part in _parts(rows.values.column(c.name), c)]
        if self.keeps_order:
            assert rows.order is not None
            columns += rows.order.columns
        else:
            columns.append(_content(rows))
            columns.append(digits_of(ranks(columns, len(rows))))  # identical rows
        return replace(rows, order=RowOrder(tuple(columns)))

    def undo(self, rows: Rows) -> Rows:
        """The rows in the order that they had before; in none if that is unknown."""
        if not self.keeps_order or rows.order is None:
            return replace(rows, order=None)
        return replace(rows, order=RowOrder(rows.order.columns[2 * len(self.columns) :]))


def ordering_of(typed: Typed, node: StatefulNode) -> Ordering | None:
    """The order that an operator requests; None if it uses that of its rows."""
    if not node.order_by:
        return None
    columns = [
        OrderColumn(argument if isinstance(node, AggregateNode) else field.name, column.descending)
        for column, (argument, field) in zip(node.order_by, order_fields(typed, node), strict=True)
    ]
    return Ordering(tuple(columns), typed.ordered(node.inputs[0]))


def order_fields(typed: Typed, node: StatefulNode) -> Sequence[tuple[str, pa.Field]]:
    """The columns that an operator orders by, each with its name in an aggregate's input.

    An aggregate gets only the values that it needs instead of whole rows.
    """
    row = typed.nodes[node.inputs[0]].row
    fields = []
    for place, column in enumerate(node.order_by):
        known = row.find(column.name)
        assert known is not None
        assert known.field is not None
        fields.append((f"o{place}", known.field))
    return fields


def _parts(column: pa.ChunkedArray, wanted: OrderColumn) -> tuple[Int64s, Int64s]:
    """Whether there is a value, and the value, as numbers that compare in the wanted order."""
    word = sortable_ints.to_words(one_chunk(column))
    assert word is not None
    numbers: Int64s = sortable_ints.dense(word).astype(np.int64)
    some: Int64s = word.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return some, ~numbers if wanted.descending else numbers


def _content(rows: Rows) -> Int64s:
    """A hash of the key and the content of each row, floating values included."""
    columns = {str(i): _hashable(one_chunk(column)) for i, column in enumerate(rows.values.columns)}
    return row_hashes(pa.table(columns), rows.hashes).view(np.int64)


def _hashable(column: pa.Array) -> pa.Array:
    """The column, in a form in which ``row_hashes`` does not skip floating values."""
    if pa.types.is_floating(column.type):
        return sortable_ints.to_words(column)
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()], type=pa.string())
    return column
