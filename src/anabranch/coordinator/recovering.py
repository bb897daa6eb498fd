"""From the start of the process to the first new step: meet the node, open what is committed."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from anabranch.coordinator.closing import fail_pipeline
from anabranch.coordinator.effects import (
    Effect,
    FindNode,
    Give,
    ReplaceNode,
    WriteIdentity,
    WritePlan,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.parts.rescale import rescale_of
from anabranch.coordinator.phases import (
    Identifying,
    Idle,
    Meeting,
    Opening,
    Planning,
    Stepping,
)
from anabranch.coordinator.plans import commit_order, is_ours, open_order, revised, step_order
from anabranch.coordinator.starting import LOST_STATE, GoOn, Reopen, Replace, WaitFor, meet
from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import CommitOrder, Failure, NodeReport, Open
from anabranch.protocol.rescale_history import MovedTotals, RescaleOutcome
from anabranch.protocol.rescale_requests import Assign, Scale
from anabranch.records.commit import Checkpoint
from anabranch.records.leader import Identity
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.records.shares import Shares
from anabranch.rescale.apply_request import apply_at_once
from anabranch.rescale.loads import Loads
from anabranch.rescale.phases import Settled


def know(memory: Memory, journal: JournalView) -> None:
    """Take over what the journal says."""
    memory.journal = journal
    memory.outputs = {output.step: output for output in journal.outputs}
    as_committed(memory)
    plan = journal.plan
    if plan is not None and is_ours(memory, plan):
        # It may have been made from newer values than the commit's. One of a run with another
        # number of workers has none that goes with our placement: bins were shared anew in it.
        memory.parts = memory.parts.from_plan(plan)


def unknown_parts(memory: Memory, journal: JournalView) -> Failure | None:
    """Why the journal cannot be gone on from: it carries something that would be lost."""
    unknown = () if journal.commit is None else memory.parts.unknown(journal.commit)
    if not unknown:
        return None
    return Failure(
        "directory.future_format",
        f"The last commit carries {', '.join(map(repr, unknown))}, which is not known here",
        memory.directory or None,
        "Nothing was changed. Run the version of Anabranch that has written it.",
    )


def as_committed(memory: Memory) -> None:
    """Take the parts from the last commit: what was asked since counts no more."""
    memory.parts = memory.parts.from_commit(memory.journal.commit)
    share_anew(memory)


def share_anew(memory: Memory) -> None:
    """Share bins anew where the last commit is of a run with another number of workers.

    That is done at once; whoever has no bins any more is told in the next step.
    """
    commit, workers = memory.journal.commit, memory.settings.workers
    memory.moving.reopened = None
    if commit is None or not commit.placement or commit.workers == workers:
        return
    # Equal shares, without gaps between the numbers of workers: nothing runs that could stay.
    request = Assign(tuple(_equal(each, workers) for each in commit.placement))
    settled, memory.moving.reopened = apply_at_once(
        rescale_of(commit), request, commit.placement, Loads()
    )
    shown = Settled(Scale(workers), RescaleOutcome.REOPENED, MovedTotals())
    memory.rescale = msgspec.structs.replace(settled, phase=shown)


def _equal(assignment: Assignment, workers: int) -> Shares:
    bins = len(assignment.workers)
    owning = min(workers, bins)
    return Shares(assignment.region, tuple(number * owning // bins for number in range(bins)))


def find_node(memory: Memory, now: float) -> list[Effect]:
    """Look for the node that runs, or let one be started."""
    memory.let_wait()
    memory.phase = Meeting(now)
    memory.node.leave()
    return [FindNode()]


def replace_node(memory: Memory, now: float, why: str) -> list[Effect]:
    """Give up the node: another process opens what is committed."""
    memory.let_wait()
    memory.phase = Meeting(now)
    memory.node.leave()
    memory.node.report = None
    memory.node.heard = now
    memory.replay.stop()
    return [ReplaceNode(why)]


def on_met(memory: Memory, report: NodeReport, now: float) -> list[Effect]:
    """The node has told something for the first time."""
    if memory.journal.identity is None:
        memory.phase = Identifying()
        return [WriteIdentity(report.info.dataflow, report.info.bins)]
    match meet(report, memory.journal, memory.code):
        case Replace(why):
            return replace_node(memory, now, why)
        case Reopen():
            return reopen(memory, now)
        case WaitFor() if memory.load.rewind is not None:
            return reopen(memory, now)
        case WaitFor(plan):
            memory.node.opened = report.opened
            # It runs as it was planned, also with another number of workers: ours comes after it.
            memory.phase = Stepping(plan, now, Trigger.RESUMED)
            return _repeat_commits(memory)
        case GoOn():
            memory.node.opened = report.opened
            effects = _repeat_commits(memory)
            return [*effects, *begin_steps(memory, now)]


def on_identity(memory: Memory, identity: Identity, now: float) -> list[Effect]:
    """The directory has an identity: ours, or of whoever was there first."""
    memory.journal = replace(memory.journal, identity=identity)
    return reopen(memory, now)


def reopen(memory: Memory, now: float, *, rewound: bool = False) -> list[Effect]:
    """Open what is committed."""
    report, identity = memory.node.report, memory.journal.identity
    assert report is not None
    assert identity is not None
    refused = _not_ours(memory, identity, report)
    if refused is not None:
        return fail_pipeline(memory, refused, now)
    memory.replay.stop()
    return open_state(memory, None, now, rewound=rewound)


def on_opening(memory: Memory, phase: Opening, report: NodeReport, now: float) -> list[Effect]:
    """The node has told something while it was to open state."""
    if report.opened != phase.order.number:
        return []
    if report.failed_open is not None:
        if report.failed_open.code in LOST_STATE:
            return memory.replay.begin(memory, report.failed_open, now)
        return fail_pipeline(memory, report.failed_open, now)
    if not isinstance(report.state, Open):
        return []
    memory.node.opened = phase.order.number
    memory.journal = replace(memory.journal, published=dict(report.published))
    effects = memory.checkpoint.repeat()
    replay = memory.replay.under_way
    if replay is None or memory.load.rewind is not None:
        return [*effects, *begin_steps(memory, now)]
    if phase.order.step < replay.to_step:
        return [*effects, *memory.replay.recall(memory, phase.order.step + 1)]
    # The checkpoint is of the last commit itself, and whole where that one is not.
    memory.replay.stop()
    memory.journal = replace(memory.journal, states=phase.order.states or ())
    return [*effects, *begin_steps(memory, now)]


def begin_steps(memory: Memory, now: float) -> list[Effect]:
    """Run the plan that was left, if there is one; else wait for a reason for a new one.

    A rewind comes first: the plan may be one that can never run, since its input is gone.
    """
    plan = memory.journal.plan
    if plan is None or memory.load.rewind is not None:
        memory.phase = Idle()
        return []
    return start_plan(memory, revised(memory, plan), Trigger.RESUMED, now)


def start_plan(memory: Memory, plan: Plan, trigger: Trigger, now: float) -> list[Effect]:
    """Run a plan: at once if it is in the journal, else after it is."""
    if plan != memory.journal.plan:
        memory.phase = Planning(plan, trigger)
        return [WritePlan(memory.journal.branch, plan)]
    memory.phase = Stepping(plan, now, trigger)
    return [Give(step_order(memory, plan))]


def open_state(
    memory: Memory, checkpoint: Checkpoint | None, now: float, *, rewound: bool
) -> list[Effect]:
    """Open the last commit; or a checkpoint before it, to replay what follows."""
    rewound = rewound or memory.journal.rewound
    order = open_order(memory, checkpoint, rewound=rewound)
    memory.phase = Opening(order, now)
    memory.node.again, memory.node.again_at = (), None
    return [Give(order)]


def _repeat_commits(memory: Memory) -> list[Effect]:
    """Say again what is committed: whoever led before may have died before it could."""
    commit = memory.journal.commit
    if commit is None:
        return []
    earlier = [memory.outputs[step] for step in sorted(memory.outputs) if step < commit.step]
    opened = memory.node.opened or 0
    orders = [CommitOrder(out.step, out, (), memory.limit, opened=opened) for out in earlier]
    return [Give(order) for order in [*orders, commit_order(memory, commit)]]


def _not_ours(memory: Memory, identity: Identity, report: NodeReport) -> Failure | None:
    where = memory.directory or None
    keep = "Nothing was changed. Run the dataflow that the directory belongs to, or name another "
    if identity.dataflow != report.info.dataflow:
        return Failure(
            "directory.other_dataflow",
            f"The directory holds the dataflow {identity.dataflow!r}, not {report.info.dataflow!r}",
            where,
            f"{keep}directory.",
        )
    if identity.bins != report.info.bins:
        return Failure(
            "directory.changed_dataflow",
            f"The directory was made with {identity.bins} bins per region, not {report.info.bins}",
            where,
            f"Nothing was changed. Run with bins={identity.bins}: they are fixed at creation.",
        )
    return None
