"""Prometheus metrics: counters of the steps, gauges of the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from anabranch.coordinator.effects import StepDone
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.status import Phase, RescaleStatus, Status

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds of a step: fine around the latency target, coarse for slow steps."""

PART_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Meter:
    """Counts the steps of this coordinator; reads everything else off a status.

    It has its own registry, so that several pipelines in a process do not mix.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._steps = counter("anabranch_steps", "Steps committed by this coordinator.")
        self._rows = counter("anabranch_step_rows", "Input rows of these steps.")
        self._merged = counter("anabranch_merged_rows", "State rows read by compaction.")
        self._state_bytes = counter(
            "anabranch_home_bytes",
            "Bytes of state that tasks with homes moved there, opened there, or had to read from "
            "the store.",
            ["what"],
        )
        self._misses = counter(
            "anabranch_home_misses", "Reads of state that was missing in a home."
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
        self._moved = {
            name: counter(f"anabranch_rescale_{name}", what)
            for name, what in (
                ("bins", "Bins handed over to another worker."),
                ("keys", "Keys in these bins."),
                ("bytes", "Bytes of state in these bins."),
                ("rounds", "Steps that handed over bins."),
                ("steps", "Steps of this coordinator during a rescale."),
                ("released_workers", "Workers that were told to shut down."),
            )
        }
        self._longest = Gauge(
            "anabranch_rescale_longest_step_seconds",
            "The longest step during the last rescale.",
            registry=self._registry,
        )
        self._ended = counter("anabranch_rescales", "Finished rescales, by outcome.", ["outcome"])
        for outcome in RescaleOutcome:
            self._ended.labels(outcome.value)
        self._in_rescale = False
        self._longest_seconds = 0.0

    def observe(self, done: StepDone) -> None:
        """Count a committed step."""
        self._steps.inc()
        self._rows.inc(done.rows)
        self._merged.inc(done.rows_merged)
        self._state_bytes.labels("moved").inc(done.homes.moved_bytes)
        self._state_bytes.labels("home").inc(done.homes.home_bytes)
        self._state_bytes.labels("store").inc(done.homes.store_bytes)
        self._misses.inc(done.homes.misses)
        self._seconds.observe(done.seconds)
        for part, seconds in done.parts.items():
            self._parts.labels(part).observe(seconds)
        self._observe_rescale(done)

    def _observe_rescale(self, done: StepDone) -> None:
        moved = done.moved
        if moved is None:
            self._in_rescale = False
            return
        counts = {"bins": moved.bins, "keys": moved.keys, "bytes": moved.bytes}
        counts |= {"rounds": int(moved.bins > 0), "steps": 1}
        for name, count in {**counts, "released_workers": len(moved.released)}.items():
            self._moved[name].inc(count)
        self._longest_seconds = max(
            done.seconds, self._longest_seconds if self._in_rescale else 0.0
        )
        self._longest.set(self._longest_seconds)
        self._in_rescale = True
        for outcome in moved.ended:
            self._ended.labels(outcome).inc()

    def collect(self, status: Status) -> bytes:
        """All metrics as text, with those of a status."""
        current = CollectorRegistry()
        current.register(_StatusCollector(status))
        return generate_latest(self._registry) + generate_latest(current)


class _StatusCollector(Collector):
    """A status as metrics. Built for each scrape, so that removed labels disappear."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from self._pipeline(self._status)
        yield from self._state(self._status)
        yield from self._edges(self._status)
        yield from self._checkpoints(self._status)
        yield from self._rescale(self._status.rescale)

    @staticmethod
    def _rescale(rescale: RescaleStatus | None) -> Iterator[Metric]:
        yield _one("rescale_under_way", "1 while bins move.", float(rescale is not None))
        if rescale is None:
            return
        yield _one("rescale_left_bins", "Bins still at their old owner.", rescale.left_bins)
        yield _one("rescale_left_bytes", "Bytes of state in these bins.", rescale.left_bytes)
        in_hand_over = sum(rescale.in_hand_over.values())
        yield _one("rescale_hold_bins", "Bins between two owners.", in_hand_over)
        yield _one("rescale_left_seconds", "Forecast of the time left.", rescale.seconds_left)
        if rescale.budget_seconds is not None:
            budget = rescale.budget_seconds
            yield _one("rescale_budget_seconds", "What a step may spend on moving.", budget)

    @staticmethod
    def _pipeline(status: Status) -> Iterator[Metric]:
        phases = (((phase.value,), float(phase is status.phase)) for phase in Phase)
        yield _gauge("phase", "1 for the current phase.", ["phase"], phases)
        yield _one("step", "The last committed step.", status.step)
        yield _one("published_step", "The last step published by all sinks.", status.published)
        yield _one("leader", "The number of the coordinator that leads.", status.leader)
        yield _one("branch", "The branch that steps are committed to.", status.branch)
        yield _one("workers", "Workers of each region.", status.workers)
        under_way = 0.0 if status.under_way is None else status.under_way.seconds
        yield _one("step_under_way_seconds", "Age of the current step; 0 for none.", under_way)
        yield CounterMetricFamily("anabranch_rows", "Committed input rows.", value=status.rows)
        triggers = CounterMetricFamily(
            "anabranch_triggers", "Steps by what triggered them.", labels=["trigger"]
        )
        for trigger, count in status.triggers.items():
            triggers.add_metric([trigger], count)
        yield triggers
        if status.batch_rows is not None:
            yield _one("batch_rows", "The row limit of the next step.", status.batch_rows)
        if status.node is not None:
            heard = status.node.heard_seconds_ago
            yield _one("node_heard_seconds", "Time since the node last reported.", heard)

    @staticmethod
    def _state(status: Status) -> Iterator[Metric]:
        by_worker = ["region", "worker"]
        keys = (
            ((region.region, str(worker)), float(count))
            for region in status.regions
            for worker, count in enumerate(region.keys_by_worker)
            if worker in region.bins
        )
        sizes = (
            ((region.region, str(worker)), float(count))
            for region in status.regions
            for worker, count in enumerate(region.bytes_by_worker)
            if worker in region.bins
        )
        runs = (((region.region,), float(region.runs)) for region in status.regions)
        bins = (((region.region,), float(len(region.bins))) for region in status.regions)
        held = (((one.operator, one.region), float(one.keys)) for one in status.operators)
        yield _gauge("state_keys", "Keys in a worker's bins.", by_worker, keys)
        yield _gauge("state_bytes", "Bytes of state in a worker's bins.", by_worker, sizes)
        yield _gauge("state_runs", "Runs of a region's state.", ["region"], runs)
        yield _gauge("bins", "Bins of a region.", ["region"], bins)
        yield _gauge("operator_keys", "Keys of an operator.", ["operator", "region"], held)

    @staticmethod
    def _edges(status: Status) -> Iterator[Metric]:
        waiting = (((one.source,), float(one.waiting)) for one in status.sources)
        paused = (((one.source,), float(one.paused)) for one in status.sources)
        published = (((one.sink,), float(one.published)) for one in status.sinks)
        behind = (((one.sink,), float(one.steps_behind)) for one in status.sinks)
        yield _gauge("source_lag", "Waiting rows, or slices if unknown.", ["source"], waiting)
        yield _gauge("source_paused", "1 while the source is paused.", ["source"], paused)
        yield _gauge("sink_published_step", "The last published step.", ["sink"], published)
        yield _gauge("sink_steps_behind", "Committed, unpublished steps.", ["sink"], behind)

    @staticmethod
    def _checkpoints(status: Status) -> Iterator[Metric]:
        yield _one("checkpoints", "Kept checkpoints.", len(status.checkpoints))
        if not status.checkpoints:
            return
        last = status.checkpoints[-1]
        yield _one("checkpoint_step", "Step of the last checkpoint.", last.step)
        yield _one("checkpoint_clock", "Its clock, Unix seconds.", last.clock_ns / 1e9)
        yield _one("checkpoint_files", "Files of the last checkpoint.", last.files)
        yield _one("checkpoint_bytes", "Bytes of these files.", last.bytes)
        if last.seconds is not None:
            yield _one("checkpoint_seconds", "How long it took to make.", last.seconds)


def _one(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"anabranch_{name}", what, value=value)


def _gauge(
    name: str, what: str, labels: list[str], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"anabranch_{name}", what, labels=labels)
    for found, value in values:
        family.add_metric(list(found), value)
    return family
