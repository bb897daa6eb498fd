"""20,000 tiny steps: memory and local bytes are as after the first tenth.

``ANABRANCH_TINY_STEPS`` is the number of steps; a few hundred show that the test itself works.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from benchmarks.child import Spec
from benchmarks.conductor import KEPT, ROOT
from benchmarks.measure import Fact, Outcome
from benchmarks.tiny_steps import LIVE_HEAP

STEPS = int(os.environ.get("ANABRANCH_TINY_STEPS", "20000"))
LONG = STEPS >= 5000
MIB = 1 << 20

# How much more there may be at the end: a factor, and bytes on top. What fluctuates with garbage
# collections and sweeps is given more room; a leak of a kilobyte per step would be 18 MiB.
ALLOWED = {
    "driver": (1.05, 8 * MIB),
    # Until it has compiled everything that is hot, the JVM grows beside its heap.
    "JVM": (1.05, (24 if LONG else 300) * MIB),
    LIVE_HEAP: (1.10, 8 * MIB),
    "Python workers": (1.10, 16 * MIB),
    "pipeline directory": (1.25, 2 * MIB),
    "Spark's local directory": (1.25, 8 * MIB),
}


@pytest.mark.soak
@pytest.mark.timeout(14400)
def test_memory_and_local_bytes_stay_flat_over_tiny_steps(tmp_path: Path) -> None:
    info = _run(tmp_path)
    grown = []
    for name, (factor, slack) in ALLOWED.items():
        early, late = float(info[f"early: {name}"]), float(info[f"late: {name}"])
        print(f"{name}: {early / MIB:.1f} MiB after a tenth, {late / MIB:.1f} MiB at the end")
        if late > early * factor + slack:
            grown.append(name)
    assert grown == []
    if LONG:
        _keep(info)


def _run(home: Path) -> dict[str, Fact]:
    """Run the steps in a process of their own, with a JVM that nothing else has used."""
    spec = Spec(
        "",
        str(home / "work"),
        str(home / "result"),
        0.0,
        {
            "steps": STEPS,
            "grace_seconds": 60 if LONG else 1,
            "gc_interval": "2min" if LONG else "3s",
        },
    )
    told = home / "spec.json"
    told.write_bytes(msgspec.json.encode(spec))
    command = [sys.executable, "-m", "benchmarks.tiny_steps", str(told)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    outcome = msgspec.json.decode(Path(spec.result).read_bytes(), type=Outcome)
    took = [batch.seconds for batch in outcome.batches]
    half = len(took) // 2
    for window, some in (("after a tenth", took[:half]), ("at the end", took[half:])):
        print(f"median step {window}: {1000 * sorted(some)[len(some) // 2]:.0f} ms")
    return outcome.info


def _keep(info: dict[str, Fact]) -> None:
    """Leave the numbers where the benchmark report looks for them."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    KEPT.mkdir(exist_ok=True)
    kept: dict[str, Fact] = {"steps": STEPS, "when": when, **info}
    text = msgspec.json.format(msgspec.json.encode(kept), indent=1)
    (KEPT / "tiny_steps.json").write_bytes(text)
