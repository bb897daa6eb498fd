"""The file sink: committed steps as files in a directory, each step once.

Operations
    Staged files become ``<path>/step-<step>-<k>.<format>``; then a manifest
    ``<path>/_manifest/step-<step>.json`` names them. Spark ignores names that start with ``_`` or
    ``.``, so ``spark.read.parquet(path)`` sees data files only.

Guarantees
    A file appears whole, and only after its step was committed. When ``publish`` returns, files
    and manifest survive a power cut. A step with a manifest is done for good, also when somebody
    removed or compacted its files since. Nothing that was there before is overwritten.

Non-guarantees
    The files of one step appear one after the other; who needs a whole step reads the manifest.

Failure and recovery
    After a crash in the middle, the next ``publish`` of that step completes it. A directory that
    belongs to another pipeline or another sink is refused with ``TargetTaken``: its steps have
    the same numbers, and would pass for ours.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import (
    BuildError,
    FutureFormat,
    NameTaken,
    PublishFailed,
    StoreUnavailable,
    TargetTaken,
)
from anabranch.sinks.columns import refused_columns
from anabranch.sinks.json_lines import encode_json_lines
from anabranch.sinks.port import SinkContext, StagedFile
from anabranch.sinks.staging import checksum, read_staged
from anabranch.state.files import (
    create_file,
    ensure_directory,
    put_file,
    read_file,
    store_errors,
    sweep,
    sync_directory,
)

FORMAT = 1

Link = Callable[[Path, Path], None]

_FORMATS = ("parquet", "json")
_MANIFESTS = "_manifest"
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files in a local or mounted directory, Parquet or JSON lines.

    A relative path is one below the working directory of the process that publishes.
    """

    path: str | os.PathLike[str]
    format: Literal["parquet", "json"] = "parquet"

    def __post_init__(self) -> None:
        """Refuse what can never be opened."""
        if not isinstance(os.fspath(self.path), str):
            raise TypeError(f"FileSink: path must be text or a Path, not {self.path!r}")
        if self.format not in _FORMATS:
            raise BuildError(
                f"FileSink cannot write format {self.format!r}",
                where=str(self.path),
                do="Use format='parquet' or format='json'.",
            )
        if "://" in os.fspath(self.path):
            raise BuildError(
                "FileSink writes to directories, not to addresses",
                where=str(self.path),
                do="Give the path of a local or mounted directory.",
            )

    @property
    def stage_format(self) -> str:
        """The encoding of staged files: the one they are published in."""
        return self.format

    def refuses(self, schema: pa.Schema) -> str | None:
        """Say which columns this format cannot hold."""
        return refused_columns(schema, text_keys=self.format == "json")

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Give the bytes of one file with these rows; columns keep their order and names."""
        return encode_json_lines(table) if self.format == "json" else _encode_parquet(table)

    def open(self, context: SinkContext) -> FilePublisher:
        """Make the directory if needed, check that it can be written, and claim it.

        Only the process that holds the pipeline may open it: what killed publishers left aside
        is cleared.
        """
        target = Path(self.path).absolute()
        ensure_directory(target / _MANIFESTS)
        for directory in (target, target / _MANIFESTS):
            if not os.access(directory, os.W_OK | os.X_OK):
                raise StoreUnavailable(
                    f"Sink {context.sink!r} may not write to its directory",
                    where=str(directory),
                    do="Change its permissions or give the sink another path.",
                )
            sweep(directory)
        _claim(target / _MANIFESTS / "owner.json", context)
        return FilePublisher(target, self.format, context)


class _Owner(msgspec.Struct, frozen=True):
    pipeline: str
    sink: str


class PublishedFile(msgspec.Struct, frozen=True):
    """A data file as the manifest names it."""

    name: str
    rows: int
    bytes: int
    checksum: str
    #: the staged file it was made from
    staged: str


class Manifest(msgspec.Struct, frozen=True):
    """What a step published: one small JSON file per step that had output."""

    format: int
    step: int
    rows: int
    files: tuple[PublishedFile, ...]


@dataclass(frozen=True, slots=True)
class FilePublisher:
    """Puts the staged files of committed steps in place.

    ``link`` makes a hard link; where that is impossible (another disk, no hard links) files are
    copied.
    """

    target: Path
    extension: str
    context: SinkContext
    link: Link = os.link

    def publish(self, step: int, files: Sequence[StagedFile]) -> None:
        """Put a step in place and write its manifest; a step without files leaves no trace."""
        if not files:
            return
        manifest = self._manifest(step, files)
        path = self.target / _MANIFESTS / f"step-{step:012d}.json"
        if self._published(path, manifest):
            return
        for file, published in zip(files, manifest.files, strict=True):
            self._place(file, self.target / published.name)
        sync_directory(self.target)
        try:
            create_file(path, msgspec.json.encode(manifest) + b"\n", within=self.target)
        except NameTaken:
            self._published(path, manifest)

    def _manifest(self, step: int, files: Sequence[StagedFile]) -> Manifest:
        published = tuple(
            PublishedFile(
                name=f"step-{step:012d}-{k}.{self.extension}",
                rows=file.rows,
                bytes=file.bytes,
                checksum=file.checksum,
                staged=file.name,
            )
            for k, file in enumerate(files)
        )
        return Manifest(FORMAT, step, sum(file.rows for file in files), published)

    def _published(self, path: Path, manifest: Manifest) -> bool:
        """Say whether the step has its manifest already; one of other files is an error."""
        data = read_file(path)
        if data is None:
            return False
        if _decoded(path, data) != manifest:
            raise PublishFailed(
                f"Step {manifest.step} of sink {self.context.sink!r} is in its directory already, "
                "with other files than the journal names",
                where=str(path),
                do="The state was probably set back to an older copy. Remove the output from this "
                "step on together with its manifests, or give the sink another path.",
            )
        # Whoever wrote it may have been killed before its name was durable.
        sync_directory(path.parent)
        return True

    def _place(self, file: StagedFile, final: Path) -> None:
        data = read_staged(self.context.store, file)
        with store_errors(final, "publish"):
            try:
                self.link(self.context.store / file.name, final)
            except FileExistsError:
                self._check_same(file, final)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                if final.exists():
                    self._check_same(file, final)
                else:
                    put_file(final, data)

    def _check_same(self, file: StagedFile, final: Path) -> None:
        """Accept a file that an interrupted attempt put there; never touch anything else."""
        if final.is_file() and checksum(final.read_bytes()) == file.checksum:
            return
        raise PublishFailed(
            f"Sink {self.context.sink!r} cannot publish under a name that is taken by a file "
            "with another content",
            where=str(final),
            do="Move that file away; publishing then goes on by itself. Nothing was overwritten.",
        )


def _claim(path: Path, context: SinkContext) -> None:
    mine = _Owner(context.pipeline, context.sink)
    found = read_file(path)
    if found is None:
        try:
            return create_file(path, msgspec.json.encode(mine) + b"\n")
        except NameTaken:
            found = read_file(path)
    if found is None or not _is_owner(found, mine):
        raise TargetTaken(
            f"The directory of sink {context.sink!r} holds the output of another pipeline or sink",
            where=str(path.parent.parent),
            do="Give the sink another path, or remove the old output together with its _manifest "
            "directory.",
        )


def _is_owner(data: bytes, owner: _Owner) -> bool:
    try:
        return msgspec.json.decode(data, type=_Owner) == owner
    except msgspec.DecodeError:
        return False


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


def _encode_parquet(table: pa.Table) -> pa.Buffer:
    """Give a Parquet file whose types Spark reads as they were.

    Microsecond timestamps with a zone are adjusted to UTC (`timestamp`), those without are not
    (`timestamp_ntz`). Without dictionaries: building them cost more than half of the time, and
    the compression finds most repetitions all the same.
    """
    out = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None),
        out,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        coerce_timestamps="us",
        store_schema=False,
    )
    return out.getvalue()
