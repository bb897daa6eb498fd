"""Tasks that are looked at: what is found, and that nothing is left of the looking."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import DeadlinePassed, OperationRefused
from anabranch.records.profiles import MOST_ENTRIES, ProfileKind
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, PAUSE, ScriptedSource
from anabranch.task.profiling import TaskProfiler
from tests.node.engine import Engine
from tests.node.shop import program

STEPS, ROWS = 40, 1000


def spin(times: int) -> int:
    return sum(square(number) for number in range(times))


def square(number: int) -> int:
    return number * number


def profiler_of(kind: ProfileKind | None) -> TaskProfiler:
    return TaskProfiler(kind, "by-customer", 3)


def test_time_is_told_function_by_function() -> None:
    profiler = profiler_of(ProfileKind.TIME)
    with profiler.measure():
        spin(500)
    found = profiler.profile
    assert found is not None
    assert (found.group, found.worker, found.kind) == ("by-customer", 3, "time")
    called = {each.function: each for each in found.functions}
    assert called["square"].calls == 500
    assert called["spin"].calls == 1
    assert called["spin"].seconds >= called["square"].seconds
    assert (Path(called["spin"].file).name, called["spin"].line) == (
        Path(__file__).name,
        spin.__code__.co_firstlineno,
    )
    own = [each.own_seconds for each in found.functions]
    assert own == sorted(own, reverse=True)
    assert 0 < sum(own) <= found.seconds


def test_memory_is_told_line_by_line() -> None:
    kept: list[bytearray] = []
    profiler = profiler_of(ProfileKind.HEAP)
    with profiler.measure():
        spare = bytearray(3_000_000)
        del spare
        kept.extend(bytearray(100_000) for _ in range(10))
    found = profiler.profile
    assert found is not None
    assert found.memory is not None
    largest = found.lines[0]
    assert Path(largest.file).name == Path(__file__).name
    assert largest.bytes >= 1_000_000
    assert 1_000_000 <= found.memory.python < 3_000_000 <= found.memory.python_most
    assert found.memory.resident > found.memory.python
    assert not found.functions


def test_there_is_an_end_to_what_is_told() -> None:
    profiler = profiler_of(ProfileKind.TIME)
    functions: list[Any] = []
    exec(
        "\n".join(f"def f{n}(): pass\nfound.append(f{n})" for n in range(150)), {"found": functions}
    )
    with profiler.measure():
        for function in functions:
            function()
    assert profiler.profile is not None
    assert len(profiler.profile.functions) == MOST_ENTRIES
    assert profiler.profile.left_out >= 50


@pytest.mark.parametrize("kind", [None, *ProfileKind])
def test_nothing_is_left_of_the_looking_also_where_a_task_fails(kind: ProfileKind | None) -> None:
    before = sys.getprofile()
    profiler = profiler_of(kind)
    with pytest.raises(ZeroDivisionError), profiler.measure():
        spin(3 // 0)
    assert profiler.profile is None
    assert sys.getprofile() is before
    assert not tracemalloc.is_tracing()


def test_nobody_looks_unless_asked() -> None:
    profiler = profiler_of(None)
    with profiler.measure():
        spin(3)
    assert profiler.profile is None


def test_tracing_that_was_on_before_stays_on() -> None:
    tracemalloc.start()
    try:
        profiler = profiler_of(ProfileKind.HEAP)
        with profiler.measure():
            spin(3)
        assert profiler.profile is not None
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def remember(key: Any, row: Any, total: Any) -> Any:
    total = (total or 0) + square(row.v)
    return (key.k, total), total


def pipeline_of(directory: Path, sink: MemorySink, steps: int) -> Engine:
    """A pipeline in which every step has as many rows of the same four keys."""
    flow = Dataflow("squares")
    script: list[object] = []
    for step in range(steps):
        script += [[(f"k{n % 4}", step) for n in range(ROWS)], PAUSE]
    source = flow.source("rows", ScriptedSource("k string, v bigint", [*script, EOF]))
    source.key_distribute("by-k", "k").stateful_map(
        "totals", remember, state="total bigint", output="k string, total bigint"
    ).sink("out", sink)
    return Engine(program(flow), directory, paced=True).start()


def calls_in_a_step(engine: Engine, worker: int) -> int:
    """How often a worker calls the function in a step that has rows.

    A source that has nothing yet when a profile is asked for leaves the step without rows.
    """
    calls = 0
    while not calls:
        (found,) = engine.pipeline.profile(worker, timeout=60)
        assert (found.group, found.worker) == ("by-k", worker)
        calls = sum(each.calls for each in found.functions if each.function == "square")
    return calls


def test_a_running_pipeline_is_looked_at_and_comes_to_the_same(tmp_path: Path) -> None:
    plain, profiled = MemorySink(), MemorySink()
    pipeline_of(tmp_path / "plain", plain, STEPS).finish()
    engine = pipeline_of(tmp_path / "profiled", profiled, STEPS)
    engine.until(lambda status: status.step >= 2)
    engine._allow(STEPS)
    calls = sum(calls_in_a_step(engine, worker) for worker in (0, 1))
    assert calls == ROWS, "every row is with one of the two workers"
    (heap,) = engine.pipeline.profile(1, region="by-k", heap=True, timeout=60)
    assert heap.memory is not None
    assert heap.lines
    with pytest.raises(OperationRefused, match="no worker 7"):
        engine.pipeline.profile(7)
    with pytest.raises(DeadlinePassed, match=r"No step has read any rows within 0 s"):
        engine.pipeline.profile(timeout=0)
    engine.finish()
    assert profiled.rows() == plain.rows()
