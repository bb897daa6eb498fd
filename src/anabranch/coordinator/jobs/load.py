"""Rewinding to a checkpoint: verify its files, then make a new branch.

A branch cannot be undone, and the steps it leaves behind are unreachable. So every byte of the
checkpoint is read first. If it is damaged, the request is refused and the pipeline continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from anabranch.coordinator.closing import deadline_failure, fail_pipeline, refusal, refuse_requests
from anabranch.coordinator.effects import Answer, Effect, Give, MakeBranch
from anabranch.coordinator.events import BranchMade, Event, NodeReported, TimePassed
from anabranch.coordinator.jobs.port import Job
from anabranch.coordinator.operations import REWIND, LoadCheckpoint
from anabranch.coordinator.phases import Branching, Idle
from anabranch.coordinator.plans import check_order
from anabranch.coordinator.recovering import adopt_journal, reopen
from anabranch.protocol.node import Failure, NodeReport
from anabranch.records.commit import Checkpoint

if TYPE_CHECKING:
    from anabranch.coordinator.memory import Memory


class Verifying(msgspec.Struct, frozen=True):
    """The node reads the files of the checkpoint to load. No step runs meanwhile.

    ``opened`` is what the node had open when it got the order: on reopening it forgets the order.
    ``since`` is the time of the order or of the last progress.
    """

    checkpoint: Checkpoint
    number: int
    opened: int
    since: float
    files_done: int = 0


@dataclass(slots=True)
class LoadJob(Job[LoadCheckpoint]):
    """A queue of rewind requests, and the progress of the first."""

    takes = (LoadCheckpoint,)
    verifying: Verifying | None = None

    @property
    def rewind(self) -> LoadCheckpoint | None:
        """The rewind requested at the start, until it is done.

        No step runs before it: what it leaves behind may be what blocks the pipeline.
        """
        number, request = self.queue[0] if self.queue else (None, None)
        return request if number == REWIND else None

    def interrupt(self) -> None:
        """Stop verifying: the pipeline ends."""
        self.verifying = None

    def refusal(self, memory: Memory, operation: LoadCheckpoint) -> Failure | None:
        """Why a checkpoint cannot be loaded, judged without its files; None if it can."""
        if self.queue:
            return refusal("Another checkpoint is being loaded", "Ask again when it is.")
        return self._not_loadable(memory, operation)

    def _not_loadable(self, memory: Memory, request: LoadCheckpoint) -> Failure | None:
        kept = [each.step for each in memory.journal.checkpoints]
        if request.step not in kept:
            known = ", ".join(map(str, kept)) or "none"
            return refusal(f"Step {request.step} is not kept", f"Kept checkpoints: {known}.")
        info = memory.info
        if info is None or request.accept_duplicates:
            return None
        stuck = [sink.name for sink in info.sinks if not sink.takes_back]
        if stuck and memory.step > request.step:
            names = ", ".join(repr(name) for name in stuck)
            return refusal(
                f"Output after step {request.step} has gone to {names}, which cannot take it back",
                "Accept duplicates (accept_duplicates, --accept-duplicates) if they do no harm "
                "there.",
            )
        return None

    def begin(self, memory: Memory) -> list[Effect]:
        """Order the node to verify the files of the first requested checkpoint."""
        if memory.checkpoint.under_way is not None:
            return []
        if self.verifying is not None and self.verifying.opened == memory.node.opened:
            return []
        number, request = self.queue[0]
        refused = self._not_loadable(memory, request)
        if refused is not None:
            return self._refuse(memory, refused)
        assert memory.node.opened is not None
        checkpoint = next(each for each in memory.journal.checkpoints if each.step == request.step)
        self.verifying = Verifying(checkpoint, number, memory.node.opened, memory.now)
        return [Give(check_order(checkpoint, whole=True, asked=number))]

    def handle(self, memory: Memory, event: Event) -> list[Effect]:
        """Advance the first request: files are verified, time is up, or the branch is made."""
        match memory.phase, event:
            case Idle(), NodeReported(report):
                return self._on_report(memory, report)
            case Idle(), TimePassed() if self.verifying is not None:
                seconds = memory.settings.deadlines.check
                if memory.now >= self.verifying.since + seconds:
                    late = deadline_failure("A checkpoint's files were", seconds)
                    return self._refuse(memory, late)
            case Branching(_, number), BranchMade(journal):
                self.queue.pop(0)
                adopt_journal(memory, journal)
                answer = Answer(number, step=journal.step)
                why = "The pipeline was rewound, without this request"
                others = refuse_requests(memory.moving.take_queue(), why)
                return [answer, *others, *reopen(memory, rewound=True)]
        return []

    def wakes_at(self, memory: Memory) -> list[float]:
        """The deadline for progress with the files."""
        if self.verifying is None or not isinstance(memory.phase, Idle):
            return []
        return [self.verifying.since + memory.settings.deadlines.check]

    def withdraw(self) -> tuple[int, ...]:
        """Drop all requests and the verification."""
        self.verifying = None
        return self.take_queue()

    def _on_report(self, memory: Memory, report: NodeReport) -> list[Effect]:
        """Make the branch once the node has read all files."""
        under_way, checked = self.verifying, report.checked
        if under_way is None or checked is None or report.opened != under_way.opened:
            return []
        checkpoint = under_way.checkpoint
        if (checked.step, checked.asked) != (checkpoint.step, under_way.number):
            return []
        if checked.failure is not None:
            return self._refuse(memory, _damaged(memory, checkpoint.step, checked.failure))
        if checked.files_done < checked.files:
            if checked.files_done > under_way.files_done:
                self.verifying = replace(under_way, since=memory.now, files_done=checked.files_done)
            return []
        self.verifying = None
        memory.phase = Branching(checkpoint, under_way.number)
        return [MakeBranch(checkpoint)]

    def _refuse(self, memory: Memory, why: Failure) -> list[Effect]:
        """Refuse the first request. At the start this fails the pipeline, else it continues."""
        number, _ = self.queue.pop(0)
        self.verifying = None
        return fail_pipeline(memory, why) if number == REWIND else [Answer(number, why)]


def _damaged(memory: Memory, step: int, failure: Failure) -> Failure:
    others = [str(each.step) for each in memory.journal.checkpoints if each.step != step]
    load = f"load another checkpoint ({', '.join(others)}), or " if others else ""
    return Failure(
        failure.code,
        f"Checkpoint {step} cannot be loaded: {failure.what}",
        failure.where,
        f"Nothing was changed: {load}restore the file from a copy of the store.",
    )
