"""What the steps of a pipeline on Spark report of event times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest

from anabranch.messages import Report
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.spark.step.plane import SparkPlane

Latest = dict[tuple[str, int | None], int]


class SeenTimes:
    """The latest times of each step, by input and partition, and the clock of the step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: dict[int, Latest] = {}
        self.clocks: dict[int, int] = {}
        self.groups: set[str] = set()
        run = SparkPlane.run

        def running(plane: SparkPlane, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
            reports = run(plane, plan, states)
            found: Latest = {}
            for report in reports:
                for each in report.times:
                    key = (each.input, each.partition)
                    assert key not in found, "a time is reported twice"
                    found[key] = each.latest
                    self.groups.add(report.attempt.group)
            if any(given.slices for given in plan.inputs):
                self.steps[plan.step] = found
                self.clocks[plan.step] = plan.clock_ns // 1000
            return reports

        monkeypatch.setattr(SparkPlane, "run", running)

    def of(self, input: str, partition: int | None = None) -> list[int | None]:
        """The latest times of an input, step by step."""
        return [found.get((input, partition)) for _, found in sorted(self.steps.items())]


def micros(value: dt.datetime) -> int:
    """A time in UTC as an event time."""
    return round(value.timestamp() * 1_000_000)
