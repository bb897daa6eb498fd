"""``map_batches``: the user's function over Arrow tables, without state.

The function is given the rows with a column ``_ord`` beside the user's, which names each row. It
gives back one row for each, or any rows with the ``_ord`` of the row that each came from; so the
key and the order of every row that it gives are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.graph import BatchFunction
from anabranch.dataflow.naming import ORD
from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.control.messaging import Messaged
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import failing_line, name_function, short
from anabranch.operators.rows import Rows, named_tuples

BATCH_ROWS = 65_536
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MapBatches(Messaged):
    """The operator: the user's function and what its output looks like."""

    name: str
    function: BatchFunction
    output: pa.Schema

    def run(self, rows: Rows, dead: list[RowFailure] | None = None) -> Rows:
        """Call the function with the rows, a table at a time.

        With ``dead`` a table that it cannot take is given row by row, and the rows that it cannot
        take are put there.
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
        """What the function gives for a table, and the row that each row came from."""
        made = self._called(given, start)
        parent = self._parents(made, start, given.num_rows)
        return fitted(made, self.output, self._mismatch), parent

    def _one_by_one(
        self, given: pa.Table, start: int, dead: list[RowFailure]
    ) -> list[tuple[pa.Table, Int64s]]:
        found = []
        for place, row in enumerate(named_tuples("Row", given)):
            try:
                found.append(self._result(given.slice(place, 1), start + place))
            except (UserFunctionFailed, OutputMismatch) as error:
                dead.append(row_failure(self.name, error.__cause__ or error, row))
        return found

    def _called(self, given: pa.Table, start: int) -> pa.Table:
        numbers = pa.array(np.arange(start, start + given.num_rows, dtype=np.int64))
        try:
            made = self.function(given.append_column(ORD, numbers))
        except Exception as error:
            raise UserFunctionFailed(
                f"{name_function(self.function)} raised {type(error).__name__}: {error}",
                where=f"operator {self.name}, {failing_line(error, self.function)}",
                do="Mend the function and run the pipeline again: it continues with this step.",
            ) from error
        if isinstance(made, pa.RecordBatch):
            return pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise self._mismatch(f"returned {short(made)} instead of a table", "a pyarrow.Table")
        return made

    def _parents(self, made: pa.Table, start: int, count: int) -> Int64s:
        """The row that each row came from."""
        if ORD not in made.column_names:
            if made.num_rows != count:
                raise self._mismatch(
                    f"returned {made.num_rows} rows for {count} and no column {ORD}",
                    f"one row for each, or the {ORD} of the row that each came from",
                )
            return np.arange(start, start + count, dtype=np.int64)
        column = made.column(ORD)
        if not pa.types.is_int64(column.type) or column.null_count:
            raise self._mismatch(f"returned another {ORD} than it was given", f"{ORD} as it was")
        parents: Int64s = column.to_numpy()
        if len(parents) and (parents.min() < start or parents.max() >= start + count):
            raise self._mismatch(f"returned an {ORD} that it was not given", f"{ORD} as it was")
        return parents

    def _output(self, rows: Rows, tables: list[pa.Table], parents: list[Int64s]) -> Rows:
        parent = np.concatenate([np.empty(0, dtype=np.int64), *parents])
        values = pa.concat_tables([_nullable(self.output).empty_table(), *tables])
        return Rows(
            values,
            None if rows.hashes is None else rows.hashes[parent],
            None if rows.keys is None else rows.keys.take(pa.array(parent)),
            None if rows.order is None else rows.order.child(parent, digits_of(parent)),
        )

    def _mismatch(self, what: str, wanted: str) -> OutputMismatch:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.output)
        return OutputMismatch(
            f"{name_function(self.function)} {what}",
            where=f"operator {self.name}",
            do=f"Return {wanted}; output= says ({columns}).",
        )


def fitted(
    made: pa.Table, wanted: pa.Schema, mismatch: Callable[[str, str], OutputMismatch]
) -> pa.Table:
    """The wanted columns of a table; raises what ``mismatch`` makes of what is wrong, and how."""
    missing = [name for name in wanted.names if name not in made.column_names]
    if missing:
        raise mismatch(f"returned no column {missing[0]}", "every column")
    try:
        table = made.select(wanted.names).cast(_nullable(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise mismatch(f"returned values that do not fit: {error}", "them as declared") from error
    for field in wanted:
        if not field.nullable and table.column(field.name).null_count:
            what = f"returned NULL in {field.name}, which may not be NULL"
            raise mismatch(what, "a value in every row")
    return table


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def digits_of(parents: Int64s) -> Int64s:
    """Which one of its parent's rows each row is, in the order in which they came.

    >>> digits_of(np.array([4, 2, 4, 4, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(parents, kind="stable")
    by_parent = parents[order]
    first = np.flatnonzero(np.r_[True, by_parent[1:] != by_parent[:-1]]) if len(order) else order
    lengths = np.diff(np.append(first, len(order)))
    digits: Any = np.empty(len(order), dtype=np.int64)
    digits[order] = np.arange(len(order)) - np.repeat(first, lengths)
    found: Int64s = digits
    return found
