"""The exchange of a data plane in memory: which rows come to which task.

It is a function of what tasks gave and of who owns which bins. In a simulation the same rows go
the same ways again and again, so ways that were gone before are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.messages import ReadTime
from anabranch.operators.order.row_order import Int64s, RowOrder
from anabranch.operators.rows import Rows, concat_batches
from anabranch.plan.boundary import SOURCE_SHIFT
from anabranch.plan.physical import Edge, SeenBy
from anabranch.plan.timed_paths import MOST_PARTITIONS
from anabranch.records.bins import BinSet, bin_of
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.records.times import END_OF_TIME
from anabranch.task.program import Program
from anabranch.task.reader import Positions
from anabranch.testing.plane.chains import Chains

_PARTITION = (1 << SOURCE_SHIFT) - 1
Bins = np.ndarray[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows that come to a task, and what they are, as a value that can be compared."""

    rows: Rows
    content: Hashable


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Which rows are a task's: those of its bins, or, outside of regions, every n-th."""

    owned: BinSet | None
    workers: int
    worker: int

    def places(self, bins: Bins | None, size: int) -> Bins:
        """Where its rows are; they come backwards, as a shuffle might bring them."""
        if self.owned is None or bins is None:
            mine = np.arange(size) % self.workers == self.worker
        else:
            mine = np.isin(bins, list(self.owned))
        return np.flatnonzero(mine)[::-1]

    @property
    def name(self) -> Hashable:
        """What tells it from other shares."""
        return (self.workers, self.worker) if self.owned is None else self.owned


@dataclass(slots=True)
class Exchange:
    """What was made in a step so far, by producer.

    Each piece has a token that nothing else has, or None; where all have one, ``known`` is asked
    whether the same pieces went the same way before.
    """

    program: Program
    chains: Chains
    plan: Plan
    known: dict[Hashable, Any] = field(default_factory=dict)
    limit: int = 30_000
    _made: dict[int, list[tuple[Rows, Hashable]]] = field(default_factory=dict)

    @property
    def _clock_us(self) -> int:
        return self.plan.clock_ns // 1000

    def put(self, producer: int, rows: Rows, token: Hashable) -> None:
        """A task gave rows."""
        self._made.setdefault(producer, []).append((rows, token))

    def arriving(self, edge: Edge, share: TaskShare) -> Arrived:
        """The rows that come over an edge to a task."""
        pieces = self._made.get(edge.producer, [])
        whole = self._name(edge)

        def arrived() -> Arrived:
            rows, bins = self._once(whole, lambda: self._all(edge, [rows for rows, _ in pieces]))
            places = share.places(None if share.owned is None else bins, len(rows))
            mine = _taken(edge, rows, places)
            return Arrived(mine, _content(mine))

        return self._once(None if whole is None else (whole, share.name), arrived)

    def latest(self, edge: Edge) -> Sequence[ReadTime]:
        """The latest times of an edge's rows where they get them, as Spark would see them."""
        name = self._name(edge)
        return self._once(None if name is None else ("latest", name), lambda: self._latest(edge))

    def _latest(self, edge: Edge) -> list[ReadTime]:
        assignment, pieces = (
            edge.assignment,
            [rows for rows, _ in self._made.get(edge.producer, [])],
        )
        assert assignment is not None
        rows = self.chains.timed(edge, self._joined(edge, pieces), self._clock_us)
        assert rows.times is not None
        counts = rows.times < END_OF_TIME
        times = rows.times[counts]
        many = self.plan.partitions(assignment.source) > MOST_PARTITIONS
        if assignment.seen_by is SeenBy.SOURCE or many or rows.order is None:
            return [ReadTime(assignment.input, None, int(times.max()))] if len(times) else []
        numbers = rows.order.columns[0][counts] & _PARTITION
        return [
            ReadTime(assignment.input, int(number), int(times[numbers == number].max()))
            for number in np.unique(numbers)
        ]

    def _name(self, edge: Edge) -> Hashable:
        """What tells the rows of an edge from all others; None if that is not known."""
        tokens = tuple([token for _, token in self._made.get(edge.producer, [])])
        if None in tokens:
            return None
        timed = edge.assignment is not None and edge.assignment.needs_clock
        return edge.place, tokens, self._clock_us if timed else None

    def _all(self, edge: Edge, pieces: Sequence[Rows]) -> tuple[Rows, Bins | None]:
        """All rows of an edge as its consumer gets them, and their bins."""
        rows = self.chains.run(edge, self._joined(edge, pieces), self._clock_us)
        return rows, None if rows.hashes is None else bin_of(rows.hashes, self.program.bins)

    def _joined(self, edge: Edge, pieces: Sequence[Rows]) -> Rows:
        """What an edge's producer gave, in one piece."""
        if not pieces:
            schema = self.program.physical.schemas[edge.producer]
            keys = edge.keys.empty_table() if len(edge.keys) else None
            times = np.empty(0, dtype=np.int64) if edge.timed else None
            return Rows(schema.empty_table(), np.empty(0, dtype=np.uint64), keys, times=times)
        return concat_batches(pieces)

    def _once(self, name: Hashable, make: Callable[[], T]) -> T:
        """What is known by a name, or is made now; without one it is made every time."""
        found: T | None = None if name is None else self.known.get(name)
        if found is None:
            found = make()
            if name is not None and len(self.known) < self.limit:
                self.known[name] = found
        return found


def owned_bins(assignment: Assignment, worker: int) -> BinSet:
    """The bins that a worker has."""
    return BinSet.of(b for b, owner in enumerate(assignment.workers) if owner == worker)


def ordered(
    batch: pa.RecordBatch,
    number: int,
    partition: int,
    positions: Positions,
    times: Int64s | None = None,
) -> Rows:
    """Rows of a source with their order, and with the times that it tells."""
    size = batch.num_rows
    first = np.full(size, (number << 32) + partition, dtype=np.int64)
    order = RowOrder((first, positions, np.zeros(size, dtype=np.int64)))
    return Rows(pa.Table.from_batches([batch]), order=order, times=times)


def _taken(edge: Edge, rows: Rows, places: Bins) -> Rows:
    """The rows at these places, with what an edge carries of them."""
    carried = replace(
        rows,
        order=rows.order if edge.ordered else None,
        times=rows.times if edge.timed else None,
        fired=rows.fired if edge.fired else None,
    )
    return carried.take(places)


def _content(rows: Rows) -> Hashable:
    """What rows are, in their order."""
    return (
        tuple([repr(column.to_pylist()) for column in rows.values.columns]),
        None if rows.hashes is None else rows.hashes.tobytes(),
        None if rows.order is None else tuple([part.tobytes() for part in rows.order.columns]),
        None if rows.times is None else rows.times.tobytes(),
        None if rows.fired is None else rows.fired.tobytes(),
    )
