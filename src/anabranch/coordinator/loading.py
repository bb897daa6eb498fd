"""Going back to a checkpoint: its files are looked at first, then the branch is left.

A branch that is made cannot be unmade, and after it nothing leads to the steps that were left. So
every byte of the checkpoint is read before: one that is damaged is refused, and the pipeline goes
on where it is.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.coordinator.closing import fail_pipeline, refusal, refuse_waiting
from anabranch.coordinator.effects import Answer, Effect, Give, MakeBranch
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.operations import REWIND, LoadCheckpoint
from anabranch.coordinator.phases import Branching, Verifying
from anabranch.coordinator.plans import check_order
from anabranch.coordinator.recovering import know, reopen
from anabranch.protocol.node import Failure, NodeReport


def load_refusal(memory: Memory, request: LoadCheckpoint) -> Failure | None:
    """Why a checkpoint cannot be loaded, as far as is known without its files."""
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
            "Accept duplicates (accept_duplicates, --accept-duplicates) if they do no harm there.",
        )
    return None


def begin_load(memory: Memory, now: float) -> list[Effect]:
    """Let the node look at the files of the checkpoint that is to be loaded."""
    under_way = memory.verifying
    if memory.checkpointing is not None:
        return []
    if under_way is not None and under_way.opened == memory.opened:
        return []
    number, request = memory.loads[0]
    refused = load_refusal(memory, request)
    if refused is not None:
        return not_loaded(memory, refused, now)
    assert memory.opened is not None
    checkpoint = next(each for each in memory.journal.checkpoints if each.step == request.step)
    memory.verifying = Verifying(checkpoint, number, memory.opened, now)
    return [Give(check_order(checkpoint, whole=True, asked=number))]


def load_on_report(memory: Memory, report: NodeReport, now: float) -> list[Effect]:
    """The node may have read all files: then the branch is left."""
    under_way, checked = memory.verifying, report.checked
    if under_way is None or checked is None or report.opened != under_way.opened:
        return []
    checkpoint = under_way.checkpoint
    if (checked.step, checked.asked) != (checkpoint.step, under_way.number):
        return []
    if checked.failure is not None:
        return not_loaded(memory, _damaged(memory, checkpoint.step, checked.failure), now)
    if checked.files_done < checked.files:
        if checked.files_done > under_way.files_done:
            memory.verifying = replace(under_way, since=now, files_done=checked.files_done)
        return []
    memory.verifying = None
    memory.phase = Branching(checkpoint, under_way.number)
    return [MakeBranch(checkpoint)]


def not_loaded(memory: Memory, why: Failure, now: float) -> list[Effect]:
    """Answer that the checkpoint is not loaded: the pipeline stays where it is."""
    number, _ = memory.loads.popleft()
    memory.verifying = None
    return fail_pipeline(memory, why, now) if number == REWIND else [Answer(number, why)]


def on_branch(memory: Memory, phase: Branching, journal: JournalView, now: float) -> list[Effect]:
    """The branch is there: open the checkpoint, and let the sinks take back what they can."""
    memory.loads.popleft()
    know(memory, journal)
    answer = Answer(phase.number, step=journal.step)
    others = refuse_waiting(memory, "The pipeline was rewound, without this request")
    return [answer, *others, *reopen(memory, now, rewound=True)]


def _damaged(memory: Memory, step: int, failure: Failure) -> Failure:
    others = [str(each.step) for each in memory.journal.checkpoints if each.step != step]
    load = f"load another checkpoint ({', '.join(others)}), or " if others else ""
    return Failure(
        failure.code,
        f"Checkpoint {step} cannot be loaded: {failure.what}",
        failure.where,
        f"Nothing was changed: {load}restore the file from a copy of the store.",
    )
