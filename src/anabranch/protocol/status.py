"""The status of a pipeline, as HTTP, the shell and Python show it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from anabranch.protocol.node import Failure, SinkRetry
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.records.home_use import HomeUse
from anabranch.records.leader import Member


class Phase(StrEnum):
    """What a pipeline is doing."""

    STARTING = "starting"
    RECOVERING = "recovering"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


ENDED = frozenset({Phase.COMPLETED, Phase.STOPPED, Phase.FAILED})


class NoStepReason(StrEnum):
    """Why no step runs.

    ``NODE`` waits for a process, ``BACKPRESSURE`` for a sink, ``INPUT`` for rows, ``BATCH`` for
    more rows or for time to pass. ``REPLAY`` recomputes committed steps, ``LOADING`` rewinds.
    """

    STARTING = "starting"
    NODE = "node"
    REPLAY = "replay"
    LOADING = "loading"
    PAUSED = "paused"
    BACKPRESSURE = "backpressure"
    SOURCE_FAILED = "source-failed"
    INPUT = "input"
    BATCH = "batch"
    STOPPING = "stopping"
    ENDED = "ended"


class NoStep(msgspec.Struct, frozen=True):
    """Why no step runs now: a reason for programs, a sentence for people.

    ``name`` is the sink, source or process that is the cause, if it is one. ``retry_seconds`` is
    when this ends by itself, if that is known.
    """

    reason: NoStepReason
    text: str
    name: str | None = None
    retry_seconds: float | None = None


class StepUnderWay(msgspec.Struct, frozen=True):
    """An uncommitted step, and how long it has been running."""

    step: int
    revision: int
    doing: str
    seconds: float


class RegionStatus(msgspec.Struct, frozen=True):
    """A region's placement and the size of its state. ``bins`` is bin → worker."""

    region: str
    generation: int
    bins: tuple[int, ...]
    keys: int
    bytes: int
    runs: int
    keys_by_worker: tuple[int, ...]
    bytes_by_worker: tuple[int, ...]


class OperatorStatus(msgspec.Struct, frozen=True):
    """The size of an operator's state."""

    operator: str
    region: str
    keys: int
    bytes: int
    runs: int


class SourceStatus(msgspec.Struct, frozen=True):
    """The waiting input of a source: rows if it knows their number, else slices.

    ``partitions`` is partition → worker if Python tasks read it: such a source rescales like a
    region. It is empty if the JVM reads, which splits the input itself. A ``paused`` source offers
    no input until it is started.
    """

    source: str
    waiting: int
    partitions: tuple[int, ...] = ()
    generation: int = 0
    paused: bool = False


class SinkStatus(msgspec.Struct, frozen=True):
    """The last published step of a sink, and its lag; while it fails, also why and since when."""

    sink: str
    published: int
    steps_behind: int
    retry: SinkRetry | None = None


class CheckpointStatus(msgspec.Struct, frozen=True):
    """A kept checkpoint. ``files`` and ``bytes`` are those that it names.

    ``seconds`` is how long it took, if this coordinator took it.
    """

    step: int
    branch: int
    clock_ns: int
    files: int
    bytes: int
    seconds: float | None = None


class CheckpointUnderWay(msgspec.Struct, frozen=True):
    """The progress of a checkpoint, and what it waits for."""

    step: int | None
    files: int
    files_done: int
    waiting_for: str | None


class RescaleStatus(msgspec.Struct, frozen=True):
    """The progress of a live rescale.

    ``waiting`` counts the bins still at their old owner (the whitelist), ``in_hand_over`` those
    between two owners (the hold), by region. ``moved_…`` is what was handed over, ``left_…`` what
    waits; ``copied_bytes`` were copied to the homes of new owners. It has taken ``steps`` so far,
    the longest ``longest_seconds``; ``usual_seconds`` is what a step took before. ``budget_…`` is
    what a step may spend on moving, None if unlimited. ``seconds_left`` is a forecast for steps
    without pauses between them.
    """

    number: int
    phase: str
    request: TargetRequest | None
    waiting: dict[str, int]
    in_hand_over: dict[str, int]
    moved_bins: int
    moved_keys: int
    moved_bytes: int
    left_bins: int
    left_keys: int
    left_bytes: int
    steps: int
    steps_left: int
    seconds_left: float
    longest_seconds: float
    usual_seconds: float
    budget_seconds: float | None
    budget_bytes: int | None
    budget_bins: int | None
    copied_bytes: int = 0


class NodeStatus(msgspec.Struct, frozen=True):
    """The node as of its last report."""

    boot: str
    application: str
    code: str
    state: str
    heard_seconds_ago: float


class Status(msgspec.Struct, frozen=True):
    """The status of a pipeline.

    ``step`` is the last committed step, ``published`` the last that all sinks have. ``no_step``
    says why no step runs now; it is None while one does. ``waiting_for`` says in a sentence what
    blocks the pipeline, if anything. ``triggers`` counts steps by reason.
    ``replaying`` is the step at which a replay ends. ``workers`` own bins of any region.
    ``rescales`` are the last finished ones. ``homes`` sums what this coordinator's steps read and
    copied. ``node_lost`` is why this coordinator last had to replace the node. ``members``
    are the processes of the pipeline: their names and indices survive restarts.
    """

    phase: Phase
    dataflow: str
    leader: int
    branch: int
    step: int
    clock_ns: int
    published: int
    workers: int
    under_way: StepUnderWay | None
    waiting_for: str | None
    replaying: int | None
    failure: Failure | None
    node: NodeStatus | None
    regions: tuple[RegionStatus, ...]
    operators: tuple[OperatorStatus, ...]
    sources: tuple[SourceStatus, ...]
    sinks: tuple[SinkStatus, ...]
    checkpoints: tuple[CheckpointStatus, ...]
    checkpoint: CheckpointUnderWay | None
    queued: tuple[str, ...]
    triggers: dict[str, int]
    rows: int
    last_seconds: float | None
    last_rows: int | None
    batch_rows: int | None
    rescale: RescaleStatus | None = None
    rescales: tuple[FinishedRescale, ...] = ()
    homes: HomeUse = HomeUse()
    node_lost: Failure | None = None
    members: tuple[Member, ...] = ()
    no_step: NoStep | None = None

    @property
    def keys(self) -> dict[str, int]:
        """The number of keys of each operator."""
        return {each.operator: each.keys for each in self.operators}
