"""Single sources that are paused: at the node, and through a whole pipeline. No Spark here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import Fenced, OperationRefused
from anabranch.protocol.node import CloseOrder, PausedSources, SourcesOrder
from anabranch.protocol.status import Phase
from anabranch.records.leader import NODE
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task.program import Program
from tests.node.core_shop import CoreShop
from tests.node.engine import Engine
from tests.node.shop import program

PAGES = 12

# ------------------------------------------------------------------------------------- the node


@pytest.fixture
def shop(tmp_path: Path) -> CoreShop:
    return CoreShop(tmp_path)


def paused(number: int, *names: str) -> SourcesOrder:
    return SourcesOrder(PausedSources(number, names))


def waiting(shop: CoreShop) -> int:
    """How many rows wait, after the sources were asked, if they may be."""
    shop.core.poll_inputs()
    offer = shop.report.offer
    assert offer is not None
    return offer.rows


def test_a_paused_source_gives_nothing_until_it_is_started(shop: CoreShop) -> None:
    shop.open()
    shop.give(paused(1, "orders"))
    assert waiting(shop) == 0
    shop.give(paused(2))
    shop.run_all()
    shop.check()


def test_the_node_tells_what_it_goes_by_to_every_leader(shop: CoreShop) -> None:
    shop.open()
    before = shop.report.version
    order = paused(1_000_001, "orders")
    shop.give(order)
    assert shop.report.version > before
    assert shop.report.paused == order.paused
    known = shop.report.version
    shop.give(order)
    assert shop.report.version == known, "there is nothing new to say"
    shop.leader = 2
    assert shop.report.paused == order.paused


def test_an_order_that_comes_late_does_not_undo_a_newer_one(shop: CoreShop) -> None:
    shop.open()
    shop.give(paused(2, "orders"))
    shop.give(paused(1))
    assert (waiting(shop), shop.report.paused.names) == (0, ("orders",))
    shop.give(paused(3))
    shop.give(paused(2, "orders"))
    assert shop.report.paused.names == ()
    assert waiting(shop) > 0


def test_a_node_opens_with_what_its_order_says(shop: CoreShop) -> None:
    order = PausedSources(5, ("orders",))
    assert shop.open(paused=order).paused == order
    assert waiting(shop) == 0


def test_what_was_heard_since_counts_for_more_than_the_order_to_open(shop: CoreShop) -> None:
    shop.give(shop.open_order(paused=PausedSources(5)))
    shop.give(paused(6, "orders"))
    assert shop.core.open_pending()
    assert (waiting(shop), shop.report.paused.number) == (0, 6)
    shop.open(paused=PausedSources(5))
    assert (waiting(shop), shop.report.paused.number) == (0, 6)


def test_whoever_was_replaced_pauses_nothing(shop: CoreShop) -> None:
    shop.open()
    shop.core.report(2)
    with pytest.raises(Fenced):
        shop.core.take_order(1, paused(9, "orders"))
    shop.leader = 2
    assert waiting(shop) > 0


def test_a_pipeline_that_was_closed_has_nothing_paused(shop: CoreShop) -> None:
    shop.open()
    shop.give(paused(1, "orders"))
    shop.give(CloseOrder())
    shop.core.close_pending()
    shop.give(paused(1, "orders"))
    assert shop.report.paused == PausedSources(1)
    shop.open()
    assert waiting(shop) > 0


# --------------------------------------------------------------------------------- the pipeline


def place(key: Any, row: Any, seen: Any) -> Any:
    """The row, and which of its source's rows it is."""
    return (key.name, row.n, seen or 0), (seen or 0) + 1


def two_sources(rows: MemorySink) -> Program:
    flow = Dataflow("two")
    both = []
    for name in ("left", "right"):
        pages = [[(name, page * 2), (name, page * 2 + 1)] for page in range(PAGES)]
        both.append(flow.source(name, ScriptedSource("name string, n bigint", [*pages, EOF])))
    both[0].union(both[1]).key_distribute("by-name", "name").stateful_map(
        "places", place, state=None, output="name string, n bigint, place bigint"
    ).sink("rows", rows)
    return program(flow)


