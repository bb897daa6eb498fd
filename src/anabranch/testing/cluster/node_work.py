"""What a node does: one piece of its work at a time, watched from outside."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from anabranch.node.core import NodeCore
from anabranch.protocol.sinks import Publisher, Sink, SinkContext, open_sink_plainly
from anabranch.protocol.sources import Enumerator, Growing, Source, SourceLog
from anabranch.testing.cluster.faults import CALM
from anabranch.testing.cluster.processes import SimulatedNode
from anabranch.testing.cluster.watched import WatchedGrowing, WatchedPlane, WatchedSource
from anabranch.testing.plane.outside_sources import open_simulated
from anabranch.testing.plane.plain_frames import PlainFrames

if TYPE_CHECKING:
    from anabranch.testing.cluster.cluster import SimulatedCluster


class NodeWork:
    """Starts nodes and lets them work."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """No node is there yet."""
        self._cluster = cluster
        # Of its own: where no sink is ever away, a schedule is what it was.
        self._away = Random(cluster.seed + 3)

    def start(self, name: str) -> SimulatedNode:
        """A node that has opened nothing."""
        cluster = self._cluster
        plane = WatchedPlane(
            cluster.program,
            cluster.store,
            random=Random(cluster.random.getrandbits(64)),
            chances=cluster.weather.chances,
            memo=cluster.memo,
        )
        plane.rules, plane.aside = cluster.rules, cluster.aside
        plane.diverging = cluster.weather.diverging
        core = NodeCore(
            cluster.program,
            cluster.store,
            plane,
            "code",
            clock=lambda: cluster.clock.seconds,
            boot=name,
            frames=PlainFrames(),
            open_source=self._open_source,
            open_sink=self._open_sink,
            grace_seconds=62.0,
            reached=self._reached,
        )
        return SimulatedNode(name, core, plane)

    def work(self, node: SimulatedNode) -> None:
        """Do one piece of work, of whichever kind has something to do."""
        cluster = self._cluster
        kinds = list(node.work(cluster.clock.seconds))
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
        opened = open_simulated(name, source, position, log)
        watched = WatchedGrowing if isinstance(opened, Growing) else WatchedSource
        return watched(name, opened, self._cluster.rules)

    def _open_sink(self, sink: Sink, context: SinkContext) -> Publisher:
        cluster = self._cluster
        if cluster.weather is not CALM and self._away.random() < cluster.sinks_away:
            cluster.note(context.sink, "is away")
            raise ConnectionError("away")
        return open_sink_plainly(sink, context)

    def _reached(self, point: str, step: int) -> None:
        doing, _, sink = point.partition(" ")
        if doing == "publishing":
            self._cluster.rules.publishing(sink, step)
