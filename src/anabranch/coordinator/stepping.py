"""One step after the other: a reason, input, plan, run, commit."""

from __future__ import annotations

from dataclasses import replace

from anabranch.coordinator.closing import close, fail_pipeline, refuse, refuse_waiting
from anabranch.coordinator.effects import Announce, Answer, Effect, Fetch, Give, Take, WriteCommit
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.parts.port import CommitContext
from anabranch.coordinator.parts.rescale import rescale_of
from anabranch.coordinator.phases import Committing, Idle, Planning, Stepping, Taking
from anabranch.coordinator.plans import (
    commit_for,
    commit_order,
    is_ours,
    new_plan,
    next_ending,
    step_done,
    step_order,
)
from anabranch.coordinator.recovering import (
    as_committed,
    reopen,
    share_anew,
    start_plan,
)
from anabranch.coordinator.starting import LOST_STATE
from anabranch.coordinator.triggers import PendingInput, Trigger, why_step
from anabranch.protocol.node import (
    CancelOrder,
    Done,
    Failure,
    NodeReport,
    Offer,
    Open,
    Output,
    StepResult,
)
from anabranch.records.commit import Commit
from anabranch.records.plan import Input, Plan
from anabranch.rescale.loads import update_loads
from anabranch.rescale.step_moves import moves_of
from anabranch.rescale.step_summary import moved_in

SWEEP_EVERY = 16


def offer_of(memory: Memory) -> Offer | None:
    """What waits for the next step, as far as the node has told."""
    report = memory.node.report
    if report is None or report.opened != memory.node.opened or report.offer is None:
        return None
    return report.offer if report.offer.step == memory.step + 1 else None


def waiting(memory: Memory) -> PendingInput:
    """What there is to do."""
    offer = offer_of(memory)
    # Whoever asked for a rescale, or for a pause of it, waits for a commit that knows of it.
    asked = bool(memory.moving.numbers) or memory.parts.pending(memory.now)
    work = asked or (_exhausted(offer) and next_ending(memory) is not None)
    return PendingInput(offer, memory.pace.first_at, memory.pace.last_step_at, work)


def is_complete(memory: Memory) -> bool:
    """Whether all input has come and was worked on to its end."""
    return (
        _exhausted(offer_of(memory))
        and memory.journal.plan is None
        and next_ending(memory) is None
        and not memory.parts.pending(memory.now)
    )


def _exhausted(offer: Offer | None) -> bool:
    """Whether no input waits, and none will ever come."""
    return offer is not None and offer.ended and not offer.rows


def blocked(memory: Memory) -> str | None:
    """Backpressure: why no step may be planned although there is a reason for one."""
    settings = memory.settings
    size = sum(file.bytes for out in memory.outputs.values() for file in out.staged)
    if len(memory.outputs) < settings.max_unpublished_steps and (
        not memory.outputs or size < settings.max_unpublished_bytes
    ):
        return None
    sink, step = memory.slowest
    return (
        f"sink {sink!r} has published up to step {step}: {len(memory.outputs)} steps "
        f"and {size} bytes wait for it"
    )


def look_for_step(memory: Memory, now: float) -> list[Effect]:
    """Take a step if there is a reason to."""
    if blocked(memory) is not None:
        return []
    trigger = why_step(waiting(memory), memory.settings, now)
    if trigger is None:
        return []
    memory.phase = Taking(memory.step + 1, now, trigger)
    return [Take(memory.step + 1)]


def on_input(
    memory: Memory, phase: Taking, inputs: tuple[Input, ...], now: float, clock_ns: int
) -> list[Effect]:
    """The input is fixed: make a plan."""
    reads = any(given.slices for given in inputs)
    # The end waits for what has come since, and for bins that are on their way.
    ends = phase.trigger is Trigger.WORK and not reads and not memory.parts.pending(memory.now)
    ending = next_ending(memory) if ends and _exhausted(offer_of(memory)) else None
    if phase.trigger is Trigger.WORK and not reads:
        clock_ns = memory.journal.clock_ns
    plan = new_plan(memory, inputs, ending, clock_ns)
    return start_plan(memory, plan, phase.trigger, now)


def on_plan(memory: Memory, phase: Planning, plan: Plan, now: float) -> list[Effect]:
    """A plan is durable: perhaps another one than ours, of whoever was first."""
    memory.journal = replace(memory.journal, plan=plan)
    memory.pace.first_at = None
    memory.pace.last_step_at = now
    return start_plan(memory, plan, phase.trigger, now)


def step_on_report(memory: Memory, phase: Stepping, report: NodeReport, now: float) -> list[Effect]:
    """The node has told something while a step was under way."""
    plan = phase.plan
    if report.done == Done(plan.step, plan.revision):
        if phase.fetching:
            return []
        memory.phase = replace(phase, fetching=True)
        return [Fetch(plan.step, plan.revision)]
    failed = report.failed_step
    if failed is not None and (failed.step, failed.revision) == (plan.step, plan.revision):
        return _failed(memory, phase, failed.failure, now)
    return _give_again(memory, phase, report, now)


