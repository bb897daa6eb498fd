"""A node's data plane and its sources, which tell the rules what happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import cast

import msgspec

from anabranch.messages import Report
from anabranch.protocol.sources import NO_LIMIT, Attended, Batch, Enumerator, Growing, Limit
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.testing.cluster.rules import Rules
from anabranch.testing.plane.memory_plane import MemoryPlane


class WatchedPlane(MemoryPlane):
    """Runs steps, and tells the rules with which state they begin and what they came to.

    Now and then a step that is replayed comes to something else, as with a function that is not
    deterministic: nothing must come of that.
    """

    rules: Rules | None = None
    #: the rules of a cluster that has left the node behind
    left: Rules | None = None
    aside: Random
    diverging: float = 0.0

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step."""
        if self.rules is None:
            reports = super().run(plan, states)
            if self.left is not None:
                self.left.wrote(reports)
            return reports
        self.rules.starts(plan, states)
        reports = super().run(plan, states)
        self.rules.ran(plan, reports)
        if plan.step <= self.rules.step and self.aside.random() < self.diverging:
            reports = _diverged(reports)
        # How long a task took is another number each time: a run is to be the same.
        return [msgspec.structs.replace(report, seconds={}) for report in reports]


def _diverged(reports: Sequence[Report]) -> list[Report]:
    """Reports of tasks that found another row in each bin that had some, and one key more.

    A task that found no row has nothing to be told apart by.
    """
    changed = []
    for report in reports:
        if not any(tally.hashes for tally in report.tallies):
            changed.append(report)
            continue
        tallies = tuple(
            msgspec.structs.replace(tally, hashes=tuple(value ^ 1 for value in tally.hashes))
            for tally in report.tallies
        )
        states = tuple(
            msgspec.structs.replace(state, live=tuple(n + 1 for n in state.live))
            for state in report.states
        )
        changed.append(msgspec.structs.replace(report, tallies=tallies, states=states))
    return changed


class WatchedSource:
    """An enumerator that tells the rules what is acknowledged (R5)."""

    def __init__(self, name: str, inner: Enumerator, rules: Rules) -> None:
        """``name`` is the source's."""
        self._name = name
        self._inner = inner
        self._rules = rules

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """The next input."""
        return self._inner.next(limit)

    def files(self) -> frozenset[str]:
        """What the source needs of its log."""
        return self._inner.files()

    def acknowledge(self, position: bytes) -> None:
        """Take note of what is committed."""
        self._rules.acknowledged(self._name, position, self)
        if isinstance(self._inner, Attended):
            self._inner.acknowledge(position)

    def close(self) -> None:
        """Let go."""
        if isinstance(self._inner, Attended):
            self._inner.close()


class WatchedGrowing(WatchedSource):
    """One that can add to what it has handed out."""

    def more(self, limit: Limit = NO_LIMIT) -> Batch:
        """More input for the same step."""
        return cast("Growing", self._inner).more(limit)
