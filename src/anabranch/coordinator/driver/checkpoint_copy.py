"""Copying a checkpoint to an empty directory, as a pipeline that stands at that step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anabranch.coordinator.driver.checkpoint_files import JOURNAL_ROOM, checkpoint_files
from anabranch.coordinator.driver.journal_reader import read_checkpoints
from anabranch.errors import MissingRun, NameTaken, NoPipeline, OtherDataflow, SnapshotExpired
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import IdentityName, Journal
from anabranch.journal.lineage import decoded
from anabranch.records.commit import Checkpoint
from anabranch.records.leader import decode_identity
from anabranch.store.files import ensure_directory, list_names, store_errors, sync_files
from anabranch.store.integrity import check_files, state_files


class CheckpointCopy(msgspec.Struct, frozen=True):
    """Which checkpoint was copied, and how much."""

    step: int
    branch: int
    files: int
    bytes: int


def copy_checkpoint(
    directory: Path, dataflow: str, step: int | None, target: Path
) -> CheckpointCopy:
    """Copy a kept checkpoint, by default the newest, to a new or empty directory.

    Only reads the original, which may be running. Verifies the checksum of every copied run.
    Copies the journal last, so that an unfinished copy is no pipeline. Raises ``SnapshotExpired``
    if the checkpoint is dropped meanwhile.
    """
    checkpoint = _find_checkpoint(directory, dataflow, step)
    if list_names(target):
        raise NameTaken(
            "The directory to copy to is not empty", where=str(target), do="Name an empty one."
        )
    names = checkpoint_files(checkpoint)
    journal = [name for name in names if name.startswith(f"{JOURNAL_ROOM}/")]
    others = [name for name in names if not name.startswith(f"{JOURNAL_ROOM}/")]
    try:
        _copy(directory, target, others)
        check_files(target, state_files(checkpoint.states), whole=True)
        _copy(directory, target, journal)
    except (_Gone, MissingRun) as error:
        raise SnapshotExpired(
            f"Step {checkpoint.step} was dropped while it was copied",
            where=str(directory),
            do="Copy a newer checkpoint to another directory.",
        ) from error
    size = sum((target / name).stat().st_size for name in names)
    return CheckpointCopy(checkpoint.step, checkpoint.branch, len(names), size)


def _find_checkpoint(directory: Path, dataflow: str, step: int | None) -> Checkpoint:
    journal = Journal(FileDirectory(directory / JOURNAL_ROOM))
    entry = journal.find(IdentityName())
    if entry is None:
        raise NoPipeline(
            "There is no pipeline here", where=str(directory), do="Name its directory."
        )
    found = decoded(journal, entry, decode_identity).dataflow
    if found != dataflow:
        raise OtherDataflow(
            f"The directory holds the dataflow {found!r}, not {dataflow!r}",
            where=str(directory),
            do="Name the dataflow that the directory belongs to, or another directory.",
        )
    kept = {each.step: each for each in read_checkpoints(journal)}
    wanted = max(kept, default=None) if step is None else step
    if wanted not in kept:
        what = "There is no checkpoint" if step is None else f"Step {step} is not a kept checkpoint"
        known = ", ".join(map(str, sorted(kept))) or "none"
        raise SnapshotExpired(what, where=str(directory), do=f"Kept checkpoints: {known}.")
    return kept[wanted]


def _copy(directory: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        ensure_directory((target / name).parent)
        with store_errors(target / name, "copy"):
            # Not a hard link: damage to the one must not damage the other.
            try:
                shutil.copyfile(directory / name, target / name)
            except FileNotFoundError as error:
                raise _Gone(name) from error
    sync_files([target / name for name in names])
    sync_files(sorted({(target / name).parent for name in names}))


class _Gone(Exception):
    """A file to copy has disappeared."""
