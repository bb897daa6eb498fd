"""What the status says of a machine in which no step runs."""

from __future__ import annotations

import pytest

from anabranch.coordinator.effects import WriteRepair
from anabranch.coordinator.events import (
    Asked,
    Begun,
    CommitWritten,
    InputTaken,
    LeaderFenced,
    PlanWritten,
    RepairWritten,
    ResultFetched,
    StepRead,
)
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    PausePipeline,
    PauseSource,
    ShutDownPipeline,
    StartPipeline,
)
from anabranch.coordinator.settings import Settings
from anabranch.coordinator.status_view import pipeline_status
from anabranch.protocol.node import Closed, Done, Failure, Open, OpenOrder, Output, SinkRetry
from anabranch.protocol.status import NoStep, NoStepReason
from tests.coordinator.bench import (
    Bench,
    checkpoint,
    commit,
    journal,
    order_of,
    plan,
    read,
    result,
    staged,
)

LOST = Failure("store.missing_run", "A run is gone", "runs/1")


def shown(bench: Bench) -> NoStep | None:
    return pipeline_status(bench.machine.memory, bench.seconds).no_step


def reason(bench: Bench) -> NoStepReason | None:
    found = shown(bench)
    return None if found is None else found.reason


def opened(settings: Settings | None = None, **changes: object) -> Bench:
    bench = Bench(settings or Settings())
    bench.open(journal(7, **changes))
    return bench


def test_from_the_start_to_a_step_and_after_it() -> None:
    bench = Bench()
    bench.send(Begun())
    assert reason(bench) is NoStepReason.STARTING
    bench = Bench()
    bench.begin(journal(7))
    assert shown(bench) == NoStep(NoStepReason.NODE, "Waits for the node to start", "node")
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    assert shown(bench) == NoStep(NoStepReason.NODE, "Waits for the node to open step 7", "node")
    bench.report(Open(7), published={"out": 7})
    assert shown(bench) == NoStep(NoStepReason.INPUT, "Waits for input")
    bench.report(Open(7), offer=bench.offer(8), published={"out": 7})
    assert shown(bench) is None, "its input is taken"
    bench.send(InputTaken(8, read(8)))
    assert shown(bench) is None, "it is planned"
    bench.send(PlanWritten(plan(8)))
    assert shown(bench) is None, "it runs"
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    bench.send(ResultFetched(result(8)))
    assert shown(bench) is None, "it is committed"
    bench.send(CommitWritten(commit(8), ours=True))
    assert reason(bench) is NoStepReason.INPUT


def test_a_batch_that_waits_for_more_rows_says_for_how_long() -> None:
    bench = opened(Settings(min_rows=10, max_delay_seconds=2.0))
    bench.report(Open(7), offer=bench.offer(8, rows=3), published={"out": 7})
    bench.seconds = 0.5
    found = shown(bench)
    assert found is not None
    assert (found.reason, found.retry_seconds) == (NoStepReason.BATCH, 1.5)
    assert found.text == "3 rows wait for more of them, or for their time"


def test_a_tick_says_when_a_step_comes_without_input() -> None:
    bench = opened(Settings(tick_seconds=5.0))
    assert shown(bench) == NoStep(NoStepReason.INPUT, "Waits for input", None, 5.0)


def test_a_pause_of_the_pipeline_and_one_of_a_source() -> None:
    bench = opened()
    bench.send(Asked(1, PausePipeline()))
    assert shown(bench) == NoStep(NoStepReason.PAUSED, "The pipeline is paused")
    bench.send(Asked(2, StartPipeline()))
    bench.send(Asked(3, PauseSource("orders")))
    assert shown(bench) == NoStep(NoStepReason.INPUT, "Waits for input; paused: 'orders'", "orders")


def test_backpressure_names_the_sink_that_is_behind() -> None:
    bench = opened(
        Settings(max_unpublished_steps=1), outputs=(Output(7, staged(7)),), published={"out": 6}
    )
    bench.report(Open(7), offer=bench.offer(8), published={"out": 6})
    found = shown(bench)
    assert found is not None
    assert (found.reason, found.name) == (NoStepReason.BACKPRESSURE, "out")
    assert "has published up to step 6" in found.text
    assert found.retry_seconds is None
    retry = SinkRetry(Failure("sink.publish_failed", "The database is away"), 3, 12.0, 4.0)
    failing = {"published": {"out": 6}, "sink_retries": {"out": retry}}
    bench.report(Open(7), offer=bench.offer(8), **failing)
    bench.seconds += 1.0
    found = shown(bench)
    assert found is not None
    assert "The database is away" in found.text
    assert found.retry_seconds == 3.0
    bench.report(Open(7), offer=bench.offer(8), published={"out": 7})
    assert shown(bench) is None


def test_the_steps_of_a_replay_are_no_new_ones() -> None:
    bench = Bench()
    bench.begin(journal(7, checkpoints=(checkpoint(6),), replayable=1))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.report(Closed(), failed_open=LOST)
    assert reason(bench) is NoStepReason.REPLAY, "an older state is opened"
    bench.opened = bench.machine.memory.node.opens + 1_000_000
    bench.report(Open(6), published={"out": 7})
    assert reason(bench) is NoStepReason.REPLAY, "the step is read"
    bench.send(StepRead(plan(7), commit(7)))
    found = shown(bench)
    assert found is not None
    assert found.text == "Lost state is recomputed: steps up to 7 run again"
    bench.report(Open(7), done=Done(7, 0), published={"out": 7})
    effects = bench.send(ResultFetched(result(7)))
    assert reason(bench) is NoStepReason.REPLAY, "the repair is written"
    (repair,) = [each.repair for each in effects if isinstance(each, WriteRepair)]
    bench.send(RepairWritten(repair))
    assert reason(bench) is NoStepReason.INPUT


def test_a_rewind_says_what_it_waits_for() -> None:
    bench = opened(checkpoints=(checkpoint(5),))
    bench.send(Asked(1, LoadCheckpoint(5)))
    assert shown(bench) == NoStep(
        NoStepReason.LOADING,
        "The pipeline is to go back to step 5: waits for the files of checkpoint 5 to be read",
    )
    bench.verified(5, asked=1)
    assert shown(bench) == NoStep(NoStepReason.LOADING, "The pipeline goes back to step 5")


def test_a_source_that_failed_during_a_step_is_named_after_it_and_ends_the_pipeline() -> None:
    failure = Failure("source.read_failed", "Cannot read 'orders'", "orders")
    bench = opened(plan=plan(8))
    bench.report(Open(8), done=Done(8, 0), source_failure=failure, published={"out": 7})
    bench.send(ResultFetched(result(8)))
    bench.send(CommitWritten(commit(8), ours=True))
    assert shown(bench) == NoStep(NoStepReason.SOURCE_FAILED, "Cannot read 'orders'", "orders")
    bench.report(Open(8), source_failure=failure, published={"out": 8})
    assert shown(bench) == NoStep(
        NoStepReason.ENDED, "The pipeline has failed: Cannot read 'orders'"
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_the_end(at_once: bool) -> None:
    bench = opened()
    bench.send(Asked(1, ShutDownPipeline(at_once=at_once)))
    found = shown(bench)
    assert found is not None
    assert found.reason is NoStepReason.STOPPING
    waits = "the node to publish and close" if at_once else "the last checkpoint"
    assert found.text == f"The pipeline shuts down: waits for {waits}"
    bench.send(LeaderFenced(Failure("coordinator.fenced", "Another one leads")))
    assert shown(bench) == NoStep(NoStepReason.ENDED, "The pipeline has failed: Another one leads")
