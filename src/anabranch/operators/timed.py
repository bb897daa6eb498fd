"""The form of operators that depend on event time.

In a step an operator sees, in this order: its state with the rows that notifications upstream made,
the new frontier, and the step's own rows. So what falls due is made of the first alone, and rows
that come with a frontier are judged by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from anabranch.operators.order.row_order import Int64s
from anabranch.operators.rows import KeyedEntries, Rows, StateChanges
from anabranch.records.bins import Hashes
from anabranch.records.times import END_OF_TIME
from anabranch.runs.entries import Entries
from anabranch.runs.rows import LookupResult


@dataclass(frozen=True, slots=True)
class FrontierMove:
    """The frontier of an operator before a step, and in it.

    What has a due time after ``since``, up to and including ``until``, falls due in the step.
    """

    since: int
    until: int

    @property
    def ends(self) -> bool:
        """Whether the operator's input has ended with the step before."""
        return self.since < self.until == END_OF_TIME


class TimedEntries(KeyedEntries, Protocol):
    """An operator's state before the step, with what falls due in it.

    ``find`` and ``entries`` read it at the step's frontier: what is due is gone.
    """

    def due(self, since: int, until: int) -> Iterator[pa.RecordBatch]:
        """The rows that fall due after ``since``, up to and including ``until``, some at a time.

        See ``RegionState.due``.
        """
        ...

    def find_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> LookupResult:
        """Look up keys at another frontier, such as the one before the step."""
        ...

    def entries_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> Entries:
        """All entries of keys at another frontier."""
        ...


@dataclass(frozen=True, slots=True)
class TimedResult:
    """What an operator makes of a step.

    ``late`` are input rows that came too late, as they came. Rows of ``output`` have times, and
    those that the frontier made are marked as fired. ``overdue`` has the hash of the key of each
    timer that was due when it was set: it fires in the next step, which should not wait for rows.
    """

    output: Rows | None = None
    late: Rows | None = None
    changes: dict[str, StateChanges] = field(default_factory=dict)
    overdue: Hashes | None = None


@runtime_checkable
class TimedOperator(Protocol):
    """An operator over event time."""

    @property
    def name(self) -> str:
        """The operator's name."""
        ...

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult:
        """Process a step: fired rows first, then what is due, then the other rows."""
        ...

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s:
        """The time of the earliest output that state may still make, by its earliest due time.

        ``dues`` has an entry for each bin with something that falls due after ``frontier``. The
        frontiers downstream do not pass what this gives: it must never be too late. ``NEVER`` for
        state that makes no output when it falls due.
        """
        ...
