"""``stateful_map``: calls a plain Python function per row, with one value of state per key.

The function gets the key, the row and the key's state, in the order of the rows, and returns output
and new state. Look-up and writing are vectorised: the only Python objects are the function's
arguments and results.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.functions import describe_function
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import EarlierTime, OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import AnyValue, StateCodec, first_unfit, tuples_to_columns
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import function_failed, row_advice, short
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.output_times import column_times, latest_times
from anabranch.operators.rows import (
    KeyedEntries,
    KeyRows,
    Rows,
    RowSpan,
    StateChanges,
    group_rows,
    named_tuples,
    split_groups,
    state_expiry,
)
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_batch
from anabranch.runs.rows import Groups

CALLS = 8192
"""How many calls are made before their results become columns."""

Function = Callable[[Any, Any, Any], tuple[Any, Any]]


class StatefulMap(msgspec.Struct, frozen=True):
    """The operator: the user's function, the codec of its state and its output schema.

    ``clock`` is what the time-to-live goes by. ``time`` is the output column with the event times
    of the output; None if they are those of the input rows.
    """

    name: str
    function: Function
    codec: StateCodec
    output: pa.Schema
    ttl_ns: int | None = None
    clock: Clock = "step"
    time: str | None = None

    def run(
        self, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None = None
    ) -> tuple[Rows, StateChanges]:
        """Call the function for every row, a key's rows in order; return output and changed state.

        Keys are processed one after the other, a few thousand calls at a time, which keeps memory
        local and bounds the number of objects. With ``dead``, a call that fails changes nothing,
        and its row is added there.
        """
        grouped = group_rows(rows)
        groups = grouped.groups
        times = None if rows.times is None else rows.times[grouped.parents]
        found, present, prior = self._lookup(groups, state)
        with pause_gc():
            made = [
                self._call_part(grouped, times, part, dead, prior, found)
                for part in split_groups(groups.starts, len(rows), CALLS)
            ]
        latest = None if times is None else latest_times(times, groups.starts)
        expiry = state_expiry(self.ttl_ns, self.clock, state.now_ns, latest, len(groups))
        changes = self._changes(groups, present, made, expiry)
        return self._output(rows, grouped.parents, made), changes

    def _call_part(
        self,
        grouped: KeyRows,
        times: Int64s | None,
        part: RowSpan,
        dead: list[RowFailure] | None,
        prior: pa.RecordBatch,
        found: Mask,
    ) -> _CallResults:
        """Call the function for a part; if that fails and may fail, check call by call."""
        groups, values = grouped.groups, grouped.values
        try:
            return _Calls(self, groups, times, part).make(values, prior, found)
        except (UserFunctionFailed, OutputMismatch, EarlierTime):
            if dead is None:
                raise
            return _CheckedCalls(self, groups, times, part, dead).make(values, prior, found)

    def _lookup(self, groups: Groups, state: KeyedEntries) -> tuple[Mask, Mask, pa.RecordBatch]:
        """Which keys have state, which of them a write counts as present, and their state."""
        if self.ttl_ns is None:
            found, prior = state.lookup(groups.hashes, groups.keys)
            return found, found, prior
        held = state.find(groups.hashes, groups.keys)
        return held.found, held.present, held.values

    def _output(self, rows: Rows, parents: Int64s, made: Sequence[_CallResults]) -> Rows:
        """The rows that the calls returned, each with the key and order of its input row."""
        assert rows.order is not None
        caller = parents[np.concatenate([_NONE, *(part.callers for part in made)])]
        digits = np.concatenate([_NONE, *(part.digits for part in made)])
        values = pa.Table.from_batches([part.output for part in made], schema=self.output)
        output = rows.children(values, caller, digits)
        if self.time is None:
            return output
        return replace(output, times=np.concatenate([_NONE, *(part.times for part in made)]))

    def _changes(
        self, groups: Groups, present: Mask, made: Sequence[_CallResults], expiry: pa.Array | None
    ) -> StateChanges:
        """The state of every key after the calls."""
        values = pa.Table.from_batches([part.states for part in made], schema=self.codec.schema)
        forget = np.concatenate([_NONE.astype(np.bool_), *(part.forget for part in made)])
        changed = KeyChanges(groups.hashes, groups.keys, one_batch(values), forget, expiry=expiry)
        return StateChanges(changed, present)


class _CallResults(msgspec.Struct, frozen=True):
    """The results of the calls of a part: rows with their callers, and the state of each key.

    ``times`` are those of the rows, if a column gives them.
    """

    output: pa.RecordBatch
    callers: Int64s
    digits: Int64s
    times: Int64s
    states: pa.RecordBatch
    forget: Mask


class _Calls:
    """The calls for one part of a step, with their output and state so far.

    ``times`` are the event times of all rows, key by key.
    """

    def __init__(
        self, operator: StatefulMap, groups: Groups, times: Int64s | None, part: RowSpan
    ) -> None:
        self._operator = operator
        self._groups = groups
        self._times = times
        self._part = part
        self._states: list[Any] = []
        self._returned: list[Any] = []
        self._rows: list[Any] = []
        self._callers = _NONE
        self._digits = _NONE

    def make(self, values: pa.Table, prior: pa.RecordBatch, found: Mask) -> _CallResults:
        """Call the function for each row of the part; ``values`` are all rows, key by key."""
        part = self._part
        group_count = part.last_group - part.first_group
        row_count = part.last_row - part.first_row
        lengths = np.diff(
            self._groups.starts[part.first_group : part.last_group], append=part.last_row
        )
        group_of_call = np.repeat(np.arange(group_count), lengths).tolist()
        self._states = self._operator.codec.decode(
            prior.slice(part.first_group, group_count), found[part.first_group : part.last_group]
        )
        keys = list(named_tuples("Key", self._groups.keys.slice(part.first_group, group_count)))
        rows = named_tuples("Row", values.slice(part.first_row, row_count))
        self._call(group_of_call, keys, rows)
        self._expand(np.arange(part.first_row, part.last_row))
        forget = np.fromiter((s is None for s in self._states), np.bool_, len(self._states))
        output = self._output()
        times = self._output_times(output)
        return _CallResults(output, self._callers, self._digits, times, self._encode(), forget)

    def _call(self, groups: list[int], keys: list[Any], rows: Iterator[Any]) -> None:
        function, states = self._operator.function, self._states
        normalize = self._operator.codec.normalizer()
        returned = self._returned.append
        # The function may later change an object it returned; emit the object as it was.
        nested = any(pa.types.is_nested(kind) for kind in self._operator.output.types)
        group, row, result = 0, None, _NOT_RETURNED
        try:
            for group, row in zip(groups, rows, strict=True):
                result = _NOT_RETURNED
                state = states[group] if normalize is None else normalize(states[group])
                result = function(keys[group], row, state)
                output, states[group] = result
                if nested:
                    output = deepcopy(output)
                elif type(output) is list:
                    output = output.copy()
                returned(output)
        except Exception as error:
            raise self._failure(error, group, keys[group], row, result) from error

    def _expand(self, callers: Int64s) -> None:
        """Expand None and lists of rows; the usual case is one row per call."""
        returned = self._returned
        if not set(map(type, returned)) & _SEVERAL:
            self._rows, self._callers = returned, callers
            self._digits = np.zeros(len(returned), dtype=np.int64)
            return
        made = [_as_list(output) for output in returned]
        self._rows = list(chain.from_iterable(made))
        lengths = np.fromiter(map(len, made), np.int64, len(made))
        self._callers = np.repeat(callers, lengths)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._digits = np.arange(len(self._rows), dtype=np.int64) - first

    def _output(self) -> pa.RecordBatch:
        schema = self._operator.output
        try:
            return pa.RecordBatch.from_arrays(tuples_to_columns(self._rows, schema), schema=schema)
        except Exception as error:
            raise self._bad_output(error) from error

    def _output_times(self, output: pa.RecordBatch) -> Int64s:
        name = self._operator.time
        if name is None:
            return _NONE
        assert self._times is not None
        return column_times(output.column(name), self._times[self._callers], name, self._where)

    def _where(self, row: int) -> str:
        """The operator and the key that an output row was made for."""
        group = int(np.searchsorted(self._groups.starts, self._callers[row], side="right")) - 1
        return f"operator {self._operator.name}, {self._key(group)}"

    def _encode(self) -> pa.RecordBatch:
        codec = self._operator.codec
        try:
            columns = codec.encode(self._states)
        except Exception as error:
            raise self._bad_state(error) from error
        return pa.RecordBatch.from_arrays(columns, schema=codec.schema)

    def _failure(self, error: Exception, group: int, key: Any, row: Any, result: Any) -> Exception:
        operator = self._operator
        where = f"operator {operator.name}, {short(key)}, {short(row)}"
        if result is not _NOT_RETURNED:
            return OutputMismatch(
                f"{describe_function(operator.function)} returned {short(result)} instead of "
                "(output, new state)",
                where=where,
                do="Return a pair: what to emit (None, a row or a list of rows) and the new state.",
            )
        # It may have failed because it was given an output as its state.
        return self._swapped(group) or function_failed(operator.function, error, where)

    def _bad_output(self, error: Exception) -> Exception:
        schema = self._operator.output
        place = first_unfit(self._rows, lambda made: tuples_to_columns([made], schema))
        starts = self._groups.starts
        group = int(np.searchsorted(starts, self._callers[place], side="right")) - 1
        return self._swapped(group - self._part.first_group) or OutputMismatch(
            f"{describe_function(self._operator.function)} emitted {short(self._rows[place])}, "
            f"which does not fit the output schema ({to_ddl(schema)}): {error}",
            where=f"operator {self._operator.name}, {self._key(group)}",
            do=f"Return (output, new state): {row_advice(self._rows[place], schema)}",
        )

    def _bad_state(self, error: Exception) -> Exception:
        codec = self._operator.codec
        group = first_unfit(self._states, lambda value: codec.encode([value]))
        wanted = f"does not fit the state schema ({to_ddl(codec.schema)})"
        if isinstance(codec, AnyValue):
            wanted = "msgspec cannot encode"
        return self._swapped(group) or OutputMismatch(
            f"{describe_function(self._operator.function)} returned the state "
            f"{short(self._states[group])}, which {wanted}: {error}",
            where=f"operator {self._operator.name}, {self._key(self._part.first_group + group)}",
            do="Return (output, new state), with a state that fits, or change state=.",
        )

    def _swapped(self, group: int) -> OutputMismatch | None:
        """The error for a key's results that are (new state, output); None if they are not."""
        operator, last = self._operator, self._last_call(group)
        if last is None:
            return None
        output, state = self._returned[last], self._states[group]
        fits_state = _is_fit(lambda: operator.codec.encode([output]))
        if state is None or not fits_state or self._emits(output) or not self._emits(state):
            return None
        return OutputMismatch(
            f"{describe_function(operator.function)} returned ({short(output)}, {short(state)}): "
            "the new state first, then the output",
            where=f"operator {operator.name}, {self._key(self._part.first_group + group)}",
            do=f"Swap them: return (output, new state), here ({short(state)}, {short(output)}).",
        )

    def _emits(self, value: Any) -> bool:
        """Whether a value fits as the output of a call."""
        return _is_fit(lambda: tuples_to_columns(_as_list(value), self._operator.output))

    def _last_call(self, group: int) -> int | None:
        """The last call so far that was for this key; None if none was."""
        starts, first = self._groups.starts, self._part.first_row
        number = self._part.first_group + group
        end = self._part.last_row if number + 1 == len(starts) else int(starts[number + 1])
        last = min(end - first, len(self._returned)) - 1
        return last if last >= int(starts[number]) - first else None

    def _key(self, group: int) -> str:
        return short(next(named_tuples("Key", self._groups.keys.slice(group, 1))))


