"""A step's time taken apart, from our clocks and Spark's event log."""

from __future__ import annotations

import json

import pytest

from benchmarks.event_log import job_between, jobs
from benchmarks.measure import Batch
from benchmarks.step_parts import DRIVER, TASK, parts

LOG = [
    {"Event": "SparkListenerApplicationStart"},
    {"Event": "SparkListenerJobStart", "Job ID": 4, "Submission Time": 10_000, "Stage IDs": [7, 8]},
    {
        "Event": "SparkListenerStageCompleted",
        "Stage Info": {"Stage ID": 7, "Submission Time": 10_010, "Completion Time": 10_110},
    },
    {
        "Event": "SparkListenerStageCompleted",
        "Stage Info": {"Stage ID": 8, "Submission Time": 10_120, "Completion Time": 10_420},
    },
    {"Event": "SparkListenerJobEnd", "Job ID": 4, "Completion Time": 10_430},
]


def test_jobs_of_an_event_log() -> None:
    (job,) = jobs(json.dumps(event) for event in LOG)
    assert job.submitted == 10.0
    assert job.first_stages() == pytest.approx(0.1)
    assert job.last_stage() == pytest.approx(0.3)
    assert job_between([job], 9.5, 10.5) is job
    assert job_between([job], 10.1, 10.5) is None


def test_parts_add_up_to_the_step() -> None:
    (job,) = jobs(json.dumps(event) for event in LOG)
    told = {"plan": 0.01, "run": 0.60, "commit": 0.02, "after": 0.001, "build": 0.05, "job": 0.54}
    tasks = {"receive": 0.2, "operator": 0.1, "write": 0.08, "merge": 0.06}
    found = parts(Batch(1, 0.631, {**told, **tasks}), job, workers=2)
    assert sum(found[name] for name, _ in DRIVER) == pytest.approx(0.631)
    assert found["spark"] == pytest.approx(0.54 - 0.1 - 0.3)
    assert found["settle"] == pytest.approx(0.01)
    assert found["rest"] == pytest.approx(0.3 - (0.2 + 0.1 + 0.08) / 2)
    inside = sum(found[name] for name, _ in TASK if name != "merge")
    assert inside == pytest.approx(found["tasks"])
