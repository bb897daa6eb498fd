"""Every wait has an end, and none keeps a core busy: the bench looks at that after each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from anabranch.coordinator.effects import Answer, EndPipeline
from anabranch.coordinator.events import Asked, CheckpointWritten, NodeLost, TimePassed
from anabranch.coordinator.operations import LoadCheckpoint, ShutDownPipeline
from anabranch.coordinator.phases import AnyPhase, Closing, Idle, Meeting, Opening, Stepping, Taking
from anabranch.coordinator.settings import Deadlines, Settings
from anabranch.protocol.node import (
    Checked,
    CheckOrder,
    Closed,
    CloseOrder,
    Failure,
    NodeState,
    Open,
    OpenOrder,
    Output,
    Running,
)
from tests.coordinator.bench import (
    Bench,
    checkpoint,
    journal,
    kinds,
    order_of,
    orders_of,
    plan,
    staged,
)

# No two of them can be taken for each other, nor for a multiple of the node's silence.
LIMITS = Deadlines(
    silence=30.0,
    start_node=181.0,
    open=601.0,
    take=61.0,
    step=3601.0,
    cancel=31.0,
    check=602.0,
    close=301.0,
)


@dataclass(frozen=True)
class Wait:
    """A phase that waits for the node, and how long it may."""

    begin: Callable[[Bench], object]
    phase: type[AnyPhase]
    seconds: float
    says: NodeState | None = None


def opening(bench: Bench) -> None:
    bench.begin(journal(7))
    order_of(bench.report(Closed()), OpenOrder)


def taking(bench: Bench) -> None:
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8), published={"out": 7})


def cancelling(bench: Bench) -> None:
    bench.open(journal(7, plan=plan(8)))
    bench.send(Asked(1, ShutDownPipeline(at_once=True)))


def closing(bench: Bench) -> None:
    bench.open(journal(7))
    bench.send(Asked(1, ShutDownPipeline(at_once=True)))


WAITS = {
    "for a node": Wait(lambda bench: bench.begin(journal(7)), Meeting, 181.0),
    "for state to be open": Wait(opening, Opening, 601.0, Closed()),
    "for input": Wait(taking, Taking, 61.0, Open(7)),
    "for a step": Wait(
        lambda bench: bench.open(journal(7, plan=plan(8))), Stepping, 3601.0, Running(8, 0)
    ),
    "for a cancelled step": Wait(cancelling, Stepping, 31.0, Running(8, 0)),
    "for the node to let go": Wait(closing, Closing, 301.0, Open(7)),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_r8_every_wait_ends_also_when_the_node_says_the_same_again_and_again(wait: Wait) -> None:
    bench = Bench(Settings(deadlines=LIMITS))
    wait.begin(bench)
    before = bench.machine.memory.phase
    assert isinstance(before, wait.phase)
    while not ends(bench, before):
        wakes = bench.machine.wakes_at()
        assert wakes is not None
        bench.seconds = wakes
        assert bench.seconds <= wait.seconds
        if wait.says is not None:
            bench.report(wait.says)
    assert bench.seconds == wait.seconds


def ends(bench: Bench, before: AnyPhase) -> bool:
    """Whether something is done about a wait once its time is over."""
    bench.send(TimePassed())
    after = bench.machine.memory.phase
    return type(after) is not type(before) or getattr(after, "cancelled", None) != getattr(
        before, "cancelled", None
    )


def test_files_that_are_read_to_be_loaded_are_waited_for_so_long() -> None:
    bench = Bench(Settings(deadlines=LIMITS, checkpoint_seconds=1e6))
    bench.open(journal(7, checkpoints=(checkpoint(5),)))
    bench.send(Asked(1, LoadCheckpoint(5)))
    while bench.machine.memory.load.verifying is not None:
        bench.seconds = bench.machine.wakes_at() or 0.0
        bench.report(Open(7), published={"out": 7})
        bench.send(TimePassed())
    assert bench.seconds == 602.0


def complete(bench: Bench, *, kept: bool) -> None:
    """A pipeline whose input is worked on to its end; step 7 waits for the sink."""
    checkpoints = (checkpoint(7),) if kept else ()
    outputs = (Output(7, staged(7)),)
    bench.open(journal(7, checkpoints=checkpoints, outputs=outputs, published={"out": 6}))
    bench.report(Open(7), offer=bench.offer(8, 0, ended=True), published={"out": 6})


@pytest.mark.parametrize("kept", [True, False], ids=["the sink", "the last checkpoint"])
def test_a_tick_whose_time_is_over_does_not_wake_a_pipeline_that_is_complete(kept: bool) -> None:
    bench = Bench(Settings(tick_seconds=1.0))
    complete(bench, kept=kept)
    bench.seconds = 5.0
    assert bench.send(TimePassed()) == []
    assert isinstance(bench.machine.memory.phase, Idle)
    over = bench.offer(8, 0, ended=True)
    if not kept:
        bench.report(Open(7), offer=over, checked=Checked(7, 1, 1), published={"out": 6})
        bench.send(CheckpointWritten(checkpoint(7)))
    effects = bench.report(Open(7), offer=over, published={"out": 7})
    assert kinds(effects) == ["SweepOrder", "CloseOrder"]


def test_a_checkpoint_whose_time_comes_while_the_node_lets_go_is_not_made() -> None:
    bench = Bench(Settings(checkpoint_seconds=10.0))
    bench.open(journal(7))
    assert orders_of(bench.send(Asked(1, ShutDownPipeline(at_once=True))))[-1] == CloseOrder(
        exit=True
    )
    bench.seconds = 12.0
    assert bench.report(Open(7), published={"out": 7}) == []
    assert bench.send(TimePassed()) == []
    assert CheckOrder not in map(type, orders_of(bench.report(Closed())))


def test_a_node_that_is_silent_while_it_lets_go_is_waited_for_and_not_replaced() -> None:
    bench = Bench(Settings(checkpoint_seconds=1e6))
    bench.open(journal(7))
    bench.send(Asked(1, ShutDownPipeline(at_once=True)))
    for bench.seconds in (31.0, 200.0):
        assert bench.send(TimePassed()) == []
        assert bench.machine.wakes_at() == 300.0
    bench.seconds = 300.0
    answer, end = bench.send(TimePassed())
    assert isinstance(answer, Answer)
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert end.failure.code == "coordinator.deadline"


def test_rows_that_a_lost_node_had_told_of_do_not_wake_anybody() -> None:
    bench = Bench(Settings(min_rows=100, max_delay_seconds=2.0))
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8, 5), published={"out": 7})
    bench.seconds = 1.0
    bench.send(NodeLost(Failure("node.unreachable", "gone")))
    bench.boot, bench.seconds = "b2", 10.0
    bench.report(Open(7), published={"out": 7})
    assert isinstance(bench.machine.memory.phase, Idle)
    assert bench.machine.wakes_at() == 40.0
