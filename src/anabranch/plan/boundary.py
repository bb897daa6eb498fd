"""The columns of rows between two levels, and the partition of each worker.

All inputs of a level travel in one table: reserved columns first, then the columns of every edge,
which are NULL in rows of other edges. ``to`` names the edge of a row; 0 marks a *note*, a row that
carries a message instead of data.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from anabranch.dataflow.types.schema import type_to_ddl
from anabranch.operators.order.row_order import READER_COLUMNS
from anabranch.plan.physical import Edge, Level, Physical, SeenBy, TimeAssignment, Transform
from anabranch.records.plan import Plan
from anabranch.records.shares import seat_numbers

PREFIX = "_ab_"
PART, TO, FROM, HASH, NOTE = (PREFIX + name for name in ("part", "to", "from", "hash", "note"))
TIME, FIRED, CLOCK = (PREFIX + name for name in ("time", "fired", "clock"))
"""Event time in microseconds, whether notifications made the row, and the step's clock."""
_TIME_TYPES = {TIME: pa.int64(), FIRED: pa.bool_()}
NOTE_MARK = 0
"""The value of ``to`` and ``from`` in rows that carry a note."""
SOURCE_SHIFT = 32
"""The first order column holds the source's number above these bits, the file's or partition's in
them."""
UNNUMBERED = 1 << 62
"""Marks a first order column, behind a transform, that holds a file's tag instead of its number."""


def order_names(digits: int) -> list[str]:
    """The names of the order columns: the reader's, then one per digit."""
    reader = [f"{PREFIX}o{i}" for i in range(READER_COLUMNS)]
    return reader + [f"{PREFIX}d{i}" for i in range(digits)]


def value_name(edge: Edge, place: int) -> str:
    """The name of an edge's value column."""
    return f"{PREFIX}e{edge.id}_{place}"


def key_name(edge: Edge, place: int) -> str:
    """The name of an edge's key column."""
    return f"{PREFIX}e{edge.id}_k{place}"


def made_value_name(producer: int, place: int) -> str:
    """The name of a producer's value column, as it leaves Python."""
    return f"{PREFIX}p{producer}_{place}"


def made_key_name(producer: int, place: int) -> str:
    """The name of a key column beside a producer's row, as it leaves Python."""
    return f"{PREFIX}p{producer}_k{place}"


def producer_mark(producer: int) -> int:
    """The value of ``from`` in a producer's rows."""
    return producer + 1


