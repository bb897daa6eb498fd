"""The processes of a simulated cluster: real coordinators and nodes without threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from anabranch.coordinator.driver.journal_writer import JournalWriter
from anabranch.coordinator.effects import Effect, Fetch, FindNode, Give, ReplaceNode, Take
from anabranch.coordinator.events import Event
from anabranch.coordinator.machine import Machine
from anabranch.journal.leadership import Leadership
from anabranch.node.core import NodeCore
from anabranch.protocol.node import NodeReport
from anabranch.testing.cluster.freezing import Freezable
from anabranch.testing.cluster.watched import WatchedPlane

WORK = (
    "open_pending",
    "run_step",
    "poll_inputs",
    "check_next",
    "sweep",
    "close_pending",
    "cancel_pending",
)
"""What a node does, each a piece of work of its own; publishing is one for each sink."""

HEARTBEAT = 1.0


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A node.

    ``idle`` says when each kind of work had nothing to do, ``stuck`` until when it does nothing.
    """

    name: str
    core: NodeCore
    plane: WatchedPlane
    idle: dict[str, tuple[int, float]] = field(default_factory=dict)
    stuck: dict[str, float] = field(default_factory=dict)
    #: what does each kind of work
    pieces: dict[str, Callable[[], bool]] = field(init=False)

    def __post_init__(self) -> None:
        """Look up once what is called again and again."""
        self.pieces = {kind: getattr(self.core, kind) for kind in WORK}
        publish = self.core.publish_next
        self.pieces |= {f"publish_next {sink}": partial(publish, sink) for sink in self.core.sinks}

    def stranded(self) -> None:
        """What it does is not looked at any more: it works on a state that others have left."""
        self.plane.left, self.plane.rules = self.plane.rules, None

    def work(self, now: float) -> Iterator[str]:
        """The kinds of work that may have something to do."""
        beat, idle, stuck = self.core.beat, self.idle, self.stuck
        for kind in self.pieces:
            at = idle.get(kind)
            due = at is None or at[0] != beat or now >= at[1] + HEARTBEAT
            if due and not (kind in stuck and now < stuck[kind]):
                yield kind


@dataclass(slots=True, eq=False)
class CoordinatorProcess:
    """A coordinator: its machine, what it has still to do, and what has come in.

    Effects are performed one after the other, and their outcomes handled before anything else that
    has come in. Calls to the node are made beside, in their order.
    """

    name: str
    machine: Machine
    leadership: Leadership
    records: JournalWriter
    effects: deque[Effect] = field(default_factory=deque)
    outcomes: deque[Event] = field(default_factory=deque)
    inbox: deque[Event] = field(default_factory=deque)
    calls: deque[Give | Take | Fetch] = field(default_factory=deque)
    finding: deque[FindNode | ReplaceNode] = field(default_factory=deque)
    node: SimulatedNode | None = None
    #: tellings on their way, the beat and the time of the last one
    tellings: list[NodeReport] = field(default_factory=list)
    heard_beat: int = -1
    heard_at: float = 0.0
    wakes: float | None = None
    frozen: bool = False
    #: after how many calls to the disk it is to freeze, and the effect that it is frozen in
    freezes: int | None = None
    stopped: tuple[Effect, Freezable[Event | None]] | None = None
    ended: bool = False
    waiting: set[int] = field(default_factory=set)

    @property
    def leader(self) -> int:
        """The number under which it leads."""
        return self.machine.memory.leader

    def hears(self, now: float) -> bool:
        """Whether there is something to hear of the node."""
        node = self.node
        if node is None:
            return False
        return node.core.beat != self.heard_beat or now >= self.heard_at + HEARTBEAT
