"""The files of a checkpoint: copied to an empty directory, they are the pipeline at that step."""

from __future__ import annotations

from anabranch.journal.entry_names import BranchName, CheckpointName, EntryName, IdentityName
from anabranch.records.commit import Checkpoint
from anabranch.records.run_list import files

JOURNAL_ROOM = "journal"


def checkpoint_files(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The journal entries, runs, blobs and files of parts that a checkpoint needs, sorted.

    Paths are relative to the pipeline's directory.
    """
    entries: list[EntryName] = [IdentityName(), CheckpointName(checkpoint.step, checkpoint.branch)]
    if checkpoint.branch:
        entries.append(BranchName(checkpoint.branch))
    found = {f"{JOURNAL_ROOM}/{name}" for name in entries}
    found |= files(*(state.runs for state in checkpoint.states))
    return tuple(sorted(found | {*checkpoint.commit.files}))