def _give_again(memory: Memory, phase: Stepping, report: NodeReport, now: float) -> list[Effect]:
    """Repeat the order if the node shows no sign of having got it."""
    seconds = 4 * memory.settings.deadlines.again
    if report.state != Open(phase.plan.step - 1) or now < max(phase.since, phase.given) + seconds:
        return []
    memory.phase = replace(phase, given=now)
    commit = memory.journal.commit
    again: list[Effect] = [Give(step_order(memory, phase.plan))]
    if commit is not None and phase.replayed is None:
        again.insert(0, Give(commit_order(memory, commit)))
    return again


def on_result(memory: Memory, phase: Stepping, result: StepResult, now: float) -> list[Effect]:
    """The step has run: commit it."""
    if phase.replayed is not None:
        return memory.replay.on_result(memory, phase.replayed, result, now)
    seconds, numbers = now - phase.since, memory.moving.take_numbers()
    memory.phase = Committing(phase.plan, result, phase.since, phase.trigger, seconds, numbers)
    commit = commit_for(memory, phase.plan, result, seconds)
    return [WriteCommit(memory.journal.branch, commit)]


def on_commit(
    memory: Memory, phase: Committing, commit: Commit, ours: bool, now: float
) -> list[Effect]:
    """A step is committed."""
    journal = memory.journal
    answers = _answers(memory, phase, commit, ours)
    answers += memory.profile.on_commit(phase.plan, phase.result)
    memory.journal = replace(
        journal,
        commit=commit,
        states=commit.states,
        plan=None,
        published=memory.published,
        rewound=False,
    )
    if commit.staged:
        memory.outputs[commit.step] = Output(commit.step, commit.staged, journal.branch)
    if not ours and commit.states != phase.result.states:
        # Somebody else's attempt counts: the node must go on from that one.
        as_committed(memory)
        return [*answers, *reopen(memory, now)]
    _heed_parts(memory, phase, commit, ours)
    if commit.workers != memory.settings.workers:
        share_anew(memory)
    before, after = rescale_of(journal.commit).history, rescale_of(commit).history
    moved = moved_in(moves_of(phase.plan), before, after)
    done = step_done(memory, phase.result, now - phase.since, phase.trigger, moved)
    offer = offer_of(memory)
    memory.pace.batch.observe(done.rows, done.seconds, filled=offer is not None and offer.rows > 0)
    memory.node.restarts = 0
    memory.stats.add(done, phase.trigger)
    memory.phase = Idle()
    effects: list[Effect] = [Give(commit_order(memory, commit)), Announce(done), *answers]
    if commit.step >= memory.checkpoint.swept + SWEEP_EVERY:
        effects += memory.checkpoint.sweep(memory)
    return effects


def _answers(memory: Memory, phase: Committing, commit: Commit, ours: bool) -> list[Effect]:
    """Answer who has asked for a rescale.

    Nobody who asked here is in a commit that somebody else has written, nor in that of a step which
    was planned for another number of workers: bins are shared anew after it.
    """
    if ours and is_ours(memory, phase.plan):
        return [Answer(each, None, commit.step) for each in phase.numbers]
    why = "The step that was committed is another coordinator's, without this request"
    return [*refuse(phase.numbers, why), *refuse_waiting(memory, why)]


def _heed_parts(memory: Memory, phase: Committing, commit: Commit, ours: bool) -> None:
    """Take over the committed parts; a request may have come since the commit was written."""
    result = phase.result
    if ours:
        context = CommitContext(phase.plan, result, phase.seconds)
        memory.parts = memory.parts.after_commit(context)
    else:
        memory.parts = memory.parts.from_commit(commit)
    memory.moving.measured = update_loads(memory.moving.measured, result.loads)


def cancel(memory: Memory, phase: Stepping, now: float) -> list[Effect]:
    """Give up the step that runs."""
    memory.phase = replace(phase, cancelled=now)
    return [Give(CancelOrder(phase.plan.step))]


def _failed(memory: Memory, phase: Stepping, failure: Failure, now: float) -> list[Effect]:
    if failure.code in LOST_STATE:
        return memory.replay.begin(memory, failure, now)
    if failure.code == "step.cancelled":
        if phase.cancelled is None:
            # By a coordinator that is gone: nobody who is here wants that.
            return reopen(memory, now)
        if memory.stop.request is not None:
            return close(memory, now)
        failure = Failure(
            "step.timeout",
            f"Step {phase.plan.step} was not over after {memory.settings.deadlines.step:g} seconds",
            do="It was cancelled; its plan stays and runs again on restart. See Spark's log for "
            "what it was doing, or allow more time: anabranch run --step-seconds, or "
            "Settings(deadlines=Deadlines(step=...)).",
        )
    return fail_pipeline(memory, failure, now)
