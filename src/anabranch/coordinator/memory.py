"""What the coordinator knows. Only ``Machine.handle`` changes it, by the rooms' functions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from anabranch.coordinator.batch_size import BatchSize
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.operations import REWIND, LoadCheckpoint, ShutDownPipeline
from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.standard import STANDARD
from anabranch.coordinator.phases import (
    AnyPhase,
    Checkpointing,
    Committing,
    Delayed,
    GoingDown,
    NotBegun,
    Replay,
    Verifying,
)
from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import (
    Failure,
    InputLimit,
    NodeOrder,
    NodeReport,
    Output,
    PausedSources,
    ProgramInfo,
)
from anabranch.records.commit import Checkpoint
from anabranch.records.home_use import HomeUse
from anabranch.records.placed import Assignment
from anabranch.records.profiles import ProfileRequest
from anabranch.rescale.controller import Rescale
from anabranch.rescale.loads import Loads

RECENT_STEPS = 50
"""So many steps say what a step usually takes."""

OPENS = 1_000_000
"""Open orders of one leader; their numbers grow from leader to leader."""


@dataclass(slots=True)
class Memory:
    """Everything that the coordinator knows."""

    settings: Settings
    #: hash of the dataflow that is to run; None: whatever the node has loaded
    code: str | None = None
    take_over: bool = False
    #: where the pipeline is, for whoever reads its errors
    directory: str = ""
    phase: AnyPhase = field(default_factory=NotBegun)
    #: when the last event came
    now: float = 0.0
    leader: int = 0
    journal: JournalView = field(default_factory=JournalView)
    #: the newest telling of the node, and when it came
    report: NodeReport | None = None
    heard: float = 0.0
    #: how often the node was lost since the last commit
    restarts: int = 0
    #: how many open orders this leader has given
    opens: int = 0
    #: the order that opened the state that counts; None while none is open
    opened: int | None = None
    #: committed steps that some sink lacks
    outputs: dict[int, Output] = field(default_factory=dict)
    replay: Replay | None = None
    #: what a check of the state has found missing or damaged, until something is done about it
    lost: Failure | None = None
    #: checkpoints that turned out to be damaged, and how
    damaged: dict[int, str] = field(default_factory=dict)
    paused: bool = False
    #: the names of the dataflow's sources, as the last node has told them
    sources: tuple[str, ...] = ()
    #: those that nothing is to be asked of, and when the node was last told
    paused_sources: PausedSources = field(default_factory=PausedSources)
    sources_given: float = 0.0
    stopping: ShutDownPipeline | None = None
    stop_numbers: tuple[int, ...] = ()
    #: how far the way to the end is, while nothing but that is left to do
    down: GoingDown | None = None
    loads: deque[tuple[int, LoadCheckpoint]] = field(default_factory=deque)
    verifying: Verifying | None = None
    checkpointing: Checkpointing | None = None
    checkpoint_numbers: tuple[int, ...] = ()
    checkpoint_at: float = 0.0
    #: why there is none although one was due
    delayed: Delayed | None = None
    #: how long each kept checkpoint took that this coordinator has made
    checkpoint_seconds: dict[int, float] = field(default_factory=dict)
    batch: BatchSize = field(default_factory=lambda: BatchSize(None))
    #: when the first of the rows that wait now was seen
    first_at: float | None = None
    last_step_at: float = 0.0
    #: orders that did not reach the node
    again: tuple[NodeOrder, ...] = ()
    again_at: float | None = None
    #: what the pipeline carries from step to step beside its state
    parts: Parts = field(default_factory=lambda: Parts.initial(STANDARD))
    #: where bins are after a start with another number of workers, until a commit has it
    reopened: tuple[Assignment, ...] | None = None
    measured: Loads = field(default_factory=Loads)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    #: requests that were taken and are not durable yet
    rescale_numbers: tuple[int, ...] = ()
    #: profiles that were asked for and are in no committed step yet, the first to ask first
    profiles: tuple[tuple[int, ProfileRequest], ...] = ()
    triggers: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    homes: HomeUse = field(default_factory=HomeUse)
    last: StepDone | None = None
    swept: int = 0
    #: checkpoints that are let go, and may still be in the journal: their files stay until then
    untrimmed: tuple[Checkpoint, ...] = ()

    def let_wait(self) -> None:
        """Leave a commit that may not be written: who asked for what is in it waits for another."""
        if isinstance(self.phase, Committing):
            self.rescale_numbers = (*self.phase.numbers, *self.rescale_numbers)

    @property
    def rewind(self) -> LoadCheckpoint | None:
        """The checkpoint that the start is to go back to, until it has: before that no step runs.

        What is to be left behind may be what keeps the pipeline from going on.
        """
        number, request = self.loads[0] if self.loads else (None, None)
        return request if number == REWIND else None

    @property
    def rescale(self) -> Rescale:
        """How far a live change of the placement is."""
        return self.parts.get(RESCALE)

    @rescale.setter
    def rescale(self, value: Rescale) -> None:
        self.parts = self.parts.put(RESCALE, value)

    @property
    def info(self) -> ProgramInfo | None:
        """The dataflow that the node has loaded."""
        return None if self.report is None else self.report.info

    @property
    def step(self) -> int:
        """The last committed step."""
        return self.journal.step

    @property
    def published(self) -> dict[str, int]:
        """The last step that each sink has."""
        report = self.report
        if report is None or report.opened != self.opened or self.opened is None:
            return self.journal.published
        return report.published

    @property
    def published_step(self) -> int:
        """The last step that all sinks have."""
        if not self.outputs:
            return self.step
        return min(self.published.values(), default=self.step)

    @property
    def slowest(self) -> tuple[str, int]:
        """The sink that is furthest behind, and the last step that it has."""
        return min(self.published.items(), key=lambda each: each[1], default=("", 0))

    @property
    def limit(self) -> InputLimit:
        """What the next step should read at most."""
        return InputLimit(rows=self.batch.rows)
