"""The invariants of the coordinator's memory, checked after every event in tests."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.coordinator import phases
from anabranch.coordinator.effects import Effect, Give, WriteCommit, WritePlan
from anabranch.coordinator.event_log import EventLog, log_text
from anabranch.coordinator.memory import Memory
from anabranch.protocol.node import CommitOrder, SourcesOrder, StepOrder


class Violation(AssertionError):
    """An invariant is broken: a bug in the coordinator. The message has the log."""


def check(memory: Memory, effects: Sequence[Effect], log: EventLog) -> None:
    """Raise ``Violation`` unless every invariant holds."""
    for broken in _broken(memory, effects):
        raise Violation(f"{broken}\n" + log_text(list(log.entries)[-40:]))


def _broken(memory: Memory, effects: Sequence[Effect]) -> list[str]:
    journal, phase = memory.journal, memory.phase
    found = []
    if journal.plan is not None and journal.plan.step != journal.step + 1:
        found.append(f"plan {journal.plan.step} after commit {journal.step}")
    match phase:
        case phases.Stepping(plan, replayed=None):
            if plan != journal.plan:
                found.append(f"step {plan.step} runs without its plan in the journal")
        case phases.Stepping() | phases.Recalling() | phases.Repairing():
            if memory.replay.under_way is None:
                found.append("a step is replayed without a replay")
        case phases.Committing(plan, result):
            if (plan.step, plan.revision) != (result.step, result.revision):
                found.append(f"the result of {result.step} is committed as {plan.step}")
        case phases.Idle() if journal.plan is not None and memory.load.rewind is None:
            found.append(f"plan {journal.plan.step} is in the journal and does not run")
        case phases.Taking(step):
            if step != journal.step + 1 or journal.plan is not None:
                found.append(f"input for step {step} is taken at step {journal.step}")
        case phases.Planning(plan):
            if plan.step != journal.step + 1:
                found.append(f"step {plan.step} is planned at step {journal.step}")
    if isinstance(
        phase, phases.Idle | phases.Taking | phases.Planning | phases.Stepping | phases.Committing
    ) and (memory.node.opened is None):
        found.append(f"{type(phase).__name__} without open state")
    if memory.outputs and max(memory.outputs) > journal.step:
        found.append("output of a step that is not committed is to be published (R6)")
    waiting = memory.moving.early or any(job.queue for job in memory.jobs)
    if isinstance(phase, phases.Ended) and waiting:
        found.append("a request is unanswered after the end (R8)")
    if (
        memory.node.report is not None
        and memory.node.report.paused.number > memory.sources.paused.number
    ):
        found.append("the node applies paused sources that the coordinator does not know")
    return found + _broken_effects(memory, effects)


def _broken_effects(memory: Memory, effects: Sequence[Effect]) -> list[str]:
    found = []
    for effect in effects:
        match effect:
            case Give(StepOrder(plan)):
                if memory.replay.under_way is None and plan.step > memory.step + 1:
                    found.append(f"step {plan.step} is ordered at step {memory.step}")
            case Give(CommitOrder(step)):
                if step > memory.step:
                    found.append(f"step {step} is called committed at step {memory.step} (R5, R6)")
            case Give(SourcesOrder(paused)):
                if paused != memory.sources.paused:
                    found.append(f"an order pauses {paused}, not {memory.sources.paused}")
            case WriteCommit(_, commit):
                if commit.step != memory.step + 1:
                    found.append(f"commit {commit.step} after {memory.step}")
            case WritePlan(_, plan):
                if plan.step != memory.step + 1:
                    found.append(f"plan {plan.step} after {memory.step}")
    return found
