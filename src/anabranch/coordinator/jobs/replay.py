"""Replay: recompute lost state from a checkpoint by rerunning the journalled steps after it.

All workers go back together. Each replayed step must give its first result again. A replay ends
with a repair entry, which replaces the state at the last commit and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Never

import msgspec
from msgspec.structs import replace

from anabranch.coordinator.closing import fail_pipeline
from anabranch.coordinator.effects import Effect, Give, ReadStep, WriteRepair
from anabranch.coordinator.events import Event, RepairWritten, StepRead
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.phases import Opening, Recalling, Repairing, Stepping
from anabranch.coordinator.plans import commit_order, step_order
from anabranch.coordinator.recovering import begin_steps, open_state
from anabranch.coordinator.starting import LOST_STATE, next_checkpoint
from anabranch.coordinator.triggers import Trigger
from anabranch.protocol.node import Failure, StepResult
from anabranch.records.commit import Commit, Repair, RowCount

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory


class Replay(msgspec.Struct, frozen=True):
    """A replay in progress, from a checkpoint to the last commit."""

    from_step: int
    to_step: int
    diverged: tuple[str, ...] = ()


@dataclass(slots=True)
class ReplayJob(Job[Never]):
    """The replay in progress, and which state files and checkpoints are damaged."""

    under_way: Replay | None = None
    #: damage to the state that a check has found and nothing has handled yet
    lost: Failure | None = None
    #: damaged checkpoints, each with its error
    damaged: dict[int, str] = field(default_factory=dict)

    def note_lost(self, failure: Failure) -> None:
        """Remember missing or damaged state files until no step runs."""
        self.lost = failure

    def take_lost(self) -> Failure | None:
        """The damage found by a check, once; None if no state is lost."""
        lost, self.lost = self.lost, None
        return lost if lost is not None and lost.code in LOST_STATE else None

    def stop(self) -> None:
        """Abandon the replay: other state is being opened."""
        self.under_way = None

    def begin(self, memory: Memory, failure: Failure) -> list[Effect]:
        """Take all workers back to a checkpoint after damage to state files.

        Before a rewind nothing is replayed: any open state serves to verify the checkpoint's files.
        """
        journal = memory.journal
        order = memory.phase.order if isinstance(memory.phase, Opening) else None
        if order is not None and order.whole and order.step:
            self.damaged[order.step] = failure.what
        rewind = memory.load.rewind
        back_to = None if rewind is None else rewind.step
        checkpoint = next_checkpoint(journal, frozenset(self.damaged), back_to)
        from_nothing = journal.replayable == 1 and not (order and order.whole and not order.step)
        if checkpoint is None and not from_nothing:
            return fail_pipeline(memory, self._no_checkpoint(failure))
        memory.node.opened = None
        self.under_way = Replay(0 if checkpoint is None else checkpoint.step, journal.step)
        return open_state(memory, checkpoint)

    def recall(self, memory: Memory, step: int) -> list[Effect]:
        """Read a journalled step to rerun it."""
        memory.phase = Recalling(step)
        return [ReadStep(memory.journal.branch, step)]

    def handle(self, memory: Memory, event: Event) -> list[Effect]:
        """Rerun the step that was read, or finish with the repair."""
        match memory.phase, event:
            case Recalling(step), StepRead(plan, commit) if plan.step == step:
                info = memory.info
                assert info is not None
                plan = msgspec.structs.replace(plan, code=info.code)
                memory.phase = Stepping(plan, memory.now, Trigger.REPLAY, replayed=commit)
                return [Give(step_order(memory, plan))]
            case Repairing(), RepairWritten(repair):
                return self._on_repaired(memory, repair)
        return []

    def on_result(self, memory: Memory, commit: Commit, result: StepResult) -> list[Effect]:
        """Compare the result of a replayed step with its commit, and continue."""
        replay = self.under_way
        assert replay is not None
        found = differences(commit.counts, result.counts)
        if found and not memory.settings.accept_divergence:
            return fail_pipeline(memory, _diverged(memory, commit, found))
        places = tuple(f"step {commit.step}: {place}" for place in found)
        replay = self.under_way = replace(replay, diverged=(*replay.diverged, *places))
        memory.stats.triggers[Trigger.REPLAY] += 1
        order = commit_order(memory, commit, publish=False, replayed=True)
        if commit.step < replay.to_step:
            return [Give(order), *self.recall(memory, commit.step + 1)]
        memory.phase = Repairing()
        number = memory.journal.repairs + 1
        repair = Repair(commit.step, number, replay.from_step, result.states, replay.diverged)
        return [Give(order), WriteRepair(memory.journal.branch, repair)]

    def _on_repaired(self, memory: Memory, repair: Repair) -> list[Effect]:
        self.under_way = None
        journal = memory.journal
        assert journal.commit is not None
        memory.journal = replace(journal, states=repair.states, repairs=repair.number)
        done = commit_order(memory, journal.commit, publish=False)
        return [Give(done), *begin_steps(memory)]

    def _no_checkpoint(self, failure: Failure) -> Failure:
        tried = ", ".join(f"{step}: {why}" for step, why in sorted(self.damaged.items()))
        kept = f" Damaged checkpoints: {tried}." if tried else ""
        return Failure(
            failure.code,
            failure.what,
            failure.where,
            f"No checkpoint is left to recompute the state from.{kept} Nothing was changed. "
            "Restore the directory from a copy.",
        )


def _diverged(memory: Memory, commit: Commit, places: tuple[str, ...]) -> Failure:
    info = memory.info
    changed = info is not None and info.code != commit.code
    cause = (
        "The dataflow's code has changed since" if changed else "A function is not deterministic"
    )
    return Failure(
        "step.diverged",
        f"Step {commit.step} was replayed and differs from its commit at {'; '.join(places)}",
        None,
        f"{cause}, most likely. Nothing was committed. Run with the code of that step, or with "
        "--accept-divergence to go on with the new result.",
    )


def differences(before: Sequence[RowCount], after: Sequence[RowCount]) -> tuple[str, ...]:
    """The places where a replayed step differs from its first run, each with its first bin.

    >>> one = RowCount("sink out", 3, (4,), (3,), ("00",))
    >>> differences([one], [one])
    ()
    >>> differences([one], [RowCount("sink out", 3, (4,), (3,), ("01",))])
    ('sink out, bin 4',)
    """
    had = {count.place: count for count in before}
    has = {count.place: count for count in after}
    found = []
    for place in sorted(had.keys() | has.keys()):
        first, again = _by_bin(had.get(place)), _by_bin(has.get(place))
        differing = [b for b in first.keys() | again.keys() if first.get(b) != again.get(b)]
        if differing:
            found.append(f"{place}, bin {min(differing)}")
    return tuple(found)


def _by_bin(count: RowCount | None) -> dict[int, tuple[int, str]]:
    if count is None:
        return {}
    rows = zip(count.bins, count.bin_rows, count.bin_hashes, strict=True)
    return {number: (rows, value) for number, rows, value in rows if rows}
