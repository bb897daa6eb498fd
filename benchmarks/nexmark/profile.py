"""Where the time of a step of a Nexmark query goes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.child import Spec, case
from benchmarks.measure import Outcome
from benchmarks.nexmark.ours import flow_of
from benchmarks.profile import profiled


def measure(spec: Spec) -> Outcome:
    """Run the query with the event log on."""
    return profiled(spec, flow_of(spec.text("query"), Path(spec.data), Path(spec.work) / "out"))


if __name__ == "__main__":
    case(measure)
