"""Shutdown: take a last checkpoint, publish what sinks lack, then close the node.

If the checkpoint keeps failing or a sink makes no progress, the pipeline ends with that failure.
Nothing is lost: everything committed stays, and the next start continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from anabranch.coordinator.closing import close, fail_pipeline
from anabranch.coordinator.effects import Effect
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import ShutDownPipeline
from anabranch.coordinator.phases import Idle
from anabranch.protocol.node import Failure

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

TRIES = 5
"""How often the last checkpoint is tried."""


class ShutdownProgress(msgspec.Struct, frozen=True):
    """The progress of a shutdown: ``began`` is its start, with the state that ``opened`` names.

    ``progress_at`` is when a sink last published, ``published`` the step each had then. ``tries``
    checkpoints have failed, the last with ``failure``; the next try is at ``again_at``.
    """

    began: float
    opened: int | None
    published: dict[str, int]
    progress_at: float
    tries: int = 0
    failure: Failure | None = None
    again_at: float = 0.0


@dataclass(slots=True)
class ShutdownJob(Job):
    """The requests to shut down, and the progress."""

    request: ShutDownPipeline | None = None
    numbers: tuple[int, ...] = ()
    #: the progress, once nothing else is left to do
    down: ShutdownProgress | None = None

    @property
    def at_once(self) -> bool:
        """Whether to end without waiting for anything."""
        return self.request is not None and self.request.at_once

    def ask(self, number: int, request: ShutDownPipeline) -> None:
        """Request a shutdown. One request for ``at_once`` decides for all."""
        self.numbers = (*self.numbers, number)
        if self.request is None or request.at_once:
            self.request = request

    def restart(self) -> None:
        """Forget the progress: other work has come up, or a checkpoint is durable."""
        self.down = None

    def checkpoint_failed(self, failure: Failure, now: float, again: float) -> None:
        """Schedule a retry of the last checkpoint, with backoff."""
        down = self.down
        if down is not None:
            again_at = now + again * 2**down.tries
            self.down = replace(down, tries=down.tries + 1, failure=failure, again_at=again_at)

    def advance(self, memory: Memory, now: float) -> list[Effect]:
        """Take a checkpoint, wait for the sinks, and close."""
        memory.load.interrupt()
        if self.at_once:
            return close(memory, now)
        down = self.down = self._progress(memory, now)
        if memory.checkpoint.under_way is not None:
            return []
        if _lacks_checkpoint(memory):
            return _take_last_checkpoint(memory, down, now)
        if not memory.outputs:
            return close(memory, now)
        if now >= down.progress_at + memory.settings.deadlines.publish:
            return fail_pipeline(memory, _sink_stuck(memory), now)
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """When to retry the checkpoint or give up on a sink."""
        down = self.down
        busy = memory.load.verifying is not None or memory.checkpoint.under_way is not None
        if down is None or busy or not isinstance(memory.phase, Idle):
            return []
        if _lacks_checkpoint(memory):
            return [] if down.failure is None else [down.again_at]
        return [down.progress_at + memory.settings.deadlines.publish] if memory.outputs else []

    def withdraw(self) -> tuple[int, ...]:
        """Drop all requests; returns their numbers."""
        numbers, self.numbers = self.numbers, ()
        return numbers

    def waiting_for(self, memory: Memory, down: ShutdownProgress) -> str | None:
        """What the shutdown waits for, as text for the status."""
        if memory.checkpoint.under_way is not None or _lacks_checkpoint(memory):
            tried = f"{down.tries} of {TRIES} tries have failed"
            why = "" if down.failure is None else f"; {tried}: {down.failure.what}"
            return f"the last checkpoint{why}"
        if not memory.outputs:
            return None
        sink, step = memory.slowest
        waiting = f"{len(memory.outputs)} steps to be published"
        return f"{waiting}: sink {sink!r} has published up to step {step}"

    def _progress(self, memory: Memory, now: float) -> ShutdownProgress:
        """The current progress; reopened state or a newly published step restarts the clock."""
        down, opened, published = self.down, memory.node.opened, memory.published
        if down is None:
            return ShutdownProgress(now, opened, published, now)
        if down.opened != opened:
            return replace(down, began=now, opened=opened, published=published, progress_at=now)
        if down.published != published:
            return replace(down, published=published, progress_at=now)
        return down


def _lacks_checkpoint(memory: Memory) -> bool:
    kept = memory.checkpoint.last_kept(memory)
    return memory.step > kept and memory.replay.under_way is None


def _take_last_checkpoint(memory: Memory, down: ShutdownProgress, now: float) -> list[Effect]:
    """Take the last checkpoint, retry it after a delay, or give up."""
    if down.failure is None:
        return memory.checkpoint.begin(memory, now)
    if down.tries >= TRIES or now >= down.began + memory.settings.deadlines.check:
        return fail_pipeline(memory, _checkpoint_failure(down.failure), now)
    return memory.checkpoint.begin(memory, now) if now >= down.again_at else []


def _checkpoint_failure(failure: Failure) -> Failure:
    what = f"The last checkpoint failed: {failure.what}"
    return Failure(failure.code, what, failure.where, failure.do)


def _sink_stuck(memory: Memory) -> Failure:
    sink, step = memory.slowest
    seconds = memory.settings.deadlines.publish
    return Failure(
        "coordinator.deadline",
        f"Sink {sink!r} has published nothing for {seconds:g} seconds: it has step {step}, and "
        f"{len(memory.outputs)} steps wait",
        do="Nothing is lost: their output stays staged, and the next start publishes it. See what "
        "the sink waits for.",
    )
