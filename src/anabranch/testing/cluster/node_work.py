"""What a node does: one piece of its work at a time, watched from outside."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import msgspec

from anabranch.messages import Report
from anabranch.node.core import NodeCore
from anabranch.protocol.sources import NO_LIMIT, Batch, Enumerator, Limit, Source, SourceLog
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.testing.cluster.processes import SimulatedNode
from anabranch.testing.cluster.rules import Rules
from anabranch.testing.plane.memory_plane import MemoryPlane

if TYPE_CHECKING:
    from anabranch.testing.cluster.cluster import SimulatedCluster


class NodeWork:
    """Starts nodes and lets them work."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """No node is there yet."""
        self._cluster = cluster

    def start(self, name: str) -> SimulatedNode:
        """A node that has opened nothing."""
        cluster = self._cluster
        plane = _WatchedPlane(
            cluster.program,
            cluster.store,
            random=Random(cluster.random.getrandbits(64)),
            chances=cluster.weather.chances,
            memo=cluster.memo,
        )
        plane.rules = cluster.rules
        core = NodeCore(
            cluster.program,
            cluster.store,
            plane,
            "code",
            clock=lambda: cluster.clock.seconds,
            boot=name,
            open_source=self._open_source,
            grace_seconds=62.0,
            reached=self._reached,
        )
        return SimulatedNode(name, core, plane)

    def work(self, node: SimulatedNode) -> None:
        """Do one piece of work, of whichever kind has something to do."""
        cluster = self._cluster
        kinds = node.work(cluster.clock.seconds)
        cluster.random.shuffle(kinds)
        for kind in kinds:
            beat = node.core.beat
            try:
                done = node.pieces[kind]()
            except BaseException:
                cluster.note(node.name, kind)
                raise
            if done:
                cluster.note(node.name, kind)
                if kind == "open_pending":
                    cluster.rules.opened()
                break
            node.idle[kind] = (beat, cluster.clock.seconds)
        if node.core.exit_asked:
            cluster.end_node(node)

    def _open_source(
        self, name: str, source: Source, position: bytes | None, log: SourceLog
    ) -> Enumerator:
        return _Watched(name, source.open(position, log), self._cluster.rules)

    def _reached(self, point: str, step: int) -> None:
        doing, _, sink = point.partition(" ")
        if doing == "publishing":
            self._cluster.rules.publishing(sink, step)


class _WatchedPlane(MemoryPlane):
    """Runs steps, and tells the rules with which state they begin and what they came to."""

    rules: Rules

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step."""
        self.rules.starts(plan, states)
        reports = super().run(plan, states)
        self.rules.ran(plan, reports)
        # How long a task took is another number each time: a run is to be the same.
        return [msgspec.structs.replace(report, seconds={}) for report in reports]


class _Watched:
    """An enumerator that tells the rules what is acknowledged (R5)."""

    def __init__(self, name: str, inner: Enumerator, rules: Rules) -> None:
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
        self._rules.acknowledged(self._name, position)

    def close(self) -> None:
        """Let go of nothing."""
