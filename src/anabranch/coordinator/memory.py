"""The coordinator's memory: its phase, its peers, the committed parts, and its jobs.

Only ``Machine.handle`` changes it. The *phase* is the current stage between one step and the next;
it waits for one outcome at a time. *Peers* hold what each peer reported and which orders to
repeat. *Parts* hold what the last commit carries, plus changes by later requests. *Jobs* run
beside the phase: each owns its state.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.coordinator.batch_size import BatchSize
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.peers import Peer
from anabranch.coordinator.phases import AnyPhase, Committing, NotBegun, Opening
from anabranch.coordinator.settings import DEFAULT_WORKERS, Settings
from anabranch.protocol.node import InputLimit, Output, ProgramInfo, SinkRetry
from anabranch.records.home_use import HomeUse, total_use
from anabranch.records.leader import MEMBERS, NODE, Member
from anabranch.rescale.controller import Rescale

if TYPE_CHECKING:
    from anabranch.coordinator.jobs.checkpoint import CheckpointJob
    from anabranch.coordinator.jobs.load import LoadJob
    from anabranch.coordinator.jobs.paused_sources import PausedSourcesJob
    from anabranch.coordinator.jobs.port import Job
    from anabranch.coordinator.jobs.profile import ProfileJob
    from anabranch.coordinator.jobs.replay import ReplayJob
    from anabranch.coordinator.jobs.rescale import RescaleJob
    from anabranch.coordinator.jobs.shutdown import ShutdownJob

RECENT_STEPS = 50
"""The usual duration of a step is measured over this many steps."""


@dataclass(slots=True)
class StepStats:
    """Statistics of this coordinator's steps, for the status."""

    #: how many steps and checkpoints each trigger started
    triggers: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    homes: HomeUse = field(default_factory=HomeUse)
    last: StepDone | None = None
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))

    def add(self, done: StepDone, trigger: str) -> None:
        """Add a committed step."""
        self.last = done
        self.recent.append(done.seconds)
        self.rows += done.rows
        self.homes = total_use([self.homes, done.homes])
        self.triggers[trigger] += 1


@dataclass(slots=True)
class Pace:
    """When steps are taken and how much they read."""

    batch: BatchSize
    #: when the first waiting row was seen
    first_at: float | None = None
    last_step_at: float = 0.0


@dataclass(slots=True)
class Memory:
    """Everything the coordinator knows. ``machine.new_memory`` makes one."""

    settings: Settings
    parts: Parts
    checkpoint: CheckpointJob
    load: LoadJob
    replay: ReplayJob
    stop: ShutdownJob
    profile: ProfileJob
    sources: PausedSourcesJob
    moving: RescaleJob
    pace: Pace
    #: hash of the dataflow to run; None for the one that the node has loaded
    code: str | None = None
    take_over: bool = False
    #: the pipeline's directory, for errors
    directory: str = ""
    phase: AnyPhase = field(default_factory=NotBegun)
    #: the time of the last event: monotonic seconds, and the wall clock
    now: float = 0.0
    clock_ns: int = 0
    leader: int = 0
    journal: JournalView = field(default_factory=JournalView)
    peers: dict[str, Peer] = field(
        default_factory=lambda: {member.name: Peer(member) for member in MEMBERS}
    )
    #: committed steps that some sink lacks
    outputs: dict[int, Output] = field(default_factory=dict)
    #: those, and the ones that all sinks have since the last commit: only the next one says so, and
    #: whoever comes after a crash gives them to the sinks again
    unrecorded: dict[int, Output] = field(default_factory=dict)
    paused: bool = False
    stats: StepStats = field(default_factory=StepStats)

    @property
    def jobs(self) -> tuple[Job[Any], ...]:
        """All jobs."""
        beside = (self.checkpoint, self.load, self.replay, self.profile)
        return (self.sources, self.moving, *beside, self.stop)

    def join(self, members: tuple[Member, ...]) -> None:
        """Add the peers that the journal names."""
        for member in members:
            self.peers.setdefault(member.name, Peer(member)).member = member

    def requeue_requests(self) -> None:
        """Let the requests of a commit that may not be written wait for the next one."""
        if isinstance(self.phase, Committing):
            self.moving.queue[:0] = self.phase.requests

    @property
    def node(self) -> Peer:
        """The peer that runs steps."""
        return self.peers[NODE]

    @property
    def rescale(self) -> Rescale:
        """The progress of a live rescale."""
        return self.parts.get(RESCALE)

    @rescale.setter
    def rescale(self, value: Rescale) -> None:
        self.parts = self.parts.put(RESCALE, value)

    @property
    def info(self) -> ProgramInfo | None:
        """The dataflow that the node has loaded."""
        return None if self.node.report is None else self.node.report.info

    @property
    def workers(self) -> int:
        """How many workers this run was started with; if not told, how many the last one was."""
        if self.settings.workers is not None:
            return self.settings.workers
        commit, plan = self.journal.commit, self.journal.plan
        # The plan is newer: it may be of a run that never got to commit anything.
        planned = None if plan is None else plan.started_with
        committed = None if commit is None else commit.workers
        return planned or committed or DEFAULT_WORKERS

    @property
    def step(self) -> int:
        """The last committed step."""
        return self.journal.step

    @property
    def published(self) -> dict[str, int]:
        """The last step that each sink has."""
        report, opened = self.node.report, self.node.opened
        if report is None or report.opened != opened or opened is None:
            return self.journal.published
        return report.published

    @property
    def published_step(self) -> int:
        """The last step that all sinks have."""
        if not self.outputs:
            return self.step
        return min(self.published.values(), default=self.step)

    @property
    def sink_retries(self) -> dict[str, SinkRetry]:
        """The sinks that fail."""
        report, opened = self.node.report, self.node.opened
        if isinstance(self.phase, Opening):
            opened = self.phase.order.number
        return {} if report is None or report.opened != opened else report.sink_retries

    @property
    def taking_back(self) -> tuple[str, ...]:
        """The sinks that have yet to take back what a rewind left behind: steps wait for them."""
        report, phase = self.node.report, self.phase
        if report is None or not isinstance(phase, Opening) or report.opened != phase.order.number:
            return ()
        return report.taking_back

    @property
    def slowest(self) -> str:
        """The sink that is furthest behind; of several, one that fails."""
        retries = self.sink_retries
        behind = ((step, name not in retries, name) for name, step in self.published.items())
        return min(behind, default=(0, True, ""))[-1]

    @property
    def slowest_text(self) -> str:
        """How far the slowest sink is, and why it fails, if it does."""
        name = self.slowest
        text = f"sink {name!r} has published up to step {self.published.get(name, 0)}"
        return f"{text} and {self.failing_text(name)}" if name in self.sink_retries else text

    def failing_text(self, sink: str) -> str:
        """How often a sink has failed, and why it did last; empty if it does not fail."""
        retry = self.sink_retries.get(sink)
        if retry is None:
            return ""
        times = f"{retry.tries} times in {retry.seconds:.0f} seconds"
        often = "once" if retry.tries == 1 else times
        return f"has failed {often}: [{retry.failure.code}] {retry.failure.what}"

    @property
    def limit(self) -> InputLimit:
        """What the next step should read at most."""
        return InputLimit(rows=self.pace.batch.rows)
