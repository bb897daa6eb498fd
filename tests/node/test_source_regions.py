"""A source is a region: its partitions move between read tasks, with their positions. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch as ab
from anabranch.coordinator.settings import Settings
from anabranch.errors import OperationRefused
from anabranch.messages import Attempt, PartitionRead, Registered, Report
from anabranch.node.interrogation import worker_loads
from anabranch.node.opening import facts_of
from anabranch.node.step_outcome import Disagreement, StepOutcome, planned_reads, step_outcome
from anabranch.pipeline import Pipeline
from anabranch.records.placed import Assignment
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import LogSlice, RangeSlice
from anabranch.rescale.assignments import source_shares
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.rescale.step_moves import StepMoves, moves_of
from anabranch.task.program import Program
from tests.coordinator.parts_kit import planned_moves
from tests.node.engine import Engine
from tests.node.shop import program
from tests.task.test_messages import ListeningPlane

PARTITIONS = 6
pytestmark = pytest.mark.timeout(900)


def numbers(partition: int, start: int, end: int) -> dict[str, list[int]]:
    return {"p": [partition] * (end - start), "n": list(range(start, end))}


def count(key: Any, row: Any, seen: Any) -> Any:
    """Depends on the order of a partition's rows."""
    assert row.n == (seen or 0), "a row was left out, or came twice"
    return (key.p, row.n), row.n + 1


def counted(sink: ab.MemorySink) -> Program:
    flow = ab.Dataflow("numbers")
    source = ab.GeneratorSource(numbers, "p int, n bigint", PARTITIONS, rows_per_step=25)
    flow.source("in", source).key_distribute("by-p", "p").stateful_map(
        "count", count, state=None, output="p int, n bigint"
    ).sink("rows", sink)
    return program(flow)


Ran = Sequence[tuple[Plan, list[Report]]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, list[Any], ab.Status, Any]:
    sink = ab.MemorySink()
    made, store = counted(sink), tmp_path_factory.mktemp("numbers")
    plane = ListeningPlane(made, store)
    chosen = Settings(workers=2, rescale=RescaleSettings(policy=MovePolicy.FLUID, prefetch=False))
    engine = Engine(made, store, plane=plane, settings=chosen, paced=True).start()
    pipeline = engine.pipeline
    seen = []
    engine.until(lambda status: status.step >= 2)
    seen.append(partitions(pipeline))
    for change in ({"workers": 4}, {"regions": {"in": 3}}, {"workers": 1}):
        pipeline.scale(**change)
        engine.until(lambda status: status.rescale is None)
        seen.append(partitions(pipeline))
    status = engine.shutdown()
    return plane.ran, seen, status, [tuple(row.values()) for row in sink.rows()]


def partitions(pipeline: Pipeline) -> tuple[int, ...]:
    (source,) = pipeline.status().sources
    return source.partitions


def test_the_status_says_who_reads_which_partition(story: Any) -> None:
    _, seen, status, _ = story
    assert [len(set(each)) for each in seen] == [2, 4, 3, 1]
    assert all(len(each) == PARTITIONS for each in seen)
    (source,) = status.sources
    assert source.generation > 1
    # A source's region is no region with keys.
    assert [region.region for region in status.regions] == ["by-p"]


def test_each_partition_is_read_by_its_owner_alone_from_where_it_was(story: Any) -> None:
    ran, *_ = story
    slices: dict[int, list[RangeSlice]] = {}
    moved = 0
    last: tuple[int, ...] = ()
    for plan, reports in ran:
        owners = plan.assignment("in").workers
        moved += sum(a != b for a, b in zip(last, owners, strict=False))
        last = owners
        (given,) = plan.inputs or (None,)
        parts = () if given is None else given.slices
        readers = [r.attempt.worker for r in reports if r.attempt.level == 0]
        wanted = {owners[part.partition] for part in parts if isinstance(part, RangeSlice)}
        assert len(readers) == len(set(readers))
        assert set(readers) == (wanted or {owners[0]})
        for part in parts:
            assert isinstance(part, RangeSlice)
            slices.setdefault(part.partition, []).append(part)
    assert moved >= 6
    for each in slices.values():
        assert each[0].start == 0
        assert all(one.end == other.start for one, other in pairwise(each))


