"""``stateful_map``: a plain Python function per row, with one value of state per key.

The function is called with the key, the row and the key's state, in the order of the rows, and
returns output and new state. Look-up and writing are vectorised around the calls: the only Python
objects made are those that the function is given and those that it returns.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import AnyValue, StateCodec, tuples_to_columns
from anabranch.operators.control.messaging import Messaged
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import failing_line, name_function, short
from anabranch.operators.key_rows import RowSpan, parts, walk
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Changes, KeyedEntries, Rows, named_tuples
from anabranch.records.bins import Mask
from anabranch.runs.changes import KeyChanges
from anabranch.runs.keys import one_batch
from anabranch.runs.rows import Groups

CALLS = 8192
"""How many calls are made before their objects become columns."""

Int64s = npt.NDArray[np.int64]
Function = Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class StatefulMap(Messaged):
    """The operator: the user's function with what its state and its output look like."""

    name: str
    function: Function
    codec: StateCodec
    output: pa.Schema
    ttl_ns: int | None = None

    def run(
        self, rows: Rows, state: KeyedEntries, dead: list[RowFailure] | None = None
    ) -> tuple[Rows, Changes]:
        """Call the function for every row, a key's rows in order; give output and changed state.

        Keys come one after the other, a few thousand calls at a time: what a call needs is then
        near in memory, and the objects of a step are never all there at once. With ``dead`` a call
        that fails changes nothing and is put there.
        """
        walked = walk(rows)
        groups = walked.groups
        found, present, prior = self._held(groups, state)
        with no_collection():
            made = [
                self._part(_Calls(self, groups, part), dead, walked.values, prior, found)
                for part in parts(groups.starts, len(rows), CALLS)
            ]
        return self._output(rows, walked.parents, made), self._changes(
            groups, present, made, None if self.ttl_ns is None else state.now_ns + self.ttl_ns
        )

    def _part(
        self,
        calls: _Calls,
        dead: list[RowFailure] | None,
        values: pa.Table,
        prior: pa.RecordBatch,
        found: Mask,
    ) -> _Made:
        """Make some calls: at once, and where that fails and may, one by one."""
        try:
            return calls.make(values, prior, found)
        except (UserFunctionFailed, OutputMismatch):
            if dead is None:
                raise
            return calls.carefully(dead).make(values, prior, found)

    def _held(self, groups: Groups, state: KeyedEntries) -> tuple[Mask, Mask, pa.RecordBatch]:
        """Which keys have state, which a write counts as having some, and their state."""
        if self.ttl_ns is None:
            found, prior = state.lookup(groups.hashes, groups.keys)
            return found, found, prior
        held = state.find(groups.hashes, groups.keys)
        return held.found, held.present, held.values

    def _output(self, rows: Rows, parents: Int64s, made: Sequence[_Made]) -> Rows:
        """The rows that the calls returned, each with its caller's key and order."""
        assert rows.order is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        caller = parents[np.concatenate([_NONE, *(part.callers for part in made)])]
        digits = np.concatenate([_NONE, *(part.digits for part in made)])
        values = pa.Table.from_batches([part.output for part in made], schema=self.output)
        order: RowOrder = rows.order.child(caller, digits)
        return Rows(values, rows.hashes[caller], rows.keys.take(pa.array(caller)), order)

    def _changes(
        self, groups: Groups, present: Mask, made: Sequence[_Made], expiry_ns: int | None
    ) -> Changes:
        """The state after the calls, of every key that was called for."""
        values = pa.Table.from_batches([part.states for part in made], schema=self.codec.schema)
        forget = np.concatenate([_NONE.astype(np.bool_), *(part.forget for part in made)])
        expiry = None
        if expiry_ns is not None:
            expiry = pa.array(np.full(len(groups), expiry_ns, dtype=np.int64))
        changed = KeyChanges(groups.hashes, groups.keys, one_batch(values), forget, expiry=expiry)
        return Changes(changed, present)


@dataclass(frozen=True, slots=True)
class _Made:
    """What the calls of a part came to: rows with their callers, and the state of each key."""

    output: pa.RecordBatch
    callers: Int64s
    digits: Int64s
    states: pa.RecordBatch
    forget: Mask


