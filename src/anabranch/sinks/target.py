"""A directory that committed steps are put into: its owner, its manifests, its files.

Data files appear under ``step-<step>-<k>.<extension>``, whole; a manifest
``_manifest/step-<step>.json`` that names them appears after the last one. Spark ignores names that
start with ``_`` or ``.``, so a plain read of the directory sees data files only.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from anabranch.errors import FutureFormat, NameTaken, PublishFailed, StoreUnavailable, TargetTaken
from anabranch.protocol.sinks import SinkContext
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.staging import read_staged
from anabranch.sources.discovery import overlooked
from anabranch.store.checksums import has_checksum
from anabranch.store.files import (
    create_file,
    ensure_directory,
    list_names,
    put_file,
    read_file,
    remove_file,
    remove_leftovers,
    store_errors,
    sync_directory,
    sync_files,
)

FORMAT = 1

Link = Callable[[Path, Path], None]

_MANIFESTS = "_manifest"
_OF_STEP = re.compile(r"step-(\d{12})(?:-\d+)?(?:\.|$)")
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A data file as the manifest names it; its rows are not counted where Spark wrote it."""

    name: str
    rows: int | None = None
    bytes: int
    checksum: str
    #: the file it was made from
    staged: str


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step published: one small JSON file per step that had output.

    ``staged`` names the staged files of the step where Spark made others of them.
    """

    format: int
    step: int
    rows: int
    files: tuple[PublishedFile, ...]
    staged: tuple[str, ...] = ()


def claim_target(target: Path, context: SinkContext) -> None:
    """Make the directory if needed, check that it can be written, and claim it.

    Only the process that holds the pipeline may: what killed publishers left aside is cleared.
    """
    ensure_directory(target / _MANIFESTS)
    for directory in (target, target / _MANIFESTS):
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StoreUnavailable(
                f"Sink {context.sink!r} may not write to its directory",
                where=str(directory),
                do="Change its permissions or give the sink another path.",
            )
        remove_leftovers(directory)
    path = _owner_path(target)
    mine = msgspec.json.encode({"pipeline": context.pipeline, "sink": context.sink}) + b"\n"
    found = read_file(path)
    if found is None:
        try:
            return create_file(path, mine)
        except NameTaken:
            found = read_file(path)
    if found != mine:
        raise _taken(path, f"The directory of sink {context.sink!r}")


def check_target(target: Path, *, fresh: bool) -> None:
    """Raise what ``claim_target`` would, as far as it can be told without changing anything.

    The output that a directory holds is another pipeline's if this one is ``fresh``.
    """
    there = next(place for place in (target, *target.parents) if place.exists())
    if not there.is_dir():
        raise StoreUnavailable(
            "it cannot have its directory: a file is in the way",
            where=str(there),
            do="Remove the file or give the sink another path.",
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreUnavailable(
            "it may not write to its directory",
            where=str(there),
            do="Change its permissions or give the sink another path.",
        )
    if fresh and _owner_path(target).exists():
        raise _taken(_owner_path(target), "its directory")


def manifest_path(target: Path, step: int) -> Path:
    """Where the manifest of a step stands."""
    return target / _MANIFESTS / f"step-{step:012d}.json"


def data_name(step: int, number: int, extension: str) -> str:
    """The name of a step's file.

    >>> data_name(7, 0, "json")
    'step-000000000007-0.json'
    """
    return f"step-{step:012d}-{number}" + (f".{extension}" if extension else "")


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest as it stands in its file."""
    return msgspec.json.encode(manifest) + b"\n"


def read_manifest(path: Path) -> Manifest | None:
    """Read a manifest; ``None`` if there is none, an error if it is damaged or of the future."""
    data = read_file(path)
    return None if data is None else _decoded(path, data)


def is_published(target: Path, sink: str, step: int, is_ours: Callable[[Manifest], bool]) -> bool:
    """Whether a step has its manifest, durably; one that is not ours is an error."""
    path = manifest_path(target, step)
    found = read_manifest(path)
    if found is None:
        return False
    if not is_ours(found):
        raise other_history(sink, step, path)
    # Whoever wrote it may have been killed before its name was durable.
    sync_directory(path.parent)
    return True


