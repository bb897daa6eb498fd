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
from tests.node.shop import program, scripted, shop

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
        ({}, ab.Settings().workers),
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
