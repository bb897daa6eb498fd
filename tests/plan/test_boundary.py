"""The columns between two levels, and the seats of workers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch.coordinator.parts.rescale import helping_workers
from anabranch.dataflow.flow import Dataflow
from anabranch.plan.boundary import (
    FROM,
    HASH,
    NOTE,
    NOTE_MARK,
    PART,
    PREFIX,
    TO,
    Boundary,
    Seats,
    producer_mark,
    seats_of_level,
)
from anabranch.plan.lower import UNKEYED, lower
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.rescale.step_moves import StepMoves
from tests.plan import flows


def boundary(build: Callable[[], Dataflow], level: int) -> Boundary:
    physical = lower(flows.typed(build()))
    return Boundary(physical, physical.levels[level])


def text(schema: pa.Schema) -> list[str]:
    return [f"{column.name} {column.type}" for column in schema]


RESERVED = [f"{HASH} int64"]
NOTES = [f"{NOTE} binary"]
READER = [f"{PREFIX}o{i} int64" for i in range(3)]


def test_all_edges_share_one_table_with_columns_of_their_own() -> None:
    found = boundary(flows.two_keyed_consumers, 1)
    assert text(found.arriving_schema()) == [
        f"{PART} int32",
        f"{TO} int32",
        *RESERVED,
        *READER,
        *NOTES,
        f"{PREFIX}e1_k0 string",
        f"{PREFIX}e2_k0 string",
        f"{PREFIX}e2_0 string",
        f"{PREFIX}e2_1 double",
    ]
    assert text(found.emitted_schema([0])) == [
        f"{PART} int32",
        f"{FROM} int32",
        *RESERVED,
        *READER,
        *NOTES,
        f"{PREFIX}p0_0 string",
        f"{PREFIX}p0_1 double",
    ]


def test_rows_that_stay_in_their_region_bring_their_key_along() -> None:
    found = boundary(flows.chained_with_where, 2)
    (producer,) = found.producers()
    assert text(found.carried_keys(producer)) == ["customer string"]
    assert text(found.emitted_schema([producer]))[-3:] == [
        f"{PREFIX}p{producer}_k0 string",
        f"{PREFIX}p{producer}_0 string",
        f"{PREFIX}p{producer}_1 double",
    ]
    assert found.digits == 1
    assert found.order == [f"{PREFIX}o{i}" for i in range(3)] + [f"{PREFIX}d0"]


def test_rows_that_get_a_new_key_leave_the_old_one_behind() -> None:
    found = boundary(flows.two_ordered_regions, 2)
    (producer,) = found.producers()
    assert text(found.carried_keys(producer)) == []
    assert text(found.carried_keys(99)) == []


def test_where_nobody_needs_the_order_there_are_no_columns_for_it() -> None:
    found = boundary(flows.several_sinks, 2)
    assert found.digits is None
    assert found.order == []
    assert not any(name.startswith(f"{PREFIX}o") for name in found.arriving_schema().names)


@pytest.mark.parametrize("build", flows.ALL, ids=lambda build: build.__name__)
def test_names_are_unique_and_reserved_and_producers_are_told_from_notes(
    build: Callable[[], Dataflow],
) -> None:
    physical = lower(flows.typed(build()))
    for level in physical.levels[1:]:
        found = Boundary(physical, level)
        producers = list(found.producers())
        grouped = [edge for edges in found.producers().values() for edge in edges]
        assert sorted(edge.id for edge in grouped) == sorted(edge.id for edge in found.edges)
        for schema in (found.arriving_schema(), found.emitted_schema(producers)):
            assert len(set(schema.names)) == len(schema.names)
            assert all(name.startswith(PREFIX) for name in schema.names)
            assert all(column.nullable for column in schema)
        marks = {producer_mark(producer) for producer in producers}
        assert len(marks) == len(producers)
        assert NOTE_MARK not in marks | {edge.id for edge in found.edges}


def assigned(region: str, *workers: int) -> Assignment:
    return Assignment(region, 1, workers)


def planned(*placement: Assignment, unkeyed: int = 5, moves: StepMoves | None = None) -> Plan:
    helping = () if moves is None else helping_workers(moves)
    return Plan(1, 0, 0, "code", (), placement, unkeyed, helping=helping)


def test_groups_sit_one_after_the_other() -> None:
    physical = lower(flows.typed(flows.mixed_depth()))
    plan = planned(assigned("r2", 0, 1, 2, 2), assigned("r1", 0, 0, 1, 1))
    assert seats_of_level(physical.levels[1], plan) == Seats((("r1", 0, (0, 1)),))
    found = seats_of_level(physical.levels[2], plan)
    assert found == Seats((("r1", 0, (0, 1)), ("r2", 2, (0, 1, 2))))
    assert found.partitions == 5
    assert found.of("r2") == {0: 2, 1: 3, 2: 4}


def test_workers_whose_numbers_have_gaps_sit_without_gaps() -> None:
    physical = lower(flows.typed(flows.mixed_depth()))
    placement = (assigned("r2", 7, 2, 2, 7), assigned("r1", 5, 5, 5, 5))
    found = seats_of_level(physical.levels[2], planned(*placement))
    assert found.partitions == 3
    assert (found.of("r1"), found.of("r2")) == ({5: 0}, {2: 1, 7: 2})
    # Whoever is told to shut down has a task once more.
    told = planned(*placement, moves=StepMoves(1, placement, shutdown=(3,)))
    assert seats_of_level(physical.levels[2], told).of("r2") == {2: 2, 3: 3, 7: 4}


def test_sinks_without_a_region_have_seats_of_their_own() -> None:
    physical = lower(flows.typed(flows.keyed_and_unkeyed()))
    found = seats_of_level(physical.levels[1], planned(assigned("unkeyed", 0, 1), unkeyed=3))
    assert found == Seats(((UNKEYED, 0, (0, 1, 2)), ("unkeyed", 3, (0, 1))))
    assert found.first(UNKEYED) == 0


def test_who_will_have_bins_and_who_shuts_down_have_seats() -> None:
    placement = (assigned("r", 0, 1), assigned("s", 0, 0))
    plan = planned(*placement, moves=StepMoves(1, placement, joining=(("r", 3),)))
    assert (plan.workers("r"), plan.workers("s")) == ((0, 1, 3), (0,))
    last = StepMoves(1, placement, settles=True, shutdown=(2,))
    plan = planned(*placement, moves=last)
    assert (plan.workers("r"), plan.workers("s")) == ((0, 1, 2), (0, 1, 2))


def test_an_assignment_counts_its_workers() -> None:
    assert assigned("r").count == 0
    assert assigned("r", 0, 0, 1, 3).count == 4
