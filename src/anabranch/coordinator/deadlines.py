"""Deadlines: what happens when the node is silent, slow or gone. Every wait has one."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from anabranch.coordinator import closing, recovering, stepping
from anabranch.coordinator.closing import deadline_failure
from anabranch.coordinator.effects import Effect, Fetch, Give, Take
from anabranch.coordinator.events import TimePassed
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.outlook import wait_context
from anabranch.coordinator.phases import Closing, Idle, Meeting, Opening, Stepping, Taking
from anabranch.coordinator.triggers import next_trigger_at
from anabranch.protocol.node import (
    CheckOrder,
    CommitOrder,
    Failure,
    NodeOrder,
    OpenOrder,
    SourcesOrder,
    StepOrder,
)


def handle_overdue(memory: Memory) -> list[Effect]:
    """Repeat orders that are due, and act on missed deadlines."""
    effects = _repeat_orders(memory)
    effects += memory.checkpoint.handle(memory, TimePassed())
    return effects + _overdue(memory)


def _overdue(memory: Memory) -> list[Effect]:
    deadline, silence = _phase_deadline(memory), _silence_deadline(memory)
    if deadline is not None and memory.now >= deadline[0]:
        return deadline[1]()
    if isinstance(memory.phase, Idle) and (refused := memory.load.handle(memory, TimePassed())):
        return refused
    if silence is not None and memory.now >= silence:
        return recovering.replace_node(memory, "it has not reported anything")
    return []


def _phase_deadline(memory: Memory) -> tuple[float, Callable[[], list[Effect]]] | None:
    """Until when the phase may last, and what follows."""
    limits = memory.settings.deadlines

    def fail(what: str, seconds: float) -> list[Effect]:
        return closing.fail_pipeline(memory, deadline_failure(what, seconds))

    def replace_node(why: str) -> list[Effect]:
        return recovering.replace_node(memory, why)

    match memory.phase:
        case Meeting(since):
            return since + limits.start_node, lambda: fail("The node was", limits.start_node)
        case Closing(since):
            what = "The node's sources and sinks were"
            return since + limits.close, lambda: fail(what, limits.close)
        case Opening() if memory.taking_back:
            return None  # the sink's Retry says how long it may take
        case Opening(_, since):
            return since + limits.open, lambda: fail("State was", limits.open)
        case Taking(_, since):
            return since + limits.take, lambda: replace_node("it does not hand out its input")
        case Stepping(_, since, cancelled=None) as phase:
            return since + limits.step, lambda: stepping.cancel(memory, phase)
        case Stepping(cancelled=float(cancelled)):
            return cancelled + limits.cancel, lambda: replace_node("it does not cancel a step")
    return None


def _silence_deadline(memory: Memory) -> float | None:
    if memory.node.report is None or isinstance(memory.phase, Meeting | Closing):
        return None
    return memory.node.heard + memory.settings.deadlines.silence


def _repeat_orders(memory: Memory) -> list[Effect]:
    """Repeat the calls that did not reach the node."""
    orders = memory.node.take_repeats(memory.now)
    if orders is None:
        return []
    effects: list[Effect] = [Give(order) for order in orders if _is_current(memory, order)]
    match memory.phase:
        case Taking(step):
            effects.append(Take(step))
        case Stepping(plan, fetching=False) as phase if memory.node.report is not None:
            if memory.node.report.done is not None and memory.node.report.done.step == plan.step:
                memory.phase = replace(phase, fetching=True)
                effects.append(Fetch(plan.step, plan.revision))
    return effects


def _is_current(memory: Memory, order: NodeOrder) -> bool:
    """Whether an undelivered order still applies to what is open."""
    match order:
        case OpenOrder(number):
            return isinstance(memory.phase, Opening) and memory.phase.order.number == number
        case StepOrder() | CommitOrder():
            return order.opened in (0, memory.node.opened)
        case CheckOrder(step, asked=asked):
            # The node runs one check at a time: an outdated order would replace the current one.
            under_way = memory.checkpoint.under_way if asked is None else memory.load.verifying
            return under_way is not None and under_way.checkpoint.step == step
        case SourcesOrder(paused):
            return paused == memory.sources.paused
    return True


def node_lost(memory: Memory, failure: Failure) -> list[Effect]:
    """Start another node after one was lost, unless that is hopeless."""
    memory.node.lost = failure
    if isinstance(memory.phase, Closing):
        return closing.end(memory, memory.phase.failure or _not_published(memory))
    # If it reported why it cannot start, another one would fail the same way.
    hopeless = isinstance(memory.phase, Meeting) and not failure.code.startswith("node")
    if hopeless or memory.node.restarts >= memory.settings.node_restarts:
        memory.node.report = None
        return closing.fail_pipeline(memory, failure)
    memory.node.restarts += 1
    memory.node.forget()
    if memory.stop.at_once:
        return closing.end(memory, None)
    return recovering.find_node(memory)


def stop_at_once(memory: Memory) -> list[Effect]:
    """End without waiting, except for a step that is being cancelled."""
    match memory.phase:
        case Stepping(cancelled=None) as phase:
            return stepping.cancel(memory, phase)
        case Meeting() | Opening() | Taking():
            return closing.close(memory) if memory.node.report else closing.end(memory, None)
    return []


def wakes_at(memory: Memory) -> float | None:
    """The time of the next deadline, retry or trigger."""
    deadline = _phase_deadline(memory)
    found = [_silence_deadline(memory), memory.node.again_at, deadline and deadline[0]]
    if isinstance(memory.phase, Idle) and _may_step(memory):
        found.append(next_trigger_at(stepping.pending_input(memory), memory.settings))
    times = [time for time in found if time is not None]
    times += [time for job in memory.jobs for time in job.wakes_at(memory)]
    times += memory.parts.wakes_at(wait_context(memory))
    return min(times, default=None)


def _may_step(memory: Memory) -> bool:
    if memory.load.verifying is not None or memory.stop.down is not None:
        return False
    if memory.paused or memory.load.queue or memory.stop.request is not None:
        return False
    return not stepping.is_complete(memory) and stepping.backpressure(memory) is None


def _not_published(memory: Memory) -> Failure | None:
    if not memory.outputs:
        return None
    return Failure(
        "node.unreachable",
        f"The node ended with {len(memory.outputs)} steps of output unpublished",
        do="Nothing is lost. Run the pipeline again: it publishes them.",
    )
