"""How many workers ``ab.run`` begins with, on a data plane without Spark."""

from __future__ import annotations

import secrets
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.node.core import NodeCore
from anabranch.node.threads import ThreadedNode
from anabranch.sinks.memory import MemorySink
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.shop import SCHEMA, program, scripted, shop

WAIT = 20.0
RUN = import_module("anabranch.run")
"""The module; ``ab.run`` is the function."""


def node_without_spark(flow: Dataflow, *, directory: Path, **_: Any) -> ThreadedNode:
    made = program(flow)
    directory.mkdir(parents=True, exist_ok=True)
    core = NodeCore(
        made,
        directory,
        MemoryPlane(made, directory),
        "code",
        clock=time.monotonic,
        boot=secrets.token_hex(4),
    )
    return ThreadedNode(core)


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({}, 2),
        ({"settings": ab.Settings(workers=8)}, 8),
        ({"settings": ab.Settings(workers=8), "workers": 3}, 3),
        ({"workers": 3}, 3),
    ],
)
def test_workers_are_those_of_the_settings_unless_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], workers: int
) -> None:
    monkeypatch.setattr(RUN, "build_node", node_without_spark)
    pipeline = ab.run(
        shop(scripted(), MemorySink(), MemorySink()), directory=tmp_path / "state", **options
    )
    # The shop has eight bins in each region: each of the workers has some.
    assert pipeline.wait(WAIT).workers == workers


@pytest.mark.parametrize("workers", [0, -1])
def test_less_than_one_worker_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(RUN, "build_node", node_without_spark)
    with pytest.raises(ValueError, match=f"workers must be at least 1, not {workers}"):
        ab.run(
            shop(scripted(), MemorySink(), MemorySink()),
            directory=tmp_path / "state",
            workers=workers,
        )
    assert not (tmp_path / "state").exists()


def numbers(partition: int, start: int, end: int) -> dict[str, list[Any]]:
    return {
        "customer": [str(number % 50) for number in range(start, end)],
        "amount": [1 for _ in range(start, end)],
    }


def owners(status: ab.Status) -> dict[str, int]:
    """How many workers each region has."""
    return {each.region: len(set(each.bins)) for each in status.regions}


def test_a_scale_right_after_the_start_is_kept_by_a_start_without_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RUN, "build_node", node_without_spark)

    def started(**options: Any) -> ab.Pipeline:
        source = ab.GeneratorSource(numbers, SCHEMA, rows_per_step=20)
        flow = shop(source, MemorySink(), MemorySink())
        return ab.run(flow, directory=tmp_path / "state", **options)

    pipeline = started(workers=3)
    pipeline.scale(regions={"by-customer": 5}, timeout=WAIT)
    while not pipeline.scale_history():
        pipeline.wait(0.01)
    assert pipeline.scale_history()[0].outcome == "settled"
    pipeline.shutdown()
    scaled = {"by-customer": 5, "by-times": 3}
    for _ in range(2):
        again = started()
        again.checkpoint()
        assert owners(again.status()) == scaled
        again.shutdown()
    again = started(workers=2)
    step = again.status().step
    while again.status().step <= step:
        again.wait(0.01)
    assert owners(again.shutdown()) == {"by-customer": 2, "by-times": 2}
