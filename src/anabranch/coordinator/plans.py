"""Plans and commits, put together from what the coordinator knows."""

from __future__ import annotations

import msgspec

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.journal_view import read_up_to
from anabranch.coordinator.memory import OPENS, Memory
from anabranch.protocol.node import (
    CommitOrder,
    OpenOrder,
    Output,
    ProgramInfo,
    StepOrder,
    StepResult,
    SweepOrder,
)
from anabranch.records.profiles import ProfileRequest
from anabranch.records.shares import members
from anabranch.records.step import Assignment, Checkpoint, Commit, Input, Plan
from anabranch.rescale.assignments import equal_shares, source_shares
from anabranch.rescale.controller import Rescale, after_commit, plan_step
from anabranch.rescale.loads import completed, from_states
from anabranch.rescale.migration import Reports
from anabranch.rescale.phases import Steady
from anabranch.rescale.step_moves import StepMoves
from anabranch.rescale.step_summary import StepMoved


def new_plan(memory: Memory, inputs: tuple[Input, ...], ending: str | None, clock_ns: int) -> Plan:
    """The plan of the next step. The clock never goes back."""
    moves = moves_of(memory) if is_moving(memory.rescale) else None
    placed = placement(memory) if moves is None else moves.placement
    return Plan(
        step=memory.step + 1,
        revision=0,
        clock_ns=max(clock_ns, memory.journal.clock_ns),
        code=_facts(memory).code,
        inputs=inputs,
        placement=placed,
        unkeyed_workers=_unkeyed(memory, placed),
        ending=ending,
        moves=moves,
        rescale=None if moves is None else memory.rescale,
        started_with=memory.settings.workers,
        profile=_profile(memory, inputs),
    )


def _profile(memory: Memory, inputs: tuple[Input, ...]) -> ProfileRequest | msgspec.UnsetType:
    """The profile that comes next: of a step without input it would tell nothing."""
    if not memory.profiles or not any(given.slices for given in inputs):
        return msgspec.UNSET
    return memory.profiles[0][1]


def revised(memory: Memory, plan: Plan) -> Plan:
    """The plan, or a revision of it that fits this run.

    What a step reads stays as it was planned; who does the work may change, and so may the code,
    which is how a function that raised is mended.
    """
    code = _facts(memory).code
    moves = moves_of(memory)
    known = {each.region: each for each in plan.placement}
    placed = tuple(_newer(each, known.get(each.region)) for each in moves.placement)
    moves = msgspec.structs.replace(moves, placement=placed)
    same = plan.placement == placed and is_ours(memory, plan)
    if plan.code == code and same:
        return plan
    # Nothing depends on a plan without a commit: what moves is planned again.
    moving = is_moving(memory.rescale)
    return msgspec.structs.replace(
        plan,
        revision=plan.revision + 1,
        code=code,
        placement=placed,
        unkeyed_workers=_unkeyed(memory, placed),
        moves=plan.moves if same else moves if moving else None,
        rescale=plan.rescale if same else memory.rescale if moving else None,
        started_with=memory.settings.workers,
    )


def is_ours(memory: Memory, plan: Plan) -> bool:
    """Whether a plan is of a run that was started with as many workers as this one."""
    return plan.started_with in (None, memory.settings.workers)


def _newer(now: Assignment, planned: Assignment | None) -> Assignment:
    """An assignment for a revision: other owners than were planned are a generation on."""
    if planned is None or planned.generation < now.generation:
        return now
    if planned.workers == now.workers:
        return planned
    return msgspec.structs.replace(now, generation=planned.generation + 1)


def where_bins_are(memory: Memory) -> tuple[Assignment, ...]:
    """Who owns which bins: by the last commit, or shared anew where others were started then."""
    commit, anew = memory.journal.commit, memory.reopened
    if commit is None:
        return ()
    return commit.placement if anew is None or commit.workers == memory.settings.workers else anew


def placement(memory: Memory) -> tuple[Assignment, ...]:
    """Who owns which bins in the next step, but for those in hand-over.

    Regions that are new get equal shares.
    """
    info, workers = _facts(memory), memory.settings.workers
    known = where_bins_are(memory)
    kept = {each.region: each for each in known}
    sources = source_shares(info.partitions, workers, known)
    made = equal_shares(info.regions, info.bins, workers, ())
    return (*(kept.get(each.region, each) for each in made), *sources)


def moves_of(memory: Memory) -> StepMoves:
    """What the next step does of a rescale, if one is under way."""
    placed = placement(memory)
    defaults = from_states(placed, memory.journal.states)
    loads = completed(memory.measured, defaults)
    return plan_step(memory.rescale, placed, loads, tuple(memory.recent), memory.settings.moving)


def is_moving(rescale: Rescale) -> bool:
    """Whether a step has anything to do of a rescale."""
    return bool(rescale.handing) or not isinstance(rescale.phase, Steady)


