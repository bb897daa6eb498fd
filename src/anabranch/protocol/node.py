"""What a node is, for the rest of the system: the protocol between it and the coordinator.

The node owns Spark. The coordinator gives it *orders*, which return as soon as they are taken; the
node *tells* what it is doing, again and again, with a version that grows with every change. So a
reply that is lost, late or doubled does no harm: the next telling says the same, or something
newer. An order that was carried out already changes nothing when it comes again.

Every order names the leader that gives it. A node that has heard of a higher one refuses it with
``Fenced``.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

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
    """State is open, and stands at a step: the one it was opened at, or the last that was run."""

    step: int


class Running(msgspec.Struct, frozen=True, tag="running"):
    """A step runs. When it is complete, the node is open at this step."""

    step: int
    revision: int


NodeState: TypeAlias = Closed | Open | Running


class Failure(msgspec.Struct, frozen=True):
    """An error as it travels: what ``errors.AnabranchError`` says, with its code."""

    code: str
    what: str
    where: str | None = None
    do: str | None = None


class SinkInfo(msgspec.Struct, frozen=True):
    """What the coordinator must know of a sink."""

    name: str
    stage_format: str
    takes_back: bool


class GraphNodeInfo(msgspec.Struct, frozen=True):
    """An operator of the dataflow's graph; ``name`` is None where it needs none.

    ``region`` is the region that it runs in, ``inputs`` are the ids of those it gets rows of.
    """

    id: int
    kind: str
    name: str | None
    region: str | None
    inputs: tuple[int, ...]


class ProgramInfo(msgspec.Struct, frozen=True):
    """What the coordinator must know of the dataflow that a node has loaded.

    ``code`` is the hash of the dataflow, ``endings`` are the operators that are told of the end of
    the input, in the order of the graph. ``partitions`` says how many each source has that Python
    tasks read; the others are read by the JVM. ``releasing`` is what becomes of executors when
    workers go. ``graph`` is the dataflow as it was written.
    """

    dataflow: str
    code: str
    bins: int
    regions: tuple[str, ...]
    shapes: tuple[OperatorShape, ...]
    sources: tuple[str, ...]
    sinks: tuple[SinkInfo, ...]
    endings: tuple[str, ...]
    partitions: dict[str, int] = {}
    releasing: str = ""
    graph: tuple[GraphNodeInfo, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """Input that waits for a step: ``received`` of the protocol.

    ``rows`` counts rows where a source knows their number, else one for each slice: it is 0 only
    when nothing waits. ``bytes`` are those of files. ``full``: more would not fit the limit.
    ``ended``: nothing will ever follow what waits. ``step`` is the step it is for. ``partitions``
    is how many each source has by now that tells it.
    """

    step: int
    rows: int
    bytes: int
    by_source: dict[str, int]
    full: bool
    ended: bool
    partitions: dict[str, int] = {}


class Done(msgspec.Struct, frozen=True):
    """A step whose result is kept until the next one runs."""

    step: int
    revision: int


class StepFailure(msgspec.Struct, frozen=True):
    """A step that could not be run to its end. The node is open at the step before it."""

    step: int
    revision: int
    failure: Failure


class Checked(msgspec.Struct, frozen=True):
    """How far the check of a checkpoint's files is, and what is wrong with them, if anything.

    ``asked`` is that of the order.
    """

    step: int
    files: int
    files_done: int
    failure: Failure | None = None
    asked: int | None = None


class PausedSources(msgspec.Struct, frozen=True):
    """All sources that nothing is asked of.

    Of two, the one with the higher ``number`` counts, whichever came later: numbers grow from
    change to change and from leader to leader.
    """

    number: int = 0
    names: tuple[str, ...] = ()


class NodeReport(msgspec.Struct, frozen=True):
    """What a node says of itself.

    ``boot`` is drawn anew by every node process; ``opened`` is the number of the order that opened
    the state it has. ``failed_open`` is why that order could not be carried out. ``replaying``: the
    last step was committed before, and run again. ``published`` is the last step that each sink
    has, ``sink_failure`` why publishing has stopped. ``committed`` is the last step whose commit
    the node knows of: the next step runs only after it.

    The same step may have been committed with another result than this node's, or in another
    branch, since whoever was replaced may have led it without knowing. So the node says which
    ``branch`` it was opened in, and the ``fingerprint`` of its state at ``committed``
    (``stands``), and of that which the step after it came to (``reached``).

    ``paused`` is what it goes by: a coordinator that comes back finds it here, and one whose order
    did not arrive sees that.
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
    sink_failure: Failure | None = None
    checked: Checked | None = None
    committed: int = 0
    branch: int = 0
    stands: str = ""
    reached: str = ""
    paused: PausedSources = PausedSources()


