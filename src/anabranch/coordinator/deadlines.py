"""Every wait has an end: what is done when the node is silent, slow or gone."""

from __future__ import annotations

from dataclasses import replace

from anabranch.coordinator import (
    checkpointing,
    closing,
    going_down,
    loading,
    recovering,
    stepping,
)
from anabranch.coordinator.effects import Effect, Fetch, Give, Take
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.phases import (
    Closing,
    Idle,
    Meeting,
    Opening,
    Stepping,
    Taking,
)
from anabranch.coordinator.triggers import next_look
from anabranch.protocol.node import (
    CheckOrder,
    CommitOrder,
    Failure,
    NodeOrder,
    OpenOrder,
    SourcesOrder,
    StepOrder,
)


def on_time(memory: Memory, now: float) -> list[Effect]:
    """Do what is overdue."""
    effects = _again(memory, now)
    limits = memory.settings.deadlines
    under_way = memory.checkpointing
    if under_way is not None and now >= under_way.since + limits.check:
        late = _late("A checkpoint's files were", limits.check)
        effects += checkpointing.give_up(memory, late, now)
    overdue = _overdue(memory, now)
    return effects if overdue is None else [*effects, *overdue]


def _overdue(memory: Memory, now: float) -> list[Effect] | None:
    limits = memory.settings.deadlines
    match memory.phase:
        case Meeting(since):
            if now >= since + limits.start_node:
                return closing.fail_pipeline(memory, _late("The node was", limits.start_node), now)
            return None
        case Closing(since, failure):
            if now >= since + limits.close:
                late = _late("The node's sources and sinks were", limits.close)
                return closing.end(memory, failure or late)
            return None
        case Opening(_, since):
            if now >= since + limits.open:
                return closing.fail_pipeline(memory, _late("State was", limits.open), now)
        case Taking(_, since):
            if now >= since + limits.take:
                return recovering.replace_node(memory, now, "it does not hand out its input")
        case Stepping() as phase:
            if phase.cancelled is None and now >= phase.since + limits.step:
                return stepping.cancel(memory, phase, now)
            if phase.cancelled is not None and now >= phase.cancelled + limits.cancel:
                return recovering.replace_node(memory, now, "it does not give up a step")
        case Idle() if memory.verifying is not None:
            if now >= memory.verifying.since + limits.check:
                late = _late("A checkpoint's files were", limits.check)
                return loading.not_loaded(memory, late, now)
    if memory.report is not None and now >= memory.heard + limits.silence:
        return recovering.replace_node(memory, now, "it has not said anything")
    return None


def _again(memory: Memory, now: float) -> list[Effect]:
    """Repeat what did not reach the node."""
    if memory.again_at is None or now < memory.again_at:
        return []
    orders, memory.again, memory.again_at = memory.again, (), None
    effects: list[Effect] = [Give(order) for order in orders if _is_meant(memory, order)]
    match memory.phase:
        case Taking(step):
            effects.append(Take(step))
        case Stepping(plan, fetching=False) as phase if memory.report is not None:
            if memory.report.done is not None and memory.report.done.step == plan.step:
                memory.phase = replace(phase, fetching=True)
                effects.append(Fetch(plan.step, plan.revision))
    return effects


def _is_meant(memory: Memory, order: NodeOrder) -> bool:
    """Whether an order is still for what is open: it may have failed to arrive long ago."""
    match order:
        case OpenOrder(number):
            return isinstance(memory.phase, Opening) and memory.phase.order.number == number
        case StepOrder() | CommitOrder():
            return order.opened in (0, memory.opened)
        case CheckOrder(step, asked=asked):
            # The node checks one thing at a time: an order of before would take another's place.
            under_way = memory.checkpointing if asked is None else memory.verifying
            return under_way is not None and under_way.checkpoint.step == step
        case SourcesOrder(paused):
            return paused == memory.paused_sources
    return True


def node_lost(memory: Memory, failure: Failure, now: float) -> list[Effect]:
    """The node's process is gone: another one opens what is committed."""
    match memory.phase:
        case Closing(_, reason):
            return closing.end(memory, reason or _not_published(memory))
        case Meeting() if not failure.code.startswith("node"):
            # It told why it cannot start: another one would say the same.
            memory.report = None
            return closing.fail_pipeline(memory, failure, now)
        case _ if memory.restarts >= memory.settings.node_restarts:
            memory.report = None
            return closing.fail_pipeline(memory, failure, now)
    memory.restarts += 1
    memory.report = None
    memory.replay = None
    memory.again, memory.again_at = (), None
    if memory.stopping is not None and memory.stopping.at_once:
        return closing.end(memory, None)
    return recovering.find_node(memory, now)


def stop_at_once(memory: Memory, now: float) -> list[Effect]:
    """End without waiting for anything but a step that is being cancelled."""
    match memory.phase:
        case Stepping(cancelled=None) as phase:
            return stepping.cancel(memory, phase, now)
        case Meeting() | Opening() | Taking():
            return closing.close(memory, now) if memory.report else closing.end(memory, None)
    return []


def wakes_at(memory: Memory) -> float | None:
    """When something may be overdue, or a trigger's time comes."""
    limits = memory.settings.deadlines
    times: list[float] = []
    match memory.phase:
        case Meeting(since):
            times.append(since + limits.start_node)
        case Closing(since):
            times.append(since + limits.close)
        case Opening(_, since):
            times.append(since + limits.open)
        case Taking(_, since):
            times.append(since + limits.take)
        case Stepping(_, since, cancelled=None):
            times.append(since + limits.step)
        case Stepping(cancelled=float(cancelled)):
            times.append(cancelled + limits.cancel)
        case Idle() if memory.verifying is not None:
            times.append(memory.verifying.since + limits.check)
        case Idle() if memory.down is not None:
            times += going_down.going_down_wakes_at(memory, memory.down)
        case Idle():
            look = next_look(stepping.waiting(memory), memory.settings)
            if look is not None and _looks_for_step(memory):
                times.append(look)
    if memory.report is not None and not isinstance(memory.phase, Meeting | Closing):
        times.append(memory.heard + limits.silence)
    if memory.again_at is not None:
        times.append(memory.again_at)
    if memory.checkpointing is not None:
        times.append(memory.checkpointing.since + limits.check)
    elif memory.opened is not None and checkpointing.may_come(memory):
        times.append(checkpointing.comes_at(memory))
    return min(times, default=None)


def _looks_for_step(memory: Memory) -> bool:
    """Whether a step is taken between two as soon as there is a reason for one."""
    otherwise = memory.paused or memory.loads or memory.stopping is not None
    return not otherwise and not stepping.is_complete(memory) and stepping.blocked(memory) is None


def _late(what: str, seconds: float) -> Failure:
    return Failure(
        "coordinator.deadline",
        f"{what} not ready after {seconds:g} seconds",
        do="Nothing committed is lost. Look at the node's log, and run the pipeline again.",
    )


def _not_published(memory: Memory) -> Failure | None:
    if not memory.outputs:
        return None
    return Failure(
        "node.unreachable",
        f"The node ended with {len(memory.outputs)} steps of output unpublished",
        do="Nothing is lost. Run the pipeline again: it publishes them.",
    )
