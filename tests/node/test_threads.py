"""The node with its threads, led by a coordinator of a few lines; only Spark is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import Fenced, JvmDied, NodeUnreachable
from anabranch.messages import Report
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import CancelOrder, Closed, CloseOrder, Open, Running, StepOrder
from anabranch.protocol.sinks import StagedStep
from anabranch.protocol.sources import NO_LIMIT, Batch, Limit, SourceLog
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.sinks.memory import MemoryPublisher, MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource, ScriptEnumerator
from tests.node.core_shop import CancellablePlane, CoreShop
from tests.node.led import Led
from tests.node.shop import PAGES, program, scripted

Start = Callable[..., ThreadedNode]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[ThreadedNode] = []

    def begin(shop: CoreShop, **more: Any) -> ThreadedNode:
        started.append(ThreadedNode(shop.new_core(**more)))
        return started[-1]

    yield begin
    for node in started:
        node.shut()


def test_a_run_gives_what_the_story_gives(tmp_path: Path, start: Start) -> None:
    shop = CoreShop(tmp_path)
    led = Led(shop, start(shop))
    led.open()
    led.run_all()
    shop.check()


def test_a_new_coordinator_goes_on_with_the_node_it_finds(tmp_path: Path, start: Start) -> None:
    shop = CoreShop(tmp_path)
    node = start(shop)
    first = Led(shop, node)
    first.open()
    first.one_step()
    first.offered()
    taken = node.take(1, 2)
    second = Led(shop, node, leader=2)
    report = second.offered()
    assert report.state == Open(1)
    assert node.take(2, 2) == taken
    with pytest.raises(Fenced):
        node.order(1, CloseOrder(exit=True))
    second.run_all()
    shop.check()


def test_a_new_node_goes_on_where_the_journal_ends(tmp_path: Path, start: Start) -> None:
    shop = CoreShop(tmp_path)
    node = start(shop)
    led = Led(shop, node)
    led.open()
    led.one_step()
    led.one_step()
    node.shut()
    led = Led(shop, start(shop))
    assert led.open().state == Open(2)
    led.run_all()
    shop.check()


def test_a_stuck_step_is_cancelled_and_the_node_answers_meanwhile(
    tmp_path: Path, start: Start
) -> None:
    shop = CoreShop(tmp_path)
    free = threading.Event()

    class Stuck(CancellablePlane):
        def cancel(self) -> None:
            super().cancel()
            free.set()

    def wait(plan: object) -> None:
        assert free.wait(60)
        raise RuntimeError("the job was cancelled")

    plane = Stuck(shop.program, shop.store, before=wait)
    shop.plane = plane
    node = start(shop)
    led = Led(shop, node)
    led.open()
    led.offered()
    plan = shop.plan(node.take(1, 1))
    node.order(1, StepOrder(plan))
    assert node.report(1, 0, 0).state == Running(1, 0)
    node.order(1, CancelOrder(1))
    seen = 0
    while (report := node.report(1, seen, 10)).failed_step is None:
        seen = report.version
    assert report.failed_step.failure.code == "step.cancelled"
    assert report.state == Open(0)
    plane.before = lambda plan: None
    led.run_plan(shop.plan(plan.inputs, revision=1))
    led.run_all()
    shop.check()


def test_closing_publishes_what_is_committed_and_ends(tmp_path: Path, start: Start) -> None:
    shop = CoreShop(tmp_path)
    node = start(shop)
    led = Led(shop, node)
    led.open()
    led.one_step()
    assert not node.wait_closed(0)
    node.order(1, CloseOrder(exit=True))
    assert node.wait_closed(60)
    assert node.report(1, 0, 0).state == Closed()
    assert list(shop.rows.steps()) == [1]


class Behind:
    """A sink's publisher: what it was given, and what it does first."""

    def __init__(self, first: Callable[[], object] = lambda: None) -> None:
        self._first = first
        self.given: list[int] = []

    def publish(self, staged: StagedStep) -> None:
        self._first()
        self.given.append(staged.step)


