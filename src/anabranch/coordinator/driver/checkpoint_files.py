"""Which files a checkpoint is: copied to an empty directory, they are the pipeline at that step."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.journal.entry_names import BranchName, CheckpointName, EntryName, IdentityName
from anabranch.protocol.sources import Source
from anabranch.records.run_list import files
from anabranch.records.step import Checkpoint
from anabranch.store.retention import LOG_ROOM

JOURNAL_ROOM = "journal"


def checkpoint_files(
    checkpoint: Checkpoint, sources: Mapping[str, Source] | None = None
) -> tuple[str, ...]:
    """All files below the pipeline's directory that the checkpoint needs, sorted.

    Journal entries, runs and blobs; and of the source log what the positions of ``sources`` (by
    name) need.
    """
    entries: list[EntryName] = [IdentityName(), CheckpointName(checkpoint.step, checkpoint.branch)]
    if checkpoint.branch:
        entries.append(BranchName(checkpoint.branch))
    found = {f"{JOURNAL_ROOM}/{name}" for name in entries}
    found |= files(*(state.runs for state in checkpoint.states))
    for given in checkpoint.positions:
        source = (sources or {}).get(given.source)
        if source is not None:
            logged = source.log_files(bytes(given.position))
            found |= {f"{LOG_ROOM}/{name}" for name in logged}
    return tuple(sorted(found))
