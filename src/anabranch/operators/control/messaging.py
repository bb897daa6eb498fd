"""Control messages within a task, and how they pass through its operators.

A message enters at the start of the region and follows the streams to its end. Each operator sees
it once per input, may handle it, and passes it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from anabranch.messages import (
    AFTER_DATA,
    Acquire,
    Collect,
    Interrogate,
    Message,
    Passed,
    ScaleDown,
    ScaleUp,
    Shutdown,
)

RESCALE_MESSAGES = (Acquire, Interrogate, ScaleUp, ScaleDown, Collect, Shutdown)
"""The messages of a rescale, whose passage is reported."""


class Passage:
    """The passage of a step's messages through the operators of one task.

    ``inputs`` is the number of inputs of each operator, in the order of passage.
    """

    def __init__(
        self, region: str | None, messages: Sequence[Message], inputs: Mapping[int, int]
    ) -> None:
        """Take the messages; ``ValueError`` for one of another region, which must not happen."""
        self._messages = tuple(messages)
        self._inputs = dict(inputs)
        self._passed: Counter[int] = Counter()
        self._handled: dict[int, set[int]] = {}
        self._keys: Counter[int] = Counter()
        for message in messages:
            of = getattr(message, "region", region)
            if of != region:
                raise ValueError(f"a message for {of!r} has crossed into {region!r}: {message}")

    def before_data(self, node: int) -> Iterator[Message]:
        """The messages before the operator's first row, once per input."""
        return self._pass(node, after=False)

    def after_data(self, node: int) -> Iterator[Message]:
        """The messages after the operator's last row, once per input."""
        return self._pass(node, after=True)

    def mark_handled(self, node: int, message: Message, keys: int) -> None:
        """Record that an operator handled a message that concerned ``keys`` keys."""
        place = next(i for i, each in enumerate(self._messages) if each is message)
        self._handled.setdefault(place, set()).add(node)
        self._keys[place] += keys

    def passed(self, names: Mapping[int, str]) -> tuple[Passed, ...]:
        """Report how the messages of a rescale passed; ``ValueError`` while one is on its way."""
        found = []
        for place, message in enumerate(self._messages):
            missing = sum(self._inputs.values()) - self._passed[place]
            if isinstance(message, Collect) and missing:
                raise ValueError(f"{message} has not passed {missing} inputs yet")
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

    def _pass(self, node: int, *, after: bool) -> Iterator[Message]:
        for place, message in enumerate(self._messages):
            if isinstance(message, AFTER_DATA) is after:
                for _ in range(self._inputs[node]):
                    yield message
                    self._passed[place] += 1
