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
from anabranch.protocol.node import CommitOrder, Failure

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

TRIES = 5
"""How often the last checkpoint is tried."""


class ShutdownProgress(msgspec.Struct, frozen=True):
    """The progress of a shutdown: ``began`` is its start, with the state that ``opened`` names.

    ``progress_at`` is when a sink last published, ``published`` the step each had then.
    """

    began: float
    opened: int | None
    published: dict[str, int]
    progress_at: float


@dataclass(slots=True)
class ShutdownJob(Job[ShutDownPipeline]):
    """The requests to shut down, and the progress."""

    takes = (ShutDownPipeline,)
    #: one request for ``at_once`` decides for all
    request: ShutDownPipeline | None = None
    #: the progress, once nothing else is left to do
    down: ShutdownProgress | None = None

    @property
    def at_once(self) -> bool:
        """Whether to end without waiting for anything."""
        return self.request is not None and self.request.at_once

    @property
    def drains(self) -> bool:
        """Whether to end the input first."""
        return self.request is not None and self.request.drain

    def ask(self, memory: Memory, number: int, operation: ShutDownPipeline) -> list[Effect]:
        """Request a shutdown, which is answered at the end."""
        self.queue.append((number, operation))
        if self.request is None or operation.at_once:
            self.request = operation
        return []

    def restart(self) -> None:
        """Forget the progress: other work has come up, or a checkpoint is durable."""
        self.down = None

    def advance(self, memory: Memory) -> list[Effect]:
        """Take a checkpoint, wait for the sinks, and close."""
        memory.load.interrupt()
        if self.at_once:
            return close(memory)
        down = self.down = self._progress(memory)
        if memory.checkpoint.under_way is not None:
            return []
        if _lacks_checkpoint(memory):
            return _take_last_checkpoint(memory, down)
        if not memory.outputs and _knows_last_commit(memory):
            return close(memory)
        if memory.now >= down.progress_at + memory.settings.deadlines.publish:
            return fail_pipeline(memory, _sink_stuck(memory))
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """When to retry the checkpoint or give up on a sink."""
        down = self.down
        busy = memory.load.verifying is not None or memory.checkpoint.under_way is not None
        if down is None or busy or not isinstance(memory.phase, Idle):
            return []
        if _lacks_checkpoint(memory):
            delayed = memory.checkpoint.delayed
            return [] if delayed is None else [delayed.again_at]
        return [down.progress_at + memory.settings.deadlines.publish] if memory.outputs else []

    def waiting_for(self, memory: Memory) -> str | None:
        """What the shutdown waits for, as text for the status."""
        if memory.checkpoint.under_way is not None or _lacks_checkpoint(memory):
            failed = memory.checkpoint.delayed
            if failed is None:
                return "the last checkpoint"
            tried = f"{failed.tries} of {TRIES} tries have failed"
            return f"the last checkpoint; {tried}: {failed.failure.what}"
        if not memory.outputs:
            told = _knows_last_commit(memory)
            return None if told else f"the node to hear that step {memory.step} is committed"
        return f"{len(memory.outputs)} steps to be published: {memory.slowest_text}"

    def _progress(self, memory: Memory) -> ShutdownProgress:
        """The current progress; reopened state or a newly published step restarts the clock."""
        down, opened, published = self.down, memory.node.opened, memory.published
        if down is None:
            memory.checkpoint.retry_at_once()
            return ShutdownProgress(memory.now, opened, published, memory.now)
        if down.opened != opened:
            down = replace(down, began=memory.now, opened=opened, progress_at=memory.now)
            return replace(down, published=published)
        if down.published != published:
            return replace(down, published=published, progress_at=memory.now)
        return down


def _knows_last_commit(memory: Memory) -> bool:
    """Whether no commit waits to be told to the node again: it tells its sources as it closes."""
    return not any(isinstance(order, CommitOrder) for order in memory.node.again)


def _lacks_checkpoint(memory: Memory) -> bool:
    kept = memory.checkpoint.last_kept(memory)
    return memory.step > kept and memory.replay.under_way is None


def _take_last_checkpoint(memory: Memory, down: ShutdownProgress) -> list[Effect]:
    """Take the last checkpoint, retry it after a delay, or give up."""
    delayed, give_up_at = memory.checkpoint.delayed, down.began + memory.settings.deadlines.check
    if delayed is not None and (delayed.tries >= TRIES or memory.now >= give_up_at):
        what = f"The last checkpoint failed: {delayed.failure.what}"
        return fail_pipeline(memory, replace(delayed.failure, what=what))
    due = delayed is None or memory.now >= delayed.again_at
    return memory.checkpoint.begin(memory) if due else []


def _sink_stuck(memory: Memory) -> Failure:
    seconds = memory.settings.deadlines.publish
    return Failure(
        "coordinator.deadline",
        f"No sink has published anything for {seconds:g} seconds, and {len(memory.outputs)} steps "
        f"wait: {memory.slowest_text}",
        do="Nothing is lost: their output stays staged, and the next start publishes it. See what "
        "the sink waits for.",
    )