def test_rows_are_those_of_a_run_without_rescale(story: Any) -> None:
    *_, status, found = story
    share = [(status.rows + PARTITIONS - 1 - p) // PARTITIONS for p in range(PARTITIONS)]
    assert sorted(found) == [(p, n) for p in range(PARTITIONS) for n in range(share[p])]


def test_sources_move_first(story: Any) -> None:
    ran, *_ = story
    for plan, _ in ran:
        moves = moves_of(plan)
        if moves is not None and moves.migration is not None:
            left = moves.migration.left(plan.placement)
            both = {move.region for move in left} == {"in", "by-p"}
            if both and moves.collect:
                assert moves.collect[0].region == "in"


def test_a_source_is_rescaled_by_its_name_or_refused(tmp_path: Path) -> None:
    engine = Engine(counted(ab.MemorySink()), tmp_path, paced=True).start()
    pipeline = engine.pipeline
    engine.until(lambda status: status.step >= 1)
    forecast = pipeline.scale(regions={"in": 3}, dry_run=True)
    assert [(s.region, len(set(s.workers))) for s in forecast.target if s.region == "in"] == [
        ("in", 3)
    ]
    with pytest.raises(OperationRefused, match="no region 'out'"):
        pipeline.scale(regions={"out": 3})
    engine.shutdown()


def test_facts_name_what_python_reads_and_the_graph(tmp_path: Path) -> None:
    info = facts_of(counted(ab.MemorySink()), "code")
    assert info.partitions == {"in": PARTITIONS}
    assert [(node.kind, node.name, node.region, node.inputs) for node in info.graph] == [
        ("source", "in", None, ()),
        ("key_by", None, None, (0,)),
        ("distribution", "by-p", "by-p", (1,)),
        ("stateful_map", "count", "by-p", (2,)),
        ("sink", "rows", "by-p", (3,)),
    ]
    files = ab.Dataflow("files")
    files.source("in", ab.FileSource(tmp_path, format="json", schema="a int")).sink(
        "out", ab.MemorySink()
    )
    assert facts_of(program(files), "code").partitions == {}


def test_partitions_that_are_found_later_join_and_none_moves() -> None:
    first = source_shares({"in": 3}, 2, ())
    (grown,) = source_shares({"in": 5}, 2, first)
    assert grown.workers[:3] == first[0].workers
    assert (len(grown.workers), grown.generation, grown.source) == (5, 2, True)
    assert source_shares({"in": 5}, 2, (grown,)) == (grown,)


def test_a_partition_that_two_tasks_have_read_makes_the_step_run_again() -> None:
    def read(worker: int) -> Report:
        attempt = Attempt(0, "in", worker, f"a{worker}")
        return Report(attempt, (), (), (), (), {}, read=(PartitionRead("in", 4, 10, 70),))

    found = step_outcome((), [read(0), read(1)], ())
    assert isinstance(found, Disagreement)
    assert found.why == "partition 4 of in was read 2 times"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param((), id="nothing"),
        pytest.param((PartitionRead("in", 4, 10, 60),), id="what was read before"),
        pytest.param((PartitionRead("in", 4, 9, 70),), id="too little"),
        pytest.param((PartitionRead("in", 5, 10, 70),), id="another partition"),
        pytest.param(
            (PartitionRead("in", 4, 10, 70), PartitionRead("in", 5, 1, 0)), id="more than that"
        ),
    ],
)
def test_a_step_that_read_something_else_than_was_planned_runs_again(
    wrong: tuple[PartitionRead, ...],
) -> None:
    def reported(*read: PartitionRead) -> list[Report]:
        return [Report(Attempt(0, "in", 0, "a"), (), (), (), (), {}, read=read)]

    made = counted(ab.MemorySink())
    inputs = (Input("in", (RangeSlice(4, 70, 80),), msgspec.Raw(b"1")),)
    planned = planned_reads(made.physical, Plan(1, 0, 0, "code", inputs, (), 2))
    assert isinstance(
        step_outcome((), reported(PartitionRead("in", 4, 10, 70)), (), planned), StepOutcome
    )
    found = step_outcome((), reported(*wrong), (), planned)
    assert isinstance(found, Disagreement)
    assert "was not read as planned" in found.why


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ((PartitionRead("in", 4, 7, 70),), None),
        ((), "was not read as planned"),
        ((PartitionRead("in", 4, 7, 60),), "was not read as planned"),
        ((PartitionRead("in", 4, 7, 70), PartitionRead("in", 4, 6, 70)), "was read 2 times"),
    ],
)
def test_how_many_rows_a_log_has_is_known_when_it_was_read(
    read: tuple[PartitionRead, ...], why: str | None
) -> None:
    inputs = (Input("in", (LogSlice(4, 70, 80),), msgspec.Raw(b"1")),)
    plan = Plan(1, 0, 0, "code", inputs, (), 2)
    planned = planned_reads(counted(ab.MemorySink()).physical, plan)
    reports = [Report(Attempt(0, "in", 0, "a"), (), (), (), (), {}, read=read)]
    found = step_outcome((), reports, (), planned)
    assert (found.why.partition("in ")[2] if isinstance(found, Disagreement) else None) == why


