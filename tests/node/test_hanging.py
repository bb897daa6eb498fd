"""A sink or a source that never returns: the end comes all the same, and the directory is free."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.node import threads
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.sinks import StagedStep
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import ScriptedSource
from anabranch.task.program import Program
from tests.node.core_shop import CoreShop
from tests.node.engine import Engine
from tests.node.led import Led
from tests.node.shop import program, scripted, shop
from tests.node.test_pipeline import is_free

WAIT = 20.0


class Hung:
    """Where somebody hangs until the test is over."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.free = threading.Event()

    def wait(self) -> None:
        self.inside.set()
        self.free.wait()


class HungPublisher:
    """Never returns from the first step that it is given."""

    def __init__(self, hung: Hung) -> None:
        self._hung = hung
        self.given: list[int] = []

    def publish(self, staged: StagedStep) -> None:
        self.given.append(staged.step)
        self._hung.wait()


class HungEnumerator:
    """Never says what there is."""

    def __init__(self, hung: Hung) -> None:
        self._hung = hung

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        self._hung.wait()
        return Batch((), b"", 0, ended=False)

    def files(self) -> frozenset[str]:
        return frozenset()


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    monkeypatch.setattr(threads, "JOIN_SECONDS", 0.1)
    monkeypatch.setattr(threads, "SHUT_SECONDS", 0.1)
    made = Hung()
    yield made
    made.free.set()


@pytest.fixture
def publisher(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> HungPublisher:
    made = HungPublisher(hung)
    monkeypatch.setattr(MemorySink, "open", lambda sink, context: made)
    return made


def the_shop() -> Program:
    return program(shop(scripted(), MemorySink(), MemorySink()))


def ended(engine: Engine) -> bool:
    """Let the pipeline end as it would when its deadline is over."""
    threading.Thread(target=engine.abandon, daemon=True).start()
    return engine.driver.wait(WAIT)


def test_a_pipeline_ends_though_its_sink_hangs(
    tmp_path: Path, hung: Hung, publisher: HungPublisher
) -> None:
    engine = Engine(the_shop(), tmp_path).start()
    assert hung.inside.wait(WAIT)
    assert ended(engine)
    assert is_free(tmp_path)
    hung.free.set()
    for thread in threading.enumerate():
        if thread.name.startswith("anabranch-publish"):
            thread.join(WAIT)
    # Both sinks have it, each in a thread of its own.
    assert set(publisher.given) == {1}


def test_a_pipeline_ends_though_its_source_hangs(
    tmp_path: Path, hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = HungEnumerator(hung)
    monkeypatch.setattr(ScriptedSource, "open", lambda source, position, log: opened)
    engine = Engine(the_shop(), tmp_path).start()
    assert hung.inside.wait(WAIT)
    assert ended(engine)
    assert is_free(tmp_path)


def test_a_node_says_that_something_still_hangs(
    tmp_path: Path, hung: Hung, publisher: HungPublisher
) -> None:
    store = CoreShop(tmp_path)
    node = ThreadedNode(store.core)
    led = Led(store, node)
    led.open()
    led.one_step()
    assert hung.inside.wait(WAIT)
    assert not node.shut()


def test_a_node_says_that_everything_has_ended(tmp_path: Path) -> None:
    store = CoreShop(tmp_path)
    node = ThreadedNode(store.core)
    led = Led(store, node)
    led.open()
    led.one_step()
    assert node.shut()


def test_the_directory_is_free_and_the_end_is_told_when_a_node_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(the_shop(), tmp_path)
    close = engine.node.close

    def fail(exiting: bool) -> None:
        close(exiting)
        raise RuntimeError("the door is stuck")

    monkeypatch.setattr(engine.node, "close", fail)
    engine.start()
    with pytest.raises(RuntimeError, match="the door is stuck"):
        engine.pipeline.wait(WAIT)
    assert is_free(tmp_path)
