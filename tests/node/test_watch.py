"""A user's ``watch``: it may call the pipeline, also when it is late, and sees every step."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from anabranch.coordinator.effects import StepDone
from anabranch.errors import AnabranchError, OperationRefused
from anabranch.protocol.status import Phase
from anabranch.sinks.memory import MemorySink
from tests.node.engine import Engine
from tests.node.shop import program, scripted, shop

WAIT = 20.0


class Late:
    """Sees the first step when it is let, and then asks for something once."""

    def __init__(self, ask: str) -> None:
        self.engine: Engine
        self.seen: list[int] = []
        self.refused: list[AnabranchError] = []
        self.may_see = threading.Event()
        self._ask = ask

    def __call__(self, done: StepDone) -> None:
        assert self.may_see.wait(WAIT)
        self.seen.append(done.step)
        if done.step == 1:
            try:
                getattr(self.engine.pipeline, self._ask)()
            except AnabranchError as error:
                self.refused.append(error)

    def start(self, directory: Path) -> None:
        made = program(shop(scripted(), MemorySink(), MemorySink()))
        self.engine = Engine(made, directory, watch=self).start()
        end = time.monotonic() + WAIT
        while self.engine.pipeline.status().phase is not Phase.COMPLETED:
            assert time.monotonic() < end
            time.sleep(0.005)


def test_it_may_shut_the_pipeline_down(tmp_path: Path) -> None:
    report: list[tuple[int, Phase]] = []

    def watch(done: StepDone) -> None:
        if done.step == 2:
            status = engine.pipeline.shutdown()
            report.append((done.step, status.phase))

    made = program(shop(scripted(), MemorySink(), MemorySink()))
    engine = Engine(made, tmp_path, watch=watch)
    engine.start()
    assert engine.driver.wait(WAIT)
    assert [step for step, _ in report] == [2]
    assert report[0][1] in (Phase.STOPPED, Phase.COMPLETED)


@pytest.mark.parametrize("ask", ["checkpoint", "pause", "rebalance"])
def test_a_late_one_that_asks_for_something_is_told_that_all_is_over(
    tmp_path: Path, ask: str
) -> None:
    late = Late(ask)
    late.start(tmp_path)
    late.may_see.set()
    assert late.engine.driver.wait(WAIT)
    assert [type(error) for error in late.refused] == [OperationRefused]
    assert "The pipeline is over" in str(late.refused[0])
    assert late.seen == [1, 2, 3, 4]


def test_it_has_seen_every_step_when_the_wait_is_over(tmp_path: Path) -> None:
    late = Late("status")
    late.start(tmp_path)
    assert not late.engine.driver.wait(0.05)
    threading.Timer(0.1, late.may_see.set).start()
    assert late.engine.driver.wait(WAIT)
    assert late.seen == [1, 2, 3, 4]


def test_what_it_raises_at_the_end_is_raised_to_whoever_waits(tmp_path: Path) -> None:
    late = Late("gone")
    late.start(tmp_path)
    late.may_see.set()
    with pytest.raises(AttributeError, match="gone"):
        late.engine.pipeline.wait(WAIT)
    assert late.seen == [1]
