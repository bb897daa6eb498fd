"""Metrics, parsed back and compared with what the pipeline did."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from anabranch.coordinator.effects import StepDone
from anabranch.http.routes.metrics import Meter
from anabranch.protocol.node import Failure, SinkRetry
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.status import CheckpointStatus, Phase, SinkStatus
from anabranch.rescale.moved_counts import StepMoved
from tests.http.little import BINS, Little
from tests.http.raw import Site, until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def one(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"anabranch_{name}", frozenset(labels.items())]


def test_steps_are_counted_in_total_and_by_part() -> None:
    meter = Meter()
    for number, seconds in enumerate([0.04, 0.4, 4.0], start=1):
        parts = {"planning": seconds / 4, "job": seconds / 2}
        meter.observe(StepDone(number, 100, 7, seconds, parts, rows_merged=5))
    found = parsed(meter.collect(Little().status()))
    assert one(found, "steps_total") == 3
    assert one(found, "step_rows_total") == 300
    assert one(found, "merged_rows_total") == 15
    assert one(found, "step_seconds_count") == 3
    assert one(found, "step_seconds_sum") == 4.44
    assert [one(found, "step_seconds_bucket", le=le) for le in ("0.025", "0.05", "0.5", "5.0")] == [
        0,
        1,
        2,
        3,
    ]
    assert one(found, "step_part_seconds_count", part="job") == 3
    assert one(found, "step_part_seconds_sum", part="planning") == 1.11


def test_the_standing_of_the_pipeline_is_shown() -> None:
    little = Little(phase=Phase.PAUSED)
    for _ in range(5):
        little._commit()
    little.checkpoints = [
        CheckpointStatus(2, 0, 2 * 10**9, 2, 32, 0.5),
        CheckpointStatus(4, 0, 4 * 10**9, 4, 64, 0.25),
    ]
    found = parsed(Meter().collect(little.status()))
    assert one(found, "step") == one(found, "published_step") == 5
    assert one(found, "rows_total") == 150
    assert one(found, "leader") == 3
    assert one(found, "phase", phase="paused") == 1
    assert sum(value for (name, _), value in found.items() if name == "anabranch_phase") == 1
    assert [one(found, "state_keys", region="by-step", worker=worker) for worker in "01"] == [3, 2]
    assert one(found, "state_bytes", region="by-step", worker="0") == 40
    assert one(found, "state_runs", region="by-step") == 3
    assert one(found, "source_lag", source="numbers") == 7
    assert one(found, "source_paused", source="numbers") == 0
    assert one(found, "sink_published_step", sink="out") == 5
    assert one(found, "triggers_total", trigger="rows") == 5
    assert one(found, "checkpoints") == 2
    assert one(found, "checkpoint_step") == 4
    assert one(found, "checkpoint_clock") == 4
    assert one(found, "checkpoint_bytes") == 64
    assert one(found, "checkpoint_seconds") == 0.25


def test_how_long_a_sink_has_failed_is_shown() -> None:
    retry = SinkRetry(Failure("sink.callback", "Away"), 11, 95.0, 20.0)
    sinks = (SinkStatus("out", 5, 0), SinkStatus("away", 2, 3, retry))
    status = msgspec.structs.replace(Little().status(), sinks=sinks)
    found = parsed(Meter().collect(status))
    assert one(found, "sink_failing_seconds", sink="out") == 0
    assert one(found, "sink_failing_seconds", sink="away") == 95


def test_a_rescale_is_counted_as_it_goes() -> None:
    meter = Meter()
    steps = [
        (0.1, None),
        (0.3, StepMoved()),
        (0.2, StepMoved(3, 30, 300)),
        (0.9, StepMoved(1, 10, 100)),
        (0.1, StepMoved(ended=(RescaleOutcome.SETTLED,), released=(2, 3))),
        (7.0, None),
        (0.4, StepMoved(2, 0, 0, (RescaleOutcome.REPLACED,))),
        (0.2, StepMoved(ended=(RescaleOutcome.CANCELLED,))),
    ]
    for number, (seconds, moved) in enumerate(steps, start=1):
        meter.observe(StepDone(number, 1, 1, seconds, {}, moved=moved))
    found = parsed(meter.collect(Little().status()))
    names = ("bins", "keys", "bytes", "rounds", "steps", "released_workers")
    counted = [one(found, f"rescale_{name}_total") for name in names]
    assert counted == [6, 40, 400, 3, 6, 2]
    assert one(found, "rescale_longest_step_seconds") == 0.4
    by_outcome = {o: one(found, "rescales_total", outcome=o) for o in RescaleOutcome}
    assert by_outcome == {
        RescaleOutcome.SETTLED: 1,
        RescaleOutcome.CANCELLED: 1,
        RescaleOutcome.REPLACED: 1,
        RescaleOutcome.ROLLED_BACK: 0,
        RescaleOutcome.REOPENED: 0,
    }
    assert one(found, "rescale_under_way") == 0


def test_a_rescale_over_http(site: Site, little: Little) -> None:
    until(lambda: site.get("/status").json()["step"] > BINS)
    before = parsed(site.get("/metrics").body)
    assert one(before, "rescale_bins_total") == one(before, "rescale_under_way") == 0
    little.pace = 0.5
    site.post("/scale", {"workers": 4})
    until(lambda: one(parsed(site.get("/metrics").body), "rescale_rounds_total") >= 1)
    site.post("/scale/pause")
    during = parsed(site.get("/metrics").body)
    assert one(during, "rescale_under_way") == 1
    assert one(during, "rescale_left_bins") + one(during, "rescale_bins_total") <= 4
    site.post("/scale/resume")
    until(lambda: site.get("/scale").json()["rescale"] is None)
    until(lambda: one(parsed(site.get("/metrics").body), "rescales_total", outcome="settled") == 1)
    (history,) = site.get("/scale").json()["history"]
    after = parsed(site.get("/metrics").body)
    moved = history["moved"]
    assert one(after, "rescale_bins_total") == moved["bins"] == 4
    assert one(after, "rescale_keys_total") == moved["keys"] > 0
    assert one(after, "rescale_rounds_total") == 4  # one bin a step
    assert one(after, "rescale_longest_step_seconds") == moved["longest_seconds"] == 0.5
    assert one(after, "rescale_under_way") == 0
    workers = {dict(labels)["worker"] for name, labels in after if name == "anabranch_state_keys"}
    assert workers == {"0", "1", "2", "3"}


def test_two_meters_do_not_mix() -> None:
    first, second = Meter(), Meter()
    first.observe(StepDone(1, 1, 1, 0.1, {}))
    assert one(parsed(second.collect(Little().status())), "steps_total") == 0


def test_metrics_over_http(site: Site, little: Little) -> None:
    until(lambda: site.get("/status").json()["step"] > 3)
    site.post("/pause")
    step = little.step
    first = int(site.get("/stats").json()["recent"][0]["step"])
    until(lambda: one(parsed(site.get("/metrics").body), "steps_total") == step - first + 1)
    reply = site.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert one(parsed(reply.body), "step") == step
    assert one(parsed(reply.body), "step_rows_total") == sum(
        10 * number for number in range(first, step + 1)
    )
