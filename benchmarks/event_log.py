"""Spark's own account of its jobs, from the event log. Pure over its lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CONF = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@dataclass
class Job:
    """A job: when it was submitted (seconds since the epoch) and how long each stage took."""

    submitted: float
    stages: tuple[int, ...]
    seconds: dict[int, float] = field(default_factory=dict)

    def first_stages(self) -> float:
        """Seconds of all stages before the last: reading, and every exchange but the last."""
        return sum(self.seconds.get(stage, 0.0) for stage in sorted(self.stages)[:-1])

    def last_stage(self) -> float:
        """Seconds of the last stage: the tasks that report."""
        return self.seconds.get(max(self.stages), 0.0)


def jobs(lines: Iterable[str]) -> list[Job]:
    """The jobs of a log, in the order of their numbers."""
    found: dict[int, Job] = {}
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            submitted = event["Submission Time"] / 1000
            found[event["Job ID"]] = Job(submitted, tuple(event["Stage IDs"]))
        elif event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            took = (stage["Completion Time"] - stage["Submission Time"]) / 1000
            for job in found.values():
                if stage["Stage ID"] in job.stages:
                    job.seconds[stage["Stage ID"]] = took
    return [found[number] for number in sorted(found)]


def job_between(found: Iterable[Job], begun: float, ended: float) -> Job | None:
    """The job that was submitted in this time, None where there was none."""
    return next((job for job in found if begun <= job.submitted <= ended), None)
