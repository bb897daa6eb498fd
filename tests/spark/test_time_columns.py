"""Rows with event times as tables between tasks and the JVM, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.plan.boundary import FIRED, NOTE, PART, TIME, TO, Boundary, key_name, value_name
from anabranch.plan.physical import Physical
from anabranch.spark.step.rows import pack_notes, pack_rows, unpack_edge
from tests.plan.test_timed_paths import keyed, mapped, physical, processed, timed

TIMES = np.array([7, 1 << 61, -5], dtype=np.int64)
FIRED_ROWS = np.array([False, True, False])


def two_regions() -> Physical:
    return physical(lambda s: mapped(keyed(processed(keyed(timed(s))), "r2")))


def second(found: Physical) -> Boundary:
    return Boundary(found, found.levels[2])


def made(fired: bool) -> Rows:
    at = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    values = pa.table({"customer": ["a", "b", "c"], "amount": [1.0, 2.0, 3.0], "at": at})
    numbers = np.arange(3, dtype=np.int64)
    order = RowOrder((numbers,) * 4)
    return Rows(values, order=order, times=TIMES, fired=FIRED_ROWS if fired else None)


def test_what_a_task_emits_has_its_times_and_marks() -> None:
    boundary = second(two_regions())
    (producer,) = boundary.task_producers()
    table = pack_rows(boundary, [producer], producer, made(fired=True))
    assert table.column(TIME).to_pylist() == TIMES.tolist()
    assert table.column(FIRED).to_pylist() == FIRED_ROWS.tolist()
    plain = pack_rows(boundary, [producer], producer, made(fired=False))
    assert plain.column(FIRED).null_count == 3
    notes = pack_notes(boundary, [producer], [(0, b"x")])
    assert (notes.column(TIME).null_count, notes.column(FIRED).null_count) == (1, 1)


def arriving(boundary: Boundary, fired: list[bool | None]) -> pa.Table:
    """Three rows of the one edge, and a note between them."""
    (edge,) = boundary.edges
    given = {
        PART: [0] * 4,
        TO: [edge.id, 0, edge.id, edge.id],
        TIME: [TIMES[0], None, TIMES[1], TIMES[2]],
        FIRED: [fired[0], None, *fired[1:]],
        NOTE: [None, b"note", None, None],
        key_name(edge, 0): ["a", None, "b", "c"],
        value_name(edge, 0): ["a", None, "b", "c"],
    }
    schema = boundary.arriving_schema()
    columns = {field.name: given.get(field.name, [0, 0, 0, 0]) for field in schema}
    return pa.table({n: pa.array(v, schema.field(n).type) for n, v in columns.items()})


def test_what_arrives_has_its_times_and_marks() -> None:
    boundary = second(two_regions())
    (edge,) = boundary.edges
    rows = unpack_edge(arriving(boundary, [False, True, None]), edge)
    assert rows.times is not None
    assert rows.fired is not None
    assert rows.times.dtype == np.int64
    assert rows.times.tolist() == TIMES.tolist()
    # What comes straight from a source has no mark.
    assert rows.fired.tolist() == [False, True, False]


def test_an_edge_that_carries_none_gives_none() -> None:
    found = physical(lambda s: mapped(keyed(timed(s))))
    boundary = Boundary(found, found.levels[1])
    (edge,) = boundary.edges
    rows = unpack_edge(boundary.arriving_schema().empty_table(), edge)
    assert rows.times is not None
    assert len(rows.times) == 0
    assert rows.fired is None
