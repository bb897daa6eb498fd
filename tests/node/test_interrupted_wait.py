"""Ctrl-C while a program waits for its pipeline, and the shutdown after it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from anabranch.protocol.status import Phase
from anabranch.records.plan import Plan
from anabranch.sinks.memory import MemorySink
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.engine import Engine
from tests.node.shop import program, scripted, shop

WAIT = 20.0


def test_shutdown_after_an_interrupted_wait_still_finishes_the_step(tmp_path: Path) -> None:
    running, may_end = threading.Event(), threading.Event()

    def long_step(plan: Plan) -> None:
        running.set()
        assert may_end.wait(WAIT)

    made = program(shop(scripted(), MemorySink(), MemorySink()))
    plane = MemoryPlane(made, tmp_path, before=long_step)
    pipeline = Engine(made, tmp_path, plane=plane).start().pipeline
    assert running.wait(WAIT)
    # Other tests of this process may have left a handler of theirs.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pipeline.wait(WAIT)
    signal.signal(signal.SIGINT, before)
    threading.Timer(0.2, may_end.set).start()
    status = pipeline.shutdown()
    assert (status.phase, status.step) == (Phase.STOPPED, 1)