def read(rows: MemorySink, name: str) -> list[tuple[int, int]]:
    """The rows of a source that are published, with their places, by number."""
    found = [row for table in rows.steps().values() for row in table.to_pylist()]
    return sorted((row["n"], row["place"]) for row in found if row["name"] == name)


ALL = [(n, n) for n in range(2 * PAGES)]


def test_the_rows_of_a_paused_source_stay_out_while_the_others_flow(tmp_path: Path) -> None:
    rows = MemorySink()
    engine = Engine(two_sources(rows), tmp_path, paced=True).start()
    pipeline = engine.pipeline
    at = engine.until(lambda status: status.step >= 2).step
    assert [each.paused for each in pipeline.pause(source="left").sources] == [True, False]
    pipeline.pause(source="left")
    engine.until(lambda status: read(rows, "right") == ALL)
    left = read(rows, "left")
    # A step reads a page; two may have run, or have had their input, before it was asked for.
    assert left == ALL[: len(left)]
    assert 2 * at <= len(left) <= 2 * (at + 4) < len(ALL)
    time.sleep(0.3)
    status = pipeline.status()
    assert (status.phase, read(rows, "left")) == (Phase.RUNNING, left)
    pipeline.checkpoint()
    assert not pipeline.start(source="left").sources[0].paused
    assert engine.finish().phase is Phase.COMPLETED
    assert (read(rows, "left"), read(rows, "right")) == (ALL, ALL)


def test_a_start_of_the_pipeline_leaves_a_paused_source_alone(tmp_path: Path) -> None:
    rows = MemorySink()
    engine = Engine(two_sources(rows), tmp_path, paced=True).start()
    pipeline = engine.pipeline
    engine.until(lambda status: status.step >= 1)
    pipeline.pause(source="right")
    pipeline.pause()
    pipeline.start()
    assert [each.paused for each in pipeline.status().sources] == [False, True]
    pipeline.start(source="right")
    engine.finish()
    assert (read(rows, "left"), read(rows, "right")) == (ALL, ALL)


def test_a_coordinator_that_comes_back_to_a_node_that_lives_finds_it_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = MemorySink()
    made = two_sources(rows)
    first = Engine(made, tmp_path, paced=True).start()
    first.until(lambda status: status.step >= 1)
    first.pipeline.pause(source="left")
    with monkeypatch.context() as surviving:
        surviving.setattr(first.node, "close", lambda exiting: None)
        first.abandon()
    again = Engine(made, tmp_path)
    again.node.close(exiting=True)
    monkeypatch.setattr(again.driver._links[NODE], "_nodes", first.node)
    again.start()
    again.until(lambda status: status.phase is Phase.RUNNING and read(rows, "right") == ALL)
    assert [each.paused for each in again.pipeline.status().sources] == [True, False]
    left = read(rows, "left")
    assert left == ALL[: len(left)] != ALL
    again.pipeline.start(source="left")
    assert again.finish().phase is Phase.COMPLETED
    assert (read(rows, "left"), read(rows, "right")) == (ALL, ALL)


def test_after_a_start_anew_nothing_is_paused(tmp_path: Path) -> None:
    rows = MemorySink()
    made = two_sources(rows)
    engine = Engine(made, tmp_path, paced=True).start()
    engine.until(lambda status: status.step >= 1)
    engine.pipeline.pause(source="left")
    engine.shutdown()
    again = Engine(made, tmp_path).start()
    assert again.finish().phase is Phase.COMPLETED
    assert (read(rows, "left"), read(rows, "right")) == (ALL, ALL)


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    engine = Engine(two_sources(MemorySink()), tmp_path, paced=True).start()
    engine.until(lambda status: status.step >= 1)
    for ask in (engine.pipeline.pause, engine.pipeline.start):
        with pytest.raises(OperationRefused, match=r"no source 'middle'.* 'left', 'right'"):
            ask(source="middle")
    engine.shutdown()
    with pytest.raises(OperationRefused, match="is over"):
        engine.pipeline.pause(source="left")
