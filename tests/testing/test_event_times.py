"""Event times in the simulated data plane: those of rows, and the latest that a step read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import parse_schema
from anabranch.messages import Report
from anabranch.operators.rows import Rows
from anabranch.protocol.data_plane import WATCHED
from anabranch.protocol.sources import OWN_TIME
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.slices import RangeSlice
from anabranch.task.region_task import RegionTask
from anabranch.testing import MemoryPlane, Outcome, Scenario, Simulation
from anabranch.testing.cluster.rule_broken import RuleBroken

ROW = "customer string, amount bigint, at timestamp"
SECOND = 1_000_000

Build = Callable[[Stream], Stream]
Seen = dict[int, dict[tuple[str, int | None], int]]


def generated(partition: int, start: int, end: int) -> dict[str, Any]:
    """Partitions are ten seconds apart; a row comes every second."""
    times = [(10 * partition + n) * SECOND for n in range(start, end)]
    return {
        "customer": [f"c{n % 3}" for n in range(start, end)],
        "amount": list(range(start, end)),
        "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
    }


def generator() -> ab.GeneratorSource:
    return ab.GeneratorSource(generated, ROW, partitions=2, rows_per_step=4, rows=12)


class Watch:
    """What tasks of a simulation report of event times, and the rows that they get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Seen = {}
        self.groups: set[str] = set()
        self.rows: list[tuple[str, Rows]] = []
        self.steps: list[tuple[int, Rows]] = []
        self.plans: dict[int, Plan] = {}
        run, count = MemoryPlane.run, RegionTask.count

        def running(plane: MemoryPlane, plan: Plan, states: list[OperatorState]) -> list[Report]:
            reports = run(plane, plan, states)
            self.plans[plan.step] = plan
            found = self.seen.setdefault(plan.step, {})
            for report in reports:
                for each in report.times:
                    self.groups.add(report.attempt.group)
                    key = (each.input, each.partition)
                    found[key] = max(found.get(key, each.latest), each.latest)
            return reports

        def counting(task: RegionTask, place: str, rows: Rows) -> None:
            if place.startswith("edge"):
                self.rows.append((place, rows))
                self.steps.append((task.place.step, rows))
            count(task, place, rows)

        monkeypatch.setattr(MemoryPlane, "run", running)
        monkeypatch.setattr(RegionTask, "count", counting)

    def expected(self, latest: Callable[[RangeSlice], int | None]) -> Seen:
        """What each step was to see, from the latest time of a slice."""
        found: Seen = {}
        for step, plan in self.plans.items():
            slices = [part for given in plan.inputs for part in given.slices]
            ranges = [part for part in slices if isinstance(part, RangeSlice)]
            times = {("orders", part.partition): latest(part) for part in ranges}
            found[step] = {key: time for key, time in times.items() if time is not None}
        return found

    def clock(self, step: int) -> int:
        return self.plans[step].clock_ns // 1000


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def total(key: Any, row: Any, state: Any) -> Any:
    return (key.customer, row.amount, row.at), (state or 0) + row.amount


def same(stream: Stream) -> Stream:
    return stream.map_batches("same", lambda table: table, output=ROW)


def mapped(stream: Stream) -> Stream:
    keyed = stream.key_distribute("by-customer", "customer")
    return keyed.stateful_map("total", total, state="n bigint", output=ROW)


def ran(build: Build, source: Callable[[Path], Any] = lambda _: generator()) -> None:
    def make(directory: Path) -> Dataflow:
        flow = Dataflow("times")
        build(flow.source("orders", source(directory))).sink("out", ab.MemorySink())
        return flow

    with Simulation(Scenario(make, lambda outcome: None)) as simulation:
        simulation.run(0)


@pytest.mark.parametrize(
    ("build", "group"),
    [
        (lambda s: s.assign_timestamps("at"), "orders"),
        (lambda s: s.where("amount >= 0").assign_timestamps("at"), WATCHED),
        (lambda s: s.select("at as on", "*").assign_timestamps("on"), WATCHED),
        (lambda s: same(s).assign_timestamps("at"), WATCHED),
    ],
)
def test_the_latest_times_of_each_partition_are_reported(
    watch: Watch, build: Build, group: str
) -> None:
    ran(lambda s: mapped(build(s)))
    assert watch.seen == watch.expected(last_of)
    assert any(watch.seen.values())
    assert watch.groups == {group}


def last_of(part: RangeSlice) -> int:
    return (10 * part.partition + part.end - 1) * SECOND


def test_rows_that_are_dropped_later_count(watch: Watch) -> None:
    ran(lambda s: mapped(s.assign_timestamps("at").where("amount = 0")))
    assert watch.seen == watch.expected(last_of)


