"""Prometheus metrics: counters of the steps, gauges of the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from anabranch.coordinator.effects import StepDone
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.status import Phase, RescaleStatus, Status
from anabranch.rescale.moved_counts import StepMoved

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds of a step: fine around the latency target, coarse for slow steps."""

PART_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

_COUNTERS: tuple[tuple[str, str, Callable[[StepDone, StepMoved], float]], ...] = (
    ("steps", "Steps committed by this coordinator.", lambda done, moved: 1),
    ("step_rows", "Input rows of these steps.", lambda done, moved: done.rows),
    ("merged_rows", "State rows read by compaction.", lambda done, moved: done.rows_merged),
    ("home_misses", "Reads of state missing in a home.", lambda done, moved: done.homes.misses),
    ("rescale_bins", "Bins handed over to another worker.", lambda done, moved: moved.bins),
    ("rescale_keys", "Keys in these bins.", lambda done, moved: moved.keys),
    ("rescale_bytes", "Bytes of state in these bins.", lambda done, moved: moved.bytes),
    ("rescale_rounds", "Steps that handed over bins.", lambda done, moved: moved.bins > 0),
    ("rescale_steps", "Steps during a rescale.", lambda done, moved: done.moved is not None),
    ("rescale_released_workers", "Workers shut down.", lambda done, moved: len(moved.released)),
)


