"""Steps in a format that Spark writes: staged as Parquet, converted by a job, put in place once.

Operations
    A job writes a step's rows to a directory of its own attempt, ``_publishing/.<random>``, below
    the target and so on the same file system. Its files are synced, a manifest is put beside them,
    and the directory is renamed to ``_publishing/step-<step>``: that is the *decision*, after which
    no other attempt counts. Then its files are linked to their final names, the manifest is
    created in its place, and the directory is removed.

Guarantees
    Those of ``sinks/file.py``. Two attempts may split the rows into other files; since nothing of
    an attempt is visible before the decision, what is seen is always of one attempt.

Failure and recovery
    A kill before the decision leaves a hidden directory, which the next start removes. After it,
    the files of the decided attempt are put in place, those that are there already left alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anabranch.errors import BuildError, CorruptStaged, PublishFailed, StoreUnavailable
from anabranch.protocol.sinks import Frames, SinkContext, SparkFormat, StagedStep
from anabranch.records.staged_file import StagedFile
from anabranch.sinks.parquet import staged_parquet
from anabranch.sinks.target import (
    FORMAT,
    Link,
    Manifest,
    PublishedFile,
    create_manifest,
    data_name,
    encode_manifest,
    is_published,
    manifest_path,
    other_history,
    place,
    published_step,
    read_manifest,
    take_back,
)
from anabranch.sources.discovery import overlooked
from anabranch.store.checksums import checksum_of
from anabranch.store.files import (
    bytes_of_file,
    create_file,
    ensure_directory,
    link_file,
    list_names,
    store_errors,
    sync_directory,
    sync_files,
)

_WORK = "_publishing"
_MANIFEST = "_manifest.json"


def open_converted(target: Path, form: SparkFormat, context: SinkContext) -> ConvertedPublisher:
    """Check that Spark can write the sink's rows like this, and clear what was left undone."""
    if context.frames is None:
        raise BuildError(
            f"Sink {context.sink!r} is written by Spark, which this pipeline runs without",
            do="Use format='parquet' or format='json' without options and partition_by.",
        )
    publisher = ConvertedPublisher(target, form, context.frames, context)
    publisher.prepare()
    return publisher


