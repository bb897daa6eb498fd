"""``process``: a user's class, called for each key with the key's rows of the step.

This is what a class is to the engine: its handles, its timers and its output. The calls are in
``process_calls``; the order of a step with event time is in ``timers``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.dataflow.handles import MapState, Process, ValueState, overrides
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
from anabranch.operators.codec import StateCodec
from anabranch.operators.handles.bound_list import LIST_PLACE, BoundList
from anabranch.operators.handles.bound_map import BoundMap
from anabranch.operators.handles.bound_value import BoundValue
from anabranch.operators.handles.context import EventContext, HandleContext
from anabranch.operators.handles.event_handles import EventList, EventMap, EventValue

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

Bound: TypeAlias = BoundValue | BoundList | BoundMap
"""A handle bound to the keys of a step."""


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
    clock: Clock = "step"

    @property
    def subkey_columns(self) -> pa.Schema:
        """The columns that identify the entries of a key."""
        if self.subkeys is not None:
            return self.subkeys.schema
        return pa.schema([]) if self.kind is ValueState else LIST_PLACE

    def bind(self, context: HandleContext) -> Bound:
        """Bind the handle to the keys of a step."""
        if isinstance(context, EventContext):
            return self._bind_by_event(context)
        if self.kind is ValueState:
            return BoundValue(context)
        if self.kind is MapState:
            assert self.subkeys is not None
            return BoundMap(context, self.subkeys)
        return BoundList(context)

    def _bind_by_event(self, context: EventContext) -> Bound:
        if self.kind is ValueState:
            return EventValue(context)
        if self.kind is MapState:
            assert self.subkeys is not None
            return EventMap(context, self.subkeys)
        return EventList(context)


class ProcessOperator(msgspec.Struct, frozen=True):
    """The operator: the user's class, its handles and its output schema.

    ``saved`` is the state that the class keeps outside its handles, by ``load`` and ``save``.
    ``timed``: its rows have event times. ``time`` is the output column with those of its output;
    None if they are those of what the output was made of.
    """

    name: str
    process: type[Process]
    handles: tuple[HandleSpec, ...]
    saved: HandleSpec | None
    output: pa.Schema
    timed: bool = False
    time: str | None = None

    @property
    def states(self) -> tuple[HandleSpec, ...]:
        """What the class keeps of a key, timers aside."""
        return self.handles if self.saved is None else (*self.handles, self.saved)

    @property
    def timer_clocks(self) -> tuple[Clock, ...]:
        """The clocks by which it can set timers."""
        if not overrides(self.process, "on_notify"):
            return ()
        return ("event", "step") if self.timed else ("step",)

    @property
    def has_steps(self) -> bool:
        """Whether it takes part in every step, with or without rows: time concerns it."""
        return self.timed or bool(self.timer_clocks)

    @property
    def handles_end(self) -> bool:
        """Whether the class is told the end of the input."""
        return overrides(self.process, "on_end")

    @property
    def handles_messages(self) -> bool:
        """Whether the class defines a method for any message."""
        return any(overrides(self.process, method) for method in METHODS.values())

    def handles_message(self, message: Message) -> bool:
        """Whether the class defines a method for a message."""
        method = METHODS.get(type(message))
        return method is not None and overrides(self.process, method)
