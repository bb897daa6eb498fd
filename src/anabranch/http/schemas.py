"""What goes over HTTP beside ``Status``: the bodies of calls and of answers.

The OpenAPI document is made from these classes, so that it cannot say something else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from anabranch.coordinator.effects import StepDone
from anabranch.protocol.node import GraphNodeInfo, SinkInfo
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.rescale_requests import Balance
from anabranch.protocol.status import (
    CheckpointStatus,
    CheckpointUnderWay,
    Phase,
    RescaleStatus,
    Status,
)
from anabranch.records.placed import OperatorShape
from anabranch.records.profiles import TaskProfile
from anabranch.rescale.forecast import Forecast
from anabranch.task.queries import LIMIT_BYTES, LIMIT_ROWS

LONGEST_SECONDS = 600.0
"""How long a call may wait at most."""

MOST_ROWS = 1_000_000
MOST_BYTES = 256 << 20
"""What a query over HTTP may ask for at most."""

MOST_WORKERS = 10_000
"""More workers than any region has bins."""

LAST_STEP = (1 << 53) - 1
"""The largest number that all who read JSON agree on."""

QueryFormat = Literal["json", "arrow", "text"]


class ProblemDocument(msgspec.Struct, frozen=True):
    """An error (RFC 9457): ``code`` is that of ``anabranch.errors``, ``do`` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    where: str | None = None
    do: str | None = None


class OperationAnswer(msgspec.Struct, frozen=True):
    """What became of an operation, and how the pipeline stands now.

    ``done`` is false while it still goes on. ``step`` is the step that it was about, if any.
    """

    operation: str
    done: bool
    step: int | None
    status: Status


class LoadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which kept checkpoint to go back to."""

    step: Annotated[int, msgspec.Meta(ge=1, le=LAST_STEP)]
    accept_duplicates: bool = False


Workers = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]
RegionName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ScaleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many workers: in all regions, or by region. ``remove`` names those to have no bins.

    ``by`` says what is to be equal on all workers. ``dry_run`` changes nothing.
    """

    workers: Workers | None = None
    regions: dict[RegionName, Workers] = {}
    remove: tuple[Annotated[int, msgspec.Meta(ge=0, le=MOST_WORKERS)], ...] = ()
    by: Balance = Balance.BINS
    dry_run: bool = False


class RebalanceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which regions are to be shared anew; all unless some are named."""

    regions: tuple[RegionName, ...] = ()
    by: Balance = Balance.LOAD
    dry_run: bool = False


class ScaleAnswer(OperationAnswer, frozen=True):
    """The result of a request to rescale, and the current status of the pipeline.

    ``done``: a commit knows of it, so it survives a crash. ``forecast`` is there for a dry run.
    """

    forecast: Forecast | None = None


class Rescales(msgspec.Struct, frozen=True):
    """The rescale that is under way, if one is, and the last that are over, oldest first."""

    rescale: RescaleStatus | None
    history: tuple[FinishedRescale, ...]


class QueryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One SQL query over state, and how much it may cost. ``format`` goes before ``Accept``.

    Without ``seconds`` it may take as long as the pipeline allows; more is refused.
    """

    sql: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    format: QueryFormat | None = None
    rows: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)] = LIMIT_ROWS
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)] = LIMIT_BYTES
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_SECONDS)] | None = None


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of a query's result; the type as Arrow names it."""

    name: str
    type: str


class QueryAnswer(msgspec.Struct, frozen=True):
    """The rows of a query, each a list with one value per column; ``step`` is what it saw."""

    step: int | None
    columns: list[ResultColumn]
    rows: list[list[Any]]


class ProfileAnswer(msgspec.Struct, frozen=True):
    """What the tasks of a worker have spent in a step, one profile for each of them.

    ``done`` is false while no step has come that could be looked at: then there are none.
    """

    done: bool
    step: int | None
    profiles: tuple[TaskProfile, ...]


class Checkpoints(msgspec.Struct, frozen=True):
    """The kept checkpoints, oldest first, and the one that is being made."""

    checkpoints: tuple[CheckpointStatus, ...]
    under_way: CheckpointUnderWay | None


class RegionFacts(msgspec.Struct, frozen=True):
    """A region of the dataflow: the states in it, and over how many workers it is spread."""

    region: str
    states: tuple[OperatorShape, ...]
    workers: int
    generation: int


class SourceRegion(msgspec.Struct, frozen=True):
    """How a source is read. ``read_by`` is ``python`` where read tasks do: then it is a region.

    Its bins are its partitions: ``partitions`` is partition → worker. Where the ``jvm`` reads, it
    splits the files of each step as it likes, and nothing of it is assigned.
    """

    source: str
    read_by: Literal["python", "jvm"]
    partitions: tuple[int, ...]
    workers: int
    generation: int


class GraphEdge(msgspec.Struct, frozen=True):
    """Rows go from one node of the graph to another; both by their ids."""

    producer: int
    consumer: int


class Metadata(msgspec.Struct, frozen=True):
    """The dataflow that runs. ``code`` is the hash of it, ``endings`` are told of input's end.

    ``nodes`` and ``edges`` are its graph, as it was written. ``releasing`` is what becomes of
    executors when workers go: ``local`` (there are none), ``dynamic`` (Spark sees to it), ``kept``
    (Spark is somebody else's) or ``idle`` (those that run nothing are let go of).
    """

    dataflow: str
    code: str
    bins: int
    sources: tuple[str, ...]
    regions: tuple[RegionFacts, ...]
    sinks: tuple[SinkInfo, ...]
    endings: tuple[str, ...]
    releasing: str = ""
    source_regions: tuple[SourceRegion, ...] = ()
    nodes: tuple[GraphNodeInfo, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


class Latency(msgspec.Struct, frozen=True):
    """How long the recent steps took, in seconds."""

    median: float
    p95: float
    longest: float


class Stats(msgspec.Struct, frozen=True):
    """The recent steps in numbers: all that the coordinator remembers, oldest first.

    ``rows_per_second`` is over the last minute at most, ``lag`` what waited of each source when
    the last step was planned, ``parts`` the seconds that each part of the recent steps took.
    """

    phase: Phase
    step: int
    rows: int
    keys: int
    bytes: int
    rows_per_second: float
    latency: Latency | None
    parts: dict[str, float]
    lag: dict[str, int]
    recent: tuple[StepDone, ...]


class Health(msgspec.Struct, frozen=True):
    """The process answers and has not failed."""

    phase: Phase
    leader: int
