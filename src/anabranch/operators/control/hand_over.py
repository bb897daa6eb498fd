"""Where operators answer ``Interrogate``, ``Collect`` and ``Acquire`` in a task.

Operators that keep state outside the handles use these to take part in a rescale. Keys and state
(bytes) are opaque here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from anabranch.messages import Acquire, Collect, Interrogate

StatesByOperator = dict[str, dict[Hashable, bytes]]
"""Operator → key → state."""


class Interrogation:
    """The answer to ``Interrogate``: operators register the keys for which they hold state.

    An operator that may create keys keeps this object and registers new keys at any time. A key
    registered twice counts once.
    """

    def __init__(self, message: Interrogate) -> None:
        self.message = message
        self._keys: dict[str, set[Hashable]] = {}

    def add_keys(self, operator: str, keys: Iterable[Hashable]) -> None:
        """Register keys of an operator; without keys, only the operator."""
        self._keys.setdefault(operator, set()).update(keys)

    @property
    def keys(self) -> frozenset[Hashable]:
        """All registered keys of the region."""
        return frozenset().union(*self._keys.values())

    def keys_of(self, operator: str) -> frozenset[Hashable]:
        """The registered keys of an operator."""
        return frozenset(self._keys.get(operator, ()))


class Collection:
    """The answer to ``Collect``: operators leave the state of bins that move to another worker.

    An operator sees the message once per input. Each time it leaves its newest state, and the last
    one counts. The state is complete when all ``instances`` of the message have passed.
    """

    def __init__(self, message: Collect, instances: int) -> None:
        if instances < 1:
            raise ValueError(f"a message must pass at least once, not {instances} times")
        self.message = message
        self.instances = instances
        self.counted = 0
        self._states: StatesByOperator = {}

    def add_state(self, operator: str, key: Hashable, state: bytes) -> None:
        """Leave the state of a key, replacing older state of the same operator and key."""
        if self.is_complete:
            raise ValueError(f"{operator!r} left state after the collection was complete")
        self._states.setdefault(operator, {})[key] = state

    def count(self) -> None:
        """Count one instance of the message that has passed."""
        if self.is_complete:
            raise ValueError(f"all {self.instances} instances have passed already")
        self.counted += 1

    @property
    def is_complete(self) -> bool:
        """Whether every instance has passed."""
        return self.counted == self.instances

    def states(self) -> StatesByOperator:
        """The collected state by operator; ``ValueError`` until the collection is complete."""
        if not self.is_complete:
            raise ValueError(f"{self.instances - self.counted} instances have not passed yet")
        return {operator: dict(states) for operator, states in self._states.items()}


class Acquisition:
    """The answer to ``Acquire``: operators take the state of bins from another worker."""

    def __init__(self, message: Acquire, states: StatesByOperator) -> None:
        self.message = message
        self._states = {operator: dict(by_key) for operator, by_key in states.items()}
        self._known = set(self._states)

    def take_state(self, operator: str) -> dict[Hashable, bytes] | None:
        """Take an operator's state by key; None if there is none or it was taken before."""
        return self._states.pop(operator, None)

    def put(self, operator: str, states: Mapping[Hashable, bytes]) -> None:
        """Provide an operator's state in the bins that have arrived."""
        self._known.add(operator)
        if states:
            self._states[operator] = dict(states)

    def is_known(self, operator: str) -> bool:
        """Whether the state of an operator has been provided."""
        return operator in self._known

    @property
    def left(self) -> tuple[str, ...]:
        """The operators whose state was not taken."""
        return tuple(sorted(self._states))
