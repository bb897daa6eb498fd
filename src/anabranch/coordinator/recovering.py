"""Recovery: from the start of the process to the first new step."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

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
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.phases import Identifying, Idle, Meeting, Opening, Planning, Stepping
from anabranch.coordinator.plans import commit_order, is_ours, open_order, revise_plan, step_order
from anabranch.coordinator.starting import LOST_STATE, NodeDecision, decide_on_node
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


def adopt_journal(memory: Memory, journal: JournalView) -> None:
    """Load the journal's view into the memory."""
    memory.journal = journal
    memory.outputs = {output.step: output for output in journal.outputs}
    memory.unrecorded = dict(memory.outputs)
    restore_parts(memory)
    plan = journal.plan
    if plan is not None and is_ours(memory, plan):
        # It may hold newer values than the commit. A plan of a run with another number of workers
        # has none that fit our placement: that run reassigned the bins.
        memory.parts = memory.parts.from_plan(plan)


def unknown_parts(memory: Memory, journal: JournalView) -> Failure | None:
    """The failure if the last commit carries parts that this version would lose."""
    unknown = () if journal.commit is None else memory.parts.unknown(journal.commit)
    if not unknown:
        return None
    return Failure(
        "directory.future_format",
        f"The last commit carries {', '.join(map(repr, unknown))}, unknown to this version",
        memory.directory or None,
        "Nothing was changed. Run the version of Anabranch that wrote it.",
    )


def restore_parts(memory: Memory) -> None:
    """Reset the parts to the last commit; later requests are dropped."""
    memory.parts = memory.parts.from_commit(memory.journal.commit)
    reassign_bins(memory)


def reassign_bins(memory: Memory) -> None:
    """Reassign bins if the last commit is of a run with another number of workers.

    Takes effect at once; the next step tells the workers that lose all bins.
    """
    commit, workers = memory.journal.commit, memory.workers
    memory.moving.reopened = None
    if commit is None or not commit.placement or commit.workers == workers:
        return
    # Equal shares with consecutive worker numbers: no running worker needs to stay.
    request = Assign(tuple(_equal_shares(each, workers) for each in commit.placement))
    settled, memory.moving.reopened = apply_at_once(
        RESCALE.of(commit), request, commit.placement, Loads()
    )
    shown = Settled(Scale(workers), RescaleOutcome.REOPENED, MovedTotals())
    memory.rescale = msgspec.structs.replace(settled, phase=shown)