class _CheckedCalls(_Calls):
    """Calls that are checked one by one: one that fails changes nothing, its row is ``dead``."""

    def __init__(
        self,
        operator: StatefulMap,
        groups: Groups,
        times: Int64s | None,
        part: RowSpan,
        dead: list[RowFailure],
    ) -> None:
        super().__init__(operator, groups, times, part)
        self._dead = dead

    def _call(self, groups: list[int], keys: list[Any], rows: Iterator[Any]) -> None:
        operator, states = self._operator, self._states
        normalize = operator.codec.normalizer()
        for number, (group, row) in enumerate(zip(groups, rows, strict=True)):
            state = deepcopy(states[group])
            try:
                output, new = operator.function(
                    keys[group], row, state if normalize is None else normalize(state)
                )
                columns = tuples_to_columns(_as_list(output), operator.output)
                self._check_times(columns, self._part.first_row + number)
                operator.codec.encode([new])
            except Exception as error:
                self._dead.append(row_failure(operator.name, error, row, keys[group]))
                self._returned.append(None)
                continue
            states[group] = new
            self._returned.append(deepcopy(output))

    def _check_times(self, columns: Sequence[pa.Array], row: int) -> None:
        name = self._operator.time
        if name is None or self._times is None:
            return
        column = columns[self._operator.output.get_field_index(name)]
        earliest = np.full(len(column), self._times[row])
        column_times(column, earliest, name, lambda _: f"operator {self._operator.name}")


_SEVERAL = {list, type(None)}
"""The types of output that are not one row."""

_NONE = np.empty(0, dtype=np.int64)

_NOT_RETURNED = object()
"""The result of a call that has not returned."""


def _is_fit(encode: Callable[[], object]) -> bool:
    try:
        encode()
    except Exception:
        return False
    return True


def _as_list(output: Any) -> list[Any]:
    if type(output) is list:
        return output
    return [] if output is None else [output]


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause Python's garbage collector while calls create many objects.

    All of them stay reachable until the task is done, so collecting would be wasted work.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
