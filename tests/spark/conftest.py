"""What the tests that kill processes share."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.killing import Site


@pytest.fixture
def seed() -> int:
    """Told, so that a failing run can be repeated."""
    found = int(os.environ.get("ANABRANCH_SEED", str(random.randrange(10**6))))
    print(f"seed {found}")
    return found


@pytest.fixture
def site(tmp_path: Path, seed: int) -> Iterator[Site]:
    """A pipeline under load that has made a few steps; nothing of it is left behind."""
    found = Site(tmp_path, seed)
    try:
        found.run()
        found.more()
        yield found
    finally:
        found.end()
