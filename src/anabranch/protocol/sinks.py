"""What a sink is: two verbs, *stage* and *publish*.

Staging happens in the tasks of a step, before its commit: a sink only says how rows become bytes,
and ``sinks/staging.py`` writes them to the store under names of their own attempt. Publishing
happens after the commit that names those files. It is repeated until it succeeds, in step order,
in a thread of the sink's own, so a publisher must be idempotent: a step that was published before,
wholly or in part, must look as if it had been published once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from anabranch.records.staged_file import StagedFile


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """A file format as Spark's writer is told of it: options and partition columns included."""

    name: str
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()


class Frames(Protocol):
    """DataFrames over staged Parquet files: what publishing needs of Spark.

    Its jobs run beside the steps and give way to them.
    """

    def check(self, form: SparkFormat, schema: pa.Schema, scratch: Path) -> None:
        """Raise ``BuildError`` unless rows of this schema can be written as such files.

        Writes a directory without rows at ``scratch``, which the caller removes.
        """
        ...

    def write(
        self, form: SparkFormat, files: Sequence[Path], schema: pa.Schema, directory: Path
    ) -> None:
        """Write the rows of staged files as a new directory. Not synced, and whole only at the end.

        Raises ``PublishFailed``.
        """
        ...

    def frame(self, files: Sequence[Path], schema: pa.Schema) -> Any:  # noqa: ANN401
        """The rows of staged files as a DataFrame with the columns of the schema."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is told when it is opened for publishing."""

    #: directory that the names of staged files are relative to
    store: Path
    #: identity of the pipeline: the same over restarts, different for every other pipeline
    pipeline: str
    #: name of the sink operator
    sink: str
    #: columns of the rows that are staged
    schema: pa.Schema = field(default_factory=lambda: pa.schema(()))
    #: Spark, where the pipeline runs on it
    frames: Frames | None = None
    #: told of named points of publishing
    reached: Callable[[str, int], None] = lambda point, step: None


@dataclass(frozen=True, slots=True)
class StagedStep:
    """What a committed step has for one sink: at least one file.

    ``branch`` and ``step`` name it: a pipeline that was set back may commit a step number again,
    in another branch. ``files`` are those that the commit names, in its order: the same on every
    repetition.
    """

    branch: int
    step: int
    files: tuple[StagedFile, ...]


class Publisher(Protocol):
    """The side of a sink that makes committed steps visible. Used by one thread at a time."""

    def publish(self, staged: StagedStep) -> None:
        """Make a committed step visible, durably, exactly once: idempotent.

        Raises ``AnabranchError`` when it cannot; nothing is lost by that, it is asked again.
        """
        ...


@runtime_checkable
class PublishingMany(Publisher, Protocol):
    """A publisher that takes several steps at once, such as a database in one transaction."""

    def publish_many(self, steps: Sequence[StagedStep]) -> None:
        """Make committed steps visible, durably, each exactly once; in place of ``publish``.

        They are all that wait, oldest first, up to a bound. After a failure the same steps come
        again, perhaps with more behind them: what of them was published is for the target to know.
        """
        ...


@runtime_checkable
class TakingBack(Publisher, Protocol):
    """A publisher that can take back what it has published, when a pipeline is set back."""

    def take_back(self, step: int) -> None:
        """Remove what was published after a step, durably; what is gone already is fine.

        Called before anything is published, and again after a crash.
        """
        ...


@runtime_checkable
class Sink(Protocol):
    """What a user passes to ``Stream.sink``: frozen and picklable."""

    @property
    def stage_format(self) -> str:
        """The name of the encoding, which is also the extension of staged files."""
        ...

    def refuses(self, schema: pa.Schema) -> str | None:
        """Say why rows of this schema cannot be written, ``None`` if they can."""
        ...

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Turn rows into the bytes of one staged file. Runs in tasks; deterministic."""
        ...

    def open(self, context: SinkContext) -> Publisher:
        """Check that the place to publish to is usable, and give its publisher."""
        ...


def takes_back(sink: Sink) -> bool:
    """Whether the publishers of a sink are ``TakingBack``: a sink that is says so itself."""
    return bool(getattr(sink, "takes_back", False))


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """A sink for rows that are to be counted and nothing else: they are not staged."""

    @property
    def takes_back(self) -> bool:
        """Nothing was published."""
        return True

    @property
    def stage_format(self) -> str:
        """Nothing is staged."""
        return "none"

    def refuses(self, schema: pa.Schema) -> str | None:
        """Refuse nothing."""
        return None

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Give no bytes."""
        return pa.py_buffer(b"")

    def open(self, context: SinkContext) -> Publisher:
        """Give a publisher that publishes nothing."""
        return _NoPublisher()


@dataclass(frozen=True, slots=True)
class DeadLetterRows(DroppedRows):
    """A sink for rows that go on to the dead letters of the dataflow: those are what is staged."""


class _NoPublisher:
    def publish(self, staged: StagedStep) -> None:
        """Do nothing: dropped rows have no files."""

    def take_back(self, step: int) -> None:
        """Do nothing: nothing was published."""
