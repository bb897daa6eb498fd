"""Calls the user's function with Arrow tables of the rows of closed windows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import BatchFunction
from anabranch.dataflow.naming import WINDOW
from anabranch.dataflow.types.schema import to_ddl
from anabranch.dataflow.windows import WINDOW_END, WINDOW_START
from anabranch.errors import OutputMismatch
from anabranch.operators.error_text import function_failed, short
from anabranch.operators.map_batches import fit_table, row_numbers
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.windows.contents import KeyedWindows


class WindowFunction(msgspec.Struct, frozen=True):
    """The function of an operator, the columns of its rows, and its output schema."""

    operator: str
    function: BatchFunction
    rows: pa.Schema
    output: pa.Schema

    def call(
        self, windows: KeyedWindows, values: pa.Table, window_of: Int64s
    ) -> tuple[pa.Table, Int64s]:
        """The function's rows for some windows, sorted by window, and the window of each.

        ``values`` are the rows of the windows, ``window_of`` says of which, and does not descend.
        """
        made = self._call(self._table(windows, values, window_of))
        numbers = self._windows(made, len(windows))
        order = np.argsort(numbers, kind="stable")
        fitting = fit_table(made, self.output, self._mismatch)
        return fitting.take(pa.array(order)), numbers[order]

    def _table(self, windows: KeyedWindows, values: pa.Table, window_of: Int64s) -> pa.Table:
        """The rows with their key, unless they have it themselves, and their window."""
        index = pa.array(window_of)
        given = {name.lower() for name in self.rows.names}
        keys = windows.keys
        named = [
            (name, column.take(index))
            for name, column in zip(keys.schema.names, keys.columns, strict=True)
            if name.lower() not in given
        ]
        times = zip((WINDOW_START, WINDOW_END), windows.window_columns(), strict=True)
        named += [(name, column.take(index)) for name, column in times]
        named += zip(self.rows.names, values.columns, strict=True)
        named.append((WINDOW, index))
        return pa.Table.from_arrays([column for _, column in named], [name for name, _ in named])

    def _call(self, given: pa.Table) -> pa.Table:
        try:
            made: Any = self.function(given)
        except Exception as error:
            raise function_failed(self.function, error, f"operator {self.operator}") from error
        if isinstance(made, pa.RecordBatch):
            return pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise self._mismatch(f"returned {short(made)} instead of a table", "a pyarrow.Table")
        return made

    def _windows(self, made: pa.Table, count: int) -> Int64s:
        """The window that each output row is of."""
        if WINDOW in made.column_names:
            return row_numbers(made, WINDOW, range(count), self._mismatch)
        if made.num_rows not in (0, count):
            raise self._mismatch(
                f"returned {made.num_rows} rows for {count} windows and no column {WINDOW}",
                f"one row for each window, or the {WINDOW} that each row is of",
            )
        return np.arange(made.num_rows, dtype=np.int64)

    def _mismatch(self, what: str, wanted: str) -> OutputMismatch:
        return OutputMismatch(
            f"{describe_function(self.function)} {what}",
            where=f"operator {self.operator}",
            do=f"Return {wanted}; output= says ({to_ddl(self.output)}).",
        )
