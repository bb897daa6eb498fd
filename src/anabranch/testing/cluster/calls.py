"""What passes between a coordinator and the node: calls, tellings, and their accidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.coordinator.driver.peer_link import make_call
from anabranch.coordinator.effects import Fetch, Give, ReplaceNode, Take
from anabranch.coordinator.events import EffectFailed, Event, LeaderFenced, NodeLost, NodeReported
from anabranch.errors import Fenced
from anabranch.node.core import NodeCore
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
from anabranch.testing.cluster.processes import CoordinatorProcess

if TYPE_CHECKING:
    from anabranch.testing.cluster.cluster import SimulatedCluster


class Calls:
    """The line between coordinators and the node; the weather decides how good it is."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """Nothing is on its way."""
        self._cluster = cluster
        self._random = cluster.random

    def call(self, each: CoordinatorProcess) -> None:
        """Make a call to the node; it may be lost on its way there or back, or come twice."""
        effect = each.calls.popleft()
        self._cluster.note(each.name, f"calls {_named(effect)}")
        drawn = self._random.random()
        lost, doubled = self._cluster.weather.lost_call, self._cluster.weather.doubled_call
        if drawn < lost / 2:
            outcome: Event | None = EffectFailed(effect, _unreachable("the call was lost"))
        else:
            outcome = self._made(each, effect)
            if drawn < lost:
                outcome = EffectFailed(effect, _unreachable("the answer was lost"))
            elif drawn < lost + doubled:
                outcome = self._made(each, effect)
        if outcome is not None:
            each.inbox.append(outcome)

    def _made(self, each: CoordinatorProcess, effect: Give | Take | Fetch) -> Event | None:
        node = each.node
        lives = node is not None and node in self._cluster.nodes
        return make_call(_Core(node.core) if node and lives else None, each.leader, effect)

    def find(self, each: CoordinatorProcess) -> None:
        """Find the node that lives, or start one; a coordinator may want another one."""
        cluster = self._cluster
        effect = each.finding.popleft()
        if each.node is None and cluster.aside.random() < cluster.weather.elsewhere:
            cluster.strand_node()
        try:
            if cluster.node is not None:
                cluster.node.core.report(each.leader)
                if isinstance(effect, ReplaceNode):
                    cluster.kill_node()
        except Fenced as error:
            each.inbox.append(LeaderFenced(failure_of(error)))
            return
        each.node = cluster.node or cluster.start_node()
        each.heard_beat, each.heard_at = -1, cluster.clock.seconds
        each.tellings.clear()

    def hear(self, each: CoordinatorProcess) -> None:
        """Let the node tell how it is; it takes a while to get there."""
        node = each.node
        assert node is not None
        each.heard_beat, each.heard_at = node.core.beat, self._cluster.clock.seconds
        try:
            each.tellings.append(node.core.report(each.leader))
        except Fenced as error:
            each.node = None
            each.inbox.append(LeaderFenced(failure_of(error)))

    def deliver(self, each: CoordinatorProcess) -> None:
        """Deliver the oldest telling, or, now and then, one again or before its turn."""
        if self._random.random() < self._cluster.weather.old_telling:
            each.inbox.append(NodeReported(self._random.choice(each.tellings)))
        else:
            each.inbox.append(NodeReported(each.tellings.pop(0)))

    def lose(self, each: CoordinatorProcess) -> None:
        """Let a coordinator find out that its node is gone."""
        each.node = None
        each.tellings.clear()
        each.inbox.append(NodeLost(_unreachable("its process is gone")))


class _Core:
    """A node's core, called without anything in between."""

    def __init__(self, core: NodeCore) -> None:
        self.order = core.take_order
        self.take = core.take
        self.result = core.result


def _unreachable(what: str) -> Failure:
    return Failure("node.unreachable", what)


def _named(effect: Give | Take | Fetch) -> str:
    return type(effect.order if isinstance(effect, Give) else effect).__name__
