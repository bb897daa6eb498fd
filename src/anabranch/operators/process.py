"""``process``: a class of the user's, called for each key with its rows of the step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.handles import MapState, Process, ValueState, overrides
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
from anabranch.operators.codec import StateCodec, tuples_to_columns
from anabranch.operators.control.messaging import Messaged
from anabranch.operators.dead_letter import RowFailure, row_failure
from anabranch.operators.error_text import failing_line, short
from anabranch.operators.key_rows import KeyRows, RowSpan, parts, walk
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Changes, KeyedEntries, Rows, named_tuples
from anabranch.operators.stateful_map import no_collection
from anabranch.runs.rows import Groups

CALLED_ROWS = 8192
"""About how many rows are objects at a time."""

AFTER_ALL = 1 << 62
"""The first order column of what comes after every row of every source."""

SAVED = "saved"
"""The state of what ``save`` gives."""

METHODS: dict[type, str] = {
    Acquire: "on_acquire",
    Interrogate: "on_interrogate",
    ScaleUp: "on_scale",
    ScaleDown: "on_scale",
    Collect: "on_collect",
    Barrier: "on_barrier",
    Shutdown: "on_shutdown",
}
"""The method of a class for each message that it may handle."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HandleSpec:
    """A handle as its operator keeps it: the name of the state, its columns, its time-to-live.

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
        """The columns that tell the entries of a key apart."""
        if self.subkeys is not None:
            return self.subkeys.schema
        return pa.schema([]) if self.kind is ValueState else LIST_PLACE

    def bind(self, opened: HandleContext) -> BoundValue | BoundList | BoundMap:
        """The handle at work."""
        if self.kind is ValueState:
            return BoundValue(opened)
        if self.kind is MapState:
            assert self.subkeys is not None
            return BoundMap(opened, self.subkeys)
        return BoundList(opened)


@dataclass(frozen=True, slots=True)
class ProcessOperator(Messaged):
    """The operator: the user's class, its handles, and what its output looks like.

    ``saves``: the class keeps something outside the handles, by ``load`` and ``save``.
    """

    name: str
    process: type[Process]
    handles: tuple[HandleSpec, ...]
    saved: HandleSpec | None
    output: pa.Schema

    def run(
        self,
        rows: Rows,
        states: Mapping[str, KeyedEntries],
        dead: list[RowFailure] | None = None,
    ) -> tuple[Rows, dict[str, Changes]]:
        """Call ``on_rows`` for every key; give the output and the changes of every state.

        With ``dead`` a call that fails changes nothing, and its rows are put there.
        """
        walked = walk(rows)
        work = Work(self, walked.groups, states, dead)
        output = work.called_with(rows, walked, np.arange(len(walked.groups)))
        return output, work.changes()

    def end(
        self,
        groups: Groups,
        states: Mapping[str, KeyedEntries],
        digits: int,
        dead: list[RowFailure] | None = None,
    ) -> tuple[Rows, dict[str, Changes]]:
        """Call ``on_end`` for every one of these keys; give the output and the changes.

        What is given comes after all rows, by the hashes of the keys; its order has so many
        digits as that of other rows.
        """
        work = Work(self, groups, states, dead)
        return work.ended(digits), work.changes()

    @property
    def hears(self) -> bool:
        """Whether the class has a method of its own for any message."""
        return any(overrides(self.process, method) for method in METHODS.values())

    def answers(self, message: Message) -> bool:
        """Whether the class has a method of its own for a message."""
        method = METHODS.get(type(message))
        return method is not None and overrides(self.process, method)


class Work:
    """One object of the user's class at work on the keys of a step."""

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
        self._starts = groups.starts
        self._places = np.arange(len(groups))
        self._there: set[int] = set()
        self._cursor = Cursor()
        self._rows: list[Any] = []
        self._counts = np.zeros(len(groups), dtype=np.int64)
        self._bound: dict[str, Bound] = {}
        self._object = self._made()
        for spec in operator.handles:
            handle = self._bind(spec, states)
            setattr(self._object, spec.attribute, handle)
        self._saved: BoundValue | None = None
        if operator.saved is not None:
            saved = self._bind(operator.saved, states)
            assert isinstance(saved, BoundValue)
            self._saved = saved

    def called_with(self, rows: Rows, walked: KeyRows, places: Int64s) -> Rows:
        """Call ``on_rows`` for all keys of the rows, which have these places; give the output."""
        self._starts, self._places = walked.groups.starts, places
        with no_collection():
            for part in parts(walked.groups.starts, len(rows), CALLED_ROWS):
                self.rows_of(part, walked.values)
        # A row that a call made comes where the first row of its key stood.
        leaders = np.zeros(len(self._groups), dtype=np.int64)
        leaders[places] = walked.parents[walked.groups.starts]
        made, callers = self.output(), leaders[self.callers()]
        assert rows.hashes is not None
        assert rows.keys is not None
        return Rows(
            made,
            rows.hashes[callers],
            rows.keys.take(pa.array(callers)),
            None if rows.order is None else rows.order.child(callers, self.digits()),
        )

    def ended(self, digits: int) -> Rows:
        """Call ``on_end`` for every key; give the output, which comes after all rows."""
        with no_collection():
            self.ends()
        groups, callers = self._groups, self.callers()
        nothing = np.zeros(len(callers), dtype=np.int64)
        order = RowOrder(
            (
                nothing + AFTER_ALL,
                groups.hashes[callers].view(np.int64),
                callers,
                *(nothing for _ in range(digits - 1)),
                self.digits(),
            )
        )
        keys = pa.Table.from_batches([groups.keys.take(pa.array(callers))])
        return Rows(self.output(), groups.hashes[callers], keys, order)

    def rows_of(self, part: RowSpan, values: pa.Table) -> None:
        """Call ``on_rows`` for the keys of a part."""
        rows = list(
            named_tuples("Row", values.slice(part.first_row, part.last_row - part.first_row))
        )
        starts = self._starts[part.first_group : part.last_group]
        cuts = np.append(starts, part.last_row) - part.first_row
        places = self._places[part.first_group : part.last_group]
        for place, key, (first, last) in zip(
            places.tolist(),
            named_tuples("Key", self._groups.keys.take(pa.array(places))),
            pairwise(cuts.tolist()),
            strict=True,
        ):
            self._called("on_rows", place, key, [rows[first:last]])

    def ends(self) -> None:
        """Call ``on_end`` for every key."""
        for place, key in enumerate(self._keys(0, len(self._groups))):
            self._called("on_end", place, key, [])

    def output(self) -> pa.Table:
        """The rows that the calls gave."""
        schema = self._operator.output
        try:
            return pa.Table.from_arrays(tuples_to_columns(self._rows, schema), schema=schema)
        except Exception as error:
            raise self._unfit(error) from error

    def callers(self) -> Int64s:
        """For each row of the output, the place of the key that it was given for."""
        return np.repeat(np.arange(len(self._groups)), self._counts)

    def digits(self) -> Int64s:
        """For each row of the output, which one of its call it is."""
        first = np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        return np.arange(len(self._rows), dtype=np.int64) - first

    def changes(self) -> dict[str, Changes]:
        """What was changed, by state."""
        found = {}
        for state, handle in self._bound.items():
            try:
                changes = handle.changes()
            except Exception as error:
                raise self._bad_state(state, error) from error
            if changes is not None:
                found[state] = changes
        return found

    def _made(self) -> Process:
        try:
            return self._operator.process()
        except Exception as error:
            raise self._failed("__init__", None, error) from error

    def _bind(
        self, spec: HandleSpec, states: Mapping[str, KeyedEntries]
    ) -> BoundValue | BoundList | BoundMap:
        opened = HandleContext(
            states[spec.state], self._groups, self._cursor, spec.codec, spec.ttl_ns
        )
        handle = spec.bind(opened)
        self._bound[spec.state] = handle
        return handle

    def _keys(self, first: int, last: int) -> Iterator[Any]:
        return named_tuples("Key", self._groups.keys.slice(first, last - first))

    def _called(self, method: str, place: int, key: Any, arguments: list[list[Any]]) -> None:
        self._cursor.place = place
        try:
            made = self._result(method, place, key, arguments)
        except Exception as error:
            if self._dead is None:
                raise self._failed(method, key, error) from error
            for handle in self._bound.values():
                handle.undo(place)
            rows = arguments[0] if arguments else [None]
            self._dead += [row_failure(self._operator.name, error, row, key) for row in rows]
            return
        self._rows += made
        self._counts[place] = len(made)

    def _result(self, method: str, place: int, key: Any, arguments: list[list[Any]]) -> list[Any]:
        """The rows that a call gives; where calls may fail, it is checked before it counts."""
        self._bring(place, key)
        made = _as_rows(getattr(self._object, method)(key, *arguments))
        if self._saved is not None:
            self._saved.set(self._object.save(key))
        if self._dead is not None:
            tuples_to_columns(made, self._operator.output)
            for handle in self._bound.values():
                handle.check(place)
        return made

    def saved(self, place: int) -> bytes | None:
        """What is saved of the key at a place."""
        if self._saved is None:
            return None
        self._cursor.place = place
        saved: bytes | None = self._saved.get()
        return saved

    def save(self, place: int, state: bytes) -> None:
        """Keep something in place of what is saved of a key."""
        assert self._saved is not None
        self._cursor.place = place
        self._saved.set(state)

    def taken(self, places: Iterable[int]) -> None:
        """The object has taken what is saved of these keys."""
        self._there.update(places)

    def bring(self, places: Iterable[int], keys: Iterable[Any]) -> None:
        """Let the object load what is saved of these keys, where it has not yet."""
        for place, key in zip(places, keys, strict=True):
            self._cursor.place = place
            try:
                self._bring(place, key)
            except Exception as error:
                raise self._failed("load", key, error) from error

    def tell(self, method: str, argument: Any) -> None:
        """Call the method for a message."""
        try:
            getattr(self._object, method)(argument)
        except Exception as error:
            raise self._failed(method, None, error) from error

    def _bring(self, place: int, key: Any) -> None:
        if self._saved is None or place in self._there:
            return
        if (saved := self._saved.get()) is not None:
            self._object.load(key, saved)
        self._there.add(place)

    def _failed(self, method: str, key: Any, error: Exception) -> UserFunctionFailed:
        operator = self._operator
        function = getattr(operator.process, method)
        named = "" if key is None else f", {short(key)}"
        return UserFunctionFailed(
            f"{operator.process.__qualname__}.{method} raised {type(error).__name__}: {error}",
            where=f"operator {operator.name}{named}, {failing_line(error, function)}",
            do="Mend the class and run the pipeline again: it continues with this step.",
        )

    def _unfit(self, error: Exception) -> OutputMismatch:
        schema = self._operator.output
        place = _first_unfit(self._rows, schema)
        group = int(self.callers()[place])
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        return OutputMismatch(
            f"{self._operator.process.__qualname__} gave the row {short(self._rows[place])}, "
            f"which does not fit the output schema ({columns}): {error}",
            where=f"operator {self._operator.name}, {short(next(self._keys(group, group + 1)))}",
            do="Give tuples with one value per column, or change output=.",
        )

    def _bad_state(self, state: str, error: Exception) -> OutputMismatch:
        return OutputMismatch(
            f"{self._operator.process.__qualname__} kept something that does not fit the schema of "
            f"{state!r}: {error}",
            where=f"operator {self._operator.name}",
            do="Keep values that fit, or change the handle's schema.",
        )


def _as_rows(result: Any) -> list[Any]:
    """What a call gave, as rows: nothing, one tuple, or any number of them."""
    if result is None:
        return []
    return [result] if isinstance(result, tuple) else list(result)


def _first_unfit(rows: Sequence[Any], schema: pa.Schema) -> int:
    for place, row in enumerate(rows):
        try:
            tuples_to_columns([row], schema)
        except Exception:
            return place
    return 0
