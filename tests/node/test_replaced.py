"""A node whose leader was replaced without knowing it: nothing is removed or published for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.errors import Fenced, StoreUnavailable
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.node import core as module
from anabranch.node.threads import ThreadedNode
from anabranch.protocol.node import CloseOrder, Open, SweepOrder
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import ScriptedSource
from tests.node.core_shop import CoreShop
from tests.node.engine import Engine
from tests.node.shop import PAGES, SCHEMA, program, shop

GRACE = 121


def take_over(store: Path) -> None:
    """Let another coordinator lead, of which the node does not hear."""
    Leadership(FileDirectory(store / "journal")).lead(True, "elsewhere", os.getpid(), 0)


@pytest.fixture
def led(tmp_path: Path) -> CoreShop:
    """A shop whose leader is that of the journal, with two committed steps on their way."""
    made = CoreShop(tmp_path)
    take_over(made.store)
    made.open()
    assert made.one_step()
    assert made.one_step()
    return made


def sweep_order(shop: CoreShop) -> SweepOrder:
    return SweepOrder(shop.step, (shop.journal[-1].result.states,), (), (), ("code",))


def write(shop: CoreShop, name: str) -> Path:
    path = shop.store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"of another leader")
    return path


def test_no_step_is_published_any_more_and_the_leader_is_told(led: CoreShop) -> None:
    assert led.core.publish_next("rows")
    assert led.report.published == {"rows": 1, "counts": 0}
    take_over(led.store)
    assert not led.publish_some()
    assert list(led.rows.steps()) == [1]
    assert led.core.publish_pause("rows") is None, "nobody asks again and again"
    with pytest.raises(Fenced, match="Leader 1 gives orders, and leader 2 has taken over"):
        led.core.report(1)
    with pytest.raises(Fenced):
        led.give(CloseOrder(exit=True))


def test_the_new_leader_goes_on_with_what_waits(led: CoreShop) -> None:
    take_over(led.store)
    assert not led.publish_some()
    led.leader = 2
    assert led.report.state == Open(2)
    led.run_all()
    led.check()


def test_the_files_of_the_new_leader_stay(led: CoreShop) -> None:
    led.publish_all()
    led.give(sweep_order(led))
    assert led.core.sweep()
    take_over(led.store)
    theirs = [
        write(led, "run/seen/000000000002-0-by-customer-1-0-zz.arrow"),
        write(led, "stage/rows/000000000002-0-by-customer-1-0-zz.arrow"),
        write(led, "code/theirs"),
    ]
    every = {path for path in led.store.rglob("*") if path.is_file()}
    for _ in range(3):
        led.now += GRACE
        assert not led.core.sweep()
    assert {path for path in led.store.rglob("*") if path.is_file()} == every
    assert all(path.exists() for path in theirs)
    assert led.core.chores_pause() is None
    with pytest.raises(Fenced):
        led.core.report(1)


def test_the_new_leader_may_let_files_go(led: CoreShop) -> None:
    led.publish_all()
    take_over(led.store)
    led.give(sweep_order(led))
    assert not led.core.sweep()
    led.leader = 2
    late = write(led, "run/seen/000000000002-0-by-customer-1-0-zz.arrow")
    led.give(sweep_order(led))
    assert led.core.sweep()
    led.now += GRACE
    assert led.core.sweep()
    assert not late.exists()


def test_a_step_waits_as_long_as_it_cannot_be_known_who_leads(
    led: CoreShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: Path, number: int) -> None:
        raise StoreUnavailable("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(module, "replaced_by", fail)
        for _ in range(4):
            led.publish_some()
            led.now += 10
        assert led.report.published == {"rows": 0, "counts": 0}
        assert led.report.sink_failure is None
    led.publish_all()
    assert led.report.published == {"rows": 2, "counts": 2}


def test_an_idle_coordinator_that_was_replaced_ends_with_the_reason(tmp_path: Path) -> None:
    source = ScriptedSource(SCHEMA, PAGES)
    engine = Engine(program(shop(source, MemorySink(), MemorySink())), tmp_path).start()
    engine.until(lambda status: status.published == len(PAGES))
    take_over(tmp_path)
    node = engine.node.find(1)
    assert isinstance(node, ThreadedNode)
    node.order(1, SweepOrder(len(PAGES), (), (), (), ("code",)))
    with pytest.raises(Fenced, match="leader 2 has taken over"):
        engine.pipeline.wait(20)
