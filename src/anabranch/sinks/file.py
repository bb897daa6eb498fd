"""The file sink: committed steps as files in a directory, each step once.

Operations
    A step's rows become ``<path>/step-<step>-<k>.<format>``, below a directory per value with
    ``partition_by``; then a manifest ``<path>/_manifest/step-<step>.json`` names them. Parquet and
    JSON lines are staged as they are published. Every other format, and these two with options or
    ``partition_by``, is staged as Parquet and written by Spark (``sinks/converted.py``).

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

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from anabranch.errors import BuildError
from anabranch.protocol.sinks import (
    Publisher,
    Retry,
    SinkContext,
    SparkFormat,
    StagedStep,
    as_retry,
)
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.columns import refused_columns, refused_partitions
from anabranch.sinks.converted import open_converted
from anabranch.sinks.json_lines import encode_json_lines
from anabranch.sinks.parquet import encode_parquet
from anabranch.sinks.target import (
    FORMAT,
    Link,
    Manifest,
    PublishedFile,
    check_target,
    claim_target,
    create_manifest,
    data_name,
    is_published,
    place,
    take_back,
)
from anabranch.sources.arguments import as_options, set_fields
from anabranch.store.files import link_file, sync_directory

__all__ = ["FilePublisher", "FileSink", "Link"]

_PLAIN = ("parquet", "json")
_RETRY = Retry()


@dataclass(frozen=True, slots=True, init=False)
class FileSink:
    """Files in a local or mounted directory, of any file format that Spark writes.

    ``options`` are those of Spark's writer. ``partition_by`` names columns whose values become
    directories (``day=7/``) and leave the files. A relative path is one below the working
    directory of the process that publishes. ``retry`` says for how long it is retried when the
    directory cannot be written.

    >>> FileSink("out", "csv", {"header": True}, partition_by="day").partition_by
    ('day',)
    """

    #: the files of later steps can be removed
    takes_back: ClassVar[bool] = True

    path: str
    format: str
    options: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...]
    retry: Retry

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str = "parquet",
        options: Mapping[str, object] | None = None,
        *,
        partition_by: str | Sequence[str] = (),
        retry: Retry = _RETRY,
    ) -> None:
        """Check and keep the arguments. Nothing is touched before ``open``."""
        set_fields(
            self,
            path=_as_path(path),
            format=_as_format(format),
            options=_as_options(options),
            partition_by=_as_names(partition_by),
            retry=as_retry(retry, "FileSink"),
        )

    @property
    def stage_format(self) -> str:
        """The encoding of staged files: the one they are published in, if Spark need not write."""
        return self.format if self._plain else "parquet"

    def refuses(self, schema: pa.Schema) -> str | None:
        """Say which columns this format cannot hold."""
        refused = refused_columns(schema, text_keys=self.format == "json")
        return refused or refused_partitions(schema, self.format, self.partition_by)

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Give the bytes of one file with these rows; columns keep their order and names."""
        return encode_json_lines(table) if self.stage_format == "json" else encode_parquet(table)

    def preflight(self, *, fresh: bool) -> None:
        """Raise if the directory cannot be made or written, or belongs to another pipeline."""
        check_target(Path(self.path).absolute(), fresh=fresh)

    def open(self, context: SinkContext) -> Publisher:
        """Claim the directory: only the process that holds the pipeline may."""
        target = Path(self.path).absolute()
        claim_target(target, context)
        if self._plain:
            return FilePublisher(target, self.format, context)
        form = SparkFormat(self.format, self.options, self.partition_by)
        return open_converted(target, form, context)

    @property
    def _plain(self) -> bool:
        return self.format in _PLAIN and not self.options and not self.partition_by


@dataclass(frozen=True, slots=True)
class FilePublisher:
    """Puts the staged files of committed steps in place, by ``link`` where that is possible."""

    target: Path
    extension: str
    context: SinkContext
    link: Link = link_file

    def publish(self, staged: StagedStep) -> None:
        """Put a step in place and write its manifest."""
        manifest = self._manifest(staged.step, staged.files)
        sink = self.context.sink
        if is_published(self.target, sink, staged.step, manifest.__eq__):
            return
        for file, published in zip(staged.files, manifest.files, strict=True):
            place(self.context.store, file, self.target / published.name, self.link)
        sync_directory(self.target)
        create_manifest(self.target, sink, manifest, manifest.__eq__)

    def take_back(self, step: int) -> None:
        """Remove the files and manifests of later steps."""
        take_back(self.target, step)

    def _manifest(self, step: int, files: Sequence[StagedFile]) -> Manifest:
        published = tuple(
            PublishedFile(
                name=data_name(step, k, self.extension),
                rows=file.rows,
                bytes=file.bytes,
                checksum=file.checksum,
                staged=file.name,
            )
            for k, file in enumerate(files)
        )
        return Manifest(FORMAT, step, sum(file.rows for file in files), published)


def _as_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"FileSink: path must be text or a Path, not {path!r}")
    if "://" in text:
        raise BuildError(
            "FileSink writes to directories, not to addresses",
            where=text,
            do="Give the path of a local or mounted directory.",
        )
    return text


def _as_format(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"FileSink: format must be the name of a file format, not {name!r}")
    return name.lower() if name.isidentifier() else name


def _as_options(options: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    if isinstance(options, Mapping) and any(str(name).lower() == "path" for name in options):
        raise ValueError("FileSink: option 'path' is not one of the writer's: use path=")
    return as_options(options)


def _as_names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"FileSink: partition_by takes names of columns, not {columns!r}")
    return names
