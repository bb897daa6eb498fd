"""``process``: a user's class, called for each key with the key's rows of the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.handles import MapState, Process, ValueState, overrides
from anabranch.dataflow.types.schema import to_ddl
from anabranch.errors import OutputMismatch, UserFunctionFailed
from anabranch.messages import (
    Acquire,
    Barrier,
    Collect,
    Interrogate,
    Message,
    ScaleDown,
    ScaleUp,
    Shutdown,
)
from anabranch.operators.bound import (
    LIST_PLACE,
    Bound,
    BoundList,
    BoundMap,
    BoundValue,
    Cursor,
    HandleContext,
)
from anabranch.operators.codec import StateCodec, first_unfit, tuples_to_columns
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import function_failed, row_advice, short
from anabranch.operators.order.row_order import Int64s, RowOrder
from anabranch.operators.rows import (
    KeyedEntries,
    KeyRows,
    Rows,
    RowSpan,
    StateChanges,
    group_rows,
    named_tuples,
    split_groups,
)
from anabranch.operators.stateful_map import pause_gc
from anabranch.runs.rows import Groups

CALLED_ROWS = 8192
"""About how many rows are turned into objects at a time."""

AFTER_ALL = 1 << 62
"""The first order column of rows that come after all rows of all sources."""

SAVED = "saved"
"""The state that ``save`` returns."""

METHODS: dict[type, str] = {
    Acquire: "on_acquire",
    Interrogate: "on_interrogate",
    ScaleUp: "on_scale",
    ScaleDown: "on_scale",
    Collect: "on_collect",
    Barrier: "on_barrier",
    Shutdown: "on_shutdown",
}
"""The method that a class may define to handle each message."""


class HandleSpec(msgspec.Struct, frozen=True):
    """A handle of an operator: the name of its state, its columns, its time-to-live.

    ``subkeys`` is the codec of a map's keys, None for other kinds.
    """

    attribute: str
    state: str
    kind: type[Any]
    codec: StateCodec
    subkeys: StateCodec | None
    ttl_ns: int | None

    @property
    def subkey_columns(self) -> pa.Schema:
        """The columns that identify the entries of a key."""
        if self.subkeys is not None:
            return self.subkeys.schema
        return pa.schema([]) if self.kind is ValueState else LIST_PLACE

    def bind(self, context: HandleContext) -> Bound:
        """Bind the handle to the keys of a step."""
        if self.kind is ValueState:
            return BoundValue(context)
        if self.kind is MapState:
            assert self.subkeys is not None
            return BoundMap(context, self.subkeys)
        return BoundList(context)


class ProcessOperator(msgspec.Struct, frozen=True):
    """The operator: the user's class, its handles and its output schema.

    ``saved`` is the state that the class keeps outside its handles, by ``load`` and ``save``.
    """

    name: str
    process: type[Process]
    handles: tuple[HandleSpec, ...]
    saved: HandleSpec | None
    output: pa.Schema

    def run(
        self, rows: Rows, states: Mapping[str, KeyedEntries], dead: list[RowFailure] | None = None
    ) -> tuple[Rows, dict[str, StateChanges]]:
        """Call ``on_rows`` for every key; return the output and the changes of every state.

        With ``dead``, a call that fails changes nothing, and its rows are added there.
        """
        grouped = group_rows(rows)
        calls = ProcessCalls(self, grouped.groups, states, dead)
        output = calls.call_on_rows(rows, grouped, np.arange(len(grouped.groups)))
        return output, calls.changes()

    @property
    def handles_end(self) -> bool:
        """Whether the class defines what happens to keys at the end of the input."""
        return overrides(self.process, "on_end")

    @property
    def handles_messages(self) -> bool:
        """Whether the class defines a method for any message."""
        return any(overrides(self.process, method) for method in METHODS.values())

    def handles_message(self, message: Message) -> bool:
        """Whether the class defines a method for a message."""
        method = METHODS.get(type(message))
        return method is not None and overrides(self.process, method)


class ProcessCalls:
    """Calls one object of the user's class for the keys of a step."""

    def __init__(
        self,
        operator: ProcessOperator,
        groups: Groups,
        states: Mapping[str, KeyedEntries],
        dead: list[RowFailure] | None,
    ) -> None:
        self._operator = operator
        self._dead = dead
        self._groups = groups
        self._loaded: set[int] = set()
        self._cursor = Cursor()
        self._rows: list[Any] = []
        self._counts = np.zeros(len(groups), dtype=np.int64)
        self._bound: dict[str, Bound] = {}
        try:
            self._object = operator.process()
        except Exception as error:
            raise self._function_error("__init__", None, error) from error
        for spec in operator.handles:
            setattr(self._object, spec.attribute, self._bind(spec, states))
        self._saved: BoundValue | None = None
        if operator.saved is not None:
            saved = self._bind(operator.saved, states)
            assert isinstance(saved, BoundValue)
            self._saved = saved

    def call_on_rows(self, rows: Rows, grouped: KeyRows, places: Int64s) -> Rows:
        """Call ``on_rows`` for all keys of the rows, which have these places; return the output."""
        with pause_gc():
            for part in split_groups(grouped.groups.starts, len(rows), CALLED_ROWS):
                self._call_part(part, grouped, places[part.first_group : part.last_group])
        # An output row takes the place of the first row of its key.
        leaders = np.zeros(len(self._groups), dtype=np.int64)
        leaders[places] = grouped.parents[grouped.groups.starts]
        return rows.children(self._output(), leaders[self._callers()], self._digits())

    def call_on_end(self, digits: int, called: Int64s) -> Rows:
        """Call ``on_end`` for every key; for those ``called`` before, only if they have state left.

        The output comes after all rows, ordered by the hashes of the keys. Its order has as many
        ``digits`` as that of other rows.
        """
        doubtful = set(called.tolist())
        self._rows, self._counts = [], np.zeros(len(self._groups), dtype=np.int64)
        with pause_gc():
            for place, key in enumerate(named_tuples("Key", self._groups.keys)):
                if place not in doubtful or self._has_state(place):
                    self._call("on_end", place, key, [])
        groups, callers = self._groups, self._callers()
        nothing = np.zeros(len(callers), dtype=np.int64)
        order = RowOrder(
            (
                nothing + AFTER_ALL,
                groups.hashes[callers].view(np.int64),
                callers,
                *(nothing for _ in range(digits - 1)),
                self._digits(),
            )
        )
        keys = pa.Table.from_batches([groups.keys.take(pa.array(callers))])
        return Rows(self._output(), groups.hashes[callers], keys, order)

    def _call_part(self, part: RowSpan, grouped: KeyRows, places: Int64s) -> None:
        """Call ``on_rows`` for the keys of a part, which have these places."""
        values = grouped.values.slice(part.first_row, part.last_row - part.first_row)
        rows = list(named_tuples("Row", values))
        starts = grouped.groups.starts[part.first_group : part.last_group]
        cuts = np.append(starts, part.last_row) - part.first_row
        for place, key, (first, last) in zip(
            places.tolist(),
            named_tuples("Key", self._groups.keys.take(pa.array(places))),
            pairwise(cuts.tolist()),
            strict=True,
        ):
            self._call("on_rows", place, key, [rows[first:last]])

    def _output(self) -> pa.Table:
        """The rows that the calls returned."""
        schema = self._operator.output
        try:
            return pa.Table.from_arrays(tuples_to_columns(self._rows, schema), schema=schema)
        except Exception as error:
            raise self._unfit(error) from error

    def _callers(self) -> Int64s:
        """The place of the key that each output row was returned for."""
        return np.repeat(np.arange(len(self._groups)), self._counts)

    def _digits(self) -> Int64s:
        """The number of each output row among the rows of its call."""
        first = np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        return np.arange(len(self._rows), dtype=np.int64) - first

    def changes(self) -> dict[str, StateChanges]:
        """The changes of each state."""
        found = {}
        for state, handle in self._bound.items():
            try:
                changes = handle.changes()
            except Exception as error:
                raise self._bad_state(state, error) from error
            if changes is not None:
                found[state] = changes
        return found

    def _bind(self, spec: HandleSpec, states: Mapping[str, KeyedEntries]) -> Bound:
        context = HandleContext(
            states[spec.state], self._groups, self._cursor, spec.codec, spec.ttl_ns
        )
        handle = spec.bind(context)
        self._bound[spec.state] = handle
        return handle

    def _call(self, method: str, place: int, key: Any, arguments: list[list[Any]]) -> None:
        self._cursor.place = place
        try:
            made = self._result(method, place, key, arguments)
        except Exception as error:
            if self._dead is None:
                raise self._function_error(method, key, error) from error
            for handle in self._bound.values():
                handle.undo(place)
            rows = arguments[0] if arguments else [None]
            self._dead += [row_failure(self._operator.name, error, row, key) for row in rows]
            return
        self._rows += made
        self._counts[place] = len(made)

    def _result(self, method: str, place: int, key: Any, arguments: list[list[Any]]) -> list[Any]:
        """The rows that a call returns; if calls may fail, they are checked first."""
        self._load(place, key)
        made = _as_rows(getattr(self._object, method)(key, *arguments))
        if self._saved is not None:
            self._saved.set(self._object.save(key))
        if self._dead is not None:
            tuples_to_columns(made, self._operator.output)
            for handle in self._bound.values():
                handle.check(place)
        return made

    def _has_state(self, place: int) -> bool:
        return any(handle.has_state(place) for handle in self._bound.values())

    def saved(self, place: int) -> bytes | None:
        """The saved state of the key at a place."""
        if self._saved is None:
            return None
        self._cursor.place = place
        saved: bytes | None = self._saved.get()
        return saved

    def save(self, place: int, state: bytes) -> None:
        """Replace the saved state of the key at a place."""
        assert self._saved is not None
        self._cursor.place = place
        self._saved.set(state)

    def mark_loaded(self, places: Iterable[int]) -> None:
        """Note that the object has the saved state of these keys."""
        self._loaded.update(places)

    def load(self, places: Iterable[int], keys: Iterable[Any]) -> None:
        """Let the object load the saved state of these keys, unless it has already."""
        for place, key in zip(places, keys, strict=True):
            self._cursor.place = place
            try:
                self._load(place, key)
            except Exception as error:
                raise self._function_error("load", key, error) from error

    def notify(self, method: str, argument: Any) -> None:
        """Call the method that handles a message."""
        try:
            getattr(self._object, method)(argument)
        except Exception as error:
            raise self._function_error(method, None, error) from error

    def _load(self, place: int, key: Any) -> None:
        if self._saved is None or place in self._loaded:
            return
        if (saved := self._saved.get()) is not None:
            self._object.load(key, saved)
        self._loaded.add(place)

    def _function_error(self, method: str, key: Any, error: Exception) -> UserFunctionFailed:
        named = "" if key is None else f", {short(key)}"
        function = getattr(self._operator.process, method)
        return function_failed(function, error, f"operator {self._operator.name}{named}")

    def _unfit(self, error: Exception) -> OutputMismatch:
        schema = self._operator.output
        place = first_unfit(self._rows, lambda row: tuples_to_columns([row], schema))
        (key,) = named_tuples("Key", self._groups.keys.slice(int(self._callers()[place]), 1))
        return OutputMismatch(
            f"{self._operator.process.__qualname__} returned the row {short(self._rows[place])}, "
            f"which does not fit the output schema ({to_ddl(schema)}): {error}",
            where=f"operator {self._operator.name}, {short(key)}",
            do=f"Return None or rows: {row_advice(self._rows[place], schema)}",
        )

    def _bad_state(self, state: str, error: Exception) -> OutputMismatch:
        return OutputMismatch(
            f"{self._operator.process.__qualname__} set a value that does not fit the schema of "
            f"{state!r}: {error}",
            where=f"operator {self._operator.name}",
            do="Set values that fit, or change the handle's schema.",
        )


def _as_rows(result: Any) -> list[Any]:
    """The result of a call as rows: None is no row, a tuple is one."""
    if result is None:
        return []
    return [result] if isinstance(result, tuple) else list(result)
