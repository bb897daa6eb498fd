"""Users' requests: performed at once, queued, or refused with a reason."""

from __future__ import annotations

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    PauseSource,
    ProfileWorker,
    RescalePipeline,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
    TakeCheckpoint,
)
from anabranch.coordinator.phases import Closing, Ended, Stepping
from anabranch.coordinator.recovering import restore_parts
from anabranch.coordinator.rescaling import movable_placement
from anabranch.coordinator.stepping import cancel, is_complete, take_step_if_due
from anabranch.errors import OperationRefused
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
from anabranch.protocol.rescale_requests import RescaleRequest
from anabranch.rescale.apply_request import apply_request


def handle_request(memory: Memory, number: int, operation: Operation, now: float) -> list[Effect]:
    """Accept a request or refuse it."""
    refused = _refusal(memory, operation)
    if refused is not None:
        return [Answer(number, refused)]
    match operation:
        case StartPipeline():
            memory.paused = False
            return [Answer(number, step=memory.step)]
        case PausePipeline():
            memory.paused = True
            return [Answer(number, step=memory.step)]
        case StartSource() | PauseSource():
            told_node = memory.sources.ask(memory, operation, now)
            return [*told_node, Answer(number, step=memory.step)]
        case TakeCheckpoint():
            memory.checkpoint.ask(number)
            return []
        case LoadCheckpoint():
            memory.load.ask(number, operation)
            return []
        case RescalePipeline(asked):
            return _rescale(memory, number, asked)
        case ProfileWorker(request):
            memory.profile.ask(number, request)
            return []
        case ShutDownPipeline():
            return _stop(memory, number, operation, now)


def _refusal(memory: Memory, operation: Operation) -> Failure | None:
    match memory.phase, operation:
        case Ended(failure), _:
            why = "has failed" if failure is not None else "is over"
            return refusal(f"The pipeline {why}", "Run it again to go on.")
        case _, ShutDownPipeline():
            return None
        case Closing(), _:
            return refusal("The pipeline is being shut down", "Run it again to go on.")
    if memory.stop.request is not None:
        return refusal("The pipeline is being shut down", "Run it again to go on.")
    if isinstance(operation, StartSource | PauseSource):
        return memory.sources.refusal(operation.source)
    if isinstance(operation, TakeCheckpoint | RescalePipeline | ProfileWorker) and not memory.step:
        return refusal("There is no committed step yet", "Ask again after the first one.")
    if isinstance(operation, RescalePipeline | ProfileWorker) and memory.paused:
        # A commit answers it, and there is none during a pause.
        return refusal("The pipeline is paused", "Start it first.")
    if isinstance(operation, ProfileWorker):
        return memory.profile.refusal(memory, operation.request)
    if isinstance(operation, LoadCheckpoint):
        if memory.load.queue:
            return refusal("Another checkpoint is being loaded", "Ask again when it is.")
        return memory.load.refusal(memory, operation)
    return None


def _rescale(memory: Memory, number: int, asked: RescaleRequest) -> list[Effect]:
    try:
        memory.rescale = apply_request(memory.rescale, asked, movable_placement(memory))
    except OperationRefused as error:
        return [Answer(number, failure_of(error))]
    memory.moving.ask(number)
    return []


def _stop(memory: Memory, number: int, request: ShutDownPipeline, now: float) -> list[Effect]:
    memory.stop.ask(number, request)
    phase = memory.phase
    if request.at_once and isinstance(phase, Stepping) and phase.cancelled is None:
        return cancel(memory, phase, now)
    return []


def on_idle(memory: Memory, now: float) -> list[Effect]:
    """Continue between two steps: requests first, then the next step."""
    stays = memory.load.queue or memory.paused
    if memory.stop.request is not None or (not stays and is_complete(memory)):
        return memory.stop.advance(memory, now)
    memory.stop.restart()
    if memory.load.queue:
        return memory.load.begin(memory, now)
    return _refuse_paused(memory) if memory.paused else take_step_if_due(memory, now)


def _refuse_paused(memory: Memory) -> list[Effect]:
    """Refuse and undo the requests that missed the last step before a pause."""
    numbers = memory.moving.take_numbers()
    if numbers:
        restore_parts(memory)
    numbers += memory.profile.withdraw()
    what = "The pipeline was paused before a step could include this request"
    refused = refusal(what, "Start it, and ask again.")
    return [Answer(each, refused) for each in numbers]
