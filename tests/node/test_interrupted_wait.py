"""Ctrl-C while a program waits for its pipeline, and the shutdown after it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.node.runner import StepDone
from anabranch.pipeline import Phase, Pipeline

WAIT = 20.0


class OneLongStep:
    """A runner whose step lasts until the test lets it end."""

    step = 0
    published = 0
    states = ()

    def __init__(self) -> None:
        self.running = threading.Event()
        self.may_end = threading.Event()

    def wait_for_sinks(self, seconds: float) -> bool:
        return True

    def next_plan(self) -> object:
        return object()

    def run(self, plan: object) -> StepDone:
        self.running.set()
        assert self.may_end.wait(WAIT)
        self.step += 1
        return StepDone(self.step, 1, 1, 0.1, {})

    def close(self) -> None:
        pass


def test_shutdown_after_an_interrupted_wait_still_finishes_the_step(tmp_path: Path) -> None:
    runner, cleaned = OneLongStep(), threading.Event()
    pipeline = Pipeline(tmp_path, cast(Any, runner), None, cleaned.set)
    pipeline.start()
    assert runner.running.wait(WAIT)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pipeline.wait(WAIT)
    threading.Timer(0.2, runner.may_end.set).start()
    status = pipeline.shutdown()
    assert (status.phase, status.step) == (Phase.STOPPED, 1)
    assert cleaned.is_set()
