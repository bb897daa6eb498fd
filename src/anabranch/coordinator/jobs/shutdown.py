"""Shutting down: a last checkpoint, then sinks get what they lack, then the node closes.

A checkpoint that cannot be made, and a sink that does not come on, end the pipeline with that
reason after a while. Nothing is lost by it: what is committed stays, and the next start goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.coordinator.closing import close, fail_pipeline
from anabranch.coordinator.effects import Effect
from anabranch.coordinator.events import Event
from anabranch.coordinator.operations import ShutDownPipeline
from anabranch.coordinator.phases import Idle
from anabranch.protocol.node import Failure

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

TRIES = 5
"""So often the last checkpoint is tried."""


@dataclass(frozen=True, slots=True)
class GoingDown:
    """The pipeline is on its way to the end: a checkpoint is kept, then sinks get what they lack.

    ``began`` is when, with the state that the order ``opened``. ``came_on`` is when a sink has come
    on last, ``published`` how far each was then. ``tries`` checkpoints could not be made, the last
    of them for the reason ``failure``; the next one is made at ``again_at``.
    """

    began: float
    opened: int | None
    published: dict[str, int]
    came_on: float
    tries: int = 0
    failure: Failure | None = None
    again_at: float = 0.0


@dataclass(slots=True)
class ShutdownJob:
    """Who asked for the end, and how far the way there is."""

    request: ShutDownPipeline | None = None
    numbers: tuple[int, ...] = ()
    #: how far it is, while nothing but that is left to do
    down: GoingDown | None = None

    @property
    def at_once(self) -> bool:
        """Whether the pipeline is to end without waiting for anything."""
        return self.request is not None and self.request.at_once

    def ask(self, number: int, request: ShutDownPipeline) -> None:
        """Somebody wants the pipeline to end; who is in more of a hurry counts."""
        self.numbers = (*self.numbers, number)
        if self.request is None or request.at_once:
            self.request = request

    def restart(self) -> None:
        """There is something else to do after all, or a checkpoint was kept."""
        self.down = None

    def checkpoint_failed(self, failure: Failure, now: float, again: float) -> None:
        """The last checkpoint could not be made: it is tried again after a while."""
        down = self.down
        if down is not None:
            again_at = now + again * 2**down.tries
            self.down = replace(down, tries=down.tries + 1, failure=failure, again_at=again_at)

    def go_down(self, memory: Memory, now: float) -> list[Effect]:
        """Keep a checkpoint, wait for the sinks, and close."""
        memory.load.interrupt()
        if self.at_once:
            return close(memory, now)
        down = self.down = self._looked_at(memory, now)
        if memory.checkpoint.under_way is not None:
            return []
        if _lacks_checkpoint(memory):
            return _keep(memory, down, now)
        if not memory.outputs:
            return close(memory, now)
        if now >= down.came_on + memory.settings.deadlines.publish:
            return fail_pipeline(memory, _stuck(memory), now)
        return []

    def handle(self, memory: Memory, event: Event, now: float) -> list[Effect]:
        """Nothing: between two steps it goes on by itself."""
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """When it may go on with time alone."""
        down = self.down
        busy = memory.load.verifying is not None or memory.checkpoint.under_way is not None
        if down is None or busy or not isinstance(memory.phase, Idle):
            return []
        if _lacks_checkpoint(memory):
            return [] if down.failure is None else [down.again_at]
        return [down.came_on + memory.settings.deadlines.publish] if memory.outputs else []

    def withdraw(self) -> tuple[int, ...]:
        """The end has come; gives who asked for it."""
        numbers, self.numbers = self.numbers, ()
        return numbers

    def waiting_for(self, memory: Memory, down: GoingDown) -> str | None:
        """What keeps the pipeline from ending, for those who watch."""
        if memory.checkpoint.under_way is not None or _lacks_checkpoint(memory):
            tried = f"{down.tries} of {TRIES} tries have failed"
            why = "" if down.failure is None else f"; {tried}: {down.failure.what}"
            return f"the last checkpoint{why}"
        if not memory.outputs:
            return None
        sink, step = memory.slowest
        waiting = f"{len(memory.outputs)} steps to be published"
        return f"{waiting}: sink {sink!r} has published up to step {step}"

    def _looked_at(self, memory: Memory, now: float) -> GoingDown:
        """How far it is: with state opened since, or a sink that came on, time begins anew."""
        down, opened, published = self.down, memory.node.opened, memory.published
        if down is None:
            return GoingDown(now, opened, published, now)
        if down.opened != opened:
            return replace(down, began=now, opened=opened, published=published, came_on=now)
        if down.published != published:
            return replace(down, published=published, came_on=now)
        return down


def _lacks_checkpoint(memory: Memory) -> bool:
    kept = memory.checkpoint.last_kept(memory)
    return memory.step > kept and memory.replay.under_way is None


def _keep(memory: Memory, down: GoingDown, now: float) -> list[Effect]:
    """Make the last checkpoint: at once, or again after a pause, or not any more."""
    if down.failure is None:
        return memory.checkpoint.begin(memory, now)
    if down.tries >= TRIES or now >= down.began + memory.settings.deadlines.check:
        return fail_pipeline(memory, _not_kept(down.failure), now)
    return memory.checkpoint.begin(memory, now) if now >= down.again_at else []


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