class Meter:
    """Counts the steps of this coordinator; reads everything else off a status.

    It has its own registry, so that several pipelines in a process do not mix.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._counters = [
            (counter(f"anabranch_{name}", what), count) for name, what, count in _COUNTERS
        ]
        self._state_bytes = counter(
            "anabranch_home_bytes",
            "Bytes of state that tasks with homes moved there, opened there, or had to read from "
            "the store.",
            ["what"],
        )
        self._seconds = histogram(
            "anabranch_step_seconds", "From the plan of a step to its commit.", buckets=BUCKETS
        )
        self._parts = histogram(
            "anabranch_step_part_seconds",
            "Parts of a step: planning, the Spark job, the commit and others.",
            ["part"],
            buckets=PART_BUCKETS,
        )
        self._longest = Gauge(
            "anabranch_rescale_longest_step_seconds",
            "The longest step during the last rescale.",
            registry=self._registry,
        )
        self._longest_seconds = 0.0
        self._ended = counter("anabranch_rescales", "Finished rescales, by outcome.", ["outcome"])
        for outcome in RescaleOutcome:
            self._ended.labels(outcome.value)

    def observe(self, done: StepDone) -> None:
        """Count a committed step."""
        moved = StepMoved() if done.moved is None else done.moved
        for counter, count in self._counters:
            counter.inc(count(done, moved))
        self._state_bytes.labels("moved").inc(done.homes.moved_bytes)
        self._state_bytes.labels("home").inc(done.homes.home_bytes)
        self._state_bytes.labels("store").inc(done.homes.store_bytes)
        self._seconds.observe(done.seconds)
        for part, seconds in done.parts.items():
            self._parts.labels(part).observe(seconds)
        if done.moved is None:
            self._longest_seconds = 0.0  # the gauge keeps that of the last rescale
        else:
            self._longest_seconds = max(done.seconds, self._longest_seconds)
            self._longest.set(self._longest_seconds)
        for outcome in moved.ended:
            self._ended.labels(outcome).inc()

    def collect(self, status: Status) -> bytes:
        """All metrics as text, with those of a status."""
        return generate_latest(self._registry) + generate_latest(_StatusCollector(status))


@dataclass(frozen=True, slots=True)
class _StatusCollector(Collector):
    """A status as metrics. Built for each scrape, so that removed labels disappear."""

    status: Status

    def collect(self) -> Iterator[Metric]:
        yield from _pipeline(self.status)
        yield from _state(self.status)
        yield from _sources_and_sinks(self.status)
        yield from _checkpoints(self.status)
        yield from _rescale(self.status.rescale)


def _pipeline(status: Status) -> Iterator[Metric]:
    phases = ((phase is status.phase, phase.value) for phase in Phase)
    yield _gauges("phase", "1 for the current phase.", ["phase"], phases)
    yield _gauge("step", "The last committed step.", status.step)
    yield _gauge("published_step", "The last step published by all sinks.", status.published)
    yield _gauge("leader", "The number of the coordinator that leads.", status.leader)
    yield _gauge("branch", "The branch that steps are committed to.", status.branch)
    yield _gauge("workers", "Workers of each region.", status.workers)
    under_way = 0.0 if status.under_way is None else status.under_way.seconds
    yield _gauge("step_under_way_seconds", "Age of the current step; 0 for none.", under_way)
    yield CounterMetricFamily("anabranch_rows", "Committed input rows.", value=status.rows)
    triggers = CounterMetricFamily(
        "anabranch_triggers", "Steps by what triggered them.", labels=["trigger"]
    )
    for trigger, count in status.triggers.items():
        triggers.add_metric([trigger], count)
    yield triggers
    if status.batch_rows is not None:
        yield _gauge("batch_rows", "The row limit of the next step.", status.batch_rows)
    if status.node is not None:
        heard = status.node.heard_seconds_ago
        yield _gauge("node_heard_seconds", "Time since the node last reported.", heard)


def _state(status: Status) -> Iterator[Metric]:
    # Only workers that have bins.
    owners = [(each, worker) for each in status.regions for worker in sorted(set(each.bins))]
    keys = ((each.keys_by_worker[worker], each.region, str(worker)) for each, worker in owners)
    sizes = ((each.bytes_by_worker[worker], each.region, str(worker)) for each, worker in owners)
    labels = ["region", "worker"]
    runs = ((each.runs, each.region) for each in status.regions)
    bins = ((len(each.bins), each.region) for each in status.regions)
    held = ((each.keys, each.operator, each.region) for each in status.operators)
    yield _gauges("state_keys", "Keys in a worker's bins.", labels, keys)
    yield _gauges("state_bytes", "Bytes of state in a worker's bins.", labels, sizes)
    yield _gauges("state_runs", "Runs of a region's state.", ["region"], runs)
    yield _gauges("bins", "Bins of a region.", ["region"], bins)
    yield _gauges("operator_keys", "Keys of an operator.", ["operator", "region"], held)


def _sources_and_sinks(status: Status) -> Iterator[Metric]:
    waiting = ((each.waiting, each.source) for each in status.sources)
    paused = ((each.paused, each.source) for each in status.sources)
    published = ((each.published, each.sink) for each in status.sinks)
    behind = ((each.steps_behind, each.sink) for each in status.sinks)
    failing = ((each.retry.seconds if each.retry else 0, each.sink) for each in status.sinks)
    yield _gauges("source_lag", "Waiting rows, or slices if unknown.", ["source"], waiting)
    yield _gauges("source_paused", "1 while the source is paused.", ["source"], paused)
    yield _gauges("sink_published_step", "The last published step.", ["sink"], published)
    yield _gauges("sink_steps_behind", "Committed, unpublished steps.", ["sink"], behind)
    yield _gauges("sink_failing_seconds", "How long it has failed on end.", ["sink"], failing)


def _checkpoints(status: Status) -> Iterator[Metric]:
    yield _gauge("checkpoints", "Kept checkpoints.", len(status.checkpoints))
    if not status.checkpoints:
        return
    last = status.checkpoints[-1]
    yield _gauge("checkpoint_step", "Step of the last checkpoint.", last.step)
    yield _gauge("checkpoint_clock", "Its clock, Unix seconds.", last.clock_ns / 1e9)
    yield _gauge("checkpoint_files", "Files of the last checkpoint.", last.files)
    yield _gauge("checkpoint_bytes", "Bytes of these files.", last.bytes)
    if last.seconds is not None:
        yield _gauge("checkpoint_seconds", "How long it took to make.", last.seconds)


def _rescale(rescale: RescaleStatus | None) -> Iterator[Metric]:
    yield _gauge("rescale_under_way", "1 while bins move.", rescale is not None)
    if rescale is None:
        return
    yield _gauge("rescale_left_bins", "Bins still at their old owner.", rescale.left_bins)
    yield _gauge("rescale_left_bytes", "Bytes of state in these bins.", rescale.left_bytes)
    in_hand_over = sum(rescale.in_hand_over.values())
    yield _gauge("rescale_hold_bins", "Bins between two owners.", in_hand_over)
    yield _gauge("rescale_left_seconds", "Forecast of the time left.", rescale.seconds_left)
    if rescale.budget_seconds is not None:
        budget = rescale.budget_seconds
        yield _gauge("rescale_budget_seconds", "What a step may spend on moving.", budget)


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"anabranch_{name}", what, value=value)


def _gauges(
    name: str, what: str, labels: list[str], values: Iterable[tuple[float, *tuple[str, ...]]]
) -> GaugeMetricFamily:
    """A gauge with labels, of tuples of a value and its labels."""
    family = GaugeMetricFamily(f"anabranch_{name}", what, labels=labels)
    for value, *found in values:
        family.add_metric(found, value)
    return family
