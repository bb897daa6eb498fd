"""The handle of a pipeline, on a data plane without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.coordinator.driver import Driver
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.port import Answered
from anabranch.coordinator.settings import Settings
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import DeadlinePassed, InvalidRequest, ReadFailed, UnknownOperator
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.node.threads import ThreadedNode
from anabranch.pipeline import Pipeline
from anabranch.protocol.rescale_requests import Scale
from anabranch.protocol.status import Phase
from anabranch.records.plan import Plan
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import Fail, ScriptedSource
from anabranch.task.program import Program
from tests.node.engine import Engine
from tests.node.shop import PAGES, Story, program, remember, scripted, shop

WAIT = 20.0


def started(made: Program, directory: Path, watch: Any = None) -> Pipeline:
    return Engine(made, directory, watch=watch).start().pipeline


def is_free(directory: Path) -> bool:
    """Whether nobody leads in a directory."""
    leading = Leadership(FileDirectory(directory / "journal"))
    leading.lead(False, "host", 1, 0)
    leading.release()
    return True


def test_a_pipeline_whose_sources_have_ended_completes(tmp_path: Path) -> None:
    rows = MemorySink()
    done: list[StepDone] = []
    made = program(shop(scripted(), rows, MemorySink()))
    pipeline = started(made, tmp_path, done.append)
    status = pipeline.wait(WAIT)
    story = Story()
    assert (status.phase, status.step, status.published) == (Phase.COMPLETED, 4, 4)
    assert status.keys == {"seen": len(story.seen), "times": len(story.counts)}
    assert (status.last_rows, status.last_seconds) == (done[-1].rows, done[-1].seconds)
    assert [step.step for step in done] == [1, 2, 3, 4]
    assert len(rows.rows()) == 12
    assert is_free(tmp_path)


def test_a_union_goes_on_when_one_of_its_sources_has_ended(tmp_path: Path) -> None:
    flow, rows = Dataflow("two"), MemorySink()
    short = flow.source("short", scripted(PAGES[:1]))
    both = short.union(flow.source("long", scripted()))
    both.key_distribute("by-customer", "customer").stateful_map(
        "seen", remember, state=None, output="customer string, times int, amounts string"
    ).sink("rows", rows)
    assert started(program(flow), tmp_path).wait(WAIT).phase is Phase.COMPLETED
    assert len(rows.rows()) == len(PAGES[0]) + sum(map(len, PAGES))


def test_state_is_shown_under_the_users_names(tmp_path: Path) -> None:
    flow = Dataflow("names")
    source = ScriptedSource("v_key string, k_value bigint", [[("a", 1), ("a", 5), (None, 2)]])
    keyed = flow.source("in", source).key_distribute("r", "v_key")
    keyed.aggregate("totals", k_n="count(*)", v_best="max(k_value)").sink("out", MemorySink())
    pipeline = started(program(flow), tmp_path)
    while pipeline.status().step < 1:
        pipeline.wait(0.01)
    found = pipeline.state_table("totals").to_pylist()
    assert sorted(found, key=repr) == [
        {"v_key": "a", "k_n": 2, "v_best": 5},
        {"v_key": None, "k_n": 1, "v_best": 2},
    ]
    assert pipeline.state("totals") == pipeline.state_table("totals")
    with pytest.raises(UnknownOperator, match=r"no stateful operator .sums.\. There are: totals"):
        pipeline.state_table("sums")
    assert pipeline.shutdown().phase is Phase.STOPPED


def test_a_step_that_fails_ends_the_pipeline_with_the_reason(tmp_path: Path) -> None:
    rows = MemorySink()
    pages: list[object] = [PAGES[0], Fail("the line is dead", times=None), PAGES[1]]
    source = scripted(pages, scratch=tmp_path / "scratch")
    pipeline = started(program(shop(source, rows, MemorySink())), tmp_path / "state")
    with pytest.raises(ReadFailed, match="the line is dead"):
        pipeline.wait(WAIT)
    status = pipeline.status()
    assert (status.phase, status.step, status.published) == (Phase.FAILED, 1, 1)
    # What was committed is out, the directory is free, and nobody goes on in the background.
    assert list(rows.steps()) == [1]
    assert is_free(tmp_path / "state")
    assert "anabranch-publish" not in [thread.name for thread in threading.enumerate()]


def test_shutting_down_finishes_the_step_and_the_next_start_goes_on(tmp_path: Path) -> None:
    rows = MemorySink()
    made = program(shop(scripted(), rows, MemorySink()))
    first = threading.Event()
    go_on = threading.Event()

    def slow(plan: Plan) -> None:
        first.set()
        assert go_on.wait(WAIT)

    pipeline = Engine(made, tmp_path, plane_before=slow).start().pipeline
    assert first.wait(WAIT)
    stopper = threading.Thread(target=pipeline.shutdown)
    stopper.start()
    while pipeline.status().phase is not Phase.STOPPING:
        pipeline.wait(0.01)
    go_on.set()
    stopper.join(WAIT)
    assert (pipeline.status().phase, pipeline.status().step) == (Phase.STOPPED, 1)
    assert list(rows.steps()) == [1]
    again = started(made, tmp_path)
    assert again.wait(WAIT).step == 4
    published = {
        step: sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
        for step, table in rows.steps().items()
    }
    assert published == {s: sorted(found, key=repr) for s, found in Story().rows.items()}


def test_what_is_not_durable_in_time_is_an_error_and_goes_on(tmp_path: Path) -> None:
    made = program(shop(scripted(), MemorySink(), MemorySink()))
    under_way = threading.Event()
    go_on = threading.Event()

    def slow(plan: Plan) -> None:
        if plan.step == 2:
            under_way.set()
            assert go_on.wait(WAIT)

    pipeline = Engine(made, tmp_path, plane_before=slow).start().pipeline
    assert under_way.wait(WAIT)
    with pytest.raises(DeadlinePassed, match=r"not durable within 0\.01 s\. .* continues"):
        pipeline.scale(4, timeout=0.01)
    with pytest.raises(DeadlinePassed, match="continues"):
        pipeline.scale_pause(timeout=0)
    assert pipeline.status().step == 1
    go_on.set()
    status = pipeline.wait(WAIT)
    assert status.rescale is not None
    assert (status.rescale.request, status.rescale.phase) == (Scale(4), "paused")


class NeverInTime:
    """A driver whose operations take longer than anybody waits."""

    def ask(self, operation: object, seconds: float | None) -> Answered:
        return Answered(step=7, waiting=True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda pipeline: pipeline.checkpoint(timeout=1.5),
        lambda pipeline: pipeline.scale(4, timeout=1.5),
        lambda pipeline: pipeline.rebalance(timeout=1.5),
        lambda pipeline: pipeline.scale_pause(timeout=1.5),
        lambda pipeline: pipeline.scale_resume(timeout=1.5),
        lambda pipeline: pipeline.scale_cancel(timeout=1.5),
    ],
)
def test_a_timeout_that_has_passed_is_never_taken_for_done(
    tmp_path: Path, ask: Callable[[Pipeline], object]
) -> None:
    driver, node = cast("Driver", NeverInTime()), cast("ThreadedNode", None)
    with pytest.raises(DeadlinePassed, match=r"within 1\.5 s"):
        ask(Pipeline(tmp_path, driver, node, Settings()))


def test_a_query_may_not_ask_for_more_seconds_than_the_settings_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(shop(scripted(), MemorySink(), MemorySink()))
    engine = Engine(made, tmp_path, settings=Settings(query_seconds=30)).start()
    engine.pipeline.wait(WAIT)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(engine.node, "query", lambda *given: asked.append(given))
    engine.driver.query("select 1", 10, 1000, 30)
    with pytest.raises(InvalidRequest, match=r"may take 30 seconds, not 30\.5"):
        engine.driver.query("select 1", 10, 1000, 30.5)
    with pytest.raises(ValueError, match=r"limit_seconds=30\.5 is more than query_seconds=30"):
        engine.pipeline.query("select 1", limit_seconds=30.5)
    assert asked == [("select 1", 10, 1000, 30)]
