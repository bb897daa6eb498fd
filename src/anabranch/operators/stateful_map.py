"""``stateful_map``: a plain Python function per row, with one value of state per key.

The function is called with the key, the row and the key's state, in the order of the rows, and
returns output and new state. Look-up and writing are vectorised around the calls: the only Python
objects made are those that the function is given and those that it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import StateCodec, tuples_to_columns
from anabranch.operators.failure import describe_function, failing_line, short
from anabranch.operators.order import Order
from anabranch.operators.rows import Changes, KeyedState, Rows, named_tuples
from anabranch.state.changed import Changed
from anabranch.state.rows import Groups, group_keys

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
        self._rows: list[Any] = []
        self._parents: list[int] = []
        self._digits: list[int] = []

    def make(self, values: pa.Table, places: np.ndarray[Any, Any] | None) -> None:
        """Call the function for each row; ``places`` are the rows' places in the batch."""
        group_of_row = self._groups.group_of_row
        group_of_call = (group_of_row if places is None else group_of_row[places]).tolist()
        row_of_call = range(len(group_of_call)) if places is None else places.tolist()
        keys = list(named_tuples("Key", self._groups.keys))
        function, states = self._operator.function, self._states
        made, parents, digits = self._rows, self._parents, self._digits
        group, row, result = 0, None, None
        try:
            for group, place, row in zip(
                group_of_call, row_of_call, named_tuples("Row", values), strict=True
            ):
                result = function(keys[group], row, states[group])
                output, states[group] = result
                if output is None:
                    continue
                if type(output) is list:
                    made.extend(output)
                    parents.extend([place] * len(output))
                    digits.extend(range(len(output)))
                else:
                    made.append(output)
                    parents.append(place)
                    digits.append(0)
        except Exception as error:
            raise self._failure(error, keys[group], row, result) from error

    def output(self, rows: Rows) -> Rows:
        """The rows that the calls returned, each with its caller's key and order."""
        parents = np.array(self._parents, dtype=np.int64)
        values = self._table()
        assert rows.order is not None
        assert rows.hashes is not None
        assert rows.keys is not None
        order: Order = rows.order.child(parents, np.array(self._digits, dtype=np.int64))
        taken = rows.keys.take(pa.array(parents))
        return Rows(values, rows.hashes[parents], taken, order)

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
        line = failing_line(error, operator.function)
        where = f"operator {operator.name}, {short(key)}, {short(row)}, {line}"
        if line is None or (isinstance(error, TypeError | ValueError) and _not_a_pair(result)):
            return OutputMismatch(
                f"{describe_function(operator.function)} returned {short(result)} instead of "
                "(output, new state)",
                where=f"operator {operator.name}, {short(key)}, {short(row)}",
                do="Return a pair: what to emit (None, a row or a list of rows) and the new state.",
            )
        return UserFunctionFailed(
            f"{describe_function(operator.function)} raised {type(error).__name__}: {error}",
            where=where,
            do="Mend the function and run the pipeline again: it continues with this step.",
        )

    def _bad_output(self, error: Exception) -> Exception:
        schema = self._operator.output
        for made in self._rows:
            if not _fits(made, schema):
                break
        else:
            made = self._rows[0]
        return OutputMismatch(
            f"{describe_function(self._operator.function)} emitted {short(made)}, which does not "
            f"fit the output schema ({_brief(schema)}): {error}",
            where=f"operator {self._operator.name}",
            do="Emit a tuple with one value per column, or change output=.",
        )

    def _bad_state(self, error: Exception) -> Exception:
        codec = self._operator.codec
        for group, value in enumerate(self._states):  # noqa: B007
            try:
                codec.encode([value])
            except Exception:
                break
        keys = list(named_tuples("Key", self._groups.keys.slice(group, 1)))
        return OutputMismatch(
            f"{describe_function(self._operator.function)} returned the state {short(value)}, "
            f"which does not fit the state schema ({_brief(codec.schema)}): {error}",
            where=f"operator {self._operator.name}, {short(keys[0])}",
            do="Return a value of that schema, or change state=.",
        )


def _not_a_pair(result: Any) -> bool:
    return not (isinstance(result, tuple) and len(result) == 2)


def _fits(made: Any, schema: pa.Schema) -> bool:
    try:
        tuples_to_columns([made], schema)
    except Exception:
        return False
    return True


def _brief(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
