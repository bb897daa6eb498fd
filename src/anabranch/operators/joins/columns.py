"""The columns of a join: what it keeps of each side, and where its output comes from."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.joins import SIDE, JoinSide, Origin
from anabranch.operators.order.row_order import Int64s
from anabranch.records.bins import Mask
from anabranch.runs.keys import one_chunk


class JoinColumns(msgspec.Struct, frozen=True):
    """The columns that a join keeps of each side, those of its output, and where these come from.

    ``left`` and ``right`` are without the key, which rows have beside them.
    """

    left: pa.Schema
    right: pa.Schema
    output: pa.Schema
    origins: tuple[Origin, ...]

    def of(self, side: JoinSide) -> pa.Schema:
        """The columns kept of a side."""
        return self.right if side else self.left

    def kept(self, values: pa.Table, side: JoinSide, rows: Int64s) -> pa.Table:
        """The columns of a side in rows of the join's input, under their own names."""
        names = self.of(side).names
        places = pa.array(rows)
        columns = [values.column(side.prefix + name).take(places) for name in names]
        return pa.Table.from_arrays(columns, names=names)

    def joined(
        self, keys: pa.Table, left: PlacedRows, right: PlacedRows, window: pa.Table | None = None
    ) -> pa.Table:
        """The output: a row for each key, with the rows at the places of both sides."""
        parts = {"key": keys, "left": left.taken(), "right": right.taken(), "window": window}
        columns = []
        for origin, field in zip(self.origins, self.output, strict=True):
            part = parts[origin.part]
            assert part is not None
            column = one_chunk(part.column(origin.place))
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.output)


NO_ROW = -1
"""The place of no row."""


class PlacedRows(msgspec.Struct, frozen=True):
    """Rows at places of a table; ``NO_ROW`` is the place of none."""

    table: pa.Table
    places: Int64s

    def taken(self) -> pa.Table:
        """The rows, with NULL for none."""
        if not self.table.num_columns:
            return self.table
        none = self.places == NO_ROW
        return self.table.take(pa.array(self.places, pa.int64(), mask=none if none.any() else None))


def no_rows(table: pa.Table, count: int) -> PlacedRows:
    """As many times no row."""
    return PlacedRows(table, np.full(count, NO_ROW, dtype=np.int64))


def side_mask(values: pa.Table, side: JoinSide) -> Mask:
    """Which rows of a join's input are of this side."""
    mask: Mask = one_chunk(values.column(SIDE)).to_numpy() == side.value
    return mask