def create_manifest(
    target: Path, sink: str, manifest: Manifest, is_ours: Callable[[Manifest], bool]
) -> None:
    """Write a step's manifest, durably, unless it has one; one that is not ours is an error."""
    path = manifest_path(target, manifest.step)
    try:
        create_file(path, encode_manifest(manifest), within=target)
    except NameTaken:
        is_published(target, sink, manifest.step, is_ours)


def other_history(sink: str, step: int, path: Path) -> PublishFailed:
    """The error for a step that was published from other files than the journal names."""
    return PublishFailed(
        f"Step {step} of sink {sink!r} is in its directory already, with other files than the "
        "journal names",
        where=str(path),
        do="The state was probably set back to an older copy. Remove the output from this "
        "step on together with its manifests, or give the sink another path.",
    )


def place(root: Path, file: StagedFile, final: Path, link: Link) -> None:
    """Put a file of ``root`` under its final name, where an earlier attempt has not done so.

    By a hard link; where that is impossible (another disk, no hard links) it is copied. The name
    is not synced. Nothing that was there before is overwritten.
    """
    if final.exists():
        return _check_same(file, final)
    data = read_staged(root, file)
    with store_errors(final, "publish"):
        try:
            link(root / file.name, final)
        except FileExistsError:
            _check_same(file, final)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            put_file(final, data)


def published_step(name: str) -> int | None:
    """The step that a data file, a manifest or an attempt is of.

    >>> published_step("step-000000000007-0.json"), published_step("step-000000000008")
    (7, 8)
    >>> published_step("step-1.csv") is None
    True
    """
    found = _OF_STEP.match(name)
    return None if found is None else int(found[1])


def take_back(target: Path, step: int) -> None:
    """Remove the manifests of later steps, then their files, durably.

    Files are found by their names, so that a step without a manifest goes too. Manifests go
    first, newest first: none ever names a file that is gone by this.
    """
    manifests = target / _MANIFESTS
    for name in sorted(_later(list_names(manifests), step), reverse=True):
        remove_file(manifests / name)
    sync_directory(manifests)
    touched = []
    with store_errors(target, "list"):
        for parent, directories, names in os.walk(target):
            directories[:] = [name for name in directories if not overlooked(name)]
            later = _later(names, step)
            for name in later:
                remove_file(Path(parent, name))
            if later:
                touched.append(Path(parent))
    sync_files(touched)


def _later(names: list[str], step: int) -> list[str]:
    return [name for name in names if (published_step(name) or 0) > step]


def _check_same(file: StagedFile, final: Path) -> None:
    """Accept a file that an interrupted attempt put there; never touch anything else."""
    with store_errors(final, "read"):
        if final.is_file() and has_checksum(final.read_bytes(), file.checksum):
            return
    raise PublishFailed(
        f"Sink {file.sink!r} cannot publish under a name that is taken by a file with another "
        "content",
        where=str(final),
        do="Move that file away; publishing then goes on by itself. Nothing was overwritten.",
    )


def _owner_path(target: Path) -> Path:
    return target / _MANIFESTS / "owner.json"


def _taken(owner: Path, place: str) -> TargetTaken:
    return TargetTaken(
        f"{place} holds the output of another pipeline or sink",
        where=str(owner),
        do="This file says so: restore it if it is damaged. Else give the sink another path, or "
        "remove the old output together with its _manifest directory.",
    )


class _AnyManifest(msgspec.Struct):
    format: int


def _decoded(path: Path, data: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_AnyManifest).format
        if version > FORMAT:
            raise FutureFormat(
                f"A manifest has format {version}; this version reads up to {FORMAT}",
                where=str(path),
                do="Nothing was changed. Use a newer version of Anabranch.",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise PublishFailed(
            f"A manifest cannot be read: {error}",
            where=str(path),
            do="If the files of this step are complete, restore the manifest from a copy. "
            "Otherwise remove it, and the step is published again.",
        ) from error
