"""Checkpoints: when one is due, how it is taken beside the steps, and which are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from anabranch.coordinator.closing import deadline_failure, needs_commit
from anabranch.coordinator.effects import Answer, Effect, Give, Trim, WriteCheckpoint
from anabranch.coordinator.events import (
    CheckpointWritten,
    EffectFailed,
    Event,
    JournalTrimmed,
    NodeReported,
    TimePassed,
)
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import TakeCheckpoint
from anabranch.coordinator.phases import Branching, Closing, Ended
from anabranch.coordinator.plans import check_order, sweep_order
from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import Failure, NodeReport
from anabranch.records.commit import Checkpoint

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory

LONGEST_DELAY = 60.0
"""The longest delay in seconds before a failed checkpoint is retried."""

KEPT_STEPS = 16
"""The journal keeps at least this many of the last steps for inspection."""


class Delayed(msgspec.Struct, frozen=True):
    """A checkpoint has failed ``tries`` times. Unless a user asks, it is retried at ``again_at``.

    ``failure`` is the reason of the last try.
    """

    failure: Failure
    tries: int
    again_at: float


class Checkpointing(msgspec.Struct, frozen=True):
    """A checkpoint of a committed step in progress, and the requests that wait for it."""

    checkpoint: Checkpoint
    since: float
    numbers: tuple[int, ...]
    writing: bool = False


@dataclass(slots=True)
class CheckpointJob(Job[TakeCheckpoint]):
    """Takes checkpoints, and drops old ones with their files."""

    takes = (TakeCheckpoint,)
    under_way: Checkpointing | None = None
    #: when the last checkpoint began
    last_at: float = 0.0
    #: why a checkpoint that was due has failed
    delayed: Delayed | None = None
    #: how long each kept checkpoint of this coordinator took
    seconds: dict[int, float] = field(default_factory=dict)
    #: dropped checkpoints that may still be in the journal: their files stay until it is trimmed
    untrimmed: tuple[Checkpoint, ...] = ()
    #: the step after which files were last swept
    swept: int = 0

    def refusal(self, memory: Memory, operation: TakeCheckpoint) -> Failure | None:
        """There is nothing to keep before the first commit."""
        return needs_commit(memory)

    def handle(self, memory: Memory, event: Event) -> list[Effect]:
        """Advance the checkpoint in progress."""
        match event:
            case NodeReported(report):
                return self._on_report(memory, report)
            case CheckpointWritten(checkpoint):
                return self._on_written(memory, checkpoint)
            case JournalTrimmed(kept):
                return self._on_trimmed(memory, kept)
            case EffectFailed(WriteCheckpoint(), failure):
                return self._give_up(memory, failure)
            case TimePassed():
                seconds = memory.settings.deadlines.check
                if self.under_way is not None and memory.now >= self.under_way.since + seconds:
                    late = deadline_failure("A checkpoint's files were", seconds)
                    return self._give_up(memory, late)
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """The deadline of the check of files, or when the next checkpoint is due."""
        if self.under_way is not None:
            return [self.under_way.since + memory.settings.deadlines.check]
        if memory.node.opened is not None and self._timer_runs(memory):
            return [self._timer_ends(memory)]
        return []

    def withdraw(self) -> tuple[int, ...]:
        """Abandon the checkpoint in progress; returns all waiting requests."""
        under_way, self.under_way = self.under_way, None
        return (*self.take_queue(), *(() if under_way is None else under_way.numbers))

    def last_kept(self, memory: Memory) -> int:
        """The step of the newest checkpoint, or 0."""
        return max((each.step for each in memory.journal.checkpoints), default=0)

    def is_due(self, memory: Memory) -> bool:
        """Whether to take one now: on request, by the timer, or after enough steps."""
        if not self._can_begin(memory):
            return False
        if self.queue:
            return True
        many = memory.step - self.last_kept(memory) >= memory.settings.checkpoint_steps
        over = memory.now >= self._timer_ends(memory) or (many and self.delayed is None)
        return self._timer_runs(memory) and over

    def begin(self, memory: Memory) -> list[Effect]:
        """Start a checkpoint of the last commit: the node first checks that its files exist."""
        journal = memory.journal
        assert journal.commit is not None
        numbers = self.take_queue()
        self.last_at = memory.now
        if self.last_kept(memory) == memory.step:
            return [Answer(number, step=memory.step) for number in numbers]
        repaired = None if journal.states == journal.commit.states else journal.states
        checkpoint = Checkpoint(journal.branch, journal.commit, dict(memory.published), repaired)
        self.under_way = Checkpointing(checkpoint, memory.now, numbers)
        memory.stats.triggers[Trigger.CHECKPOINT] += 1
        return [Give(check_order(checkpoint))]

    def retry_at_once(self) -> None:
        """Forget earlier failures: a shutdown begins."""
        self.delayed = None

    def repeat(self) -> list[Effect]:
        """Repeat the order that a node forgets when it reopens state."""
        if self.under_way is None or self.under_way.writing:
            return []
        return [Give(check_order(self.under_way.checkpoint))]

    def sweep(self, memory: Memory) -> list[Effect]:
        """Order the node to remove unneeded files."""
        order = sweep_order(memory)
        self.swept = memory.step
        return [] if order is None else [Give(order)]

    def _timer_ends(self, memory: Memory) -> float:
        if self.delayed is not None:
            return self.delayed.again_at
        return self.last_at + memory.settings.checkpoint_seconds

    def _timer_runs(self, memory: Memory) -> bool:
        """Whether the timer starts a checkpoint; a shutdown does not wait for it."""
        down = memory.stop.down
        return self._can_begin(memory) and down is None and memory.step > self.last_kept(memory)

    def _can_begin(self, memory: Memory) -> bool:
        # The node runs one check at a time, and none while it closes. During a replay the state is
        # not that of a commit. A new branch cannot see later checkpoints of the branch it leaves.
        busy = self.under_way is not None or memory.load.verifying is not None
        leaving = isinstance(memory.phase, Branching | Closing | Ended)
        return memory.step > 0 and not busy and not leaving and memory.replay.under_way is None

    def _on_report(self, memory: Memory, report: NodeReport) -> list[Effect]:
        """Write the checkpoint once the node has checked all files."""
        under_way, checked = self.under_way, report.checked
        if under_way is None or under_way.writing or checked is None:
            return []
        if checked.asked is not None or checked.step != under_way.checkpoint.step:
            return []
        if checked.failure is not None:
            memory.replay.note_lost(checked.failure)
            return self._give_up(memory, checked.failure)
        if checked.files_done < checked.files:
            return []
        self.under_way = replace(under_way, writing=True)
        return [WriteCheckpoint(under_way.checkpoint)]

    def _on_written(self, memory: Memory, checkpoint: Checkpoint) -> list[Effect]:
        """The checkpoint is durable: answer requests, and drop the oldest with their files."""
        under_way, self.under_way, self.delayed = self.under_way, None, None
        memory.stop.restart()
        if under_way is not None:
            self.seconds[checkpoint.step] = memory.now - under_way.since
        numbers = () if under_way is None else under_way.numbers
        journal = memory.journal
        known = [c for c in journal.checkpoints if c.step != checkpoint.step]
        kept = (*known, checkpoint)[-memory.settings.keep_checkpoints :]
        steps = {each.step for each in kept}
        self.seconds = {s: t for s, t in self.seconds.items() if s in steps}
        memory.journal = replace(
            journal, checkpoints=kept, replayable=max(journal.replayable, kept[0].step + 1)
        )
        self.untrimmed += tuple(each for each in known if each.step not in steps)
        answers: list[Effect] = [Answer(number, step=checkpoint.step) for number in numbers]
        return [*answers, self.trim(memory), *(() if self.untrimmed else self.sweep(memory))]

    def _on_trimmed(self, memory: Memory, kept: tuple[int, ...]) -> list[Effect]:
        """Sweep the files of checkpoints that are gone from the journal."""
        left = tuple(each for each in self.untrimmed if each.step in kept)
        if left == self.untrimmed:
            return []
        self.untrimmed = left
        node = memory.node
        return self.sweep(memory) if node.opened is not None and node.report is not None else []

    def _give_up(self, memory: Memory, failure: Failure) -> list[Effect]:
        """Answer with the failure and schedule a retry, with backoff. Steps continue."""
        under_way, self.under_way = self.under_way, None
        again = memory.settings.deadlines.again
        tries = 1 if self.delayed is None else self.delayed.tries + 1
        delay = min(again * 2 ** min(tries, 8), LONGEST_DELAY)
        self.delayed = Delayed(failure, tries, memory.now + delay)
        numbers = () if under_way is None else under_way.numbers
        return [Answer(number, failure) for number in numbers]

    def trim(self, memory: Memory) -> Effect:
        """Trim entries that neither replay nor publishing needs; the newest steps stay."""
        oldest = min(each.step for each in memory.journal.checkpoints)
        needed = min(oldest, memory.published_step) + 1
        return Trim(
            memory.journal.branch,
            max(min(needed, memory.step - KEPT_STEPS), 0),
            tuple(each.step for each in memory.journal.checkpoints),
        )
