"""A source over a log, on the memory plane: gaps, uncounted rows, partitions that become more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.coordinator.settings import Settings
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.rescale.step_moves import moves_of
from anabranch.task.program import Program
from tests.node.engine import Engine
from tests.node.shop import program
from tests.sources.log_source import LogSource
from tests.task.test_messages import ListeningPlane

GROWING = LogSource(turns=24, partitions=2, grows=(6, 8, 10))


def ascending(key: Any, row: Any, last: Any) -> Any:
    """Depends on the order of a partition's rows."""
    assert last is None or row.n > last, "a row came twice, or too early"
    return (key.p, row.n), row.n


def flow_of(source: LogSource, sink: ab.MemorySink) -> ab.Dataflow:
    flow = ab.Dataflow("log")
    flow.source("in", source).key_distribute("by-p", "p").stateful_map(
        "last", ascending, state=None, output="p int, n bigint"
    ).sink("rows", sink)
    return flow


def made_of(source: LogSource, sink: ab.MemorySink) -> Program:
    return program(flow_of(source, sink))


def found(sink: ab.MemorySink) -> list[tuple[int, int]]:
    return sorted((row["p"], row["n"]) for row in sink.rows())


def test_rows_have_the_positions_that_they_say_and_are_counted_when_they_are_read(
    tmp_path: Path,
) -> None:
    source, sink = LogSource(turns=5), ab.MemorySink()
    done = Engine(made_of(source, sink), tmp_path).run()
    assert found(sink) == source.rows()
    assert [step.rows for step in done] == [len(t) for t in sink.steps().values()]
    assert sum(step.rows for step in done) == len(source.rows())


@pytest.mark.parametrize("policy", [MovePolicy.FLUID, MovePolicy.BATCHED])
def test_partitions_become_more_while_a_rescale_runs(tmp_path: Path, policy: MovePolicy) -> None:
    sink = ab.MemorySink()
    made = made_of(GROWING, sink)
    plane = ListeningPlane(made, tmp_path)
    chosen = Settings(workers=2, rescale=RescaleSettings(policy=policy, prefetch=False))
    engine = Engine(made, tmp_path, plane=plane, settings=chosen, paced=True).start()
    engine.until(lambda status: status.step >= 4)
    engine.pipeline.scale(workers=4)
    engine.until(lambda status: status.step >= 5)
    engine.finish()
    owners = [plan.assignment("in").workers for plan, _ in plane.ran]
    sizes = [len(each) for each in owners]
    assert (sizes[0], sizes[-1]) == (2, 5)
    assert sizes == sorted(sizes)
    moving = {len(p.assignment("in").workers) for p, _ in plane.ran if moves_of(p) is not None}
    assert len(moving) > 1, "nothing grew during the rescale"
    assert found(sink) == GROWING.rows()


def test_a_pipeline_that_has_grown_goes_on_with_all_its_partitions(tmp_path: Path) -> None:
    sink = ab.MemorySink()
    engine = Engine(made_of(GROWING, sink), tmp_path, paced=True).start()
    engine.until(lambda status: status.step >= 14)
    assert len(engine.pipeline.status().sources[0].partitions) == 5
    engine.shutdown()
    plane = ListeningPlane(made_of(GROWING, sink), tmp_path)
    engine = Engine(made_of(GROWING, sink), tmp_path, plane=plane).start()
    engine.finish()
    assert {len(plan.assignment("in").workers) for plan, _ in plane.ran} == {5}
    assert found(sink) == GROWING.rows()
