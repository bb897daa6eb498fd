"""Unpack the table that all edges share into the rows of each edge, and pack them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import ReadFailed
from anabranch.messages import Attempt, Control, Report, decode
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.plan.boundary import (
    FIRED,
    FROM,
    HASH,
    NOTE,
    NOTE_MARK,
    PART,
    SOURCE_SHIFT,
    TIME,
    TO,
    UNNUMBERED,
    Boundary,
    key_name,
    made_key_name,
    made_value_name,
    order_names,
    producer_mark,
    value_name,
)
from anabranch.plan.physical import Edge

BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Notes:
    """The messages among the rows of a task."""

    controls: tuple[Control, ...]
    attempts: tuple[Attempt, ...]
    reports: tuple[Report, ...]


def unpack_notes(table: pa.Table) -> Notes:
    """The notes of a table."""
    places = np.flatnonzero(table.column(TO).to_numpy() == NOTE_MARK)
    notes = [decode(note) for note in table.column(NOTE).take(pa.array(places)).to_pylist()]
    return Notes(
        tuple(n for n in notes if isinstance(n, Control)),
        tuple(n for n in notes if isinstance(n, Attempt)),
        tuple(n for n in notes if isinstance(n, Report)),
    )


def unpack_edge(table: pa.Table, edge: Edge) -> Rows:
    """The rows of one edge."""
    places = np.flatnonzero(table.column(TO).to_numpy() == edge.id)
    some = table if len(places) == table.num_rows else _take(table, places)
    values = [some.column(value_name(edge, i)) for i in range(len(edge.columns))]
    # A table without columns has no rows, but the count must not get lost.
    rows = pa.table({"_": pa.nulls(some.num_rows)})
    if values:
        rows = pa.Table.from_arrays(values, schema=_nullable(edge.columns))
    order, times, fired = None, None, None
    if edge.ordered:
        order = RowOrder(tuple(some.column(n).to_numpy() for n in order_names(edge.digits)))
    if edge.timed:
        times = some.column(TIME).to_numpy()
    if edge.fired:
        fired = pc.fill_null(some.column(FIRED), False).to_numpy()
    if edge.region is None:
        return Rows(rows, order=order, times=times, fired=fired)
    hashes = some.column(HASH).to_numpy().view(np.uint64)
    if not len(edge.keys):
        return Rows(rows, hashes, order=order, times=times, fired=fired)
    keys = pa.Table.from_arrays(
        [some.column(key_name(edge, i)) for i in range(len(edge.keys))], schema=_nullable(edge.keys)
    )
    return Rows(rows, hashes, keys, order, times, fired)


def number_files(order: RowOrder, source: int, tags: Sequence[int]) -> RowOrder:
    """Replace the tags by which rows name their files with the files' planned numbers."""
    found = pc.index_in(pa.array(order.columns[0]), pa.array(tags, type=pa.int64()))
    if found.null_count:
        raise ReadFailed(
            "Spark read a file that the plan does not name",
            where=f"source number {source}",
            do="Report this with the names of the input files: their paths are spelt in an "
            "unexpected way.",
        )
    numbers = found.to_numpy().astype(np.int64) + (np.int64(source) << SOURCE_SHIFT)
    return RowOrder((numbers, *order.columns[1:]))


def number_transformed(order: RowOrder, tags: Mapping[int, Sequence[int]]) -> RowOrder:
    """Like ``number_files``, for rows of a transform: their tags also name the source."""
    first = order.columns[0].copy()
    # What notifications made has a negative order, and comes from no file.
    left = (first >= 0) & ((first & UNNUMBERED) != 0)
    if not left.any():
        return order
    source_of = (first ^ UNNUMBERED) >> SOURCE_SHIFT
    for source, known in tags.items():
        own = left & (source_of == source)
        seen = first[own] & ((1 << SOURCE_SHIFT) - 1)
        first[own] = number_files(RowOrder((seen,)), source, known).columns[0]
        left &= ~own
    if left.any():
        number_files(RowOrder((first[left],)), int(source_of[left][0]), ())
    return RowOrder((first, *order.columns[1:]))


def pack_rows(boundary: Boundary, producers: Sequence[int], producer: int, rows: Rows) -> pa.Table:
    """A producer's rows as they leave Python, with NULL in the columns of other producers."""
    schema = boundary.emitted_schema(producers)
    given: dict[str, pa.Array | pa.ChunkedArray] = {
        FROM: _constant(producer_mark(producer), len(rows))
    }
    if rows.hashes is not None:
        given[HASH] = pa.array(rows.hashes.view(np.int64))
    if rows.order is not None:
        names = boundary.made_order
        given |= {n: pa.array(c) for n, c in zip(names, rows.order.columns, strict=False)}
    if rows.times is not None:
        given[TIME] = pa.array(rows.times)
    if rows.fired is not None:
        given[FIRED] = pa.array(rows.fired)
    for place in range(len(boundary.carried_keys(producer))):
        assert rows.keys is not None
        given[made_key_name(producer, place)] = rows.keys.column(place)
    for place, column in enumerate(rows.values.columns):
        given[made_value_name(producer, place)] = column
    return _with_nulls(schema, given, len(rows))


def pack_notes(
    boundary: Boundary, producers: Sequence[int], notes: Sequence[tuple[int, bytes]]
) -> pa.Table:
    """Notes with their partitions, as rows that leave Python."""
    given = {
        PART: pa.array([part for part, _ in notes], type=pa.int32()),
        FROM: _constant(NOTE_MARK, len(notes)),
        NOTE: pa.array([note for _, note in notes], type=pa.binary()),
    }
    return _with_nulls(boundary.emitted_schema(producers), given, len(notes))


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table in batches of a size that suits the JVM."""
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def reader_order(source: int, partition: int, positions: npt.NDArray[np.int64]) -> RowOrder:
    """The order of rows that a Python source read from one of its partitions."""
    first = np.full(len(positions), (source << SOURCE_SHIFT) + partition, dtype=np.int64)
    return RowOrder((first, positions, np.zeros(len(positions), dtype=np.int64)))


def _with_nulls(
    schema: pa.Schema, given: dict[str, pa.Array | pa.ChunkedArray], count: int
) -> pa.Table:
    columns = [
        given[field.name] if field.name in given else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _constant(value: int, count: int) -> pa.Array:
    return pa.array(np.full(count, value, dtype=np.int32))


def _take(table: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    if len(places) and places[-1] - places[0] + 1 == len(places):
        return table.slice(int(places[0]), len(places))
    return table.take(pa.array(places))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in schema])
