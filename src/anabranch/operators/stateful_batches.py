"""``stateful_batches``: applies the user's function to Arrow tables of rows and of state.

The function gets the step's rows, key by key and in order, and one row of state per key. It returns
rows and the new state. Two columns link them: ``_key`` is a key's place in the table of state,
``_ord`` a row's place in the table of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.graph import StatefulBatchFunction
from anabranch.dataflow.naming import FORGET, KEY, ORD
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import EarlierTime, OutputMismatch, UserFunctionFailed
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import function_failed, short
from anabranch.operators.map_batches import fit_table, nullable_columns, row_numbers
from anabranch.operators.order.row_order import Int64s, digits_of
from anabranch.operators.output_times import column_times, earliest_times, latest_times
from anabranch.operators.rows import (
    KeyedEntries,
    KeyRows,
    Rows,
    StateChanges,
    group_rows,
    named_tuples,
    state_expiry,
)
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_batch, to_mask


class StatefulBatches(msgspec.Struct, frozen=True):
    """The operator: the user's function and the schemas of its state and its output.

    ``clock`` is what the time-to-live goes by. ``time`` is the output column with the event times
    of the output; None if they are those of the input rows.
    """

    name: str
    function: StatefulBatchFunction
    state: pa.Schema
    output: pa.Schema
    ttl_ns: int | None
    clock: Clock = "step"
    time: str | None = None

    def run(
        self, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None = None
    ) -> tuple[Rows, StateChanges | None]:
        """Call the function once; return its output and the changed state.

        With ``dead``, the keys for which the function fails are found by bisection, and their rows
        are added there. Then the function is called with the rest.
        """
        grouped = group_rows(rows)
        try:
            return self._run(rows, grouped, state)
        except (UserFunctionFailed, OutputMismatch, EarlierTime):
            if dead is None:
                raise
        fit = rows.take(self._fit(rows, grouped, state, dead))
        grouped = group_rows(fit)
        if not len(fit):
            return self._output(fit, grouped, None), None
        return self._run(fit, grouped, state)

    def _fit(
        self, rows: Rows, grouped: KeyRows, state: KeyedEntries, dead: list[RowFailure]
    ) -> Int64s:
        """The places of the rows whose keys do not fail; the others are added to ``dead``."""
        edges = np.append(grouped.groups.starts, len(grouped.parents))
        fit = [np.empty(0, dtype=np.int64)]
        waiting = [(0, len(grouped.groups))]
        while waiting:
            first, last = waiting.pop()
            places = grouped.parents[edges[first] : edges[last]]
            some = rows.take(places)
            try:
                self._run(some, group_rows(some), state)
            except (UserFunctionFailed, OutputMismatch, EarlierTime) as error:
                if last - first > 1:
                    middle = (first + last) // 2
                    waiting += [(middle, last), (first, middle)]
                    continue
                (key,) = named_tuples("Key", grouped.groups.keys.slice(first, 1))
                cause = error.__cause__ or error
                dead += [
                    row_failure(self.name, cause, row, key)
                    for row in named_tuples("Row", some.values)
                ]
            else:
                fit.append(places)
        return np.concatenate(fit)

    def _run(
        self, rows: Rows, grouped: KeyRows, state: KeyedEntries
    ) -> tuple[Rows, StateChanges | None]:
        held = state.find(grouped.groups.hashes, grouped.groups.keys)
        made, new_state = self._call(self._rows(grouped), self._state(grouped, held.values))
        output = self._output(rows, grouped, made)
        if new_state is None:
            return output, None
        latest, starts = None, grouped.groups.starts
        if rows.times is not None:
            latest = latest_times(rows.times[grouped.parents], starts)
        expiry = state_expiry(self.ttl_ns, self.clock, state.now_ns, latest, len(starts))
        return output, self._changes(grouped, held.present, new_state, expiry)

    def _rows(self, grouped: KeyRows) -> pa.Table:
        lengths = np.diff(np.append(grouped.groups.starts, len(grouped.parents)))
        key_of_row = np.repeat(np.arange(len(lengths)), lengths)
        numbers = np.arange(len(grouped.parents))
        return grouped.values.append_column(KEY, pa.array(key_of_row)).append_column(
            ORD, pa.array(numbers)
        )

    def _state(self, grouped: KeyRows, values: pa.RecordBatch) -> pa.Table:
        keys = grouped.groups.keys
        columns = [*keys.columns, *values.columns, pa.array(np.arange(keys.num_rows))]
        return pa.Table.from_arrays(columns, names=[*keys.schema.names, *self.state.names, KEY])

    def _call(self, rows: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table | None]:
        try:
            result = self.function(rows, state)
        except Exception as error:
            raise function_failed(self.function, error, f"operator {self.name}") from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._mismatch(f"returned {short(result)}", "(output, new state)")
        made, state = (self._table(part) for part in result)
        if made is not None and state is not None and self._are_swapped(made, state):
            raise self._mismatch("returned the new state first, then the output", "them swapped")
        return made, state

    def _are_swapped(self, first: pa.Table, second: pa.Table) -> bool:
        """Whether the tables fit only the other way round, by their columns."""
        output, state = set(self.output.names), set(self.state.names)
        there, then = set(first.column_names), set(second.column_names)
        return state <= there and output <= then and not (output <= there and state <= then)

    def _table(self, part: Any) -> pa.Table | None:
        if isinstance(part, pa.RecordBatch):
            return pa.Table.from_batches([part])
        if part is None or isinstance(part, pa.Table):
            return part
        raise self._mismatch(f"returned {short(part)} instead of a table", "tables or None")

    def _output(self, rows: Rows, grouped: KeyRows, made: pa.Table | None) -> Rows:
        """The output with the key and order of its row, or of the first row of its key."""
        if made is None:
            made = nullable_columns(self.output).empty_table()
        place = self._places(made, grouped)
        values = fit_table(made, self.output, self._mismatch)
        parents = grouped.parents[place]
        output = rows.children(values, parents, digits_of(parents))
        if rows.times is None:
            return output
        by_key = ORD not in made.column_names and KEY in made.column_names
        starts = grouped.groups.starts if by_key else np.arange(len(rows))
        return self._with_times(output, rows.times[grouped.parents], starts, place)

    def _with_times(self, output: Rows, times: Int64s, starts: Int64s, place: Int64s) -> Rows:
        """The output with its times: those of its rows; the latest of a key's rows for a key.

        ``starts`` is where the rows of each row or key begin, ``place`` which of them a row of the
        output belongs to.
        """
        of = np.searchsorted(starts, place)
        if self.time is None:
            return replace(output, times=latest_times(times, starts)[of])
        column, earliest = output.values.column(self.time), earliest_times(times, starts)[of]
        return replace(output, times=column_times(column, earliest, self.time, self._where(output)))

    def _where(self, output: Rows) -> Callable[[int], str]:
        """Says the operator and the key of an output row."""

        def where(row: int) -> str:
            assert output.keys is not None
            (key,) = named_tuples("Key", output.keys.slice(row, 1))
            return f"operator {self.name}, {short(key)}"

        return where

    def _places(self, made: pa.Table, grouped: KeyRows) -> Int64s:
        """The place of the row, or of the first row of the key, that each output row belongs to."""
        rows = len(grouped.parents)
        if ORD in made.column_names:
            return row_numbers(made, ORD, range(rows), self._mismatch)
        if KEY in made.column_names:
            starts: Int64s = grouped.groups.starts
            return starts[row_numbers(made, KEY, range(len(starts)), self._mismatch)]
        if made.num_rows not in (0, rows):
            raise self._mismatch(
                f"returned {made.num_rows} rows for {rows}, without {ORD} or {KEY}",
                f"one row for each, or the {ORD} or {KEY} that each belongs to",
            )
        return np.arange(made.num_rows, dtype=np.int64)

    def _changes(
        self, grouped: KeyRows, present: Mask, new_state: pa.Table, expiry: pa.Array | None
    ) -> StateChanges:
        keys = len(grouped.groups)
        if KEY in new_state.column_names:
            places = row_numbers(new_state, KEY, range(keys), self._mismatch)
            if len(np.unique(places)) < len(places):
                raise self._mismatch("returned two states for one key", "one row per key")
        elif new_state.num_rows == keys:
            places = np.arange(keys, dtype=np.int64)
        else:
            what = f"returned {new_state.num_rows} states for {keys} keys, without {KEY}"
            raise self._mismatch(what, f"one row per key, or {KEY} beside each")
        forget = np.zeros(len(places), dtype=np.bool_)
        if FORGET in new_state.column_names:
            forget = to_mask(one_batch(new_state.select([FORGET])).column(0).fill_null(False))
        changed = KeyChanges(
            grouped.groups.hashes[places],
            grouped.groups.keys.take(pa.array(places)),
            one_batch(fit_table(new_state, self.state, self._mismatch)),
            forget,
            expiry=None if expiry is None else expiry.take(pa.array(places)),
        )
        return StateChanges(changed, present[places])

    def _mismatch(self, what: str, wanted: str) -> OutputMismatch:
        return OutputMismatch(
            f"{describe_function(self.function)} {what}",
            where=f"operator {self.name}",
            do=f"Return {wanted}; output= says ({to_ddl(self.output)}), state= "
            f"({to_ddl(self.state)}).",
        )
