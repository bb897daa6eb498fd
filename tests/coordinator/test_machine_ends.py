"""The way to the end: the last checkpoint, then the sinks. It ends also where one of them fails."""

from __future__ import annotations

import pytest

from anabranch.coordinator.effects import Answer, Effect, EndPipeline, WriteCheckpoint, WriteRepair
from anabranch.coordinator.events import (
    Asked,
    CheckpointWritten,
    EffectFailed,
    RepairWritten,
    ResultFetched,
    StepRead,
    TimePassed,
)
from anabranch.coordinator.jobs.shutdown import TRIES
from anabranch.coordinator.operations import LoadCheckpoint, ShutDownPipeline
from anabranch.coordinator.phases import Idle
from anabranch.coordinator.settings import Deadlines, Settings
from anabranch.coordinator.status_view import pipeline_status
from anabranch.protocol.node import (
    Checked,
    CheckOrder,
    Closed,
    Done,
    Failure,
    Offer,
    Open,
    OpenOrder,
    Output,
    Running,
)
from tests.coordinator.bench import (
    Bench,
    checkpoint,
    commit,
    journal,
    kinds,
    order_of,
    plan,
    result,
    staged,
)

FULL = Failure("store.disk_full", "No space left on device", "checkpoint/7", "Make room.")
OVER = Offer(8, 0, 0, {}, full=False, ended=True)


def leave(bench: Bench, ending: str) -> list[Effect]:
    """Step 7 is the last one: somebody ends the pipeline, or its input is worked on."""
    bench.open(journal(7))
    if ending == "shutdown":
        return bench.send(Asked(1, ShutDownPipeline()))
    return bench.report(Open(7), offer=OVER, published={"out": 7})


def fails(bench: Bench) -> list[Effect]:
    """The files of the last checkpoint are there, and its entry cannot be written."""
    (written,) = bench.report(Open(7), checked=Checked(7, 1, 1), published={"out": 7}, offer=OVER)
    assert isinstance(written, WriteCheckpoint)
    return bench.send(EffectFailed(written, FULL))


@pytest.mark.parametrize("ending", ["shutdown", "complete"])
@pytest.mark.parametrize("steps", [1, 100], ids=["due by its steps", "not due"])
def test_r8_a_pipeline_ends_also_when_its_last_checkpoint_cannot_be_kept(
    ending: str, steps: int
) -> None:
    bench = Bench(Settings(checkpoint_steps=steps))
    leave(bench, ending)
    pauses = []
    for _ in range(TRIES - 1):
        assert fails(bench) == []
        waiting_for = pipeline_status(bench.machine.memory, bench.seconds).waiting_for or ""
        assert "the last checkpoint" in waiting_for
        assert FULL.what in waiting_for
        assert bench.report(Open(7), offer=OVER, published={"out": 7}) == []
        wakes = bench.machine.wakes_at()
        assert wakes is not None
        pauses.append(wakes - bench.seconds)
        bench.seconds = wakes
        order_of(bench.send(TimePassed()), CheckOrder)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert kinds(fails(bench)) == ["CloseOrder"]
    *answers, end = bench.report(Closed(), published={"out": 7})
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert (end.failure.code, end.failure.where) == (FULL.code, FULL.where)
    assert end.failure.what == f"The last checkpoint failed: {FULL.what}"
    report = [(e.number, e.failure) for e in answers if isinstance(e, Answer)]
    assert report == ([(1, end.failure)] if ending == "shutdown" else [])


def test_a_last_checkpoint_that_can_be_kept_in_the_end_lets_all_be_well() -> None:
    bench = Bench()
    leave(bench, "shutdown")
    fails(bench)
    bench.seconds = bench.machine.wakes_at() or 0.0
    order_of(bench.send(TimePassed()), CheckOrder)
    (written,) = bench.report(Open(7), checked=Checked(7, 1, 1), published={"out": 7})
    assert isinstance(written, WriteCheckpoint)
    assert kinds(bench.send(CheckpointWritten(checkpoint(7))))[-2:] == ["SweepOrder", "CloseOrder"]
    assert bench.report(Closed())[-1] == EndPipeline(None)


def test_a_last_checkpoint_whose_files_are_never_looked_at_is_not_waited_for_for_ever() -> None:
    bench = Bench(Settings(deadlines=Deadlines(check=100.0)))
    leave(bench, "shutdown")
    while isinstance(bench.machine.memory.phase, Idle):
        bench.seconds = bench.machine.wakes_at() or 0.0
        bench.report(Open(7), published={"out": 7})
        bench.send(TimePassed())
    assert bench.seconds == 100.0
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert end.failure.code == "coordinator.deadline"


