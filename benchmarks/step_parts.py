"""The parts of a step, in words and in numbers. Pure."""

from __future__ import annotations

from benchmarks.event_log import Job
from benchmarks.measure import Batch

DRIVER = (
    ("plan", "planning: look for input, plan entry"),
    ("build", "planning: put the DataFrame together"),
    ("spark", "planning: Catalyst, code generation, scheduling, collect"),
    ("read", "read files, hash keys, shuffle write"),
    ("tasks", "region tasks"),
    ("settle", "check input, decode and settle reports"),
    ("commit", "commit entry"),
    ("after", "after the commit: sweep, hand over to the publisher"),
)
"""The parts of a step, in order; together they are its whole time."""

TASK = (
    ("receive", "shuffle read and transfer to Python (Arrow)"),
    ("count", "counts and hashes of the rows"),
    ("operator", "group, user code or aggregation"),
    ("lookup", "look-up of state"),
    ("write", "write the run: sort, merge, encode, sync"),
    ("merge", "of that, merging with older runs"),
    ("stage", "stage output: encode, sync"),
    ("rest", "task start, code, report, wait for the slower worker"),
)
"""The parts of the region tasks, as the mean of the workers; ``merge`` is part of ``write``."""


def parts(batch: Batch, job: Job, workers: int) -> dict[str, float]:
    """A step's time taken apart; task times are means over the workers."""
    had = batch.parts
    found = {
        "plan": had["plan"],
        "build": had["build"],
        "spark": had["job"] - job.first_stages() - job.last_stage(),
        "read": job.first_stages(),
        "tasks": job.last_stage(),
        "settle": had["run"] - had["build"] - had["job"],
        "commit": had["commit"],
        "after": had["after"],
    }
    inside = {name: had.get(name, 0.0) / workers for name, _ in TASK if name != "rest"}
    spent = sum(took for name, took in inside.items() if name != "merge")
    return {**found, **inside, "rest": job.last_stage() - spent}
