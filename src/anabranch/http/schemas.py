"""The bodies of requests and responses, besides ``Status``.

The OpenAPI document is built from these classes, so that it cannot differ from them.
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
from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.placed import OperatorShape
from anabranch.records.profiles import TaskProfile
from anabranch.rescale.forecast import Forecast
from anabranch.task.queries import LIMIT_BYTES, LIMIT_ROWS

LONGEST_SECONDS = 600.0
"""The longest that a call may wait."""

MOST_ROWS = 1_000_000
MOST_BYTES = 256 << 20
"""The largest limits of a query over HTTP."""

MOST_WORKERS = 10_000
"""More workers than any region has bins."""

LAST_STEP = (1 << 53) - 1
"""The largest integer that every JSON reader represents exactly."""

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
    """The result of an operation, and the pipeline's status now.

    ``done`` is false while it is in progress. ``step`` is the step that it concerns, if any.
    """

    operation: str
    done: bool
    step: int | None
    status: Status


class LoadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kept checkpoint to go back to."""

    step: Annotated[int, msgspec.Meta(ge=1, le=LAST_STEP)]
    accept_duplicates: bool = False


Workers = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]
RegionName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ScaleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of workers, in all regions or by region. ``remove`` names workers to empty.

    ``by`` is what to balance. ``dry_run`` changes nothing.
    """

    workers: Workers | None = None
    regions: dict[RegionName, Workers] = {}
    remove: tuple[Annotated[int, msgspec.Meta(ge=0, le=MOST_WORKERS)], ...] = ()
    by: Balance = Balance.BINS
    dry_run: bool = False


class RebalanceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The regions to redistribute; all by default."""

    regions: tuple[RegionName, ...] = ()
    by: Balance = Balance.LOAD
    dry_run: bool = False


class ScaleAnswer(OperationAnswer, frozen=True):
    """The result of a rescale request, and the pipeline's status now.

    ``done``: a step has committed it, so it survives a crash. A dry run has a ``forecast``.
    """

    forecast: Forecast | None = None


class Rescales(msgspec.Struct, frozen=True):
    """The current rescale, if any, and recent finished ones, oldest first."""

    rescale: RescaleStatus | None
    history: tuple[FinishedRescale, ...]


class QueryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One SQL query over state, with its limits. ``format`` overrides ``Accept``.

    Without ``seconds`` the pipeline's limit applies; a higher one is refused.
    """

    sql: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    format: QueryFormat | None = None
    rows: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)] = LIMIT_ROWS
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)] = LIMIT_BYTES
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_SECONDS)] | None = None


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of a query's result, with its Arrow type."""

    name: str
    type: str


class QueryAnswer(msgspec.Struct, frozen=True):
    """The rows of a query, each a list with one value per column; ``step`` is the queried step."""

    step: int | None
    columns: list[ResultColumn]
    rows: list[list[Any]]


class ProfileAnswer(msgspec.Struct, frozen=True):
    """The profiles of a worker's tasks in a step, one per task.

    ``done`` is false, and there are none, if no step could be profiled in time.
    """

    done: bool
    step: int | None
    profiles: tuple[TaskProfile, ...]


class Checkpoints(msgspec.Struct, frozen=True):
    """The kept checkpoints, oldest first, and the one in progress."""

    checkpoints: tuple[CheckpointStatus, ...]
    under_way: CheckpointUnderWay | None


class RegionFacts(msgspec.Struct, frozen=True):
    """A region of the dataflow: its states and its number of workers."""

    region: str
    states: tuple[OperatorShape, ...]
    workers: int
    generation: int


class SourceRegion(msgspec.Struct, frozen=True):
    """How a source is read. If ``read_by`` is ``python``, read tasks read it and it is a region.

    Its bins are its partitions: ``partitions`` is partition → worker. The ``jvm`` splits the files
    of each step as it likes and assigns nothing.
    """

    source: str
    read_by: Literal["python", "jvm"]
    partitions: tuple[int, ...]
    workers: int
    generation: int


class GraphEdge(msgspec.Struct, frozen=True):
    """An edge of the graph: rows flow from one node to another, both by their ids."""

    producer: int
    consumer: int


class Metadata(msgspec.Struct, frozen=True):
    """The running dataflow. ``code`` is its hash, ``times`` is how event time travels through it.

    ``nodes`` and ``edges`` are its graph as written. ``releasing`` is what happens to executors
    when workers go: ``local`` (there are none), ``dynamic`` (Spark releases them), ``kept`` (the
    session belongs to someone else) or ``idle`` (idle ones are released).
    """

    dataflow: str
    code: str
    bins: int
    sources: tuple[str, ...]
    regions: tuple[RegionFacts, ...]
    sinks: tuple[SinkInfo, ...]
    releasing: str = ""
    source_regions: tuple[SourceRegion, ...] = ()
    nodes: tuple[GraphNodeInfo, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    times: TimeGraph = TimeGraph()


class Latency(msgspec.Struct, frozen=True):
    """The latency of recent steps, in seconds."""

    median: float
    p95: float
    longest: float


class Stats(msgspec.Struct, frozen=True):
    """Statistics of the recent steps, oldest first, as far as the coordinator remembers.

    ``rows_per_second`` covers at most the last minute, ``lag`` is the backlog of each source when
    the last step was planned, ``parts`` the seconds of each part of the recent steps.
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
    """The process answers and the pipeline has not failed."""

    phase: Phase
    leader: int