def test_rows_that_were_dropped_before_do_not_count(watch: Watch) -> None:
    ran(lambda s: mapped(s.where("amount = 0").assign_timestamps("at")))
    first = lambda part: 10 * part.partition * SECOND if part.start == 0 else None  # noqa: E731
    assert watch.seen == watch.expected(first)


def test_times_travel_with_their_rows_through_regions_and_functions(watch: Watch) -> None:
    def build(stream: Stream) -> Stream:
        first = mapped(stream.assign_timestamps("at").where("amount <> 2"))
        return same(first).key_distribute("again", "amount").aggregate("last", at="max(at)")

    ran(build)
    places = set()
    for place, rows in watch.rows:
        if rows.times is not None and len(rows):
            assert rows.times.tolist() == rows.values.columns[-1].cast(pa.int64()).to_pylist()
            places.add(place)
    assert len(places) == 2, "to the map, and to the aggregate"


def test_the_time_of_arrival_is_the_clock_of_the_step(watch: Watch) -> None:
    ran(lambda s: mapped(s.assign_timestamps(ab.ARRIVAL)))
    for step, rows in watch.steps:
        if len(rows):
            assert rows.times is not None
            assert set(rows.times.tolist()) == {watch.clock(step)}
    read = [step for step, found in watch.seen.items() if found]
    assert read
    assert [set(watch.seen[step].values()) for step in read] == [{watch.clock(s)} for s in read]


def test_files_are_seen_as_a_whole(watch: Watch, tmp_path: Path) -> None:
    def files(directory: Path) -> ab.FileSource:
        for number in range(3):
            table = pa.table(generated(number, 0, 2)).cast(parse_schema(ROW))
            pq.write_table(table, tmp_path / f"{number}.parquet")
        return ab.FileSource(tmp_path, "parquet", schema=ROW, watch=False, max_files_per_step=1)

    ran(lambda s: mapped(s.assign_timestamps("at")), files)
    found = [seen for _, seen in sorted(watch.seen.items()) if seen]
    assert found == [{("orders", None): n * SECOND} for n in (1, 11, 21)]
    assert watch.groups == {WATCHED}


def test_rows_without_a_time_become_dead_letters() -> None:
    rows = [("ann", 1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), ("bob", 2, None)]
    found: dict[str, list[tuple[Any, ...]]] = {}

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("times")
        flow.dead_letters("letters", ab.MemorySink())
        stream = flow.source("orders", ab.ScriptedSource(ROW, [rows, ab.EOF]))
        mapped(stream.assign_timestamps("at", on_error="dead-letter")).sink("out", ab.MemorySink())
        return flow

    def keep(outcome: Outcome) -> None:
        for sink, steps in outcome.output.items():
            found[sink] = [row for each in steps.values() for row in each]

    with Simulation(Scenario(make, keep)) as simulation:
        simulation.run(0)
    assert [row[0] for row in found["out"]] == ["ann"]
    (letter,) = found["letters"]
    assert letter[:6] == (
        "orders",
        "untimed",
        None,
        '{"customer":"bob","amount":2,"at":null}',
        None,
        "column at is NULL",
    )


def test_a_row_without_a_time_fails_the_step() -> None:
    def make(directory: Path) -> Dataflow:
        flow = Dataflow("times")
        stream = flow.source("orders", ab.ScriptedSource(ROW, [[("bob", 2, None)], ab.EOF]))
        mapped(stream.assign_timestamps("at")).sink("out", ab.MemorySink())
        return flow

    with (
        Simulation(Scenario(make, lambda outcome: None)) as simulation,
        pytest.raises(RuleBroken, match=r"source\.missing_time"),
    ):
        simulation.run(0)


class Telling(ab.GeneratorSource):
    """Tells the times beside its rows, an hour after those in the column."""

    tells_times = True

    def read(self, slice: RangeSlice, /) -> Iterator[pa.RecordBatch]:
        for batch in super().read(slice):
            later = pc.add(batch.column("at"), pa.scalar(HOUR, pa.duration("us")))
            yield batch.append_column(OWN_TIME, later)


HOUR = 3600 * SECOND


def test_a_source_may_tell_its_own_times(watch: Watch) -> None:
    source = Telling(generated, ROW, partitions=2, rows_per_step=4, rows=12)
    ran(lambda s: mapped(s.assign_timestamps(OWN_TIME)), lambda _: source)
    assert watch.seen == watch.expected(lambda part: last_of(part) + HOUR)
    compared = 0
    for _, rows in watch.rows:
        if rows.times is not None and len(rows):
            at = rows.values.column("at").cast(pa.int64()).to_numpy()
            assert rows.times.tolist() == (at + HOUR).tolist()
            assert rows.values.schema.names == ["customer", "amount", "at"]
            compared += 1
    assert compared
