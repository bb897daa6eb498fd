"""All SQL between the levels of a dataflow, and the columns that it moves."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.plan.boundary import Boundary, Seats
from anabranch.plan.physical import Level, Physical
from anabranch.plan.sql import Crossing
from anabranch.plan.time_sql import CutQuery
from anabranch.plan.transform_sql import inflow, outflow


def seats(level: Level, workers: int = 2) -> Seats:
    """As many workers for each group."""
    every = tuple(range(workers))
    return Seats(tuple((g.name, workers * i, every) for i, g in enumerate(level.groups)))


def crossings(physical: Physical) -> list[Crossing]:
    """The crossings before all levels."""
    return [
        Crossing(Boundary(physical, level), seats(level), {"orders": 2})
        for level in physical.levels[1:]
    ]


def queries(crossing: Crossing) -> Iterator[CutQuery]:
    """Every query of a crossing; sources are read by the JVM and by Python."""
    boundary, physical = crossing.boundary, crossing.boundary.physical
    sources = [p for p in boundary.needed_producers() if physical.is_read(p)]
    yield from (crossing.from_source(p, f"s{p}") for p in sources if p in boundary.producers())
    if sources:
        yield crossing.from_tasks(sources, "reads")
    if boundary.task_producers():
        yield crossing.from_tasks(boundary.task_producers(), "tasks")
    for transform in boundary.transforms:
        for edge in transform.inputs:
            for by_jvm in (False, True) if physical.is_read(edge.producer) else (False,):
                yield inflow(crossing, transform, edge, "given", by_jvm=by_jvm)
        yield CutQuery(outflow(physical, transform, "made"))
        if transform.id in boundary.producers():
            yield crossing.from_transform(transform.id, "view")


def columns(boundary: Boundary) -> Iterator[str]:
    """The columns that move: those that tasks get, and those that they and read tasks give."""
    physical = boundary.physical
    yield str(boundary.arriving_schema())
    reads = [p for p in boundary.needed_producers() if physical.is_read(p)]
    yield from (str(boundary.emitted_schema(each)) for each in (reads, boundary.task_producers()))


def everything(physical: Physical) -> list[str]:
    """All of it, as text."""
    found: list[str] = []
    for crossing in crossings(physical):
        found += columns(crossing.boundary)
        for query in queries(crossing):
            found += [*(cut.text for cut in query.cuts), query.text]
        found.append(crossing.controls("controls", "at", "payload"))
    return found
