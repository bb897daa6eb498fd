"""``stateful_batches``: the user's function over Arrow tables, with the state of their keys.

The function is given the step's rows, key by key and in order, and one row of state per key; it
gives back rows and the new state. Two columns say what belongs to what: ``_key`` is a key's place
in the table of state, ``_ord`` a row's place in the table of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.graph import StatefulBatchFunction
from anabranch.dataflow.naming import FORGET, KEY, ORD
from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.control.messaging import Messaged
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import failing_line, name_function, short
from anabranch.operators.key_rows import KeyRows, walk
from anabranch.operators.map_batches import digits_of, fitted
from anabranch.operators.rows import Changes, KeyedEntries, Rows, named_tuples
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_batch, to_mask

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StatefulBatches(Messaged):
    """The operator: the user's function with what its state and its output look like."""

    name: str
    function: StatefulBatchFunction
    state: pa.Schema
    output: pa.Schema
    ttl_ns: int | None

    def run(
        self, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None = None
    ) -> tuple[Rows, Changes | None]:
        """Call the function once; give its output and the changed state.

        With ``dead`` the rows of the keys that it cannot take are put there: they are found by
        calling it for half of the keys, and half of those. Then it is called with the rest.
        """
        walked = walk(rows)
        try:
            return self._run(rows, walked, state)
        except (UserFunctionFailed, OutputMismatch):
            if dead is None:
                raise
        fit = rows.take(self._fit(rows, walked, state, dead))
        walked = walk(fit)
        if not len(fit):
            return self._output(fit, walked, None), None
        return self._run(fit, walked, state)

    def _fit(
        self, rows: Rows, walked: KeyRows, state: KeyedEntries, dead: list[RowFailure]
    ) -> Int64s:
        """The places of the rows whose keys the function takes; the others go to ``dead``."""
        edges = np.append(walked.groups.starts, len(walked.parents))
        found = [np.empty(0, dtype=np.int64)]
        waiting = [(0, len(walked.groups))]
        while waiting:
            first, last = waiting.pop()
            places = walked.parents[edges[first] : edges[last]]
            some = rows.take(places)
            try:
                self._run(some, walk(some), state)
            except (UserFunctionFailed, OutputMismatch) as error:
                if last - first > 1:
                    middle = (first + last) // 2
                    waiting += [(middle, last), (first, middle)]
                    continue
                (key,) = named_tuples("Key", walked.groups.keys.slice(first, 1))
                cause = error.__cause__ or error
                dead += [
                    row_failure(self.name, cause, row, key)
                    for row in named_tuples("Row", some.values)
                ]
            else:
                found.append(places)
        return np.concatenate(found)

    def _run(self, rows: Rows, walked: KeyRows, state: KeyedEntries) -> tuple[Rows, Changes | None]:
        held = state.find(walked.groups.hashes, walked.groups.keys)
        made, kept = self._called(self._rows(walked), self._state(walked, held.values))
        output = self._output(rows, walked, made)
        changes = None if kept is None else self._changes(walked, held.present, kept, state.now_ns)
        return output, changes

    def _rows(self, walked: KeyRows) -> pa.Table:
        lengths = np.diff(np.append(walked.groups.starts, len(walked.parents)))
        key_of_row = np.repeat(np.arange(len(lengths)), lengths)
        numbers = np.arange(len(walked.parents))
        return walked.values.append_column(KEY, pa.array(key_of_row)).append_column(
            ORD, pa.array(numbers)
        )

    def _state(self, walked: KeyRows, values: pa.RecordBatch) -> pa.Table:
        keys = walked.groups.keys
        columns = [*keys.columns, *values.columns, pa.array(np.arange(keys.num_rows))]
        return pa.Table.from_arrays(columns, names=[*keys.schema.names, *self.state.names, KEY])

    def _called(self, rows: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table | None]:
        try:
            result = self.function(rows, state)
        except Exception as error:
            raise UserFunctionFailed(
                f"{name_function(self.function)} raised {type(error).__name__}: {error}",
                where=f"operator {self.name}, {failing_line(error, self.function)}",
                do="Mend the function and run the pipeline again: it continues with this step.",
            ) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._mismatch(f"returned {short(result)}", "(output, new state)")
        tables = [self._table(part) for part in result]
        return tables[0], tables[1]

    def _table(self, part: Any) -> pa.Table | None:
        if isinstance(part, pa.RecordBatch):
            return pa.Table.from_batches([part])
        if part is None or isinstance(part, pa.Table):
            return part
        raise self._mismatch(f"returned {short(part)} where a table belongs", "tables or None")

    def _output(self, rows: Rows, walked: KeyRows, made: pa.Table | None) -> Rows:
        """The output with key and order: of the row, or of the first row of the key."""
        if made is None:
            made = fitted_schema(self.output).empty_table()
        place = self._places(made, len(walked.parents), len(walked.groups), walked)
        values = fitted(made, self.output, self._mismatch)
        parents = walked.parents[place]
        assert rows.hashes is not None
        assert rows.keys is not None
        order = None if rows.order is None else rows.order.child(parents, digits_of(parents))
        return Rows(values, rows.hashes[parents], rows.keys.take(pa.array(parents)), order)

    def _places(self, made: pa.Table, rows: int, keys: int, walked: KeyRows) -> Int64s:
        if ORD in made.column_names:
            return self._numbers(made, ORD, rows)
        if KEY in made.column_names:
            starts: Int64s = walked.groups.starts
            return starts[self._numbers(made, KEY, keys)]
        if made.num_rows not in (0, rows):
            raise self._mismatch(
                f"returned {made.num_rows} rows for {rows}, without {ORD} or {KEY}",
                f"one row for each, or the {ORD} or {KEY} that each belongs to",
            )
        return np.arange(made.num_rows, dtype=np.int64)

    def _changes(
        self, walked: KeyRows, present: npt.NDArray[np.bool_], kept: pa.Table, now_ns: int
    ) -> Changes:
        keys = len(walked.groups)
        if KEY in kept.column_names:
            places = self._numbers(kept, KEY, keys)
            if len(np.unique(places)) < len(places):
                raise self._mismatch("returned two states for one key", "one row per key")
        elif kept.num_rows == keys:
            places = np.arange(keys, dtype=np.int64)
        else:
            what = f"returned {kept.num_rows} states for {keys} keys, without {KEY}"
            raise self._mismatch(what, f"one row per key, or {KEY} beside each")
        forget = np.zeros(len(places), dtype=np.bool_)
        if FORGET in kept.column_names:
            forget = to_mask(one_batch(kept.select([FORGET])).column(0).fill_null(False))
        values = one_batch(fitted(kept, self.state, self._mismatch))
        expiry = None
        if self.ttl_ns is not None:
            expiry = pa.array(np.full(len(places), now_ns + self.ttl_ns, dtype=np.int64))
        changed = KeyChanges(
            walked.groups.hashes[places],
            walked.groups.keys.take(pa.array(places)),
            values,
            forget,
            expiry=expiry,
        )
        return Changes(changed, present[places])

    def _numbers(self, made: pa.Table, name: str, count: int) -> Int64s:
        column = made.column(name)
        if not pa.types.is_int64(column.type) or column.null_count:
            raise self._mismatch(f"returned another {name} than it was given", f"{name} as it was")
        numbers: Int64s = column.to_numpy()
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
            raise self._mismatch(f"returned a {name} that it was not given", f"{name} as it was")
        return numbers

    def _mismatch(self, what: str, wanted: str) -> OutputMismatch:
        return OutputMismatch(
            f"{name_function(self.function)} {what}",
            where=f"operator {self.name}",
            do=f"Return {wanted}; output= says ({_brief(self.output)}), state= "
            f"({_brief(self.state)}).",
        )


def fitted_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be NULL."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _brief(schema: Sequence[pa.Field]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