def test_a_sink_keeps_up_while_others_hang_and_fail(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, failures = threading.Event(), [OSError("busy")] * 4

    def fail() -> None:
        if failures:
            raise failures.pop()

    publishers = {
        "hangs": Behind(lambda: may_go.wait(60)),
        "fails": Behind(fail),
        "quick": Behind(),
    }
    monkeypatch.setattr(MemorySink, "open", lambda sink, context: publishers[context.sink])
    flow = Dataflow("shop")
    orders = flow.source("orders", scripted())
    for name in publishers:
        orders.sink(name, MemorySink())
    shop = CoreShop(tmp_path)
    shop.program = program(flow)
    shop.plane = CancellablePlane(shop.program, shop.store)
    led = Led(shop, start(shop, clock=time.monotonic))
    led.open()
    while led.one_step():
        report = led.until(lambda report: report.published["quick"] == shop.step)
        assert report.published["hangs"] == 0
    assert shop.step == len(publishers["quick"].given) > 2
    led.until(lambda report: report.published["fails"] == shop.step)
    assert publishers["hangs"].given == []
    may_go.set()
    led.until(lambda report: set(report.published.values()) == {shop.step})
    assert all(each.given == [*range(1, shop.step + 1)] for each in publishers.values())


DIED = JvmDied("Spark's Java virtual machine has ended")


class MortalPlane(CancellablePlane):
    """A plane that dies in a step, and whose steps then fail with something else."""

    dies_in: int = 0
    dead: bool = False

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        if plan.step == self.dies_in:
            self.dead = True
            raise ConnectionRefusedError(111, "Connection refused")
        return super().run(plan, states)

    def check_alive(self) -> None:
        if self.dead:
            raise DIED


def test_a_step_that_fails_because_spark_is_dead_is_not_told_as_failed(
    tmp_path: Path, start: Start
) -> None:
    shop = CoreShop(tmp_path)
    shop.plane = MortalPlane(shop.program, shop.store)
    shop.plane.dies_in = 2
    node = start(shop)
    led = Led(shop, node)
    led.open()
    led.one_step()
    led.offered()
    node.order(1, StepOrder(shop.plan(node.take(1, 2))))
    with pytest.raises(JvmDied):
        led.until(lambda report: report.failed_step is not None or report.done is not None)
    assert node.wait_closed(60), "its process is to end"
    assert not node.alive()
    for call in (lambda: node.order(1, CloseOrder()), lambda: node.query("select 1", 1, 1, 1.0)):
        with pytest.raises(JvmDied):
            call()


@pytest.mark.parametrize("what", ["source", "sink"])
def test_neither_source_nor_sink_is_blamed_for_the_death_of_spark(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    shop = CoreShop(tmp_path)
    shop.plane = MortalPlane(shop.program, shop.store)

    def fail(*arguments: object) -> Any:
        assert isinstance(shop.plane, MortalPlane)
        shop.plane.dead = True
        raise ConnectionRefusedError(111, "Connection refused")

    if what == "sink":
        monkeypatch.setattr(MemoryPublisher, "publish", fail)
    else:
        monkeypatch.setattr(ScriptEnumerator, "next", fail)
    led = Led(shop, start(shop))

    def goes_on() -> None:
        led.open()
        led.one_step()
        led.until(lambda report: report.sink_retries or report.source_failure)

    with pytest.raises(JvmDied):
        goes_on()


def test_whoever_listens_for_the_end_of_spark_ends_the_node_between_steps(tmp_path: Path) -> None:
    heard: list[Callable[[JvmDied], None]] = []

    def on_death(died: Callable[[JvmDied], None]) -> Callable[[], None]:
        heard.append(died)
        return heard.clear

    shop = CoreShop(tmp_path)
    node = ThreadedNode(shop.core, on_death=on_death)
    try:
        seen = Led(shop, node).open().version
        assert not node.wait_heard(0)
        with ThreadPoolExecutor() as pool:
            polled = pool.submit(node.report, 1, seen + 1000, 60.0)
            heard[0](DIED)
            assert node.wait_closed(60)
            assert isinstance(polled.exception(30), JvmDied), "it does not wait for a report"
        assert node.wait_heard(0)
    finally:
        node.shut()
    assert heard == [], "nobody listens any more"


class NetworkSource(ScriptedSource):
    """A source that says that it may block, and does."""

    blocking = True
    may_go = threading.Event()

    def open(self, position: bytes | None, log: SourceLog) -> ScriptEnumerator:
        opened = super().open(position, log)
        hand_out = opened.next

        def blocked(limit: Limit = NO_LIMIT) -> Batch:
            assert self.may_go.wait(60)
            return hand_out(limit)

        opened.next = blocked  # type: ignore[method-assign]
        return opened


def test_no_source_waits_for_one_that_talks_to_a_network(tmp_path: Path, start: Start) -> None:
    NetworkSource.may_go.clear()
    flow, sinks = Dataflow("shop"), {name: MemorySink() for name in ("network", "orders")}
    flow.source("network", NetworkSource("n bigint", [[(7,)], EOF])).sink("far", sinks["network"])
    flow.source("orders", scripted()).sink("near", sinks["orders"])
    shop = CoreShop(tmp_path)
    shop.program = program(flow)
    shop.plane = CancellablePlane(shop.program, shop.store)
    node = start(shop)
    led = Led(shop, node)
    led.open()
    for _ in PAGES:
        assert led.one_step()
    led.until(lambda report: report.published["near"] == len(PAGES))
    assert len(sinks["orders"].rows()) == sum(map(len, PAGES))
    assert sinks["network"].rows() == []
    NetworkSource.may_go.set()
    led.run_all()
    assert sinks["network"].rows() == [{"n": 7}]


def test_told_waits_for_something_new_and_no_longer_than_it_was_asked_to(
    tmp_path: Path, start: Start
) -> None:
    shop = CoreShop(tmp_path)
    node = start(shop)
    report = node.report(1, 0, 10)
    assert node.report(1, report.version, 0.01) == report
    node.order(1, shop.open_order())
    assert node.report(1, report.version, 60).version > report.version


def test_a_node_whose_thread_breaks_down_says_so(
    tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    def break_down(point: str, step: int) -> None:
        if point == "ran":
            raise LookupError("a bug")

    shop = CoreShop(tmp_path)
    node = start(shop, reached=break_down)
    led = Led(shop, node)
    led.open()
    with pytest.raises(NodeUnreachable, match="a bug"):
        led.one_step()
    assert "LookupError: a bug" in capfd.readouterr().err
