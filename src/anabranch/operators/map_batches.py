"""``map_batches``: applies the user's function to Arrow tables, without state.

The function gets the rows with an extra column ``_ord`` that identifies each row. It returns one
row for each, or any rows with the ``_ord`` of the row that each came from. So the key and the order
of every returned row are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import BatchFunction
from anabranch.dataflow.naming import ORD
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import function_failed, short
from anabranch.operators.order.row_order import Int64s, digits_of
from anabranch.operators.rows import Rows, named_tuples

BATCH_ROWS = 65_536
Mismatch: TypeAlias = Callable[[str, str], OutputMismatch]
"""Makes the error from what the function returned, and what it should return."""


class MapBatches(msgspec.Struct, frozen=True):
    """The operator: the user's function and its output schema."""

    name: str
    function: BatchFunction
    output: pa.Schema

    def run(self, rows: Rows, dead: list[RowFailure] | None = None) -> Rows:
        """Call the function with the rows, a table at a time.

        With ``dead``, if the function fails for a table it is called row by row, and the rows for
        which it fails are added there.
        """
        tables: list[pa.Table] = []
        parents: list[Int64s] = []
        for start in range(0, len(rows), BATCH_ROWS):
            given = rows.values.slice(start, BATCH_ROWS)
            try:
                results = [self._result(given, start)]
            except (UserFunctionFailed, OutputMismatch):
                if dead is None:
                    raise
                results = self._one_by_one(given, start, dead)
            tables += [table for table, _ in results]
            parents += [parent for _, parent in results]
        return self._output(rows, tables, parents)

    def _result(self, given: pa.Table, start: int) -> tuple[pa.Table, Int64s]:
        """The function's output for a table, and the row that each output row came from."""
        made = self._call(given, start)
        parent = self._parents(made, start, given.num_rows)
        return fit_table(made, self.output, self._mismatch), parent

    def _one_by_one(
        self, given: pa.Table, start: int, dead: list[RowFailure]
    ) -> list[tuple[pa.Table, Int64s]]:
        results = []
        for place, row in enumerate(named_tuples("Row", given)):
            try:
                results.append(self._result(given.slice(place, 1), start + place))
            except (UserFunctionFailed, OutputMismatch) as error:
                dead.append(row_failure(self.name, error.__cause__ or error, row))
        return results

    def _call(self, given: pa.Table, start: int) -> pa.Table:
        numbers = pa.array(np.arange(start, start + given.num_rows, dtype=np.int64))
        try:
            made = self.function(given.append_column(ORD, numbers))
        except Exception as error:
            raise function_failed(self.function, error, f"operator {self.name}") from error
        if isinstance(made, pa.RecordBatch):
            return pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise self._mismatch(f"returned {short(made)} instead of a table", "a pyarrow.Table")
        return made

    def _parents(self, made: pa.Table, start: int, count: int) -> Int64s:
        """The input row that each output row came from."""
        if ORD not in made.column_names:
            if made.num_rows != count:
                raise self._mismatch(
                    f"returned {made.num_rows} rows for {count} and no column {ORD}",
                    f"one row for each, or the {ORD} of the row that each came from",
                )
            return np.arange(start, start + count, dtype=np.int64)
        return row_numbers(made, ORD, range(start, start + count), self._mismatch)

    def _output(self, rows: Rows, tables: list[pa.Table], parents: list[Int64s]) -> Rows:
        parent = np.concatenate([np.empty(0, dtype=np.int64), *parents])
        values = pa.concat_tables([nullable_columns(self.output).empty_table(), *tables])
        return rows.children(values, parent, digits_of(parent))

    def _mismatch(self, what: str, wanted: str) -> OutputMismatch:
        return OutputMismatch(
            f"{describe_function(self.function)} {what}",
            where=f"operator {self.name}",
            do=f"Return {wanted}; output= says ({to_ddl(self.output)}).",
        )


def row_numbers(made: pa.Table, name: str, given: range, mismatch: Mismatch) -> Int64s:
    """The column ``name`` of a returned table, which must have numbers from ``given``."""
    column = made.column(name)
    if not pa.types.is_int64(column.type) or column.null_count:
        raise mismatch(f"returned another {name} than it was given", f"{name} as it was")
    numbers: Int64s = column.to_numpy()
    if len(numbers) and (numbers.min() < given.start or numbers.max() >= given.stop):
        raise mismatch(f"returned a value of {name} that it was not given", f"{name} as it was")
    return numbers


def fit_table(made: pa.Table, wanted: pa.Schema, mismatch: Mismatch) -> pa.Table:
    """Cast a table to the wanted columns; if it does not fit, raise the error of ``mismatch``."""
    missing = [name for name in wanted.names if name not in made.column_names]
    if missing:
        raise mismatch(f"returned no column {missing[0]}", "every column")
    try:
        table = made.select(wanted.names).cast(nullable_columns(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise mismatch(f"returned values that do not fit: {error}", "them as declared") from error
    for field in wanted:
        if not field.nullable and table.column(field.name).null_count:
            what = f"returned NULL in {field.name}, which may not be NULL"
            raise mismatch(what, "a value in every row")
    return table


def nullable_columns(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of them nullable."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])