class Boundary(msgspec.Struct, frozen=True):
    """The boundary before a level: the edges that cross it, and the layout of their rows."""

    physical: Physical
    level: Level

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that cross here."""
        return self.level.inputs

    @property
    def digits(self) -> int | None:
        """The number of order digits of rows here; None if nothing needs the order."""
        needed = [edge.digits for edge in self.edges if edge.ordered]
        return max(needed, default=None)

    @property
    def order(self) -> list[str]:
        """The names of the order columns."""
        return [] if self.digits is None else order_names(self.digits)

    @property
    def made_order(self) -> list[str]:
        """The order columns of rows that leave Python: transforms may need more than the level."""
        needed = [t.given for t in self.transforms if t.given is not None]
        if self.digits is not None:
            needed.append(self.digits)
        if any(each.seen_by is SeenBy.PARTITION for each in self.assignments()):
            needed.append(0)
        return order_names(max(needed)) if needed else []

    @property
    def times(self) -> list[str]:
        """The columns of event time that rows for the level have."""
        return _time_columns(self.edges)

    def made_times(self, producers: Sequence[int]) -> list[str]:
        """The columns of event time that rows of these producers have as they leave Python."""
        own = [edge for edge in self._every_edge() if edge.producer in producers]
        return _time_columns([e for e in own if e.assignment is None or e.assignment.told])

    def assignments(self, producer: int | None = None) -> list[TimeAssignment]:
        """Where rows get their times here, all of them or those of one producer."""
        every = self._every_edge()
        edges = every if producer is None else [e for e in every if e.producer == producer]
        found = [edge.assignment for edge in edges if edge.assignment is not None]
        return list(dict.fromkeys(found))

    def _every_edge(self) -> list[Edge]:
        """The edges that cross here, and those to transforms before the level."""
        return [*self.edges, *(edge for each in self.transforms for edge in each.inputs)]

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The transforms that run here."""
        return self.physical.transforms_before(self.level.number)

    def transform_producers(self) -> set[int]:
        """The producers whose rows a transform gets here."""
        return {edge.producer for transform in self.transforms for edge in transform.inputs}

    def needed_producers(self) -> list[int]:
        """The producers whose rows the level or a transform before it needs."""
        return list(dict.fromkeys([*self.producers(), *sorted(self.transform_producers())]))

    def producers(self) -> dict[int, list[Edge]]:
        """The edges by their producer."""
        found: dict[int, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.producer, []).append(edge)
        return found

    def keyed_edges(self) -> dict[str, list[int]]:
        """The edges whose rows are routed by bin, by the group they lead to."""
        found: dict[str, list[int]] = {}
        for group in self.level.groups:
            edges = [edge.id for edge in self.edges if edge.consumer in group.operators]
            if group.region is not None and edges:
                found[group.name] = edges
        return found

    def task_producers(self) -> list[int]:
        """The producers whose rows come from tasks of the level before."""
        outside = (self.physical.is_read, self.physical.is_transform)
        return [p for p in self.needed_producers() if not any(check(p) for check in outside)]

    def carried_keys(self, producer: int) -> pa.Schema:
        """The key columns that a producer's rows carry for an edge inside the region."""
        for edge in self.producers().get(producer, []):
            if not edge.distributes and len(edge.keys):
                return edge.keys
        return pa.schema([])

    def arriving_schema(self) -> pa.Schema:
        """The schema of the rows that the level's tasks get."""
        fields = [pa.field(PART, pa.int32()), *_reserved(TO, self.order, self.times)]
        for edge in self.edges:
            fields += [pa.field(key_name(edge, i), c.type) for i, c in enumerate(edge.keys)]
            fields += [pa.field(value_name(edge, i), c.type) for i, c in enumerate(edge.columns)]
        return pa.schema(fields)

    def is_narrow(self) -> bool:
        """Whether every data row has a few bytes; notes are rare and do not count."""
        return all(field.name == NOTE or _is_fixed(field.type) for field in self.arriving_schema())

    def emitted_schema(self, producers: Sequence[int]) -> pa.Schema:
        """The schema in which Python tasks emit the rows of these producers."""
        times = self.made_times(producers)
        fields = [pa.field(PART, pa.int32()), *_reserved(FROM, self.made_order, times)]
        for producer in producers:
            keys = self.carried_keys(producer)
            fields += [pa.field(made_key_name(producer, i), c.type) for i, c in enumerate(keys)]
            columns = self.physical.schemas[producer]
            fields += [
                # Keep the metadata: SQL in the chain compares strings by their collation.
                pa.field(made_value_name(producer, i), c.type, metadata=c.metadata)
                for i, c in enumerate(columns)
            ]
        return pa.schema(fields)


class Seats(msgspec.Struct, frozen=True):
    """The partition of each worker of a level, group by group.

    Worker numbers may have gaps; partitions have none.
    """

    groups: tuple[tuple[str, int, tuple[int, ...]], ...]
    """Name, first partition and workers of each group."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return sum(len(workers) for _, _, workers in self.groups)

    def first(self, group: str) -> int:
        """The partition of a group's first worker."""
        return next(first for name, first, _ in self.groups if name == group)

    def workers(self, group: str) -> tuple[int, ...]:
        """The workers of a group, in partition order."""
        return next(workers for name, _, workers in self.groups if name == group)

    def of(self, group: str) -> dict[int, int]:
        """The partition of each worker of a group."""
        first = self.first(group)
        return {
            worker: first + place for worker, place in seat_numbers(self.workers(group)).items()
        }


def _is_fixed(kind: pa.DataType) -> bool:
    """Whether every value takes the same number of bytes."""
    fixed = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(is_such(kind) for is_such in fixed)


def null_time(column: str) -> str:
    """SQL for the column of event time of rows that have none."""
    return f"cast(null as {type_to_ddl(_TIME_TYPES[column])}) as {column}"


def _time_columns(edges: Sequence[Edge]) -> list[str]:
    wanted = {TIME: any(e.timed for e in edges), FIRED: any(e.fired for e in edges)}
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _reserved(mark: str, order: Sequence[str], times: Sequence[str]) -> list[pa.Field]:
    return [
        pa.field(mark, pa.int32()),
        pa.field(HASH, pa.int64()),
        *(pa.field(name, pa.int64()) for name in order),
        *(pa.field(name, _TIME_TYPES[name]) for name in times),
        pa.field(NOTE, pa.binary()),
    ]


def seats_of_level(level: Level, plan: Plan) -> Seats:
    """Assign the workers of a level to partitions."""
    first = 0
    found = []
    for group in level.groups:
        workers = plan.workers(group.region)
        found.append((group.name, first, workers))
        first += len(workers)
    return Seats(tuple(found))
