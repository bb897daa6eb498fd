"""The protocol between the coordinator and the node, the process that owns Spark.

The coordinator gives *orders*, which return as soon as they are accepted. The node *reports* its
state, with a version that grows with every change. So a lost, late or repeated reply does no harm:
the next report says the same or something newer. Orders are idempotent.

Every call names its leader. A node that knows of a later leader refuses it with ``Fenced``.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.commit import RowCount
from anabranch.records.home_use import HomeUse
from anabranch.records.placed import OperatorShape, OperatorState
from anabranch.records.plan import Input, Plan
from anabranch.records.profiles import TaskProfile
from anabranch.records.staged_file import StagedFile
from anabranch.records.worker_load import WorkerLoad


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """No state is open."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """State is open at a step: the one it was opened at, or the last one run."""

    step: int


class Running(msgspec.Struct, frozen=True, tag="running"):
    """A step is running. Once it is complete, the node is open at this step."""

    step: int
    revision: int


NodeState: TypeAlias = Closed | Open | Running


class Failure(msgspec.Struct, frozen=True):
    """An ``AnabranchError`` as it travels between processes."""

    code: str
    what: str
    where: str | None = None
    do: str | None = None


class SinkInfo(msgspec.Struct, frozen=True):
    """What the coordinator knows of a sink."""

    name: str
    stage_format: str
    takes_back: bool


class GraphNodeInfo(msgspec.Struct, frozen=True):
    """An operator of the dataflow's graph. ``inputs`` are the ids of those it gets rows from."""

    id: int
    kind: str
    name: str | None
    region: str | None
    inputs: tuple[int, ...]


class ProgramInfo(msgspec.Struct, frozen=True):
    """What the coordinator knows of the dataflow that a node has loaded.

    ``code`` is its hash. ``partitions`` counts those of each source that Python tasks read; the JVM
    reads the others. ``releasing`` says what happens to executors when workers leave. ``graph`` is
    the dataflow as it was written, ``times`` how event time travels through it.
    """

    dataflow: str
    code: str
    bins: int
    regions: tuple[str, ...]
    shapes: tuple[OperatorShape, ...]
    sources: tuple[str, ...]
    sinks: tuple[SinkInfo, ...]
    partitions: dict[str, int] = {}
    releasing: str = ""
    graph: tuple[GraphNodeInfo, ...] = ()
    times: TimeGraph = TimeGraph()


class Offer(msgspec.Struct, frozen=True):
    """The input that waits for ``step``.

    ``rows`` counts one per slice if a source does not know its rows: it is 0 only if nothing waits.
    ``bytes`` counts those of files. ``full``: more would exceed the limit. ``ended``: no more input
    will follow; of single sources, ``ended_sources`` says so. ``partitions`` is the current number
    of each source that reports one. ``asked`` is how many seconds ago a source was last asked and
    handed out all that it had; of those for whose frontier it matters, and that are not paused.
    """

    step: int
    rows: int
    bytes: int
    by_source: dict[str, int]
    full: bool
    ended: bool
    partitions: dict[str, int] = {}
    ended_sources: tuple[str, ...] = ()
    asked: dict[str, float] = {}


class Done(msgspec.Struct, frozen=True):
    """The last step run. Its result is kept until the next one runs."""

    step: int
    revision: int


class StepFailure(msgspec.Struct, frozen=True):
    """A step that has failed. The node is open at the step before it."""

    step: int
    revision: int
    failure: Failure


class Checked(msgspec.Struct, frozen=True):
    """The progress of the check of a checkpoint's files; ``asked`` is that of the order."""

    step: int
    files: int
    files_done: int
    failure: Failure | None = None
    asked: int | None = None


class PausedSources(msgspec.Struct, frozen=True):
    """The sources that are paused. The value with the highest ``number`` wins.

    Numbers grow with every change and every leader.
    """

    number: int = 0
    names: tuple[str, ...] = ()


class SinkRetry(msgspec.Struct, frozen=True):
    """A sink that fails and is retried: why it failed last, for how long it has, and how often.

    ``next_seconds`` is when it is tried again, from now on; None if it has been given up.
    """

    failure: Failure
    tries: int
    seconds: float
    next_seconds: float | None


class NodeReport(msgspec.Struct, frozen=True):
    """A report of the node.

    ``boot`` identifies the process. ``opened`` is the number of the order that opened the current
    state, ``failed_open`` why that order failed. ``replaying``: the last step was a replay.
    ``published`` is the last step that each sink has, ``sink_retries`` are the sinks that fail,
    ``sink_failure`` is why one was given up. ``taking_back`` are the sinks that have yet to take
    back what a rewind left behind: no step of the new branch may run before. ``committed`` is the
    last step whose commit the node knows: the next step runs only after it.

    A leader that was fenced without knowing may have let this node run a step that was committed
    with another result, or in another branch. So the node reports its ``branch``, the
    ``state_fingerprint`` at ``committed`` (``stands``), and that of the step run after it
    (``reached``).

    ``paused`` is what the node applies. It survives the coordinator, and shows whether an order has
    arrived.
    """

    version: int
    boot: str
    application: str
    leader: int
    info: ProgramInfo
    state: NodeState
    opened: int = 0
    failed_open: Failure | None = None
    replaying: bool = False
    done: Done | None = None
    failed_step: StepFailure | None = None
    offer: Offer | None = None
    source_failure: Failure | None = None
    published: dict[str, int] = {}
    sink_retries: dict[str, SinkRetry] = {}
    sink_failure: Failure | None = None
    taking_back: tuple[str, ...] = ()
    checked: Checked | None = None
    committed: int = 0
    branch: int = 0
    stands: str = ""
    reached: str = ""
    paused: PausedSources = PausedSources()