class Output(msgspec.Struct, frozen=True):
    """The staged files of a step, and the branch that it is committed in."""

    step: int
    staged: tuple[StagedFile, ...]
    branch: int = 0


class InputLimit(msgspec.Struct, frozen=True):
    """The most that the next step should read. None: no limit."""

    rows: int | None = None
    bytes: int | None = None


class OpenOrder(msgspec.Struct, frozen=True, tag="open"):
    """Open state and sources where the journal says they stand.

    ``number`` is never used twice. ``step`` is the step that ``states`` is the state of; None
    states create the pipeline. ``positions`` is what was read of each source: more than ``step``
    when journalled steps are going to be replayed. ``outputs`` are the committed steps that some
    sink may lack, oldest first; ``published`` how far each sink is known to be. ``whole``: read
    every file and compare its checksum, else only its size. ``rewound`` is the step that the
    pipeline was set back to: sinks take back what they have published after it, before anything
    else. It is not ``step`` where that state is damaged and computed again from an older one.
    ``branch`` is only told again. ``paused`` as in ``SourcesOrder``.
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
    """Run the step after the one that the node is open at. Taken once for a step and revision.

    ``opened`` is the number of the order that opened the state it is meant for; an order that
    comes late, when something else is open, then does nothing. 0 fits whatever is open.
    """

    plan: Plan
    opened: int = 0


class CommitOrder(msgspec.Struct, frozen=True, tag="commit"):
    """A step is committed: publish its output, acknowledge its input, offer what comes next.

    ``replayed`` steps were published before: nothing of them is. ``opened`` as in ``StepOrder``.
    """

    step: int
    output: Output | None
    positions: tuple[Input, ...]
    limit: InputLimit
    replayed: bool = False
    opened: int = 0


class CancelOrder(msgspec.Struct, frozen=True, tag="cancel"):
    """Give up the step that runs; the node fails it with ``step.cancelled``."""

    step: int


class CheckOrder(msgspec.Struct, frozen=True, tag="check"):
    """See whether all files that a commit needs are there, beside the steps.

    ``files`` are those of the committed parts.
    ``whole``: read every file and compare its checksum, else only its size. ``asked`` is the
    number of the request that it is for; None where it is for a checkpoint that is to be kept.
    """

    step: int
    states: tuple[OperatorState, ...]
    files: tuple[str, ...] = ()
    whole: bool = False
    asked: int | None = None


class SweepOrder(msgspec.Struct, frozen=True, tag="sweep"):
    """Remove the files of steps up to ``step`` that are not among those to keep, after a while.

    ``files`` are those that committed parts need. ``positions`` are told to sources, which forget
    what all of them have passed.
    """

    step: int
    states: tuple[tuple[OperatorState, ...], ...]
    outputs: tuple[Output, ...]
    positions: tuple[tuple[Input, ...], ...]
    codes: tuple[str, ...]
    files: tuple[str, ...] = ()


class SourcesOrder(msgspec.Struct, frozen=True, tag="sources"):
    """Ask nothing of these sources, and all others as ever; whatever is open, now or later.

    They are still told what is committed, and what they have offered is still read.
    """

    paused: PausedSources


class CloseOrder(msgspec.Struct, frozen=True, tag="close"):
    """Publish what is committed, let go of sources and sinks; with ``exit`` end the process.

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
    """What a step came to: everything of its commit that only the node can know.

    ``loads`` are what workers say of their bins, ``homes`` is what was read and copied.
    ``profiles`` are those that the plan requested, ``parts`` is what the committed parts are told.
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


class Node(Protocol):
    """A node as the coordinator's driver sees it. Any thread may call."""

    def report(self, leader: int, seen: int, seconds: float) -> NodeReport:
        """What the node says, as soon as it is newer than ``seen`` or so many seconds are over."""
        ...

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order. Returns once it is taken; raises ``Fenced`` or ``NodeUnreachable``."""
        ...

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step; from then on the offer does not change."""
        ...

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run. ``NodeUnreachable`` if there is none of it."""
        ...
