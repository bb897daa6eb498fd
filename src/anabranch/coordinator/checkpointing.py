"""Checkpoints: when one is due, how it is made beside the steps, and which are kept."""

from __future__ import annotations

from dataclasses import replace

from anabranch.coordinator.effects import Answer, Effect, Give, Trim, WriteCheckpoint
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.phases import Branching, Checkpointing, Closing, Delayed, Ended
from anabranch.coordinator.plans import check_order, sweep_order
from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import Failure, NodeReport
from anabranch.records.commit import Checkpoint

LONGEST_DELAY = 60.0
"""After so many seconds at most a checkpoint that could not be made is tried again."""

KEPT_STEPS = 16
"""So many of the last steps can be looked at, whatever checkpoints there are."""


def last_kept(memory: Memory) -> int:
    """The step of the newest checkpoint; 0 when there is none."""
    return max((each.step for each in memory.journal.checkpoints), default=0)


def is_due(memory: Memory, now: float) -> bool:
    """Whether a checkpoint is wanted now: asked for, or its timer or its steps are over."""
    if not _possible(memory):
        return False
    if memory.checkpoint_numbers:
        return True
    many = memory.step - last_kept(memory) >= memory.settings.checkpoint_steps
    over = now >= comes_at(memory) or (many and memory.delayed is None)
    return may_come(memory) and over


def comes_at(memory: Memory) -> float:
    """When the timer of the next one is over; after one that could not be made, sooner."""
    if memory.delayed is not None:
        return memory.delayed.again_at
    return memory.checkpoint_at + memory.settings.checkpoint_seconds


def may_come(memory: Memory) -> bool:
    """Whether one is wanted as soon as its timer is over; the last one has its own time."""
    return _possible(memory) and memory.down is None and memory.step > last_kept(memory)


def _possible(memory: Memory) -> bool:
    # The node checks one thing at a time; what a replay computes is no state of a commit yet; and
    # where a branch is left, a checkpoint of it would come too late: the new one cannot see it.
    # A node that lets go looks at nothing any more.
    busy = memory.checkpointing is not None or memory.verifying is not None
    leaving = isinstance(memory.phase, Branching | Closing | Ended)
    return memory.step > 0 and not busy and not leaving and memory.replay is None


def begin(memory: Memory, now: float) -> list[Effect]:
    """Make a checkpoint of the last commit: first see whether its files are there."""
    journal = memory.journal
    assert journal.commit is not None
    numbers, memory.checkpoint_numbers = memory.checkpoint_numbers, ()
    memory.checkpoint_at = now
    if last_kept(memory) == memory.step:
        return [Answer(number, step=memory.step) for number in numbers]
    repaired = None if journal.states == journal.commit.states else journal.states
    checkpoint = Checkpoint(journal.branch, journal.commit, dict(memory.published), repaired)
    memory.checkpointing = Checkpointing(checkpoint, now, numbers)
    memory.triggers[Trigger.CHECKPOINT] = memory.triggers.get(Trigger.CHECKPOINT, 0) + 1
    return [Give(check_order(checkpoint))]


def repeat(memory: Memory) -> list[Effect]:
    """Order again what a node forgets when it opens state anew."""
    under_way = memory.checkpointing
    if under_way is None or under_way.writing:
        return []
    return [Give(check_order(under_way.checkpoint))]


def checkpoint_on_report(memory: Memory, report: NodeReport, now: float) -> list[Effect]:
    """The node may have checked all files."""
    under_way, checked = memory.checkpointing, report.checked
    if under_way is None or under_way.writing or checked is None:
        return []
    if checked.asked is not None or checked.step != under_way.checkpoint.step:
        return []
    if checked.failure is not None:
        memory.lost = checked.failure
        return give_up(memory, checked.failure, now)
    if checked.files_done < checked.files:
        return []
    memory.checkpointing = replace(under_way, writing=True)
    return [WriteCheckpoint(under_way.checkpoint)]


def on_written(memory: Memory, checkpoint: Checkpoint, now: float) -> list[Effect]:
    """A checkpoint is durable: older ones may go, and what only they needed."""
    under_way, memory.checkpointing = memory.checkpointing, None
    memory.down = memory.delayed = None
    if under_way is not None:
        memory.checkpoint_seconds[checkpoint.step] = now - under_way.since
    numbers = () if under_way is None else under_way.numbers
    journal = memory.journal
    known = [c for c in journal.checkpoints if c.step != checkpoint.step]
    kept = (*known, checkpoint)[-memory.settings.keep_checkpoints :]
    steps = {each.step for each in kept}
    memory.checkpoint_seconds = {s: t for s, t in memory.checkpoint_seconds.items() if s in steps}
    memory.journal = replace(
        journal, checkpoints=kept, replayable=max(journal.replayable, kept[0].step + 1)
    )
    memory.untrimmed += tuple(each for each in known if each.step not in steps)
    answers: list[Effect] = [Answer(number, step=checkpoint.step) for number in numbers]
    return [*answers, trim(memory), *(() if memory.untrimmed else sweep_files(memory))]


def on_trimmed(memory: Memory, kept: tuple[int, ...]) -> list[Effect]:
    """Older checkpoints are gone from the journal: what only they needed may go."""
    left = tuple(each for each in memory.untrimmed if each.step in kept)
    if left == memory.untrimmed:
        return []
    memory.untrimmed = left
    return sweep_files(memory) if memory.opened is not None and memory.report is not None else []


def give_up(memory: Memory, failure: Failure, now: float) -> list[Effect]:
    """A checkpoint could not be made: steps go on, and whoever waits for it is told why.

    It is tried again, each time after a longer while; on the way to the end not for ever.
    """
    under_way, memory.checkpointing, down = memory.checkpointing, None, memory.down
    again = memory.settings.deadlines.again
    if down is not None:
        again_at = now + again * 2**down.tries
        memory.down = replace(down, tries=down.tries + 1, failure=failure, again_at=again_at)
    tries = 1 if memory.delayed is None else memory.delayed.tries + 1
    memory.delayed = Delayed(failure, tries, now + min(again * 2 ** min(tries, 8), LONGEST_DELAY))
    numbers = () if under_way is None else under_way.numbers
    return [Answer(number, failure) for number in numbers]


def trim(memory: Memory) -> Effect:
    """Forget the entries that neither a replay nor publishing needs, but for the newest."""
    oldest = min(each.step for each in memory.journal.checkpoints)
    needed = min(oldest, memory.published_step) + 1
    return Trim(
        memory.journal.branch,
        max(min(needed, memory.step - KEPT_STEPS), 0),
        tuple(each.step for each in memory.journal.checkpoints),
    )


def sweep_files(memory: Memory) -> list[Effect]:
    """Let the node remove files that are not needed."""
    order = sweep_order(memory)
    memory.swept = memory.step
    return [] if order is None else [Give(order)]
