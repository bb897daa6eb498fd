"""What a pipeline is doing at one moment: the one picture that HTTP, shell and Python show."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from anabranch.protocol.node import Failure
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


class StepUnderWay(msgspec.Struct, frozen=True):
    """A step that is not committed yet, and for how long it has been under way."""

    step: int
    revision: int
    doing: str
    seconds: float


class RegionStatus(msgspec.Struct, frozen=True):
    """Who owns a region's bins, and what its operators hold. ``bins`` is bin → worker."""

    region: str
    generation: int
    bins: tuple[int, ...]
    keys: int
    bytes: int
    runs: int
    keys_by_worker: tuple[int, ...]
    bytes_by_worker: tuple[int, ...]


class OperatorStatus(msgspec.Struct, frozen=True):
    """What an operator holds."""

    operator: str
    region: str
    keys: int
    bytes: int
    runs: int


class SourceStatus(msgspec.Struct, frozen=True):
    """What waits of a source: rows where it knows their number, else slices.

    ``partitions`` is partition → worker, where Python tasks read it: a source is a region that
    rescales. It is empty where the JVM reads, which splits the input as it likes. ``paused``:
    nothing is asked of it until it is started.
    """

    source: str
    waiting: int
    partitions: tuple[int, ...] = ()
    generation: int = 0
    paused: bool = False


class SinkStatus(msgspec.Struct, frozen=True):
    """How far a sink is."""

    sink: str
    published: int
    steps_behind: int


class CheckpointStatus(msgspec.Struct, frozen=True):
    """A kept checkpoint. ``files`` and ``bytes`` are those that it names.

    ``seconds`` is how long it took to make, where this coordinator has made it.
    """

    step: int
    branch: int
    clock_ns: int
    files: int
    bytes: int
    seconds: float | None = None


class CheckpointUnderWay(msgspec.Struct, frozen=True):
    """A checkpoint that is being made: how far it is, and what it waits for."""

    step: int | None
    files: int
    files_done: int
    waiting_for: str | None


class RescaleStatus(msgspec.Struct, frozen=True):
    """A live change of who owns which bins.

    ``waiting`` are the bins still at their old owner (the whitelist), ``in_hand_over`` those
    between two owners (the hold), by region. ``moved_…`` counts what was handed over, ``left_…``
    what waits; ``copied_bytes`` were copied to the homes of new owners. ``steps`` were taken, the
    longest of them in ``longest_seconds``; ``usual_seconds`` is what a step took before,
    ``budget_…`` what one may spend on moving, None without a bound. ``seconds_left``
    is a forecast, for steps that follow each other without a pause.
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
    """The node as it was last heard of."""

    boot: str
    application: str
    code: str
    state: str
    heard_seconds_ago: float


class Status(msgspec.Struct, frozen=True):
    """A pipeline at one moment.

    ``step`` is the last committed step, ``published`` the last that all sinks have. ``waiting_for``
    says in one sentence what keeps it from going on, where something does. ``triggers`` counts
    why steps were taken, ``replaying`` is the step that a replay will end at. ``workers`` have bins
    of any region; ``rescales`` are the last ones that are over. ``homes`` adds up what the steps of
    this coordinator have read and copied. ``members`` are the processes that take part: their names
    and indices stay over restarts.
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
    members: tuple[Member, ...] = ()

    @property
    def keys(self) -> dict[str, int]:
        """How many keys each operator holds."""
        return {each.operator: each.keys for each in self.operators}
