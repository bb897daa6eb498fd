"""The whole benchmark at tiny sizes: every case of ours and of Spark's runs to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.results import Results
from benchmarks.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_quick_run_measures_every_target(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="transformWithState needs protobuf: make bench")
    output = tmp_path / "quick.md"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--output", str(output)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    found = msgspec.json.decode(output.with_suffix(".json").read_bytes(), type=Results)
    # Other systems may not be installed here; what is ours or Spark's must run.
    assert [each.name for each in found.results if each.failure and each.workload != "peers"] == []
    assert [target.name for target in TARGETS if target.ratio(found) is None] == []
    assert "Where the time of a step goes" in output.read_text(encoding="utf-8")
