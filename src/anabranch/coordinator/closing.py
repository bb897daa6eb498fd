"""How a pipeline ends: completed, shut down, or failed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.coordinator.effects import Answer, Effect, EndPipeline, Give, WritePublished
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.phases import Closing, Ended
from anabranch.protocol.node import CloseOrder, Failure


def fail_pipeline(memory: Memory, failure: Failure) -> list[Effect]:
    """Fail. Committed output is published if possible, else by the next start."""
    if isinstance(memory.phase, Ended):
        return []
    if isinstance(memory.phase, Closing):
        return end(memory, memory.phase.failure or failure)
    if memory.node.report is None:
        return end(memory, failure)
    memory.requeue_requests()
    memory.phase = Closing(memory.now, failure)
    return [Give(CloseOrder(exit=True))]


def refusal(what: str, do: str) -> Failure:
    """The failure that answers a refused request."""
    return Failure("operation.refused", what, do=do)


def needs_commit(memory: Memory) -> Failure | None:
    """The refusal of a request that makes sense only after a commit."""
    if memory.step:
        return None
    return refusal("There is no committed step yet", "Ask again after the first one.")


def needs_steps(memory: Memory) -> Failure | None:
    """The refusal of a request that a commit answers, while there are no commits."""
    return refusal("The pipeline is paused", "Start it first.") if memory.paused else None


def refuse_requests(numbers: Iterable[int], why: str) -> list[Effect]:
    """Refuse requests for a rescale."""
    failure = refusal(why, "Look at the status, and ask again.")
    return [Answer(each, failure) for each in numbers]


def deadline_failure(what: str, seconds: float) -> Failure:
    """The failure after a wait that took too long."""
    return Failure(
        "coordinator.deadline",
        f"{what} not ready after {seconds:g} seconds",
        do="Nothing committed is lost. Look at the node's log, and run the pipeline again.",
    )


def close(memory: Memory) -> list[Effect]:
    """Order the node to publish, sweep and close; ``end`` follows."""
    memory.phase = Closing(memory.now)
    return [*memory.checkpoint.sweep(memory), Give(CloseOrder(exit=True))]


def on_closed(memory: Memory, phase: Closing) -> list[Effect]:
    """End once the node has closed; if all output is published, record it."""
    ended = end(memory, phase.failure)
    if memory.step and not memory.outputs:
        return [WritePublished(memory.journal.branch, memory.step), *ended]
    return ended


def end(memory: Memory, failure: Failure | None) -> list[Effect]:
    """End the pipeline and answer all waiting requests."""
    memory.requeue_requests()
    memory.phase = Ended(failure)
    stopped = failure is None and memory.stop.request is not None
    answers = [Answer(number, failure, memory.step) for number in memory.stop.withdraw()]
    over = failure or refusal(
        "The pipeline has been shut down" if stopped else "The pipeline has completed",
        "Run it again to go on.",
    )
    waiting = [number for job in memory.jobs for number in job.withdraw()]
    return [*answers, *(Answer(number, over) for number in waiting), EndPipeline(failure)]
