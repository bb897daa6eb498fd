"""Copying a checkpoint to an empty directory, as a pipeline that stands at that step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anabranch.coordinator.driver.journal_reader import read_checkpoints
from anabranch.errors import MissingRun, NameTaken, NoPipeline, OtherDataflow, SnapshotExpired
from anabranch.journal.entry_names import BranchName, CheckpointName, EntryName, IdentityName
from anabranch.journal.envelope import unseal
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.journal.lineage import decoded
from anabranch.journal.port import JournalDirectory
from anabranch.records.commit import Checkpoint
from anabranch.records.leader import decode_identity
from anabranch.records.run_list import files
from anabranch.store.access import open_directory
from anabranch.store.files import ensure_directory, list_names, store_errors, sync_files
from anabranch.store.integrity import check_files, state_files

JOURNAL_ROOM = "journal"


class CheckpointCopy(msgspec.Struct, frozen=True):
    """Which checkpoint was copied, and how much."""

    step: int
    branch: int
    files: int
    bytes: int


def checkpoint_entries(checkpoint: Checkpoint) -> tuple[EntryName, ...]:
    """The journal entries of a checkpoint, in the order to copy them."""
    branch = (BranchName(checkpoint.branch),) if checkpoint.branch else ()
    # Without an identity there is no pipeline: a copy that ends early is none.
    return *branch, CheckpointName(checkpoint.step, checkpoint.branch), IdentityName()


def checkpoint_files(checkpoint: Checkpoint) -> frozenset[str]:
    """The runs, blobs and files of parts of a checkpoint, as paths below the store."""
    return files(*(state.runs for state in checkpoint.states)) | {*checkpoint.commit.files}


def copy_checkpoint(
    directory: Path, dataflow: str, step: int | None, target: Path
) -> CheckpointCopy:
    """Copy a kept checkpoint, by default the newest, to a new or empty directory.

    Only reads the original, which may be running. Verifies the checksum of every copied run.
    Copies the journal last, so that an unfinished copy is no pipeline. Raises ``SnapshotExpired``
    if the checkpoint is dropped meanwhile.
    """
    journal = FileDirectory(directory / JOURNAL_ROOM)
    checkpoint = _find_checkpoint(journal, directory, dataflow, step)
    if list_names(target):
        raise NameTaken(
            "The directory to copy to is not empty", where=str(target), do="Name an empty one."
        )
    open_directory(target)
    names, entries = sorted(checkpoint_files(checkpoint)), checkpoint_entries(checkpoint)
    try:
        _copy(directory, target, names)
        check_files(target, state_files(checkpoint.states), whole=True)
        ensure_directory(target / JOURNAL_ROOM)
        size = _copy_entries(journal, FileDirectory(target / JOURNAL_ROOM), entries)
    except (_Gone, MissingRun) as error:
        raise SnapshotExpired(
            f"Step {checkpoint.step} was dropped while it was copied",
            where=str(directory),
            do="Copy a newer checkpoint to another directory.",
        ) from error
    size += sum((target / name).stat().st_size for name in names)
    return CheckpointCopy(checkpoint.step, checkpoint.branch, len(names) + len(entries), size)


def _find_checkpoint(
    entries: JournalDirectory, directory: Path, dataflow: str, step: int | None
) -> Checkpoint:
    journal = Journal(entries)
    entry = journal.identity()
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


def _copy_entries(
    source: JournalDirectory, target: JournalDirectory, names: Sequence[EntryName]
) -> int:
    """Copy journal entries that are whole, each durably; return their bytes."""
    size = 0
    for name in names:
        data = source.read(str(name))
        if data is None:
            raise _Gone(name)
        unseal(name, data, source.where(str(name)))
        target.create(str(name), data)
        size += len(data)
    return size


class _Gone(Exception):
    """A file to copy has disappeared."""
