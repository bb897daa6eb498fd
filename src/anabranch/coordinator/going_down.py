"""The way to the end: a last checkpoint, then what sinks lack is waited for, then the node closes.

A checkpoint that cannot be made, and a sink that does not come on, end the pipeline with that
reason after a while. Nothing is lost by it: what is committed stays, and the next start goes on.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.coordinator import checkpointing
from anabranch.coordinator.closing import close, fail_pipeline
from anabranch.coordinator.effects import Effect
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.phases import GoingDown
from anabranch.protocol.node import Failure

TRIES = 5
"""So often the last checkpoint is tried."""


def go_down(memory: Memory, now: float) -> list[Effect]:
    """Keep a checkpoint, wait for the sinks, and close."""
    memory.verifying = None
    if memory.stopping is not None and memory.stopping.at_once:
        return close(memory, now)
    down = memory.down = _looked_at(memory, now)
    if memory.checkpointing is not None:
        return []
    if _lacks_checkpoint(memory):
        return _keep(memory, down, now)
    if not memory.outputs:
        return close(memory, now)
    if now >= down.came_on + memory.settings.deadlines.publish:
        return fail_pipeline(memory, _stuck(memory), now)
    return []


def going_down_wakes_at(memory: Memory, down: GoingDown) -> list[float]:
    """When it may go on with time alone."""
    if memory.checkpointing is not None:
        return []
    if _lacks_checkpoint(memory):
        return [] if down.failure is None else [down.again_at]
    return [down.came_on + memory.settings.deadlines.publish] if memory.outputs else []


def waiting_for(memory: Memory, down: GoingDown) -> str | None:
    """What keeps the pipeline from ending, for those who watch."""
    if memory.checkpointing is not None or _lacks_checkpoint(memory):
        tried = f"{down.tries} of {TRIES} tries have failed"
        why = "" if down.failure is None else f"; {tried}: {down.failure.what}"
        return f"the last checkpoint{why}"
    if not memory.outputs:
        return None
    sink, step = memory.slowest
    waiting = f"{len(memory.outputs)} steps to be published"
    return f"{waiting}: sink {sink!r} has published up to step {step}"


def _looked_at(memory: Memory, now: float) -> GoingDown:
    """How far it is: with state that was opened since, or a sink that came on, time begins anew."""
    down, opened, published = memory.down, memory.opened, memory.published
    if down is None:
        return GoingDown(now, opened, published, now)
    if down.opened != opened:
        return replace(down, began=now, opened=opened, published=published, came_on=now)
    if down.published != published:
        return replace(down, published=published, came_on=now)
    return down


def _lacks_checkpoint(memory: Memory) -> bool:
    return memory.step > checkpointing.last_kept(memory) and memory.replay is None


def _keep(memory: Memory, down: GoingDown, now: float) -> list[Effect]:
    """Make the last checkpoint: at once, or again after a pause, or not any more."""
    if down.failure is None:
        return checkpointing.begin(memory, now)
    if down.tries >= TRIES or now >= down.began + memory.settings.deadlines.check:
        return fail_pipeline(memory, _not_kept(down.failure), now)
    return checkpointing.begin(memory, now) if now >= down.again_at else []


def _not_kept(failure: Failure) -> Failure:
    what = f"The last checkpoint could not be kept: {failure.what}"
    return Failure(failure.code, what, failure.where, failure.do)


def _stuck(memory: Memory) -> Failure:
    sink, step = memory.slowest
    seconds = memory.settings.deadlines.publish
    return Failure(
        "coordinator.deadline",
        f"Sink {sink!r} has published nothing for {seconds:g} seconds: it has step {step}, and "
        f"{len(memory.outputs)} steps wait",
        do="Nothing is lost: their output stays staged, and the next start publishes it. See what "
        "the sink waits for.",
    )
