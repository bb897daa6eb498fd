"""Workers come and go while rows flow: nothing is lost, doubled or out of order. No Spark here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator.settings import Settings
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import OperationRefused
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, PAUSE, ScriptedSource
from anabranch.task.program import Program
from tests.node.engine import Engine
from tests.node.shop import program

STEPS = 60

pytestmark = pytest.mark.timeout(900)
WAYS = [
    RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, prefetch=False),
    RescaleSettings(policy=MovePolicy.FLUID, prefetch=False),
    RescaleSettings(policy=MovePolicy.BATCHED, budget_bytes=2000, prefetch=False),
]


def chain(key: Any, row: Any, seen: Any) -> Any:
    """Depends on the order of a key's rows."""
    new = ((seen or 7) * 31 + row.v) % 1_000_003
    return (key.k, row.v, new), new


class Story:
    """Input, and what must come out of it."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.pages = [
            [(f"k{chance.randrange(60)}", chance.randrange(1000)) for _ in range(20)]
            for _ in range(STEPS)
        ]
        seen: dict[str, int] = {}
        self.rows: list[tuple[Any, ...]] = []
        self.totals: dict[int, int] = {}
        for page in self.pages:
            for k, v in page:
                seen[k] = ((seen.get(k) or 7) * 31 + v) % 1_000_003
                self.rows.append((k, v, seen[k]))
                self.totals[v % 5] = self.totals.get(v % 5, 0) + 1
        self.seen = seen

    def program(self, rows: MemorySink, totals: MemorySink) -> Program:
        flow = Dataflow("live")
        script: list[object] = []
        for page in self.pages:
            script += [page, PAUSE]
        source = flow.source("in", ScriptedSource("k string, v bigint", [*script, EOF]))
        chained = source.key_distribute("by-k", "k").stateful_map(
            "chain", chain, state=None, output="k string, v bigint, c bigint"
        )
        chained.sink("rows", rows)
        again = chained.key_distribute("by-v", "v").aggregate("counts", n="count(*)")
        again.sink("totals", totals)
        return program(flow)


@pytest.mark.parametrize("settings", WAYS, ids=lambda s: str(s.policy))
def test_up_down_and_rebalanced_while_rows_flow(tmp_path: Path, settings: RescaleSettings) -> None:
    story, rows, totals = Story(3), MemorySink(), MemorySink()
    engine = Engine(
        story.program(rows, totals),
        tmp_path,
        settings=Settings(workers=2, rescale=settings),
        paced=True,
    ).start()
    pipeline = engine.pipeline
    counts = []
    for workers in (4, 1):
        engine.until(lambda status: status.step >= 2)
        pipeline.scale(workers)
        status = engine.until(lambda status: status.rescale is None)
        counts.append([len(set(region.bins)) for region in status.regions])
    pipeline.rebalance()
    status = engine.finish()
    assert counts == [[4, 4], [1, 1]]
    assert [sorted(tuple(r.values()) for r in t.to_pylist()) for t in rows.steps().values()] == [
        sorted(story.rows[i * 20 : i * 20 + 20]) for i in range(STEPS)
    ]
    assert status.keys == {"chain": len(story.seen), "counts": len({v for _, v, _ in story.rows})}
    history = engine.driver._machine.memory.rescale.history
    assert [each.outcome for each in history] == ["settled"] * 3
    assert all(each.moved.bins for each in history[:2])


def test_a_rescale_goes_on_after_a_restart(tmp_path: Path) -> None:
    story, rows, totals = Story(5), MemorySink(), MemorySink()
    made = story.program(rows, totals)
    chosen = Settings(workers=2, rescale=RescaleSettings(policy=MovePolicy.FLUID, prefetch=False))
    engine = Engine(made, tmp_path, settings=chosen, paced=True).start()
    engine.until(lambda status: status.step >= 2)
    engine.pipeline.scale(4)
    engine.until(lambda status: status.rescale and status.rescale.moved_bins >= 1)
    engine.abandon()
    assert engine.pipeline.status().rescale is not None
    again = Engine(made, tmp_path, settings=chosen).start()
    status = again.pipeline.wait(200)
    assert [len(set(region.bins)) for region in status.regions] == [4, 4]
    assert sorted(tuple(r.values()) for r in rows.rows()) == sorted(story.rows)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    story = Story(1)
    engine = Engine(story.program(MemorySink(), MemorySink()), tmp_path, paced=True).start()
    pipeline = engine.pipeline
    engine.until(lambda status: status.step >= 1)
    with pytest.raises(OperationRefused, match="at least one worker"):
        pipeline.scale(0)
    with pytest.raises(OperationRefused, match="no region 'other'"):
        pipeline.scale(regions={"other": 2})
    engine.shutdown()


def test_paused_resumed_rolled_back_with_a_forecast_and_a_history(tmp_path: Path) -> None:
    story, rows, totals = Story(9), MemorySink(), MemorySink()
    chosen = Settings(workers=2, rescale=RescaleSettings(policy=MovePolicy.FLUID, prefetch=False))
    engine = Engine(story.program(rows, totals), tmp_path, settings=chosen, paced=True).start()
    pipeline = engine.pipeline
    engine.until(lambda status: status.step >= 5)
    before = [region.bins for region in pipeline.status().regions]
    forecast = pipeline.scale(4, dry_run=True)
    assert (forecast.workers, pipeline.status().rescale) == ((0, 1, 2, 3), None)
    assert forecast.bins == sum(len(bins) // 2 for bins in before)
    assert pipeline.rebalance(dry_run=True).workers == (0, 1)
    pipeline.scale(4)
    engine.until(lambda status: status.rescale.moved_bins >= 1)
    pipeline.scale_pause()
    # Those on their way arrive; then it stands still, and rows go on.
    engine.until(lambda status: not status.rescale.in_hand_over)
    paused = pipeline.status()
    engine.until(lambda status: status.step >= paused.step + 5)
    still = pipeline.status()
    assert paused.rescale is not None
    assert still.rescale is not None
    assert still.rescale.phase == "paused"
    assert still.rescale.moved_bins == paused.rescale.moved_bins
    assert still.rescale.moved_bins + still.rescale.left_bins == forecast.bins
    assert [region.bins for region in still.regions] == [region.bins for region in paused.regions]
    moved = still.rescale.moved_bins
    pipeline.scale_resume()
    engine.until(lambda status: status.rescale.moved_bins > moved)
    pipeline.scale_cancel(roll_back=True)
    engine.until(lambda status: status.rescale is None)
    assert [region.bins for region in pipeline.status().regions] == before
    assert [each.outcome for each in pipeline.scale_history()] == ["rolled-back"]
    pipeline.scale(1)
    pipeline.scale_cancel()
    engine.until(lambda status: status.rescale is None)
    assert [each.outcome for each in pipeline.scale_history()] == ["rolled-back", "cancelled"]
    engine.finish()
    assert sorted(tuple(r.values()) for r in rows.rows()) == sorted(story.rows)
