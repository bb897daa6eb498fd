"""The interface of sinks: *stage* before the commit, *publish* after it.

The tasks of a step stage its rows: the sink encodes them, and ``sinks/staging.py`` writes them to
the store. After the commit that names these files, the sink's own thread publishes them, in step
order, and retries until it succeeds. So a publisher must be idempotent: a step that was published
before, wholly or in part, must look as if it had been published once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from anabranch.records.staged_file import StagedFile


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """A file format of Spark's writer, with options and partition columns."""

    name: str
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()


class Frames(Protocol):
    """DataFrames over staged Parquet files. Its Spark jobs give way to steps."""

    def check(self, form: SparkFormat, schema: pa.Schema, scratch: Path) -> None:
        """Raise ``BuildError`` unless rows of this schema can be written in this format.

        Writes an empty directory at ``scratch``, which the caller removes.
        """

    def write(
        self, form: SparkFormat, files: Sequence[Path], schema: pa.Schema, directory: Path
    ) -> None:
        """Write the rows of staged files to a new directory, complete on return but not synced.

        Raises ``PublishFailed``.
        """

    def frame(self, files: Sequence[Path], schema: pa.Schema) -> Any:  # noqa: ANN401
        """The rows of staged files as a DataFrame."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink gets when it is opened for publishing."""

    #: the directory of staged files
    store: Path
    #: the identity of the pipeline: unique, and the same over restarts
    pipeline: str
    #: the name of the sink operator
    sink: str
    #: the columns of staged rows
    schema: pa.Schema = field(default_factory=lambda: pa.schema(()))
    #: Spark, if the pipeline runs on it
    frames: Frames | None = None
    #: called at named points of publishing
    reached: Callable[[str, int], None] = lambda point, step: None


@dataclass(frozen=True, slots=True)
class Retry:
    """How a sink that fails is retried: with exponential back-off.

    The first retry comes ``initial`` seconds after the failure, each further one ``multiplier``
    times as long after the one before, but never more than ``maximum`` seconds. A sink that has
    failed for ``timeout`` seconds on end stops the pipeline: 0 does not retry, None never gives up.

    >>> Retry(timeout=60, maximum=5)
    Retry(timeout=60, initial=0.1, maximum=5, multiplier=2.0)
    """

    timeout: float | None = 600.0
    initial: float = 0.1
    maximum: float = 30.0
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        """Reject what would not wait at all, or wait less and less."""
        if self.timeout is not None and not self.timeout >= 0:
            raise ValueError(f"timeout must not be negative, or None, not {self.timeout!r}")
        if not self.initial > 0:
            raise ValueError(f"initial must be above 0, not {self.initial!r}")
        if not self.maximum >= self.initial:
            raise ValueError(f"maximum must be at least initial={self.initial:g}")
        if not self.multiplier >= 1:
            raise ValueError(f"multiplier must be at least 1, not {self.multiplier!r}")

    def delay(self, before: float | None) -> float:
        """How long to wait for the next try, given how long it was for the one before.

        >>> Retry().delay(None), Retry().delay(0.1), Retry().delay(29.0)
        (0.1, 0.2, 30.0)
        """
        return self.initial if before is None else min(before * self.multiplier, self.maximum)


@dataclass(frozen=True, slots=True)
class StagedStep:
    """The output of a committed step for one sink: at least one file.

    ``branch`` and ``step`` identify it: after a rewind, another branch may commit the same step
    number. ``files`` are in the commit's order, the same in every retry.
    """

    branch: int
    step: int
    files: tuple[StagedFile, ...]


class Publisher(Protocol):
    """Makes committed steps visible. Used by one thread at a time."""

    def publish(self, staged: StagedStep) -> None:
        """Make a committed step visible, durably and exactly once. Idempotent.

        Raises ``AnabranchError`` if it cannot, and is called again.
        """


@runtime_checkable
class PublishingMany(Publisher, Protocol):
    """A publisher of several steps at once, such as one database transaction."""

    def publish_many(self, steps: Sequence[StagedStep]) -> None:
        """Make committed steps visible, durably and each exactly once; replaces ``publish``.

        They are all waiting steps up to a limit, oldest first. After a failure the same steps come
        again, perhaps followed by more: the target must know which of them were published.
        """


@runtime_checkable
class TakingBack(Publisher, Protocol):
    """A publisher that can take back published steps after a rewind."""

    def take_back(self, step: int) -> None:
        """Remove everything published after a step, durably. Idempotent.

        Called before anything is published, and again after a crash.
        """


@runtime_checkable
class Sink(Protocol):
    """What a user passes to ``Stream.sink``: frozen and picklable."""

    @property
    def stage_format(self) -> str:
        """The name of the encoding, which is also the extension of staged files."""

    def refuses(self, schema: pa.Schema) -> str | None:
        """Why rows of this schema cannot be written; None if they can."""

    def encode(self, table: pa.Table) -> pa.Buffer:
        """Encode rows as one staged file. Runs in tasks; deterministic."""

    def open(self, context: SinkContext) -> Publisher:
        """Check that the target is usable, and return its publisher."""


SinkOpener: TypeAlias = Callable[[Sink, SinkContext], Publisher]
"""Opens a sink. By default its own ``open``."""


def open_sink_plainly(sink: Sink, context: SinkContext) -> Publisher:
    """Let the sink open itself."""
    return sink.open(context)


def takes_back(sink: Sink) -> bool:
    """Whether the publishers of a sink are ``TakingBack``, by the sink's own word."""
    return bool(getattr(sink, "takes_back", False))


def as_retry(retry: Retry, sink: str) -> Retry:
    """Take what a user passes to a sink as ``retry``."""
    if not isinstance(retry, Retry):
        raise TypeError(f"{sink}: retry must be an ab.Retry, not {retry!r}")
    return retry


def retry_of(sink: Sink) -> Retry:
    """How a sink is retried: by its ``retry``, where it has one."""
    found = getattr(sink, "retry", None)
    return found if isinstance(found, Retry) else Retry()


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """A sink that only counts rows: they are not staged."""

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
        """No bytes."""
        return pa.py_buffer(b"")

    def open(self, context: SinkContext) -> Publisher:
        """A publisher that publishes nothing."""
        return _NoPublisher()


@dataclass(frozen=True, slots=True)
class DeadLetterRows(DroppedRows):
    """A sink for rows that become dead letters, which are staged elsewhere."""


class _NoPublisher:
    def publish(self, staged: StagedStep) -> None:
        """Do nothing: dropped rows have no files."""

    def take_back(self, step: int) -> None:
        """Do nothing: nothing was published."""