class _Calls:
    """The calls of one part of a step, with the output and the state they have made so far."""

    def __init__(self, operator: StatefulMap, groups: Groups, part: RowSpan) -> None:
        self._operator = operator
        self._groups = groups
        self._part = part
        self._states: list[Any] = []
        self._returned: list[Any] = []
        self._rows: list[Any] = []
        self._callers = _NONE
        self._digits = _NONE

    def carefully(self, dead: list[RowFailure]) -> _Calls:
        """The same calls, to be made one by one: those that fail are put into ``dead``."""
        return _CarefulCalls(self._operator, self._groups, self._part, dead)

    def make(self, values: pa.Table, prior: pa.RecordBatch, found: Mask) -> _Made:
        """Call the function for each row. ``values`` are all rows, key by key."""
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
        self._spread(np.arange(part.first_row, part.last_row))
        return _Made(
            self._output(), self._callers, self._digits, self._encoded(), self._forgotten()
        )

    def _call(self, groups: list[int], keys: list[Any], rows: Iterator[Any]) -> None:
        function, states = self._operator.function, self._states
        again = self._operator.codec.again()
        returned = self._returned.append
        # A function may go on changing what it returned: it is emitted as it was.
        nested = any(pa.types.is_nested(kind) for kind in self._operator.output.types)
        group, row, result = 0, None, _NOT_RETURNED
        try:
            for group, row in zip(groups, rows, strict=True):
                result = _NOT_RETURNED
                state = states[group] if again is None else again(states[group])
                result = function(keys[group], row, state)
                output, states[group] = result
                if nested:
                    output = deepcopy(output)
                elif type(output) is list:
                    output = output.copy()
                returned(output)
        except Exception as error:
            raise self._failure(error, keys[group], row, result) from error

    def _spread(self, callers: Int64s) -> None:
        """One row per call is the usual case; None and lists of rows are spread out."""
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

    def _encoded(self) -> pa.RecordBatch:
        codec = self._operator.codec
        try:
            columns = codec.encode(self._states)
        except Exception as error:
            raise self._bad_state(error) from error
        return pa.RecordBatch.from_arrays(columns, schema=codec.schema)

    def _forgotten(self) -> Mask:
        return np.fromiter((s is None for s in self._states), np.bool_, len(self._states))

    def _failure(self, error: Exception, key: Any, row: Any, result: Any) -> Exception:
        operator = self._operator
        where = f"operator {operator.name}, {short(key)}, {short(row)}"
        if result is not _NOT_RETURNED:
            return OutputMismatch(
                f"{name_function(operator.function)} returned {short(result)} instead of "
                "(output, new state)",
                where=where,
                do="Return a pair: what to emit (None, a row or a list of rows) and the new state.",
            )
        return UserFunctionFailed(
            f"{name_function(operator.function)} raised {type(error).__name__}: {error}",
            where=f"{where}, {failing_line(error, operator.function)}",
            do="Mend the function and run the pipeline again: it continues with this step.",
        )

    def _bad_output(self, error: Exception) -> Exception:
        schema = self._operator.output
        place = _first_unfit(self._rows, lambda made: tuples_to_columns([made], schema))
        group = np.searchsorted(self._groups.starts, self._callers[place], side="right") - 1
        return OutputMismatch(
            f"{name_function(self._operator.function)} emitted {short(self._rows[place])}, "
            f"which does not fit the output schema ({_brief(schema)}): {error}",
            where=f"operator {self._operator.name}, {self._key(int(group))}",
            do="Emit a tuple with one value per column, or change output=.",
        )

    def _bad_state(self, error: Exception) -> Exception:
        codec = self._operator.codec
        group = _first_unfit(self._states, lambda value: codec.encode([value]))
        wanted = f"does not fit the state schema ({_brief(codec.schema)})"
        if isinstance(codec, AnyValue):
            wanted = "msgspec cannot encode"
        return OutputMismatch(
            f"{name_function(self._operator.function)} returned the state "
            f"{short(self._states[group])}, which {wanted}: {error}",
            where=f"operator {self._operator.name}, {self._key(self._part.first_group + group)}",
            do="Return a value that fits, or change state=.",
        )

    def _key(self, group: int) -> str:
        return short(next(named_tuples("Key", self._groups.keys.slice(group, 1))))


class _CarefulCalls(_Calls):
    """Calls of which each is checked before it counts; one that fails changes nothing."""

    def __init__(
        self, operator: StatefulMap, groups: Groups, part: RowSpan, dead: list[RowFailure]
    ) -> None:
        super().__init__(operator, groups, part)
        self._dead = dead

    def _call(self, groups: list[int], keys: list[Any], rows: Iterator[Any]) -> None:
        operator, states = self._operator, self._states
        again = operator.codec.again()
        for group, row in zip(groups, rows, strict=True):
            state = deepcopy(states[group])
            try:
                output, new = operator.function(
                    keys[group], row, state if again is None else again(state)
                )
                tuples_to_columns(_as_list(output), operator.output)
                operator.codec.encode([new])
            except Exception as error:
                self._dead.append(row_failure(operator.name, error, row, keys[group]))
                self._returned.append(None)
                continue
            states[group] = new
            self._returned.append(deepcopy(output))


_SEVERAL = {list, type(None)}
"""The types of output that do not stand for one row."""

_NONE = np.empty(0, dtype=np.int64)

_NOT_RETURNED = object()
"""Stands for the result of a call that has not returned."""


def _as_list(output: Any) -> list[Any]:
    if type(output) is list:
        return output
    return [] if output is None else [output]


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from looking for cycles among the many objects that calls make and keep.

    They are all reachable until the task is done, so that each look would be in vain.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _first_unfit(values: list[Any], encode: Callable[[Any], object]) -> int:
    """The place of the first value that cannot be encoded by itself; 0 if each one can."""
    for place, value in enumerate(values):
        try:
            encode(value)
        except Exception:
            return place
    return 0


def _brief(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
