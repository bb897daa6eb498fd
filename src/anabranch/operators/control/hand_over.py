"""What stands for ``Interrogate``, ``Collect`` and ``Acquire`` in a task: where operators answer.

An operator that keeps state outside the handles takes part in a rescale by these. All keys are as
the operator knows them, state is bytes; neither is looked into.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from anabranch.messages import Acquire, Collect, Interrogate

HandedOver = dict[str, dict[Hashable, bytes]]
"""Operator → key → state."""


class Interrogation:
    """Where operators register the keys for which they hold state.

    An operator that may create keys keeps it and registers each new one: it may be called at any
    time, and a key that is registered again counts once.
    """

    def __init__(self, message: Interrogate) -> None:
        self.message = message
        self._keys: dict[str, set[Hashable]] = {}

    def add_keys(self, operator: str, keys: Iterable[Hashable]) -> None:
        """Register keys of an operator; none registers the operator."""
        self._keys.setdefault(operator, set()).update(keys)

    @property
    def keys(self) -> frozenset[Hashable]:
        """All keys of the region that are known."""
        return frozenset().union(*self._keys.values())

    def keys_of(self, operator: str) -> frozenset[Hashable]:
        """The keys for which an operator holds state."""
        return frozenset(self._keys.get(operator, ()))


class Collection:
    """Where operators leave the state of bins that go to another worker.

    An operator with several inputs sees the message once for each: it leaves its newest state each
    time, and the last one counts. ``instances`` is how often the message passes in all; the state
    is whole when all of them were counted.
    """

    def __init__(self, message: Collect, instances: int) -> None:
        if instances < 1:
            raise ValueError(f"a message passes at least once, not {instances} times")
        self.message = message
        self.instances = instances
        self.counted = 0
        self._states: HandedOver = {}

    def add_state(self, operator: str, key: Hashable, state: bytes) -> None:
        """Leave the state of a key; an older one of the same operator and key is overwritten."""
        if self.is_complete:
            raise ValueError(f"{operator!r} leaves state after everything was collected")
        self._states.setdefault(operator, {})[key] = state

    def count(self) -> None:
        """One instance of the message has passed the whole region."""
        if self.is_complete:
            raise ValueError(f"all {self.instances} instances have passed already")
        self.counted += 1

    def states_of(self, operator: str) -> dict[Hashable, bytes]:
        """What an operator has left so far; it is the newest when it has seen every instance."""
        return dict(self._states.get(operator, {}))

    @property
    def is_complete(self) -> bool:
        """Whether every instance has passed."""
        return self.counted == self.instances

    def states(self) -> HandedOver:
        """What was collected; refused as long as something may be missing or old."""
        if not self.is_complete:
            raise ValueError(f"{self.instances - self.counted} instances have not passed yet")
        return {operator: dict(states) for operator, states in self._states.items()}


class Acquisition:
    """Where operators take the state of bins that have come from another worker."""

    def __init__(self, message: Acquire, states: HandedOver) -> None:
        self.message = message
        self._states = {operator: dict(kept) for operator, kept in states.items()}
        self._known = set(self._states)

    def take_state(self, operator: str) -> dict[Hashable, bytes] | None:
        """An operator's state by key: the first call gets it, later ones get None.

        None must not be applied: it says that the state was taken, or that there was none.
        """
        return self._states.pop(operator, None)

    def put(self, operator: str, states: Mapping[Hashable, bytes]) -> None:
        """What an operator finds: its state in the bins that have come."""
        self._known.add(operator)
        if states:
            self._states[operator] = dict(states)

    def is_known(self, operator: str) -> bool:
        """Whether it was looked up what has come of an operator's state."""
        return operator in self._known

    @property
    def left(self) -> tuple[str, ...]:
        """The operators whose state nobody has taken: not empty is state left behind."""
        return tuple(sorted(self._states))
