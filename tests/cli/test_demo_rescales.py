"""The demo's rescales, on a real pipeline without Spark."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.demo.rescales import DemoRescales, planned_rescales
from anabranch.sinks.memory import MemorySink
from tests.node.engine import Engine
from tests.node.test_live_rescale import Story


def test_up_and_down_each_when_the_one_before_is_settled(tmp_path: Path) -> None:
    story = Story(4)
    pipeline = Engine(story.program(MemorySink(), MemorySink()), tmp_path).start().pipeline
    migration, seen, over = DemoRescales(planned_rescales(2)), [], []
    while not migration.is_over:
        status = pipeline.status()
        found = migration.advance(pipeline, status, status.rows / len(story.rows))
        if found is not None:
            over.append(found)
            seen.append(len(set(status.regions[0].bins)))
        pipeline.wait(0.005)
    pipeline.shutdown()
    assert seen == [4, 1]
    assert [each.outcome for each in over] == ["settled", "settled"]
    (first, last), (second, end) = migration.spans
    assert last is not None
    assert end is not None
    assert 1 < first < last < second < end
    assert [migration.moved_in(step) for step in (first - 1, first, last, end, end + 1)] == [
        *(False, True, True, True, False)
    ]
