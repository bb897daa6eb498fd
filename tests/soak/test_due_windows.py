"""Two million windows that fall due in one step fit into the memory of a task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak

WINDOWS = 2_000_000
MOST_BYTES = 2 << 30


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_two_million_windows_due_in_one_step(kind: str, tmp_path: Path) -> None:
    """The whole process counts, with Python, its libraries and the mapped state."""
    command = [sys.executable, "-m", "tests.soak.due_windows", kind, str(WINDOWS), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    peak = found["peak"] * 1024
    print(f"{kind}: {peak >> 20} MiB at the peak, {found['seconds']:.1f} s")
    assert found["windows"] == WINDOWS
    assert peak < MOST_BYTES
