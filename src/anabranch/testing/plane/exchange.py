"""The exchange of a data plane in memory: which rows come to which task.

It is a function of what tasks gave and of who owns which bins. In a simulation the same rows go
the same ways again and again, so ways that were gone before are remembered.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.dataflow.graph import KeyByNode
from anabranch.operators.order.row_order import RowOrder, concatenate
from anabranch.operators.rows import Rows
from anabranch.plan.physical import Edge
from anabranch.records.bins import BinSet, bin_of
from anabranch.records.placed import Assignment
from anabranch.task.program import Program
from anabranch.task.reader import Positions

Bins = np.ndarray[Any, Any]


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
    known: dict[Hashable, Any] | None = None
    limit: int = 30_000
    _made: dict[int, list[tuple[Rows, Hashable]]] = field(default_factory=dict)

    def put(self, producer: int, rows: Rows, token: Hashable) -> None:
        """A task gave rows."""
        self._made.setdefault(producer, []).append((rows, token))

    def arriving(self, edge: Edge, share: TaskShare) -> Arrived:
        """The rows that come over an edge to a task."""
        pieces = self._made.get(edge.producer, [])
        tokens = tuple([token for _, token in pieces])
        name = None if None in tokens else (edge.place, tokens)
        found = self._recalled(None if name is None else (*name, share.name))
        if found is not None:
            assert isinstance(found, Arrived)
            return found
        rows, bins = self._all(edge, pieces, name)
        places = share.places(None if share.owned is None else bins, len(rows))
        mine = _taken(rows, places, ordered=edge.ordered)
        arrived = Arrived(mine, _content(mine))
        self._remember(None if name is None else (*name, share.name), arrived)
        return arrived

    def _all(
        self, edge: Edge, pieces: Sequence[tuple[Rows, Hashable]], name: Hashable | None
    ) -> tuple[Rows, Bins | None]:
        """All rows of an edge as its consumer gets them, and their bins."""
        found = self._recalled(name)
        if found is not None:
            rows, bins = found
            return rows, bins
        rows = self._carried(edge, [piece for piece, _ in pieces])
        bins = None if rows.hashes is None else bin_of(rows.hashes, self.program.bins)
        self._remember(name, (rows, bins))
        return rows, bins

    def _carried(self, edge: Edge, pieces: Sequence[Rows]) -> Rows:
        rows = _joined(pieces, self.program, edge.producer)
        keys, hashes, values = rows.keys, rows.hashes, rows.values
        if edge.distributes:
            named = [n for n in edge.chain if isinstance(n, KeyByNode)][-1].keys
            keys = pa.table([values.column(text) for _, text in named], schema=edge.keys)
            hashes = hashes_of(keys)
        if edge.arguments is not None:
            columns = {name: values.column(text) for name, text in edge.arguments}
            values = pa.table(columns or {"_": pa.nulls(len(rows))})
        return Rows(values, hashes, keys, rows.order)

    def _recalled(self, name: Hashable | None) -> Any:  # noqa: ANN401
        return None if name is None or self.known is None else self.known.get(name)

    def _remember(self, name: Hashable | None, what: object) -> None:
        if name is not None and self.known is not None and len(self.known) < self.limit:
            self.known[name] = what


def owned_bins(assignment: Assignment, worker: int) -> BinSet:
    """The bins that a worker has."""
    return BinSet.of(b for b, owner in enumerate(assignment.workers) if owner == worker)


def hashes_of(keys: pa.Table) -> np.ndarray[Any, Any]:
    """A hash of each key, spread over all bins."""
    rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    small = [zlib.crc32(repr(row).encode()) for row in rows]
    return (np.array(small, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)


def ordered(batch: pa.RecordBatch, number: int, partition: int, positions: Positions) -> Rows:
    """Rows of a source with their order."""
    size = batch.num_rows
    first = np.full(size, (number << 32) + partition, dtype=np.int64)
    order = RowOrder((first, positions, np.zeros(size, dtype=np.int64)))
    return Rows(pa.Table.from_batches([batch]), order=order)


def _taken(rows: Rows, places: Bins, *, ordered: bool) -> Rows:
    numbers = pa.array(places)
    return Rows(
        rows.values.take(numbers),
        None if rows.hashes is None else rows.hashes[places],
        None if rows.keys is None else rows.keys.take(numbers),
        None if rows.order is None or not ordered else rows.order.take(places),
    )


def _content(rows: Rows) -> Hashable:
    """What rows are, in their order."""
    return (
        tuple([repr(column.to_pylist()) for column in rows.values.columns]),
        None if rows.hashes is None else rows.hashes.tobytes(),
        None if rows.order is None else tuple([part.tobytes() for part in rows.order.columns]),
    )


def _joined(pieces: Sequence[Rows], program: Program, producer: int) -> Rows:
    if not pieces:
        empty = program.physical.schemas[producer].empty_table()
        key = program.typed.key(producer)
        keys = None if key is None else key.empty_table()
        return Rows(empty, np.empty(0, dtype=np.uint64), keys, None)
    orders = [rows.order for rows in pieces if rows.order is not None]
    hashes = [rows.hashes for rows in pieces if rows.hashes is not None]
    all_keys = [rows.keys for rows in pieces if rows.keys is not None]
    return Rows(
        pa.concat_tables([rows.values for rows in pieces]),
        np.concatenate(hashes) if hashes else None,
        pa.concat_tables(all_keys) if all_keys else None,
        concatenate(orders) if orders else None,
    )
