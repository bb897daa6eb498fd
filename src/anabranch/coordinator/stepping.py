"""The cycle of a step: trigger, input, plan, run, commit."""

from __future__ import annotations

from dataclasses import replace as replace_fields

from msgspec.structs import replace

from anabranch.coordinator import plans
from anabranch.coordinator.closing import close, fail_pipeline, refuse_requests
from anabranch.coordinator.effects import Announce, Answer, Effect, Fetch, Give, Take, WriteCommit
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.outlook import latest_clock, next_offer, step_outlook, wait_context
from anabranch.coordinator.parts.port import CommitContext
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.phases import Committing, Idle, Planning, Stepping, Taking
from anabranch.coordinator.recovering import reassign_bins, reopen, restore_parts, start_plan
from anabranch.coordinator.starting import LOST_STATE
from anabranch.coordinator.triggers import PendingInput, Trigger, step_trigger
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
from anabranch.rescale.moved_counts import moved_in
from anabranch.rescale.step_moves import moves_of

SWEEP_EVERY = 16


def pending_input(memory: Memory) -> PendingInput:
    """What waits for a step."""
    offer = next_offer(memory)
    # Requests for a rescale wait for a commit that includes them.
    work = bool(memory.moving.queue) or memory.parts.pending(wait_context(memory))
    return PendingInput(offer, memory.pace.first_at, memory.pace.last_step_at, work)


def is_complete(memory: Memory) -> bool:
    """Whether all input has ended and is fully processed."""
    return (
        _exhausted(next_offer(memory))
        and memory.journal.plan is None
        and not memory.parts.pending(wait_context(memory))
    )


def _exhausted(offer: Offer | None) -> bool:
    return offer is not None and offer.ended and not offer.rows


def backpressure(memory: Memory) -> str | None:
    """Why no step may be planned: sinks are too far behind. None if they are not."""
    settings = memory.settings
    size = sum(file.bytes for out in memory.outputs.values() for file in out.staged)
    if len(memory.outputs) < settings.max_unpublished_steps and (
        not memory.outputs or size < settings.max_unpublished_bytes
    ):
        return None
    return f"{len(memory.outputs)} steps and {size} bytes to be published: {memory.slowest_text}"


def take_step_if_due(memory: Memory) -> list[Effect]:
    """Take the input of the next step if a trigger fires."""
    if backpressure(memory) is not None:
        return []
    trigger = step_trigger(pending_input(memory), memory.settings, memory.now)
    if trigger is None:
        return []
    memory.phase = Taking(memory.step + 1, memory.now, trigger, memory.clock_ns)
    return [Take(memory.step + 1)]


