"""Builds plans, commits and orders from the coordinator's memory."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from functools import partial

import msgspec
from msgspec.structs import replace

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.outlook import partition_counts
from anabranch.coordinator.parts.parts import Parts
from anabranch.coordinator.parts.port import CommitContext, PlanContext
from anabranch.coordinator.parts.sources import positions_of
from anabranch.progress.dataflow.outlook import StepOutlook
from anabranch.protocol.node import (
    CheckOrder,
    CommitOrder,
    OpenOrder,
    Output,
    ProgramInfo,
    StepOrder,
    StepResult,
    SweepOrder,
)
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.placed import Assignment
from anabranch.records.plan import Input, Plan
from anabranch.records.profiles import ProfileRequest
from anabranch.records.shares import members
from anabranch.rescale.assignments import equal_shares, later_than, source_shares
from anabranch.rescale.loads import Loads, combine_loads, from_states
from anabranch.rescale.moved_counts import StepMoved

OPENS = 1_000_000
"""The most open orders of one leader. It keeps their numbers growing from leader to leader."""


def new_plan(
    memory: Memory, inputs: tuple[Input, ...], clock_ns: int, outlook: StepOutlook
) -> Plan:
    """The plan of the next step, at this clock."""
    placed = base_placement(memory, inputs)
    plan = Plan(
        step=memory.step + 1,
        revision=0,
        clock_ns=clock_ns,
        code=_info(memory).code,
        inputs=inputs,
        placement=placed,
        unkeyed_workers=0,
        started_with=memory.workers,
        profile=_profile(memory, inputs),
    )
    context = replace_fields(_context(memory, inputs, placed), outlook=outlook)
    return _with_parts(memory, plan, context)


def revise_plan(memory: Memory, plan: Plan) -> Plan:
    """The plan, or a revision of it that fits this run.

    The input of a step is final. The placement may change, and so may the code: that is how to fix
    a function that raises.
    """
    code = _info(memory).code
    context = _context(memory, plan.inputs, base_placement(memory, plan.inputs), plan.placement)
    recoded = replace(plan, revision=plan.revision + 1, code=code)
    placed = later_than(context.placement, plan.placement)
    moved = replace(recoded, placement=placed, started_with=memory.workers)
    # Nothing depends on an uncommitted plan: moves are planned again.
    moved = _with_parts(memory, moved, context)
    if moved.placement != plan.placement or not is_ours(memory, plan):
        return moved
    return plan if plan.code == code else recoded


def _with_parts(memory: Memory, plan: Plan, context: PlanContext) -> Plan:
    plan = memory.parts.plan(plan, context)
    return replace(plan, unkeyed_workers=len(members(plan.placement)) or memory.workers)


def _context(
    memory: Memory,
    inputs: tuple[Input, ...],
    placed: tuple[Assignment, ...],
    revised: tuple[Assignment, ...] = (),
) -> PlanContext:
    recent, settings = tuple(memory.stats.recent), memory.settings
    loads = partial(current_loads, memory, placed)
    times = _info(memory).times
    return PlanContext(memory.step + 1, inputs, placed, loads, recent, settings, revised, times)


def current_loads(memory: Memory, placed: tuple[Assignment, ...]) -> Loads:
    """The load of every bin: as measured, and by the committed state."""
    return combine_loads(memory.moving.measured, from_states(placed, memory.journal.states))


def _profile(memory: Memory, inputs: tuple[Input, ...]) -> ProfileRequest | msgspec.UnsetType:
    """The next profile request; not for a step without input, whose profile would be empty."""
    if not memory.profile.queue or not any(given.slices for given in inputs):
        return msgspec.UNSET
    return memory.profile.queue[0][1].request


def is_ours(memory: Memory, plan: Plan) -> bool:
    """Whether a plan is of a run with as many workers as this one."""
    return plan.started_with in (None, memory.workers)


def current_placement(memory: Memory) -> tuple[Assignment, ...]:
    """Who owns which bins now: by the last commit, or as reassigned at the start.

    Before the first commit it is what the first step begins with, if the node has reported.
    """
    if memory.journal.commit is None and memory.info is not None:
        return base_placement(memory)
    return _committed_placement(memory)


def _committed_placement(memory: Memory) -> tuple[Assignment, ...]:
    commit, anew = memory.journal.commit, memory.moving.reopened
    if commit is None:
        return ()
    return commit.placement if anew is None or commit.workers == memory.workers else anew


def base_placement(memory: Memory, inputs: tuple[Input, ...] = ()) -> tuple[Assignment, ...]:
    """Who owns which bins in the next step, except for those in hand-over.

    New regions get equal shares; new partitions of a source join it.
    """
    info, workers = _info(memory), memory.workers
    known = _committed_placement(memory)
    kept = {each.region: each for each in known}
    sources = source_shares(partition_counts(memory, inputs), workers, known)
    made = equal_shares(info.regions, info.bins, workers, ())
    return (*(kept.get(each.region, each) for each in made), *sources)


def new_commit(memory: Memory, plan: Plan, result: StepResult, seconds: float) -> Commit:
    """The commit of a step that the node has run."""
    parts = _planned_from(memory, plan).after_commit(CommitContext(plan, result, seconds))
    return Commit(
        step=plan.step,
        revision=plan.revision,
        clock_ns=plan.clock_ns,
        code=plan.code,
        placement=plan.placement,
        states=result.states,
        staged=result.staged,
        counts=result.counts,
        published=dict(memory.published),
        workers=memory.workers if plan.started_with is None else plan.started_with,
        homes=result.homes,
        parts=parts.encode(),
        files=parts.files(),
    )


def _planned_from(memory: Memory, plan: Plan) -> Parts:
    """The parts to commit a plan with; they include later requests if the plan is ours."""
    if is_ours(memory, plan):
        return memory.parts
    return memory.parts.from_commit(memory.journal.commit).from_plan(plan)


def step_done(
    memory: Memory, result: StepResult, seconds: float, trigger: str, moved: StepMoved | None
) -> StepDone:
    """The figures of a committed step."""
    offer = None if memory.node.report is None else memory.node.report.offer
    return StepDone(
        result.step,
        result.rows,
        sum(sum(state.live) for state in result.states),
        seconds,
        result.seconds,
        trigger,
        {} if offer is None else dict(offer.by_source),
        result.rows_merged,
        moved,
        result.homes,
    )


def commit_order(
    memory: Memory, commit: Commit, *, publish: bool = True, replayed: bool = False
) -> CommitOrder:
    """The order that tells the node of a commit."""
    output = Output(commit.step, commit.staged, memory.journal.branch) if publish else None
    read, opened = positions_of(commit), memory.node.opened or 0
    return CommitOrder(commit.step, output, read, memory.limit, replayed=replayed, opened=opened)


def step_order(memory: Memory, plan: Plan) -> StepOrder:
    """The order to run a plan."""
    return StepOrder(plan, memory.node.opened or 0)


def check_order(
    checkpoint: Checkpoint, *, whole: bool = False, asked: int | None = None
) -> CheckOrder:
    """The order to check the files of a checkpoint."""
    files = checkpoint.commit.files
    return CheckOrder(checkpoint.step, checkpoint.states, files, whole=whole, asked=asked)


def open_order(memory: Memory, checkpoint: Checkpoint | None, *, rewound: bool) -> OpenOrder:
    """The order to open the last commit, or an earlier checkpoint to replay from."""
    journal = memory.journal
    memory.node.opens += 1
    at, states = journal.commit, journal.states
    if checkpoint is not None:
        at, states = checkpoint.commit, checkpoint.states
    elif memory.replay.under_way is not None:
        at, states = None, ()
    return OpenOrder(
        number=memory.leader * OPENS + memory.node.opens,
        pipeline="" if journal.identity is None else journal.identity.pipeline,
        step=0 if at is None else at.step,
        clock_ns=0 if at is None else at.clock_ns,
        states=None if at is None else states,
        positions=positions_of(journal.commit),
        pending=() if journal.plan is None else journal.plan.inputs,
        outputs=tuple(memory.outputs[number] for number in sorted(memory.outputs)),
        published=_published(memory),
        placement=tuple((each.region, each.workers) for each in base_placement(memory)),
        limit=memory.limit,
        whole=memory.replay.under_way is not None,
        rewound=journal.step if rewound else None,
        branch=journal.branch,
        paused=memory.sources.paused,
    )


def sweep_order(memory: Memory) -> SweepOrder | None:
    """The order to remove files that neither the last commit nor a kept checkpoint needs."""
    journal = memory.journal
    if journal.commit is None:
        return None
    kept = [*journal.checkpoints, *memory.checkpoint.untrimmed]
    if memory.checkpoint.under_way is not None:
        kept.append(memory.checkpoint.under_way.checkpoint)
    commits = [journal.commit, *(checkpoint.commit for checkpoint in kept)]
    return SweepOrder(
        step=journal.step,
        states=(journal.states, *(checkpoint.states for checkpoint in kept)),
        outputs=tuple(memory.unrecorded[number] for number in sorted(memory.unrecorded)),
        positions=tuple(positions_of(commit) for commit in commits),
        codes=tuple(sorted({journal.commit.code, _info(memory).code})),
        files=tuple(sorted({name for commit in commits for name in commit.files})),
    )


def _published(memory: Memory) -> dict[str, int]:
    """The last step that each sink has; the last commit if nothing waits.

    Removed sinks stay in it: the node refuses to abandon their output.
    """
    info = _info(memory)
    done = {sink.name: memory.step for sink in info.sinks}
    if memory.outputs:
        done |= memory.journal.published
    return done


def _info(memory: Memory) -> ProgramInfo:
    assert memory.node.report is not None, "no node was met"
    return memory.node.report.info
