"""What users ask for: done at once, queued, or refused with the reason."""

from __future__ import annotations

from anabranch.coordinator import loading, pausing, profiling
from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Answer, Effect
from anabranch.coordinator.going_down import go_down
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.operations import (
    Load,
    Operation,
    Pause,
    PauseSource,
    Profile,
    Rescaling,
    Shutdown,
    Start,
    StartSource,
    TakeCheckpoint,
)
from anabranch.coordinator.phases import Closing, Ended, Stepping
from anabranch.coordinator.recovering import as_committed
from anabranch.coordinator.rescaling import bins_to_move
from anabranch.coordinator.stepping import cancel, is_complete, look_for_step
from anabranch.errors import OperationRefused
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
from anabranch.protocol.rescale_requests import Request
from anabranch.rescale.apply_request import request


def on_asked(memory: Memory, number: int, operation: Operation, now: float) -> list[Effect]:
    """Take a wish, or refuse it."""
    refused = _refused(memory, operation)
    if refused is not None:
        return [Answer(number, refused)]
    match operation:
        case Start():
            memory.paused = False
            return [Answer(number, step=memory.step)]
        case Pause():
            memory.paused = True
            return [Answer(number, step=memory.step)]
        case StartSource() | PauseSource():
            told_node = pausing.heed(memory, operation, now)
            return [*told_node, Answer(number, step=memory.step)]
        case TakeCheckpoint():
            memory.checkpoint_numbers = (*memory.checkpoint_numbers, number)
            return []
        case Load():
            memory.loads.append((number, operation))
            return []
        case Rescaling(asked):
            return _rescale(memory, number, asked)
        case Profile(wish):
            memory.profiles = (*memory.profiles, (number, wish))
            return []
        case Shutdown():
            memory.stop_numbers = (*memory.stop_numbers, number)
            return _stop(memory, operation, now)


def _refused(memory: Memory, operation: Operation) -> Failure | None:
    match memory.phase, operation:
        case Ended(failure), _:
            why = "has failed" if failure is not None else "is over"
            return refusal(f"The pipeline {why}", "Run it again to go on.")
        case _, Shutdown():
            return None
        case Closing(), _:
            return refusal("The pipeline is being shut down", "Run it again to go on.")
    if memory.stopping is not None:
        return refusal("The pipeline is being shut down", "Run it again to go on.")
    if isinstance(operation, StartSource | PauseSource):
        return pausing.unfit(memory, operation.source)
    if isinstance(operation, TakeCheckpoint | Rescaling | Profile) and not memory.step:
        return refusal("There is no committed step yet", "Ask again after the first one.")
    if isinstance(operation, Rescaling | Profile) and memory.paused:
        # It is answered by a commit, and a pause makes none.
        return refusal("The pipeline is paused", "Start it first.")
    if isinstance(operation, Profile):
        return profiling.unfit(memory, operation.wish)
    if isinstance(operation, Load):
        if memory.loads:
            return refusal("Another checkpoint is being loaded", "Ask again when it is.")
        return loading.unfit(memory, operation)
    return None


def _rescale(memory: Memory, number: int, asked: Request) -> list[Effect]:
    try:
        memory.rescale = request(memory.rescale, asked, bins_to_move(memory))
    except OperationRefused as error:
        return [Answer(number, failure_of(error))]
    memory.rescale_numbers = (*memory.rescale_numbers, number)
    return []


def _stop(memory: Memory, wish: Shutdown, now: float) -> list[Effect]:
    if memory.stopping is None or wish.at_once:
        memory.stopping = wish
    phase = memory.phase
    if wish.at_once and isinstance(phase, Stepping) and phase.cancelled is None:
        return cancel(memory, phase, now)
    return []


def on_idle(memory: Memory, now: float) -> list[Effect]:
    """Between two steps: what was asked for comes first, then the next step."""
    stays = memory.loads or memory.paused
    if memory.stopping is not None or (not stays and is_complete(memory)):
        return go_down(memory, now)
    memory.down = None
    if memory.loads:
        return loading.load(memory, now)
    return _not_heard(memory) if memory.paused else look_for_step(memory, now)


def _not_heard(memory: Memory) -> list[Effect]:
    """Tell who has asked too late for the step before a pause; nothing is left of it.

    No commit that could answer comes in a pause.
    """
    numbers, memory.rescale_numbers = memory.rescale_numbers, ()
    if numbers:
        as_committed(memory)
    numbers += tuple(number for number, _ in memory.profiles)
    memory.profiles = ()
    what = "The pipeline was paused before a step could take note of this request"
    refused = refusal(what, "Start it, and ask again.")
    return [Answer(each, refused) for each in numbers]