class Output(msgspec.Struct, frozen=True):
    """The staged files of a step, and the branch of its commit."""

    step: int
    staged: tuple[StagedFile, ...]
    branch: int = 0


class InputLimit(msgspec.Struct, frozen=True):
    """The most that the next step should read; None is unlimited."""

    rows: int | None = None
    bytes: int | None = None


class OpenOrder(msgspec.Struct, frozen=True, tag="open"):
    """Open state and sources as of the journal.

    ``number`` is unique. ``states`` is the state at ``step``; None creates the pipeline.
    ``positions`` is how far each source was read: beyond ``step`` if later steps are to be
    replayed. ``outputs`` are the committed steps that some sink may lack, oldest first;
    ``published`` is the last step that each sink is known to have. ``whole``: verify the checksum
    of every file, not only its size. ``rewound`` is the step of a rewind: sinks first take back
    everything after it. It differs from ``step`` if that state is damaged and recomputed from an
    older one. ``branch`` is reported back, ``paused`` is as in ``SourcesOrder``.
    """

    number: int
    pipeline: str
    step: int
    clock_ns: int
    states: tuple[OperatorState, ...] | None
    positions: tuple[Input, ...]
    pending: tuple[Input, ...]
    outputs: tuple[Output, ...]
    published: dict[str, int]
    placement: tuple[tuple[str, tuple[int, ...]], ...]
    limit: InputLimit
    whole: bool = False
    rewound: int | None = None
    branch: int = 0
    paused: PausedSources = PausedSources()


class StepOrder(msgspec.Struct, frozen=True, tag="step"):
    """Run the step after the one that is open, once per step and revision.

    ``opened`` is the number of the order that opened the state it is meant for: a late order does
    nothing if other state is open. 0 fits any state.
    """

    plan: Plan
    opened: int = 0


class CommitOrder(msgspec.Struct, frozen=True, tag="commit"):
    """A step is committed: publish its output, acknowledge its input, offer the next input.

    A ``replayed`` step is not published again. ``opened`` as in ``StepOrder``.
    """

    step: int
    output: Output | None
    positions: tuple[Input, ...]
    limit: InputLimit
    replayed: bool = False
    opened: int = 0


class CancelOrder(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancel the running step: it fails with ``step.cancelled``."""

    step: int


class CheckOrder(msgspec.Struct, frozen=True, tag="check"):
    """Check, beside the steps, that all files of a commit exist.

    ``files`` are those of the committed parts. ``whole``: verify the checksum of every file, not
    only its size. ``asked`` is the number of the request behind it, None for a new checkpoint.
    """

    step: int
    states: tuple[OperatorState, ...]
    files: tuple[str, ...] = ()
    whole: bool = False
    asked: int | None = None


class SweepOrder(msgspec.Struct, frozen=True, tag="sweep"):
    """Remove the unneeded files of steps up to ``step``, after the grace period.

    Everything that the fields name stays; ``files`` are those of committed parts. Sources forget
    what all ``positions`` have passed.
    """

    step: int
    states: tuple[tuple[OperatorState, ...], ...]
    outputs: tuple[Output, ...]
    positions: tuple[tuple[Input, ...], ...]
    codes: tuple[str, ...]
    files: tuple[str, ...] = ()


class SourcesOrder(msgspec.Struct, frozen=True, tag="sources"):
    """Pause exactly these sources, whatever state is open now or later.

    They still learn of commits, and what they have offered is still read.
    """

    paused: PausedSources


class CloseOrder(msgspec.Struct, frozen=True, tag="close"):
    """Publish what is committed, and close sources and sinks; with ``exit``, end the process.

    ``opened`` as in ``StepOrder``.
    """

    exit: bool = False
    opened: int = 0


NodeOrder: TypeAlias = (
    OpenOrder
    | StepOrder
    | CommitOrder
    | CancelOrder
    | CheckOrder
    | SweepOrder
    | SourcesOrder
    | CloseOrder
)


class StepResult(msgspec.Struct, frozen=True):
    """The result of a step: everything in its commit that only the node knows.

    ``loads`` are the workers' reports on their bins, ``homes`` is what was read and copied,
    ``profiles`` are those that the plan requested, ``parts`` are reports to the committed parts.
    """

    step: int
    revision: int
    states: tuple[OperatorState, ...]
    staged: tuple[StagedFile, ...]
    counts: tuple[RowCount, ...]
    rows: int
    rows_merged: int
    seconds: dict[str, float]
    loads: tuple[WorkerLoad, ...] = ()
    homes: HomeUse = HomeUse()
    profiles: tuple[TaskProfile, ...] = ()
    parts: dict[str, msgspec.Raw] = {}


class CalledNode(Protocol):
    """A node that takes calls. All raise ``Fenced`` or ``NodeUnreachable``. Thread-safe."""

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order. Returns once it is accepted."""

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """Take the input of the offer for a step, which is final from then on."""

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """Fetch the result of the last step run; ``NodeUnreachable`` if that is another one."""


class Node(CalledNode, Protocol):
    """A node as the coordinator's driver sees it."""

    def report(self, leader: int, seen: int, seconds: float) -> NodeReport:
        """Wait up to ``seconds`` for a report newer than ``seen``; returns the newest."""
