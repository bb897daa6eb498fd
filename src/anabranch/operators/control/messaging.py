"""Control messages within a task, and how they pass through its operators.

A message enters at the start of the region and follows the streams to its end. Each operator sees
it once per input, may handle it, and passes it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from anabranch.messages import (
    AFTER_DATA,
    Acquire,
    Barrier,
    Collect,
    End,
    Hold,
    Interrogate,
    Load,
    Message,
    Passed,
    Prefetch,
    Question,
    ScaleDown,
    ScaleUp,
    Shutdown,
)
from anabranch.operators.control.hand_over import Acquisition, Collection, Interrogation

MessageView: TypeAlias = (
    Interrogation
    | Collection
    | Acquisition
    | ScaleUp
    | ScaleDown
    | Prefetch
    | Hold
    | Question
    | Barrier
    | Shutdown
    | Load
    | End
)
"""A message as operators see it; a message with answers is represented by what collects them."""

RESCALE_MESSAGES = (Acquire, Interrogate, ScaleUp, ScaleDown, Collect, Shutdown)
"""The messages of a rescale, whose passage is reported."""


class MessageHandler:
    """The base of all operators: by default an operator passes every message on."""

    __slots__ = ()

    def handles_message(self, message: Message) -> bool:
        """Whether the operator handles a message before it passes it on."""
        return False


class Passage:
    """The passage of a step's messages through the operators of one task.

    ``inputs`` is the number of inputs of each operator, in the order of passage.
    """

    def __init__(
        self, region: str | None, messages: Sequence[Message], inputs: Mapping[int, int]
    ) -> None:
        """Take the messages; ``ValueError`` for one of another region, which must not happen."""
        self._inputs = dict(inputs)
        self._handled: dict[int, set[int]] = {}
        self._keys: Counter[int] = Counter()
        self._views = [(each, self._view_of(each)) for each in messages]
        for message in messages:
            of = getattr(message, "region", region)
            if of != region:
                raise ValueError(f"a message for {of!r} has crossed into {region!r}: {message}")

    def handled_by(self, operator: MessageHandler) -> bool:
        """Whether an operator handles any of the messages."""
        return any(operator.handles_message(message) for message, _ in self._views)

    def before_data(self, node: int) -> Iterator[tuple[Message, MessageView]]:
        """The messages before the operator's first row, once per input."""
        return self._pass(node, after=False)

    def after_data(self, node: int) -> Iterator[tuple[Message, MessageView]]:
        """The messages after the operator's last row, once per input."""
        return self._pass(node, after=True)

    def mark_handled(self, node: int, message: Message, keys: int) -> None:
        """Record that an operator handled a message that concerned ``keys`` keys."""
        place = next(i for i, (each, _) in enumerate(self._views) if each is message)
        self._handled.setdefault(place, set()).add(node)
        self._keys[place] += keys

    def passed(self, names: Mapping[int, str]) -> tuple[Passed, ...]:
        """Report how the messages of a rescale passed; ``ValueError`` while one is on its way."""
        found = []
        for place, (message, view) in enumerate(self._views):
            if isinstance(view, Collection):
                view.states()
            if isinstance(message, RESCALE_MESSAGES):
                handled = self._handled.get(place, set())
                found.append(
                    Passed(
                        str(type(message).__struct_config__.tag),
                        getattr(message, "region", None),
                        tuple(names[node] for node in self._inputs),
                        tuple(names[node] for node in self._inputs if node in handled),
                        self._keys[place],
                    )
                )
        return tuple(found)

    def _pass(self, node: int, *, after: bool) -> Iterator[tuple[Message, MessageView]]:
        for message, view in self._views:
            if isinstance(message, AFTER_DATA) is not after:
                continue
            for _ in range(self._inputs[node]):
                yield message, view
                if isinstance(view, Collection):
                    view.count()

    def _view_of(self, message: Message) -> MessageView:
        match message:
            case Interrogate():
                return Interrogation(message)
            case Collect():
                return Collection(message, sum(self._inputs.values()))
            case Acquire():
                return Acquisition(message, {})
            case _:
                return message
