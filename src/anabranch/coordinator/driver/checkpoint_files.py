"""Which files a checkpoint is: copied to an empty directory, they are the pipeline at that step."""

from __future__ import annotations

from anabranch.journal.entry_names import BranchName, CheckpointName, EntryName, IdentityName
from anabranch.records.commit import Checkpoint
from anabranch.records.run_list import files

JOURNAL_ROOM = "journal"


def checkpoint_files(checkpoint: Checkpoint) -> tuple[str, ...]:
    """All files below the pipeline's directory that the checkpoint needs, sorted.

    Journal entries, runs and blobs, and what its committed parts need.
    """
    entries: list[EntryName] = [IdentityName(), CheckpointName(checkpoint.step, checkpoint.branch)]
    if checkpoint.branch:
        entries.append(BranchName(checkpoint.branch))
    found = {f"{JOURNAL_ROOM}/{name}" for name in entries}
    found |= files(*(state.runs for state in checkpoint.states))
    return tuple(sorted(found | {*checkpoint.commit.files}))
