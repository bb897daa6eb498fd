"""Users' requests: performed at once, queued, or refused with a reason. Jobs perform them."""

from __future__ import annotations

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.operations import (
    Operation,
    PausePipeline,
    ShutDownPipeline,
    StartPipeline,
)
from anabranch.coordinator.phases import Closing, Ended
from anabranch.coordinator.recovering import restore_parts
from anabranch.coordinator.stepping import is_complete, take_step_if_due
from anabranch.protocol.node import Failure


def handle_request(memory: Memory, number: int, operation: Operation) -> list[Effect]:
    """Accept a request or refuse it."""
    refused = _refusal(memory, operation)
    if refused is not None:
        return [Answer(number, refused)]
    if isinstance(operation, StartPipeline | PausePipeline):
        memory.paused = isinstance(operation, PausePipeline)
        return [Answer(number, step=memory.step)]
    job = next(job for job in memory.jobs if isinstance(operation, job.takes))
    refused = job.refusal(memory, operation)
    return job.ask(memory, number, operation) if refused is None else [Answer(number, refused)]


def _refusal(memory: Memory, operation: Operation) -> Failure | None:
    """Why the pipeline takes no such request at all."""
    if isinstance(memory.phase, Ended):
        why = "is over" if memory.phase.failure is None else "has failed"
        return refusal(f"The pipeline {why}", "Run it again to go on.")
    ending = isinstance(memory.phase, Closing) or memory.stop.request is not None
    if ending and not isinstance(operation, ShutDownPipeline):
        return refusal("The pipeline is being shut down", "Run it again to go on.")
    return None


def on_idle(memory: Memory) -> list[Effect]:
    """Continue between two steps: requests first, then the next step."""
    stays = memory.load.queue or memory.paused
    if memory.stop.request is not None or (not stays and is_complete(memory)):
        return memory.stop.advance(memory)
    memory.stop.restart()
    if memory.load.queue:
        return memory.load.begin(memory)
    return _refuse_paused(memory) if memory.paused else take_step_if_due(memory)


def _refuse_paused(memory: Memory) -> list[Effect]:
    """Refuse and undo the requests that missed the last step before a pause."""
    numbers = memory.moving.withdraw()
    if numbers:
        restore_parts(memory)
    what = "The pipeline was paused before a step could include this request"
    refused = refusal(what, "Start it, and ask again.")
    return [Answer(each, refused) for each in (*numbers, *memory.profile.withdraw())]
