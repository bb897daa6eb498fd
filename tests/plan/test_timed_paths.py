"""Event times between the levels: where rows get them, who sees them, which edges carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.naming import TIME as USER_TIME
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import parse_schema
from anabranch.dataflow.validate import validate
from anabranch.plan.boundary import FIRED, TIME, Boundary
from anabranch.plan.lower import lower
from anabranch.plan.physical import Physical, Relay
from anabranch.protocol.sources import Source
from anabranch.records.slices import RangeSlice
from tests.dataflow.fakes import FakeAnalyzer, sink, source

ROW = "customer string, amount double, at timestamp"
ANALYZER = FakeAnalyzer({}, frozenset({"amount > 0"}))


@dataclass(frozen=True)
class Files:
    """A source that Spark reads."""

    schema: pa.Schema

    def paths(self, slices: object) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Numbered:
    """A source that Python reads, in numbered partitions."""

    schema: pa.Schema
    partitions: int

    def read(self, slice: RangeSlice, /) -> Iterator[pa.RecordBatch]:
        return iter(())

    def open(self, position: bytes | None, log: object) -> Any:
        raise NotImplementedError

    def check(self, slices: object) -> None:
        raise NotImplementedError

    def log_files(self, position: bytes) -> frozenset[str]:
        raise NotImplementedError


def numbered(partitions: int = 4) -> Source:
    return cast(Source, Numbered(parse_schema(ROW), partitions))


def files() -> Source:
    return cast(Source, Files(parse_schema(ROW)))


def same(given: Any) -> Any:
    return given


def untimed(schema: Any) -> Any:
    return pa.schema([field for field in schema if field.name != USER_TIME])


def step(key: Any, row: Any, state: Any) -> Any:
    return None, state


class Each(ab.Process):
    seen = ab.ValueState("n int")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        return None


def timed(stream: Stream) -> Stream:
    return stream.assign_timestamps("at")


def keyed(stream: Stream, name: str = "r") -> Stream:
    return stream.key_distribute(name, "customer")


def mapped(stream: Stream, name: str = "m") -> Stream:
    return stream.stateful_map(name, step, output=ROW)


def processed(stream: Stream, name: str = "p") -> Stream:
    return stream.process(name, Each, output=ROW)


def physical(build: Callable[[Stream], Stream], of: Source | None = None) -> Physical:
    flow = Dataflow("shop")
    rows = flow.source("orders", source(ROW) if of is None else of)
    build(rows).sink("out", sink())
    return lowered(flow)


def lowered(flow: Dataflow) -> Physical:
    return lower(validate(flow.graph(), ANALYZER))


def seen_by(found: Physical) -> list[tuple[str, str]]:
    return [(each.input, each.seen_by.value) for each in found.assignments()]


def carried(found: Physical) -> dict[str, str]:
    """Which edges carry times, and marks of what notifications made."""
    marks = {}
    for level in found.levels:
        for edge in level.inputs:
            ends = (_name(found, edge.producer), _name(found, edge.consumer))
            marks[" → ".join(ends)] = "time" * edge.timed + " fired" * edge.fired
    return marks


def _name(found: Physical, id: int) -> str:
    node = found.node(id)
    return "relay" if isinstance(node, Relay) else getattr(node, "name", node.kind)


@pytest.mark.parametrize(
    ("build", "of", "who"),
    [
        (lambda s: keyed(timed(s)), numbered(), "reader"),
        (lambda s: keyed(timed(s.union(s))), numbered(), "reader"),
        (lambda s: timed(s.key_by("customer")).distribute_by_key("r"), numbered(), "reader"),
        (lambda s: keyed(s.assign_timestamps(ab.ARRIVAL)), numbered(), "reader"),
        (lambda s: keyed(timed(s.where("amount > 0"))), numbered(), "partition"),
        (lambda s: keyed(timed(s.where("amount > 0"))), numbered(64), "partition"),
        (lambda s: keyed(timed(s.where("amount > 0"))), numbered(65), "source"),
        (lambda s: keyed(timed(s.map_batches("b", same, output=ROW))), numbered(), "partition"),
        (lambda s: keyed(timed(s.transform("t", same))), numbered(), "source"),
        (lambda s: keyed(timed(s.select("at", "customer"))), numbered(), "partition"),
        # Its partitions have no numbers that stay.
        (lambda s: keyed(timed(s)), source(ROW), "reader"),
        (lambda s: keyed(timed(s.where("amount > 0"))), source(ROW), "source"),
        (lambda s: keyed(timed(s)), files(), "source"),
        (lambda s: keyed(timed(s.where("amount > 0"))), files(), "source"),
    ],
)  # fmt: skip
def test_who_sees_the_times(build: Callable[[Stream], Stream], of: Source, who: str) -> None:
    assert seen_by(physical(lambda s: mapped(build(s)), of)) == [("orders", who)]


def test_each_source_of_a_union_is_seen_for_itself() -> None:
    flow = Dataflow("shop")
    one, two = flow.source("one", numbered()), flow.source("two", files())
    three = flow.source("three", numbered()).where("amount > 0")
    mapped(keyed(timed(one.union(two, three)))).sink("out", sink())
    assert seen_by(lowered(flow)) == [("one", "reader"), ("two", "source"), ("three", "partition")]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: mapped(keyed(timed(s))), {"orders → m": "time"}),
        (lambda s: keyed(timed(s)).aggregate("a", n="count(*)"), {"orders → a": "time"}),
        # A sink needs no times, and nobody behind it does.
        (timed, {"orders → out": ""}),
        (
            lambda s: mapped(keyed(timed(s))).where("amount > 0"),
            {"orders → m": "time", "m → out": ""},
        ),
        (
            lambda s: mapped(keyed(timed(s).map_batches("b", same, output=ROW))),
            {"orders → b": "time", "b → m": "time"},
        ),
        # Times come behind the function.
        (
            lambda s: mapped(keyed(timed(s.map_batches("b", same, output=ROW)))),
            {"orders → b": "", "b → m": "time"},
        ),
        (lambda s: timed(s).map_batches("b", same, output=ROW), {"orders → b": ""}),
        (
            lambda s: mapped(keyed(mapped(keyed(timed(s))), "r2"), "m2"),
            {"orders → m": "time", "m → m2": "time"},
        ),
        # What may make rows by itself has its rows marked, and so has what passes them on.
        (
            lambda s: mapped(keyed(mapped(keyed(processed(keyed(timed(s))), "r2")), "r3"), "m2"),
            {"orders → p": "time", "p → m": "time fired", "m → m2": "time fired"},
        ),
        (lambda s: mapped(keyed(s)), {"orders → m": ""}),
        (lambda s: mapped(keyed(timed(s).transform("t", same))), {"t → m": "time"}),
        (lambda s: mapped(keyed(timed(s).transform("t", untimed))), {"t → m": ""}),
    ],
)
def test_edges_carry_times_as_far_as_somebody_may_use_them(
    build: Callable[[Stream], Stream], expected: dict[str, str]
) -> None:
    assert carried(physical(build)) == expected


def test_a_relay_carries_times() -> None:
    flow = Dataflow("shop")
    rows = keyed(timed(flow.source("orders", source(ROW))))
    first = mapped(rows)
    second = mapped(keyed(first, "r2"), "m2")
    mapped(keyed(first.union(second), "r3"), "m3").sink("out", sink())
    assert carried(lowered(flow)) == {
        "orders → m": "time",
        "m → m2": "time",
        "m → relay": "time",
        "m2 → m3": "time",
        "relay → m3": "time",
    }


def columns(found: Physical, level: int) -> tuple[list[str], list[str], list[str]]:
    """The columns of time: of rows that arrive, and that read tasks and tasks emit."""
    boundary = Boundary(found, found.levels[level])
    reads = [p for p in boundary.needed_producers() if found.is_read(p)]
    schemas = (
        boundary.arriving_schema(),
        boundary.emitted_schema(reads),
        boundary.emitted_schema(boundary.task_producers()),
    )
    kept = [[name for name in schema.names if name in (TIME, FIRED)] for schema in schemas]
    return kept[0], kept[1], kept[2]


def test_the_columns_of_a_boundary_are_those_that_its_edges_carry() -> None:
    found = physical(lambda s: mapped(keyed(processed(keyed(timed(s))), "r2")))
    # Spark computes the time of a row that was read; a task emits it.
    assert columns(found, 1) == ([TIME], [], [])
    assert columns(found, 2) == ([TIME, FIRED], [], [TIME, FIRED])
    boundary = Boundary(found, found.levels[2])
    assert boundary.arriving_schema().field(TIME).type == pa.int64()
    assert boundary.arriving_schema().field(FIRED).type == pa.bool_()


def test_behind_a_function_that_gets_no_times_none_are_emitted() -> None:
    found = physical(lambda s: mapped(keyed(timed(s.map_batches("b", same, output=ROW)))))
    assert columns(found, 1) == ([], [], [])
    assert columns(found, 2) == ([TIME], [], [])


@pytest.mark.parametrize(
    ("build", "of", "order"),
    [
        (lambda s: timed(s.where("amount > 0")), numbered(), [3]),
        (timed, numbered(), [0]),
        (lambda s: timed(s.where("amount > 0")), files(), [0]),
        (lambda s: timed(s.map_batches("b", same, output=ROW)), numbered(), [3, 3]),
        (lambda s: timed(s.map_batches("b", same, output=ROW)), files(), [0, 0]),
    ],
)
def test_where_spark_tells_partitions_apart_rows_come_from_python_with_their_order(
    build: Callable[[Stream], Stream], of: Source, order: list[int]
) -> None:
    found = physical(lambda s: keyed(build(s)).aggregate("a", n="count(*)"), of)
    boundaries = [Boundary(found, level) for level in found.levels[1:]]
    assert [len(boundary.made_order) for boundary in boundaries] == order
    # What reaches the aggregate does not need it.
    assert boundaries[-1].order == []