@dataclass(frozen=True, slots=True)
class ConvertedPublisher:
    """Lets Spark write the rows of committed steps, and puts the files in place."""

    target: Path
    form: SparkFormat
    frames: Frames
    context: SinkContext
    link: Link = link_file

    def prepare(self) -> None:
        """Remove attempts that do not count, and write a directory without rows to see it work."""
        for name in list_names(self._work):
            decided = published_step(name)
            if decided is None or manifest_path(self.target, decided).exists():
                _remove(self._work / name)
        scratch = self._attempt()
        try:
            self.frames.check(self.form, self.context.schema, scratch)
        finally:
            _remove(scratch)

    def publish(self, staged: StagedStep) -> None:
        """Put a step in place and write its manifest."""
        step, files = staged.step, staged.files
        decided = self._work / f"step-{step:012d}"
        ours = partial(self._is_of, files)
        if not is_published(self.target, self.context.sink, step, ours):
            manifest = self._decided(decided, step, files)
            self._put_in_place(manifest)
            self._reached("placed", step)
            create_manifest(self.target, self.context.sink, manifest, ours)
            self._reached("told", step)
        _remove(decided)

    def take_back(self, step: int) -> None:
        """Remove the files and manifests of later steps, and what was decided for them."""
        take_back(self.target, step)
        for name in list_names(self._work):
            if (published_step(name) or 0) > step:
                _remove(self._work / name)

    def _decided(self, decided: Path, step: int, files: Sequence[StagedFile]) -> Manifest:
        """Give the manifest of the attempt that counts: the one that was decided on, or a new."""
        if not decided.is_dir():
            self._convert(decided, step, files)
        sync_directory(self._work)
        found = read_manifest(decided / _MANIFEST)
        if found is None:
            raise self._torn(decided)
        if not self._is_of(files, found):
            raise other_history(self.context.sink, step, decided)
        return found

    def _convert(self, decided: Path, step: int, files: Sequence[StagedFile]) -> None:
        if not manifest_path(self.target, step).parent.is_dir():
            raise StoreUnavailable(
                f"The directory of sink {self.context.sink!r} is gone",
                where=str(self.target),
                do="Check that its disk is mounted, or restore the directory.",
            )
        paths = staged_parquet(self.context, step, files)
        attempt = self._attempt()
        try:
            self.frames.write(self.form, paths, self.context.schema, attempt)
            self._reached("written", step)
            manifest = self._described(attempt, decided, step, files)
            create_file(attempt / _MANIFEST, encode_manifest(manifest), within=attempt)
            with store_errors(decided, "publish"):
                attempt.rename(decided)
        except BaseException:
            _remove(attempt)
            raise
        self._reached("decided", step)

    def _described(
        self, attempt: Path, decided: Path, step: int, files: Sequence[StagedFile]
    ) -> Manifest:
        """Sync what an attempt wrote, and say under which names it will be published."""
        made = sorted(_data_files(attempt))
        if not made:
            raise PublishFailed(
                f"Spark wrote no file for sink {self.context.sink!r}",
                where=f"step {step}",
                do=f"{self.form.name!r} is probably not a file format: use a CallbackSink.",
            )
        sync_files([*made, *(Path(parent) for parent, _, _ in os.walk(attempt))])
        published = []
        for number, path in enumerate(made):
            inner = path.relative_to(attempt)
            name = data_name(step, number, path.name.partition(".")[2])
            data = bytes_of_file(path)
            published.append(
                PublishedFile(
                    name=str(inner.with_name(name)),
                    bytes=data.size,
                    checksum=checksum_of(data),
                    staged=str((decided / inner).relative_to(self.target)),
                )
            )
        staged = tuple(file.name for file in files)
        return Manifest(FORMAT, step, sum(f.rows for f in files), tuple(published), staged)

    def _put_in_place(self, manifest: Manifest) -> None:
        parents = {(self.target / file.name).parent for file in manifest.files}
        for parent in sorted(parents):
            ensure_directory(parent, within=self.target)
        for file in manifest.files:
            source = StagedFile(
                name=file.staged,
                sink=self.context.sink,
                rows=0,
                bytes=file.bytes,
                checksum=file.checksum,
            )
            try:
                place(self.target, source, self.target / file.name, self.link)
            except CorruptStaged as error:
                raise self._torn(self.target / file.staged) from error
        sync_files(sorted(parents))

    @staticmethod
    def _is_of(files: Sequence[StagedFile], manifest: Manifest) -> bool:
        return manifest.staged == tuple(file.name for file in files)

    def _torn(self, path: Path) -> PublishFailed:
        return PublishFailed(
            f"A step of sink {self.context.sink!r} was partly published, and the rest of what "
            "Spark wrote is missing or damaged",
            where=str(path),
            do=f"Remove the files of that step (step-…) and the directory {_WORK}, and run again: "
            "the step is published anew.",
        )

    def _attempt(self) -> Path:
        ensure_directory(self._work, within=self.target)
        return self._work / f".{secrets.token_hex(8)}"

    @property
    def _work(self) -> Path:
        return self.target / _WORK

    def _reached(self, point: str, step: int) -> None:
        self.context.reached(f"{point} {self.context.sink}", step)


def _data_files(directory: Path) -> Iterator[Path]:
    """Give the files that Spark would read."""
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not overlooked(name)]
        yield from (Path(parent, name) for name in names if not overlooked(name))


def _remove(directory: Path) -> None:
    # Whatever cannot be removed now is hidden, and the next start tries again.
    shutil.rmtree(directory, ignore_errors=True)