def test_a_log_that_is_read_at_two_levels_has_to_be_the_same_at_both() -> None:
    inputs = (Input("in", (LogSlice(4, 70, 80),), msgspec.Raw(b"1")),)
    plan = Plan(1, 0, 0, "code", inputs, (), 2)
    planned = planned_reads(counted(ab.MemorySink()).physical, plan)
    for rows, wanted in ((7, StepOutcome), (6, Disagreement)):
        read = [(PartitionRead("in", 4, 7, 70),), (PartitionRead("in", 4, rows, 70),)]
        reports = [
            Report(Attempt(level, "in", 0, "a"), (), (), (), (), {}, read=each)
            for level, each in enumerate(read)
        ]
        assert isinstance(step_outcome((), reports, (), planned), wanted)


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "in every step"])
def test_partitions_are_weighed_by_what_was_read_of_them_and_bins_by_registered_keys(
    asked: bool,
) -> None:
    made = counted(ab.MemorySink())
    placement = (
        Assignment("by-p", 3, (0, 0, 0, 0, 1, 1, 1, 1)),
        Assignment("in", 5, (2, 0, 0, 2, 2, 0), source=True),
    )
    moves = StepMoves(1, placement, asked=True) if asked else None
    plan = Plan(1, 0, 0, "code", (), placement, 3, parts=planned_moves(moves))
    settled = StepOutcome(
        (),
        (),
        (),
        0,
        {},
        {},
        (Registered("by-p", "count", (1, 5), (7, 2)),),
        (PartitionRead("in", 0, 10, 0), PartitionRead("in", 4, 30, 5), PartitionRead("in", 2, 5)),
    )
    report = {
        (load.region, load.worker): load for load in worker_loads(made.physical, plan, settled)
    }
    assert set(report) == {("by-p", 0), ("by-p", 1), ("in", 0), ("in", 2)}
    assert (report["in", 2].bins, report["in", 2].generation) == ((0, 3, 4), 5)
    assert [load.rows for load in report["in", 2].loads] == [10, 0, 30]
    assert [load.rows for load in report["in", 0].loads] == [0, 5, 0]
    assert all(load.is_empty for load in report["in", 2].loads)  # a position weighs nothing
    assert [load.keys for load in report["by-p", 0].loads] == [0, 7, 0, 0]
    assert [load.keys for load in report["by-p", 1].loads] == [0, 2, 0, 0]
