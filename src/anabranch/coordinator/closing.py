"""How a pipeline ends: completed, shut down, or failed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.coordinator.effects import Answer, Effect, EndPipeline, Give, WritePublished
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.phases import Closing, Ended
from anabranch.coordinator.plans import sweep_order
from anabranch.protocol.node import CloseOrder, Failure, NodeOrder


def fail_pipeline(memory: Memory, failure: Failure, now: float) -> list[Effect]:
    """Fail. Committed output is published if possible, else by the next start."""
    if isinstance(memory.phase, Ended):
        return []
    if isinstance(memory.phase, Closing):
        return end(memory, memory.phase.failure or failure)
    if memory.node.report is None:
        return end(memory, failure)
    memory.requeue_requests()
    memory.phase = Closing(now, failure)
    return [Give(CloseOrder(exit=True))]


def refusal(what: str, do: str) -> Failure:
    """The failure that answers a refused request."""
    return Failure("operation.refused", what, do=do)


def refuse_requests(numbers: Iterable[int], why: str) -> list[Effect]:
    """Refuse requests for a rescale."""
    failure = Failure("operation.refused", why, do="Look at the status, and ask again.")
    return [Answer(each, failure) for each in numbers]


def refuse_waiting(memory: Memory, why: str) -> list[Effect]:
    """Refuse all requests for a rescale that no plan includes."""
    return refuse_requests(memory.moving.take_numbers(), why)


def deadline_failure(what: str, seconds: float) -> Failure:
    """The failure after a wait that took too long."""
    return Failure(
        "coordinator.deadline",
        f"{what} not ready after {seconds:g} seconds",
        do="Nothing committed is lost. Look at the node's log, and run the pipeline again.",
    )


def close(memory: Memory, now: float) -> list[Effect]:
    """Order the node to publish, sweep and close; ``end`` follows."""
    memory.phase = Closing(now)
    swept = sweep_order(memory)
    orders: list[NodeOrder] = [] if swept is None else [swept]
    return [Give(order) for order in [*orders, CloseOrder(exit=True)]]


def on_closed(memory: Memory, phase: Closing) -> list[Effect]:
    """End once the node has closed; if all output is published, record it."""
    effects: list[Effect] = []
    if memory.step and not memory.outputs:
        effects.append(WritePublished(memory.journal.branch, memory.step))
    return [*effects, *end(memory, phase.failure)]


def end(memory: Memory, failure: Failure | None) -> list[Effect]:
    """End the pipeline and answer all waiting requests."""
    memory.requeue_requests()
    memory.phase = Ended(failure)
    stopped = failure is None and memory.stop.request is not None
    answers = [Answer(number, failure, memory.step) for number in memory.stop.withdraw()]
    over = failure or Failure(
        "operation.refused",
        "The pipeline has been shut down" if stopped else "The pipeline has completed",
        do="Run it again to go on.",
    )
    waiting = [number for job in memory.jobs for number in job.withdraw()]
    waiting += memory.moving.take_numbers()
    return [*answers, *(Answer(number, over) for number in waiting), EndPipeline(failure)]