def test_state_that_is_computed_again_before_the_end_is_kept_however_long_that_takes() -> None:
    bench = Bench(Settings(deadlines=Deadlines(check=100.0)))
    bench.open(journal(7, checkpoints=(checkpoint(6),), replayable=7))
    bench.send(Asked(1, ShutDownPipeline()))
    lost = Failure("store.missing_run", "A run is gone")
    effects = bench.report(Open(7), checked=Checked(7, 1, 0, lost), published={"out": 7})
    bench.opened = order_of(effects, OpenOrder).number
    bench.seconds = 20.0
    bench.report(Open(6), published={"out": 7})
    bench.send(StepRead(plan(7), commit(7)))
    for bench.seconds in (40.0, 60.0, 80.0, 100.0, 120.0):
        bench.report(Running(7, 0), published={"out": 7})
    bench.report(Open(7), done=Done(7, 0), published={"out": 7})
    (_, written) = bench.send(ResultFetched(result(7)))
    assert isinstance(written, WriteRepair)
    assert order_of(bench.send(RepairWritten(written.repair)), CheckOrder).step == 7


def test_what_failed_on_the_way_to_the_end_is_forgotten_when_the_pipeline_goes_on() -> None:
    bench = Bench()
    bench.open(journal(7, checkpoints=(checkpoint(5),)))
    bench.report(Open(7), offer=OVER, published={"out": 7})
    for _ in range(TRIES - 1):
        fails(bench)
        bench.seconds = bench.machine.wakes_at() or 0.0
        bench.send(TimePassed())
    (written,) = bench.report(Open(7), checked=Checked(7, 1, 1), published={"out": 7}, offer=OVER)
    bench.send(Asked(1, LoadCheckpoint(5)))
    bench.send(EffectFailed(written, FULL))
    assert bench.machine.memory.stop.down is None


def stuck(bench: Bench, step: int = 5) -> None:
    """Steps 6 and 7 are committed and kept; the sink has what is named."""
    outputs = (Output(6, staged(6)), Output(7, staged(7)))
    kept = (checkpoint(7),)
    bench.open(journal(7, outputs=outputs, published={"out": step}, checkpoints=kept))
    bench.report(Open(7), published={"out": step})


@pytest.mark.parametrize("ending", ["shutdown", "complete"])
def test_r8_a_sink_that_never_comes_on_does_not_keep_a_pipeline_from_ending(ending: str) -> None:
    bench = Bench(Settings(deadlines=Deadlines(publish=601.0, close=50.0)))
    stuck(bench)
    said = {"published": {"out": 5}, "offer": OVER if ending == "complete" else None}
    bench.seconds = 10.0
    if ending == "shutdown":
        assert bench.send(Asked(1, ShutDownPipeline())) == []
    assert bench.report(Open(7), **said) == []
    waiting_for = pipeline_status(bench.machine.memory, bench.seconds).waiting_for
    assert waiting_for == "2 steps to be published: sink 'out' has published up to step 5"
    effects: list[Effect] = []
    while isinstance(bench.machine.memory.phase, Idle):
        wakes = bench.machine.wakes_at()
        assert wakes is not None
        bench.seconds = wakes
        assert bench.seconds <= 611.0
        effects = [*bench.report(Open(7), **said), *bench.send(TimePassed())]
    assert bench.seconds == 611.0
    assert kinds(effects) == ["CloseOrder"]
    bench.seconds = 661.0
    end = bench.send(TimePassed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert end.failure.code == "coordinator.deadline"
    assert "published anything for 601 seconds" in end.failure.what
    assert "sink 'out' has published up to step 5" in end.failure.what
    assert "staged" in (end.failure.do or "")


def test_a_sink_that_comes_on_slowly_is_waited_for() -> None:
    bench = Bench(Settings(deadlines=Deadlines(publish=601.0)))
    stuck(bench)
    bench.send(Asked(1, ShutDownPipeline()))
    for bench.seconds in range(25, 601, 25):
        bench.report(Open(7), published={"out": 5})
        assert bench.send(TimePassed()) == []
    for bench.seconds in range(625, 1201, 25):
        bench.report(Open(7), published={"out": 6})
        assert bench.send(TimePassed()) == []
    assert kinds(bench.report(Open(7), published={"out": 7})) == ["SweepOrder", "CloseOrder"]


def test_the_patience_with_a_sink_begins_anew_with_another_node() -> None:
    bench = Bench(Settings(deadlines=Deadlines(publish=601.0)))
    stuck(bench)
    bench.send(Asked(1, ShutDownPipeline()))
    bench.boot, bench.version, bench.seconds = "b2", 0, 600.0
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.seconds = 620.0
    assert bench.report(Open(7), published={"out": 5}) == []
    assert bench.send(TimePassed()) == []
    down = bench.machine.memory.stop.down
    assert down is not None
    assert down.progress_at == 620.0
