"""The interface of sources.

A source is an inert, picklable description that a user puts into a dataflow. The node *opens* it at
a position and gets an enumerator, which names input as *slices*. A plan holds the slices of its
step, and tasks read them. So a retried plan reads the same rows, and the position in a commit says
exactly what has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

import pyarrow as pa

from anabranch.records.slices import Slice, SourceSlice

POSITION = "_position"
"""The column in which a batch of a Python source may hold the positions of its rows."""

OWN_TIME = "_time"
"""The column in which a batch of a Python source holds the times of its rows, if it tells them."""

SliceT_contra = TypeVar("SliceT_contra", bound=SourceSlice, contravariant=True)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most to read from a source in this step, beside its own limits; None is unlimited.

    A source honours what it can count ahead (not the rows of a file). It always hands out at least
    one slice if there is input, so that a tight limit never blocks it.
    """

    rows: int | None = None
    bytes: int | None = None


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step reads from one source.

    ``position`` is the source's position after these slices, as JSON for the journal. ``rows`` is
    their number of rows, if known. ``ended``: no more input will follow. ``full``: more input waits
    than fits into the step. ``partitions`` is the current number if that may change: it only grows,
    and new partitions get the highest numbers.
    """

    slices: tuple[Slice, ...]
    position: bytes
    rows: int | None
    ended: bool
    full: bool = False
    partitions: int | None = None


class SourceLog(Protocol):
    """Files in the store for what a position needs but is too large for the journal.

    A file counts only if a journalled position names it (``Source.log_files``); others are removed.
    """

    def write(self, name_hint: str, data: bytes) -> str:
        """Create a file durably; returns its unique name."""

    def read(self, name: str) -> bytes:
        """Read a file."""


class Enumerator(Protocol):
    """An open source. Not shared between threads.

    ``next`` advances even if its step is never committed: after a failed step, reopen the source at
    the last journalled position.
    """

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """The next input; no slices if there is nothing new. Never waits, unless ``blocks``."""

    def files(self) -> frozenset[str]:
        """The files in the source log that the current position needs."""


@runtime_checkable
class Growing(Enumerator, Protocol):
    """An enumerator that can add input to a step that is not planned yet."""

    def more(self, limit: Limit = NO_LIMIT) -> Batch:
        """More input for the step of the last ``next``.

        The source's own limits hold for all of it together; ``limit`` is for the addition.
        """


@runtime_checkable
class Attended(Enumerator, Protocol):
    """An enumerator with outside resources: it learns of commits, and must be closed."""

    def acknowledge(self, position: bytes) -> None:
        """Everything up to this position is committed (R5).

        Called after every commit with a position of this source, and again after a restart.
        """

    def close(self) -> None:
        """Release everything. Also called after a failure, and possibly twice."""


@runtime_checkable
class Forgetting(Enumerator, Protocol):
    """An enumerator that keeps input for replays until it may forget it."""

    def forget(self, positions: Sequence[bytes]) -> None:
        """Nothing before all of these positions will be read again.

        They are those of the last commit and of every kept checkpoint.
        """


class Source(Protocol):
    """What a user puts into a dataflow: frozen, picklable, inert until opened."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    def open(self, position: bytes | None, log: SourceLog) -> Enumerator:
        """Start exactly after ``position``, or at the beginning if None.

        Raises ``ChangedDataflow`` for the position of another kind of source.
        """

    def check(self, slices: Sequence[Slice]) -> None:
        """Raise if the input that slices name has changed since they were planned.

        Called before a step runs, and again before it is committed.
        """

    def log_files(self, position: bytes) -> frozenset[str]:
        """The files in the source log that this position needs, for retention."""


class Opener(Protocol):
    """Opens the sources of a pipeline; some need more than their description."""

    def __call__(
        self, name: str, source: Source, position: bytes | None, log: SourceLog
    ) -> Enumerator:
        """Open the source of this name, like ``Source.open``."""


class Separating(Source, Protocol):
    """A source that can separate malformed rows instead of failing."""

    @property
    def malformed(self) -> str:
        """What to do with malformed rows: ``fail``, ``drop`` or ``dead-letter``."""

    def separated(self) -> Source:
        """This source with two more columns, the last ones: a malformed row's raw text and file.

        The text is NULL in well-formed rows.
        """


def blocks(source: Source) -> bool:
    """Whether its enumerator may wait, as one that uses a network: it gets its own thread."""
    return bool(getattr(source, "blocking", False))


def tells_times(source: Source) -> bool:
    """Whether it tells the event times of its rows beside them, as a log does that has its own."""
    return bool(getattr(source, "tells_times", False))


class SparkRead(Source, Protocol):
    """A source whose slices Spark reads, as files."""

    def paths(self, slices: Sequence[Slice]) -> tuple[str, ...]:
        """The files of its slices, in order."""


def read_by_spark(source: Source) -> TypeGuard[SparkRead]:
    """Whether Spark reads this source's slices; else Python tasks do."""
    return hasattr(source, "paths")


@runtime_checkable
class PythonSource(Source, Protocol[SliceT_contra]):
    """A source whose slices Python tasks read."""

    @property
    def partitions(self) -> int:
        """The number of partitions, at least. Slices of one partition never overlap."""

    def read(self, slice: SliceT_contra, /) -> Iterator[pa.RecordBatch]:
        """Read a slice: batches with the schema's columns, in order of position.

        Rows are numbered from ``slice.first`` on, unless a batch has a column ``_position`` of
        ascending integers, possibly with gaps. If ``slice.rows`` is set, there are that many. With
        ``tells_times``, each batch has a column ``_time``: timestamps in microseconds, none NULL.
        Deterministic: the same slice gives the same rows in any process, any number of times.
        """