def rescaled(rescale: Rescale, plan: Plan, result: StepResult, seconds: float) -> Rescale:
    """How far a rescale is after the commit of a step."""
    if plan.moves is None:
        return rescale
    report = Reports(
        seconds,
        result.loads,
        result.prefetched,
        result.homes.moved_bytes,
        result.moving_seconds,
    )
    return after_commit(rescale, plan.moves, report)


def _unkeyed(memory: Memory, placed: tuple[Assignment, ...]) -> int:
    return len(members(placed)) or memory.settings.workers


def next_ending(memory: Memory) -> str | None:
    """The operator whose keys come next to their end; None when all have.

    One operator a step, in the order of the graph: what an end gives is data to those behind.
    """
    info, commit = _facts(memory), memory.journal.commit
    if commit is None:
        return None
    endings = info.endings
    place = endings.index(commit.ending) + 1 if commit.ending in endings else 0
    return endings[place] if place < len(endings) else None


def commit_for(memory: Memory, plan: Plan, result: StepResult, seconds: float) -> Commit:
    """The commit of a step that the node has run."""
    return Commit(
        step=plan.step,
        revision=plan.revision,
        clock_ns=plan.clock_ns,
        code=plan.code,
        positions=read_up_to(memory.journal.positions, plan.inputs),
        placement=plan.placement,
        states=result.states,
        staged=result.staged,
        counts=result.counts,
        published=dict(memory.published),
        ending=plan.ending,
        workers=memory.settings.workers if plan.started_with is None else plan.started_with,
        rescale=rescaled(_before(memory, plan), plan, result, seconds),
        homes=result.homes,
    )


def _before(memory: Memory, plan: Plan) -> Rescale:
    """The rescale that a plan goes on with: with what was asked since, if the plan is ours."""
    if is_ours(memory, plan):
        return memory.rescale
    if plan.rescale is not None:
        return plan.rescale
    commit = memory.journal.commit
    return Rescale() if commit is None else commit.rescale


def step_done(
    memory: Memory, result: StepResult, seconds: float, trigger: str, moved: StepMoved | None
) -> StepDone:
    """A committed step in numbers."""
    offer = None if memory.report is None else memory.report.offer
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


def commit_order(memory: Memory, commit: Commit) -> CommitOrder:
    """Tell the node that a step is committed."""
    return CommitOrder(
        step=commit.step,
        output=Output(commit.step, commit.staged),
        positions=commit.positions,
        limit=memory.limit,
        opened=memory.opened or 0,
    )


def step_order(memory: Memory, plan: Plan) -> StepOrder:
    """Let the node run a plan."""
    return StepOrder(plan, memory.opened or 0)


def open_order(memory: Memory, checkpoint: Checkpoint | None, *, rewound: bool) -> OpenOrder:
    """Open the state of the last commit; or of a checkpoint before it, to replay what follows."""
    journal = memory.journal
    memory.opens += 1
    step, clock_ns, states = journal.step, journal.clock_ns, journal.states
    if checkpoint is not None:
        step, clock_ns, states = checkpoint.step, checkpoint.clock_ns, checkpoint.states
    elif memory.replay is not None:
        step, clock_ns, states = 0, 0, ()
    return OpenOrder(
        number=memory.leader * OPENS + memory.opens,
        pipeline="" if journal.identity is None else journal.identity.pipeline,
        step=step,
        clock_ns=clock_ns,
        states=states if step else None,
        positions=journal.positions,
        pending=() if journal.plan is None else journal.plan.inputs,
        outputs=tuple(memory.outputs[number] for number in sorted(memory.outputs)),
        published=_published(memory),
        placement=tuple((each.region, each.workers) for each in placement(memory)),
        limit=memory.limit,
        whole=memory.replay is not None,
        rewound=journal.step if rewound else None,
        branch=journal.branch,
        paused=memory.paused_sources,
    )


def sweep_order(memory: Memory) -> SweepOrder | None:
    """Let the node remove what neither the last commit nor a kept checkpoint needs."""
    journal = memory.journal
    if journal.commit is None:
        return None
    checkpoints = (*journal.checkpoints, *memory.untrimmed)
    kept = [checkpoint.states for checkpoint in checkpoints]
    positions = [checkpoint.positions for checkpoint in checkpoints]
    codes = {journal.commit.code, _facts(memory).code}
    under_way = memory.checkpointing
    if under_way is not None:
        kept.append(under_way.checkpoint.states)
        positions.append(under_way.checkpoint.positions)
    return SweepOrder(
        step=journal.step,
        states=(journal.states, *kept),
        outputs=tuple(memory.outputs[number] for number in sorted(memory.outputs)),
        positions=(journal.positions, *positions),
        codes=tuple(sorted(codes)),
    )


def _published(memory: Memory) -> dict[str, int]:
    """How far each sink is known to be: at the last commit where nothing waits.

    Sinks that are gone stay in it: the node refuses to leave their output behind.
    """
    info = _facts(memory)
    done = {sink.name: memory.step for sink in info.sinks}
    if memory.outputs:
        done |= memory.journal.published
    return done


def _facts(memory: Memory) -> ProgramInfo:
    assert memory.report is not None, "no node was met"
    return memory.report.info
