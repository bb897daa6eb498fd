"""Messages within a task: what they are to operators, and their way through them.

A message enters at the region's start and passes along the streams. An operator sees it once for
each of its inputs, says what it has to say, and passes it on. It ends where the region does.
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

Heard: TypeAlias = (
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
"""A message as operators see it: those that are answered have something that stands for them."""

MOVING = (Acquire, Interrogate, ScaleUp, ScaleDown, Collect, Shutdown)
"""What a rescale sends: it is reported how these have passed."""


class Messaged:
    """What every operator is to messages: it passes on what it does not handle."""

    __slots__ = ()

    def answers(self, message: Message) -> bool:
        """Whether it has something to say to a message; else it only passes it on."""
        return False


class Passage:
    """The way of a step's messages through the operators of one task.

    ``inputs`` says how many inputs each operator has, in the order in which operators are passed.
    """

    def __init__(
        self, region: str | None, messages: Sequence[Message], inputs: Mapping[int, int]
    ) -> None:
        """``ValueError`` for a message of another region: they never cross a boundary."""
        self._inputs = dict(inputs)
        self._handled: dict[int, set[int]] = {}
        self._keys: Counter[int] = Counter()
        self._heard = [(each, self._stand_in(each)) for each in messages]
        for message in messages:
            of = getattr(message, "region", region)
            if of != region:
                raise ValueError(f"a message of {of!r} has crossed into {region!r}: {message}")

    def handled_by(self, operator: Messaged) -> bool:
        """Whether an operator has something to say to any of the messages."""
        return any(operator.answers(message) for message, _ in self._heard)

    def before_data(self, node: int) -> Iterator[tuple[Message, Heard]]:
        """What comes to an operator before its first row, once for each input."""
        return self._passing(node, after=False)

    def after_data(self, node: int) -> Iterator[tuple[Message, Heard]]:
        """What comes to an operator after its last row, once for each input."""
        return self._passing(node, after=True)

    def note(self, node: int, message: Message, keys: int) -> None:
        """An operator has handled a message, and it was about so many keys."""
        place = next(i for i, (each, _) in enumerate(self._heard) if each is message)
        self._handled.setdefault(place, set()).add(node)
        self._keys[place] += keys

    def passed(self, names: Mapping[int, str]) -> tuple[Passed, ...]:
        """How the messages of a rescale have passed; refused while one is on its way."""
        found = []
        for place, (message, heard) in enumerate(self._heard):
            if isinstance(heard, Collection):
                heard.states()
            if isinstance(message, MOVING):
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

    def _passing(self, node: int, *, after: bool) -> Iterator[tuple[Message, Heard]]:
        for message, heard in self._heard:
            if isinstance(message, AFTER_DATA) is not after:
                continue
            for _ in range(self._inputs[node]):
                yield message, heard
                if isinstance(heard, Collection):
                    heard.count()

    def _stand_in(self, message: Message) -> Heard:
        match message:
            case Interrogate():
                return Interrogation(message)
            case Collect():
                return Collection(message, sum(self._inputs.values()))
            case Acquire():
                return Acquisition(message, {})
            case _:
                return message