def on_input(memory: Memory, phase: Taking, inputs: tuple[Input, ...]) -> list[Effect]:
    """Plan a step with its input."""
    clock_ns = latest_clock(memory)
    outlook = step_outlook(memory, inputs, clock_ns, phase.clock_ns)
    if phase.trigger is Trigger.WORK and not any(given.slices for given in inputs):
        before_ns = memory.journal.clock_ns
        context = replace_fields(wait_context(memory), outlook=outlook)
        # Whatever is inserted between steps with input must not make time pass.
        if not memory.parts.needs_clock(context, before_ns // 1000):
            clock_ns, outlook = before_ns, replace_fields(outlook, clock_us=before_ns // 1000)
    return start_plan(memory, plans.new_plan(memory, inputs, clock_ns, outlook), phase.trigger)


def on_plan(memory: Memory, phase: Planning, plan: Plan) -> list[Effect]:
    """Run a durable plan, ours or one that was written first."""
    memory.journal = replace(memory.journal, plan=plan)
    memory.pace.first_at = None
    memory.pace.last_step_at = memory.now
    return start_plan(memory, plan, phase.trigger)


def step_on_report(memory: Memory, phase: Stepping, report: NodeReport) -> list[Effect]:
    """Handle a report while a step runs."""
    plan = phase.plan
    if report.done == Done(plan.step, plan.revision):
        if phase.fetching:
            return []
        memory.phase = replace(phase, fetching=True)
        return [Fetch(plan.step, plan.revision)]
    failed = report.failed_step
    if failed is not None and (failed.step, failed.revision) == (plan.step, plan.revision):
        return _on_failure(memory, phase, failed.failure)
    return _repeat_order(memory, phase, report)


def _repeat_order(memory: Memory, phase: Stepping, report: NodeReport) -> list[Effect]:
    """Repeat the order if the node does not seem to have received it."""
    again_at = max(phase.since, phase.given) + 4 * memory.settings.deadlines.again
    if report.state != Open(phase.plan.step - 1) or memory.now < again_at:
        return []
    memory.phase = replace(phase, given=memory.now)
    commit = memory.journal.commit
    again: list[Effect] = [Give(plans.step_order(memory, phase.plan))]
    if commit is not None and phase.replayed is None:
        again.insert(0, Give(plans.commit_order(memory, commit)))
    return again


def on_result(memory: Memory, phase: Stepping, result: StepResult) -> list[Effect]:
    """Commit a step that has run."""
    if phase.replayed is not None:
        return memory.replay.on_result(memory, phase.replayed, result)
    seconds, asked = memory.now - phase.since, tuple(memory.moving.queue)
    memory.moving.take_queue()
    memory.phase = Committing(phase.plan, result, phase.since, phase.trigger, seconds, asked)
    commit = plans.new_commit(memory, phase.plan, result, seconds)
    return [WriteCommit(memory.journal.branch, commit)]


def on_commit(memory: Memory, phase: Committing, commit: Commit, ours: bool) -> list[Effect]:
    """Continue after a commit."""
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
    recorded = min(commit.published.values(), default=commit.step)
    waiting = memory.unrecorded | memory.outputs
    memory.unrecorded = {step: output for step, output in waiting.items() if step > recorded}
    if not ours and commit.states != phase.result.states:
        # Another coordinator's attempt was committed: the node must continue from that one.
        restore_parts(memory)
        return [*answers, *reopen(memory)]
    _adopt_parts(memory, phase, commit, ours)
    if commit.workers != memory.workers:
        reassign_bins(memory)
    before, after = RESCALE.of(journal.commit).history, RESCALE.of(commit).history
    moved = moved_in(moves_of(phase.plan), before, after)
    done = plans.step_done(memory, phase.result, memory.now - phase.since, phase.trigger, moved)
    offer = next_offer(memory)
    memory.pace.batch.observe(done.rows, done.seconds, filled=offer is not None and offer.rows > 0)
    memory.node.restarts = 0
    memory.stats.add(done, phase.trigger)
    memory.phase = Idle()
    effects: list[Effect] = [Give(plans.commit_order(memory, commit)), Announce(done), *answers]
    if commit.step >= memory.checkpoint.swept + SWEEP_EVERY:
        effects += memory.checkpoint.sweep(memory)
    return effects


def _answers(memory: Memory, phase: Committing, commit: Commit, ours: bool) -> list[Effect]:
    """Answer requests for a rescale.

    Another coordinator's commit does not include them, nor does a step that was planned for another
    number of workers, after which bins are reassigned.
    """
    numbers = [number for number, _ in phase.requests]
    if ours and plans.is_ours(memory, phase.plan):
        return [Answer(each, None, commit.step) for each in numbers]
    why = "The step that was committed is another coordinator's, without this request"
    return refuse_requests([*numbers, *memory.moving.take_queue()], why)


def _adopt_parts(memory: Memory, phase: Committing, commit: Commit, ours: bool) -> None:
    """Update the parts after a commit; they keep requests that came after its plan."""
    result = phase.result
    if ours:
        context = CommitContext(phase.plan, result, phase.seconds)
        memory.parts = memory.parts.after_commit(context)
    else:
        memory.parts = memory.parts.from_commit(commit)
    memory.moving.measured = update_loads(memory.moving.measured, result.loads)


def cancel(memory: Memory, phase: Stepping) -> list[Effect]:
    """Cancel the running step."""
    memory.phase = replace(phase, cancelled=memory.now)
    return [Give(CancelOrder(phase.plan.step))]


def _on_failure(memory: Memory, phase: Stepping, failure: Failure) -> list[Effect]:
    if failure.code in LOST_STATE:
        return memory.replay.begin(memory, failure)
    if failure.code == "step.cancelled":
        if phase.cancelled is None:
            # An earlier coordinator cancelled it, not this one.
            return reopen(memory)
        if memory.stop.request is not None:
            return close(memory)
        failure = Failure(
            "step.timeout",
            f"Step {phase.plan.step} was not over after {memory.settings.deadlines.step:g} seconds",
            do="It was cancelled; its plan stays and runs again on restart. See Spark's log for "
            "what it was doing, or allow more time: anabranch run --step-seconds, or "
            "Settings(deadlines=Deadlines(step=...)).",
        )
    return fail_pipeline(memory, failure)
