"""A pause and a rescale, as somebody asks for them in Python: nobody is kept waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import OperationRefused
from anabranch.sinks.memory import MemorySink
from anabranch.sources.generator import GeneratorSource
from tests.node.engine import Engine
from tests.node.shop import SCHEMA, program, shop


def rows(partition: int, start: int, end: int) -> object:
    numbers = range(start, end)
    return {"customer": [str(n % 50) for n in numbers], "amount": [1 for _ in numbers]}


def test_a_paused_pipeline_says_that_it_must_be_started_before_it_scales(tmp_path: Path) -> None:
    source = GeneratorSource(rows, SCHEMA, rows_per_step=20)
    engine = Engine(program(shop(source, MemorySink(), MemorySink())), tmp_path / "state").start()
    engine.until(lambda status: status.step >= 1)
    engine.pipeline.pause()
    with pytest.raises(OperationRefused, match="The pipeline is paused"):
        engine.pipeline.scale(4)
    engine.pipeline.start()
    engine.pipeline.scale(4)
    engine.until(lambda status: status.workers == 4)
    engine.shutdown()
