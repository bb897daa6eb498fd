"""What a source is, for the rest of the system.

A source is an inert, picklable description that a user writes into a dataflow. On the driver it is
*opened* at a position and becomes an enumerator, which hands out *slices*: names of input, never
input itself. Slices go into the plan of a step; tasks read them. So a plan that runs again reads
the same rows, and a position in a commit says exactly what has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

import pyarrow as pa

from anabranch.records.slices import Slice, SourceSlice

POSITION = "_position"
"""The column with which a batch that a Python source reads may say where its rows stand."""

SliceT_contra = TypeVar("SliceT_contra", bound=SourceSlice, contravariant=True)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that the caller wants from a source in this step. None: no limit.

    It can only tighten the source's own bounds. A source heeds what it can count beforehand (a
    file's rows cannot be) and always hands out at least one slice when there is something, so that
    a tight limit never stops a source.
    """

    rows: int | None = None
    bytes: int | None = None


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's share of a source.

    `position` is where the source stands after these slices: JSON, to be journalled with them.
    `rows` is their number of rows where the source knows it. `ended`: nothing will ever follow.
    `full`: more waits than fits into the step. `partitions` is how many the source has by now, if
    that changes: they become more, never fewer, and the new ones have the highest numbers.
    """

    slices: tuple[Slice, ...]
    position: bytes
    rows: int | None
    ended: bool
    full: bool = False
    partitions: int | None = None


class SourceLog(Protocol):
    """Files in the store for what a position must remember but is too long for the journal.

    A name counts only because a position in the journal names it. Whoever keeps positions removes
    the files that none of them names (`Source.log_files`).
    """

    def write(self, name_hint: str, data: bytes) -> str:
        """Create a file durably, under a name of its own, and return that name."""
        ...

    def read(self, name: str) -> bytes:
        """Return what was written under that name."""
        ...


class Enumerator(Protocol):
    """An open source, on the driver. Not shared between threads.

    `next` moves on whether or not the step it was for is ever committed: after a step that came to
    nothing, open the source again at the last journalled position.
    """

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out what comes next; no slices means that there is nothing new now.

        Waits for nothing, unless its source says that it does (`blocks`).
        """
        ...

    def files(self) -> frozenset[str]:
        """Names in the source log that the current position needs."""
        ...


@runtime_checkable
class Growing(Enumerator, Protocol):
    """An enumerator that can add to what it has handed out, while the step waits to be planned."""

    def more(self, limit: Limit = NO_LIMIT) -> Batch:
        """Hand out what may be added to the step that the last `next` was for.

        The source's own bounds hold for all of it together; `limit` is for what is added.
        """
        ...


@runtime_checkable
class Attended(Enumerator, Protocol):
    """An enumerator that holds something outside: it is told what is committed, and to let go."""

    def acknowledge(self, position: bytes) -> None:
        """Take note that everything up to this position is committed (R5).

        Called after every commit with a position of this source, and again after a restart.
        """
        ...

    def close(self) -> None:
        """Let go of everything. Called after a failure too, and perhaps twice."""
        ...


@runtime_checkable
class Forgetting(Enumerator, Protocol):
    """An enumerator that keeps input of its own for replays, until it is told to forget it."""

    def forget(self, positions: Sequence[bytes]) -> None:
        """Take note that nothing is read any more that all of these positions have passed.

        They are those of the last commit and of every kept checkpoint.
        """
        ...


class Source(Protocol):
    """What a user puts into a dataflow: frozen, picklable, inert until opened."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        ...

    def open(self, position: bytes | None, log: SourceLog) -> Enumerator:
        """Start exactly after `position`; at the beginning with None.

        A position of another kind of source is refused with `ChangedDataflow`.
        """
        ...

    def check(self, slices: Sequence[Slice]) -> None:
        """Raise if these slices do not name what they named when they were planned.

        Called before a step runs and again before it is committed.
        """
        ...

    def log_files(self, position: bytes) -> frozenset[str]:
        """Names in the source log that this position needs: what retention has to keep."""
        ...


class Opener(Protocol):
    """Whoever opens the sources of a pipeline; some need more than their description."""

    def __call__(
        self, name: str, source: Source, position: bytes | None, log: SourceLog
    ) -> Enumerator:
        """Open a source of this name, as `Source.open` does."""
        ...


class Separating(Source, Protocol):
    """A source that can tell malformed rows apart instead of failing at them."""

    @property
    def malformed(self) -> str:
        """What to do with them: `fail`, `drop` or `dead-letter`."""
        ...

    def separated(self) -> Source:
        """The same source with two columns more: a malformed row's raw text, and its file.

        They are the last two of its schema. The text is NULL in rows that are well formed.
        """
        ...


def blocks(source: Source) -> bool:
    """Whether its enumerator may keep its caller waiting: one that talks to a network says so.

    It is asked in a thread of its own, so that no other source waits for it.
    """
    return bool(getattr(source, "blocking", False))


class SparkRead(Source, Protocol):
    """A source whose slices Spark itself reads, as files."""

    def paths(self, slices: Sequence[Slice]) -> tuple[str, ...]:
        """The files of slices that it has made, in their order."""
        ...


def read_by_spark(source: Source) -> TypeGuard[SparkRead]:
    """Whether Spark itself reads this source's slices; else Python tasks read them."""
    return hasattr(source, "paths")


@runtime_checkable
class PythonSource(Source, Protocol[SliceT_contra]):
    """A source whose slices are read by Python code in tasks: it reads what it has made."""

    @property
    def partitions(self) -> int:
        """How many partitions it has, at least. Slices of one partition never overlap."""
        ...

    def read(self, slice: SliceT_contra, /) -> Iterator[pa.RecordBatch]:
        """Read a slice: batches with the schema's columns, in order of position.

        Rows count from `slice.first` on, unless a batch says where each stands: in a column
        `_position`, integers that ascend and may leave some out. If `slice.rows` is known, there
        are so many.

        Deterministic: the same slice gives the same rows, in any process, any number of times.
        """
        ...
