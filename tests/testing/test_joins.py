"""Joins and dedup in simulated clusters that crash and rescale, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.testing import Outcome, Scenario, Simulation

SCHEDULES = 5
ROWS = 32
PARTITIONS = 2
DISORDER = 5
START = datetime(2026, 1, 1, tzinfo=UTC)

Found = tuple[Any, ...]


class Row(NamedTuple):
    key: str
    number: int
    second: int


def draw(seed: int) -> list[Row]:
    chance = Random(seed)
    return [
        Row(chance.choice("abc"), number, number - chance.randint(0, DISORDER))
        for number in range(ROWS)
    ]


LEFT, RIGHT = draw(1), draw(2)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def generated(rows: list[Row], names: tuple[str, str, str]) -> ab.GeneratorSource:
    def page(partition: int, start: int, end: int) -> dict[str, Any]:
        some = [rows[number * PARTITIONS + partition] for number in range(start, end)]
        times = pa.array([at(row.second) for row in some], pa.timestamp("us", "UTC"))
        values = ([row.key for row in some], [row.number for row in some], times)
        return dict(zip(names, values, strict=True))

    schema = f"{names[0]} string, {names[1]} bigint, {names[2]} timestamp"
    return ab.GeneratorSource(page, schema, partitions=PARTITIONS, rows_per_step=4, rows=len(rows))


def sides(flow: Dataflow) -> tuple[Stream, Stream]:
    left = flow.source("lefts", generated(LEFT, ("k", "a", "at")))
    right = flow.source("rights", generated(RIGHT, ("id", "b", "seen")))
    # Partitions may be a step apart.
    lateness = timedelta(seconds=DISORDER + 1)
    return (
        left.assign_timestamps("at", lateness=lateness).key_by("k"),
        right.assign_timestamps("seen", lateness=lateness).key_by("id"),
    )


def pairs(meets: Callable[[Row, Row], bool], *outer: str) -> list[Found]:
    found: list[Found] = []
    for left in LEFT:
        mine = [r for r in RIGHT if r.key == left.key and meets(left, r)]
        found += [(left.key, left.number, right.number) for right in mine]
        if not mine and "left" in outer:
            found.append((left.key, left.number, None))
    for right in RIGHT:
        if "right" in outer and not any(
            left.key == right.key and meets(left, right) for left in LEFT
        ):
            found.append((right.key, None, right.number))
    return found


def last_before(tolerance: int) -> list[Found]:
    found: list[Found] = []
    for left in LEFT:
        before = [
            right.second
            for right in RIGHT
            if right.key == left.key and 0 <= left.second - right.second <= tolerance
        ]
        found.append((left.key, left.number, at(max(before)) if before else None))
    return found


def window_pairs(length: int, every: int) -> list[Found]:
    ends = range(-100, 200, every)
    return [
        (left.key, left.number, right.number, at(end - length))
        for end in ends
        for left in LEFT
        for right in RIGHT
        if left.key == right.key and all(end - length <= row.second < end for row in (left, right))
    ]


def counted(length: int, rows: list[Found]) -> list[Found]:
    """How many rows of each key are in each window; the time is the later one of a row's sides."""
    seconds = {("left", row.number): row.second for row in LEFT}
    seconds |= {("right", row.number): row.second for row in RIGHT}
    counts: Counter[tuple[str, int]] = Counter()
    for key, left, right in rows:
        times = [seconds[s, n] for s, n in (("left", left), ("right", right)) if n is not None]
        counts[key, max(times) // length * length] += 1
    return [(key, at(start), n) for (key, start), n in counts.items()]


NEAR = pairs(lambda x, y: -1 <= y.second - x.second <= 2, "left", "right")


class Case(NamedTuple):
    build: Callable[[Stream, Stream], Stream]
    columns: tuple[str, ...]
    expected: list[Found]


CASES = {
    "within, full": Case(
        lambda a, b: a.join("j", b, region="r", within=("-1 second", "2 seconds"), how="full"),
        ("k", "a", "b"),
        NEAR,
    ),
    "within, full, then windows": Case(
        # Rows that come out alone are behind the frontier of the join, but not late behind it.
        lambda a, b: (
            a.join("j", b, region="r", within=("-1 second", "2 seconds"), how="full")
            .key_distribute("again", "k")
            .window(ab.tumbling("4 seconds"))
            .aggregate("counts", n="count(*)")
        ),
        ("k", "window_start", "n"),
        counted(4, NEAR),
    ),
    "dedup": Case(
        lambda a, b: a.distribute_by_key("r").dedup("once", within="1 day"),
        ("k",),
        [("a",), ("b",), ("c",)],
    ),
    "ttl": Case(
        lambda a, b: a.join("j", b, region="r", ttl="3 seconds"),
        ("k", "a", "b"),
        pairs(lambda x, y: abs(y.second - x.second) <= 3),
    ),
    "sliding": Case(
        lambda a, b: a.join("j", b, region="r", window=ab.sliding("6 seconds", every="2 seconds")),
        ("k", "a", "b", "window_start"),
        window_pairs(6, 2),
    ),
    "as of": Case(
        lambda a, b: a.join_as_of("j", b, region="r", tolerance="4 seconds", how="left"),
        ("k", "a", "seen"),
        last_before(4),
    ),
}


def text(row: Found) -> str:
    return repr([part.isoformat() if isinstance(part, datetime) else part for part in row])


def scenario(case: Case) -> Scenario:
    def make(directory: Path) -> Dataflow:
        flow = Dataflow("joins")
        left, right = sides(flow)
        case.build(left, right).select(*case.columns).sink("out", ab.MemorySink())
        right.sink("unused", ab.MemorySink())
        return flow

    def check(outcome: Outcome) -> None:
        found = [row for rows in outcome.output["out"].values() for row in rows]
        assert sorted(map(text, found)) == sorted(map(text, case.expected))

    return Scenario(make, check)


@pytest.mark.parametrize("name", CASES)
def test_a_join_gives_what_plain_python_gives_whatever_happens(name: str) -> None:
    with Simulation(scenario(CASES[name])) as simulation:
        for seed in range(SCHEDULES):
            simulation.run(seed)
