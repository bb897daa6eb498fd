"""Python workers: what they have loaded when they are forked, what their collector goes through."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from anabranch.spark import worker_memory

FORKED = """
import gc, sys
from anabranch.spark import daemon

daemon.manager = lambda: None  # where workers are forked
daemon.main()
loaded = set(sys.modules)

import numpy as np
import pyarrow as pa

pa.array(np.arange(3)).to_numpy()
assert gc.get_freeze_count() > 10_000 > len(gc.get_objects())
print(sorted(set(sys.modules) - loaded))
"""


@pytest.fixture
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is new stays with what is new, unless somebody takes it for what stays."""
    monkeypatch.setattr(worker_memory, "_tasks", 0)
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("_no_collections")
def test_what_is_alive_is_taken_for_what_stays_ever_more_rarely() -> None:
    frozen = []
    for number in range(1, 40):
        alive = [number]
        worker_memory.freeze_long_lived()
        if not any(each is alive for each in gc.get_objects(generation=0)):
            frozen.append(number)
    assert frozen == [2, 3, 5, 9, 17, 33]


def test_a_forked_worker_has_nothing_left_to_load() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.stdout == "[]\n", ran.stderr
