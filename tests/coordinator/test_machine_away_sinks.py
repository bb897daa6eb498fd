"""The machine while a sink has yet to take back what a rewind left behind."""

from __future__ import annotations

from typing import Any

from anabranch.coordinator.effects import EndPipeline
from anabranch.coordinator.events import Asked, TimePassed
from anabranch.coordinator.operations import ShutDownPipeline
from anabranch.coordinator.phases import Idle
from anabranch.coordinator.status_view import pipeline_status
from anabranch.protocol.node import CloseOrder, Failure, Open, OpenOrder, SinkRetry
from anabranch.protocol.status import NoStepReason, Status
from tests.coordinator.bench import Bench, checkpoint, journal, kinds, order_of

AWAY = Failure("sink.unavailable", "Sink 'out' could not be opened: OSError: away")
RETRY = SinkRetry(AWAY, 3, 7.0, 2.0)
TAKING_BACK: dict[str, Any] = {
    "published": {"out": 5},
    "sink_retries": {"out": RETRY},
    "taking_back": ("out",),
}


def rewinding() -> Bench:
    """A machine whose node has opened a rewind, but for a sink."""
    bench = Bench()
    bench.begin(journal(5, branch=1, checkpoints=(checkpoint(5),), rewound=True))
    bench.opened = order_of(bench.report(Open(5)), OpenOrder).number
    assert bench.report(Open(5), offer=bench.offer(6), **TAKING_BACK) == []
    return bench


def status_of(bench: Bench) -> Status:
    return pipeline_status(bench.machine.memory, bench.seconds)


def test_no_step_is_taken_before_all_sinks_have_taken_back() -> None:
    """The next leader does not order it again once the branch has a commit."""
    bench = rewinding()
    assert not isinstance(bench.machine.memory.phase, Idle)
    done = {"published": {"out": 5}}
    assert kinds(bench.report(Open(5), offer=bench.offer(6), **done)) == ["Take"]


def test_the_status_names_the_sink_and_why_it_fails() -> None:
    bench = rewinding()
    status = status_of(bench)
    assert status.no_step is not None
    assert (status.no_step.reason, status.no_step.name) == (NoStepReason.LOADING, "out")
    assert status.waiting_for is not None
    for text in (status.no_step.text, status.waiting_for):
        assert "sink 'out' to take back what it has published after step 5" in text
        assert "[sink.unavailable] Sink 'out' could not be opened: OSError: away" in text
    assert status.no_step.retry_seconds == 2.0
    assert [each.retry for each in status.sinks] == [RETRY]


def test_how_long_it_may_take_is_up_to_the_sink() -> None:
    bench = rewinding()
    bench.seconds = 10_000.0
    bench.machine.memory.node.heard = bench.seconds
    assert bench.send(TimePassed()) == []
    ending = bench.report(Open(5), sink_failure=AWAY, **TAKING_BACK)
    assert order_of(ending, CloseOrder).exit
    assert status_of(bench).failure == AWAY


def test_a_shutdown_does_not_wait_for_it() -> None:
    bench = rewinding()
    assert order_of(bench.send(Asked(1, ShutDownPipeline())), CloseOrder).exit
    assert not any(isinstance(each, EndPipeline) for each in bench.send(TimePassed()))