def _equal_shares(assignment: Assignment, workers: int) -> Shares:
    bins = len(assignment.workers)
    owning = min(workers, bins)
    return Shares(assignment.region, tuple(number * owning // bins for number in range(bins)))


def find_node(memory: Memory) -> list[Effect]:
    """Find the running node, or start one."""
    await_report(memory)
    return [FindNode()]


def await_report(memory: Memory) -> None:
    """Wait for the first report of a node. What was open is lost."""
    memory.requeue_requests()
    memory.phase = Meeting(memory.now)
    memory.node.opened = None
    memory.replay.stop()


def replace_node(memory: Memory, why: str) -> list[Effect]:
    """Replace the node: another process opens what is committed."""
    await_report(memory)
    memory.node.report, memory.node.heard = None, memory.now
    return [ReplaceNode(why)]


def on_first_report(memory: Memory, report: NodeReport) -> list[Effect]:
    """Decide what to do with a node at its first report."""
    if memory.journal.identity is None:
        memory.phase = Identifying()
        return [WriteIdentity(report.info.dataflow, report.info.bins)]
    match decide_on_node(report, memory.journal, memory.code):
        case NodeDecision.REPLACE:
            return replace_node(memory, "the dataflow has changed since the node loaded it")
        case NodeDecision.WAIT if memory.load.rewind is None:
            memory.node.opened, plan = report.opened, memory.journal.plan
            assert plan is not None
            # It runs as planned, even with another number of workers. Ours applies afterwards.
            memory.phase = Stepping(plan, memory.now, Trigger.RESUMED)
            return _repeat_commits(memory)
        case NodeDecision.CONTINUE:
            memory.node.opened = report.opened
            return [*_repeat_commits(memory), *begin_steps(memory)]
    return reopen(memory)


def reopen(memory: Memory, *, rewound: bool = False) -> list[Effect]:
    """Open the last commit, unless the directory belongs to another dataflow."""
    report, identity = memory.node.report, memory.journal.identity
    assert report is not None
    assert identity is not None
    refused = _identity_mismatch(memory, identity, report)
    if refused is not None:
        return fail_pipeline(memory, refused)
    memory.replay.stop()
    return open_state(memory, None, rewound=rewound)


def on_opening(memory: Memory, phase: Opening, report: NodeReport) -> list[Effect]:
    """Handle a report while the node opens state."""
    if report.opened != phase.order.number:
        return []
    if report.failed_open is not None:
        if report.failed_open.code in LOST_STATE:
            return memory.replay.begin(memory, report.failed_open)
        return fail_pipeline(memory, report.failed_open)
    if report.taking_back and report.sink_failure is not None:
        return fail_pipeline(memory, report.sink_failure)
    # Once the branch has a commit, nobody orders the sinks to take back any more.
    if report.taking_back or not isinstance(report.state, Open):
        return []
    memory.node.opened = phase.order.number
    memory.journal = replace(memory.journal, published=dict(report.published))
    effects = memory.checkpoint.repeat()
    replay = memory.replay.under_way
    if replay is None or memory.load.rewind is not None:
        return [*effects, *begin_steps(memory)]
    if phase.order.step < replay.to_step:
        return [*effects, *memory.replay.recall(memory, phase.order.step + 1)]
    # The checkpoint is of the last commit itself, and its files are intact.
    memory.replay.stop()
    memory.journal = replace(memory.journal, states=phase.order.states or ())
    return [*effects, *begin_steps(memory)]


def begin_steps(memory: Memory) -> list[Effect]:
    """Run the plan in the journal, if any; else wait for a trigger.

    A rewind comes first: the plan may be impossible to run, because its input is gone.
    """
    plan = memory.journal.plan
    if plan is None or memory.load.rewind is not None:
        memory.phase = Idle()
        return []
    return start_plan(memory, revise_plan(memory, plan), Trigger.RESUMED)


def start_plan(memory: Memory, plan: Plan, trigger: Trigger) -> list[Effect]:
    """Run a plan, after writing it to the journal if needed."""
    if plan != memory.journal.plan:
        memory.phase = Planning(plan, trigger)
        return [WritePlan(memory.journal.branch, plan)]
    memory.phase = Stepping(plan, memory.now, trigger)
    return [Give(step_order(memory, plan))]


def open_state(
    memory: Memory, checkpoint: Checkpoint | None, *, rewound: bool = False
) -> list[Effect]:
    """Open the last commit, or an earlier checkpoint to replay from."""
    rewound = rewound or memory.journal.rewound
    order = open_order(memory, checkpoint, rewound=rewound)
    memory.phase = Opening(order, memory.now)
    memory.node.again, memory.node.again_at = (), None
    return [Give(order)]


def _repeat_commits(memory: Memory) -> list[Effect]:
    """Repeat the orders to commit: an earlier leader may have died before giving them."""
    commit = memory.journal.commit
    if commit is None:
        return []
    earlier = [memory.outputs[step] for step in sorted(memory.outputs) if step < commit.step]
    opened = memory.node.opened or 0
    orders = [CommitOrder(out.step, out, (), memory.limit, opened=opened) for out in earlier]
    return [Give(order) for order in [*orders, commit_order(memory, commit)]]


def _identity_mismatch(memory: Memory, identity: Identity, report: NodeReport) -> Failure | None:
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
