"""``stateful_map``: a plain Python function per row, with one value of state per key.

The function is called with the key, the row and the key's state, in the order of the rows, and
returns output and new state. Look-up and writing are vectorised around the calls: the only Python
objects made are those that the function is given and those that it returns.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
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
from anabranch.operators.failure import describe_function, failing_line, short
from anabranch.operators.order import Order
from anabranch.operators.rows import Changes, KeyedState, Rows, named_tuples
from anabranch.state.changed import Changed
from anabranch.state.rows import Groups, group_keys

Int64s = npt.NDArray[np.int64]
Function = Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class StatefulMap:
    """The operator: the user's function with what its state and its output look like."""

    name: str
    function: Function
    codec: StateCodec
    output: pa.Schema

    def run(self, rows: Rows, state: KeyedState) -> tuple[Rows, Changes]:
        """Call the function for every row in order; give its output and the changed state."""
        assert rows.hashes is not None
        assert rows.keys is not None
        assert rows.order is not None
        groups = group_keys(rows.hashes, rows.keys)
        found, prior = state.lookup(groups.hashes, groups.keys)
        calls = _Calls(self, groups, self.codec.decode(prior, found))
        places = rows.order.permutation()
        calls.make(rows.values if places is None else rows.values.take(pa.array(places)), places)
        return calls.output(rows), calls.changes(found)


class _Calls:
    """The calls of one step, with the output and the state they have made so far."""

    def __init__(self, operator: StatefulMap, groups: Groups, states: list[Any]) -> None:
        self._operator = operator
        self._groups = groups
        self._states = states
        self._returned: list[Any] = []
        self._rows: list[Any] = []
        self._parents = np.empty(0, dtype=np.int64)
        self._digits = self._parents

    def make(self, values: pa.Table, places: Int64s | None) -> None:
        """Call the function for each row; ``places`` are the rows' places in the batch."""
        group_of_row = self._groups.group_of_row
        group_of_call = (group_of_row if places is None else group_of_row[places]).tolist()
        keys = list(named_tuples("Key", self._groups.keys))
        function, states = self._operator.function, self._states
        again = self._operator.codec.again()
        returned = self._returned.append
        # A function may go on changing what it returned: it is emitted as it was.
        nested = any(pa.types.is_nested(kind) for kind in self._operator.output.types)
        rows = named_tuples("Row", values)
        group, row, result = 0, None, _NOT_RETURNED
        try:
            with no_collection():
                for group, row in zip(group_of_call, rows, strict=True):
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
        self._spread(np.arange(len(group_of_call)) if places is None else places)

    def _spread(self, places: Int64s) -> None:
        """One row per call is the usual case; None and lists of rows are spread out."""
        returned = self._returned
        if not set(map(type, returned)) & _SEVERAL:
            self._rows, self._parents = returned, places
            self._digits = np.zeros(len(returned), dtype=np.int64)
            return
        made = [_as_list(output) for output in returned]
        self._rows = list(chain.from_iterable(made))
        lengths = np.fromiter(map(len, made), np.int64, len(made))
        self._parents = np.repeat(places, lengths)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._digits = np.arange(len(self._rows), dtype=np.int64) - first

    def output(self, rows: Rows) -> Rows:
        """The rows that the calls returned, each with its caller's key and order."""
        assert rows.order is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        values = self._table()
        order: Order = rows.order.child(self._parents, self._digits)
        taken = rows.keys.take(pa.array(self._parents))
        return Rows(values, rows.hashes[self._parents], taken, order)

    def changes(self, found: np.ndarray[Any, Any]) -> Changes:
        """The state after the calls, of every key that was called for."""
        forget = np.fromiter((s is None for s in self._states), np.bool_, len(self._states))
        codec = self._operator.codec
        try:
            columns = codec.encode(self._states)
        except Exception as error:
            raise self._bad_state(error) from error
        values = pa.RecordBatch.from_arrays(columns, schema=codec.schema)
        changed = Changed(self._groups.hashes, self._groups.keys, values, forget)
        return Changes(changed, found)

    def _table(self) -> pa.Table:
        schema = self._operator.output
        try:
            return pa.Table.from_arrays(tuples_to_columns(self._rows, schema), schema=schema)
        except Exception as error:
            raise self._bad_output(error) from error

    def _failure(self, error: Exception, key: Any, row: Any, result: Any) -> Exception:
        operator = self._operator
        where = f"operator {operator.name}, {short(key)}, {short(row)}"
        if result is not _NOT_RETURNED:
            return OutputMismatch(
                f"{describe_function(operator.function)} returned {short(result)} instead of "
                "(output, new state)",
                where=where,
                do="Return a pair: what to emit (None, a row or a list of rows) and the new state.",
            )
        return UserFunctionFailed(
            f"{describe_function(operator.function)} raised {type(error).__name__}: {error}",
            where=f"{where}, {failing_line(error, operator.function)}",
            do="Mend the function and run the pipeline again: it continues with this step.",
        )

    def _bad_output(self, error: Exception) -> Exception:
        schema = self._operator.output
        place = _first_unfit(self._rows, lambda made: tuples_to_columns([made], schema))
        group = self._groups.group_of_row[self._parents[place]]
        return OutputMismatch(
            f"{describe_function(self._operator.function)} emitted {short(self._rows[place])}, "
            f"which does not fit the output schema ({_brief(schema)}): {error}",
            where=f"operator {self._operator.name}, {self._key(group)}",
            do="Emit a tuple with one value per column, or change output=.",
        )

    def _bad_state(self, error: Exception) -> Exception:
        codec = self._operator.codec
        group = _first_unfit(self._states, lambda value: codec.encode([value]))
        wanted = f"does not fit the state schema ({_brief(codec.schema)})"
        if isinstance(codec, AnyValue):
            wanted = "msgspec cannot encode"
        return OutputMismatch(
            f"{describe_function(self._operator.function)} returned the state "
            f"{short(self._states[group])}, which {wanted}: {error}",
            where=f"operator {self._operator.name}, {self._key(group)}",
            do="Return a value that fits, or change state=.",
        )

    def _key(self, group: int) -> str:
        return short(next(named_tuples("Key", self._groups.keys.slice(group, 1))))


_SEVERAL = {list, type(None)}
"""The types of output that do not stand for one row."""

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
