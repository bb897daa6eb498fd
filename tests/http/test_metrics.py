"""Metrics, parsed back and compared with what the pipeline did."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.status import CheckpointStatus, Phase
from anabranch.http.metrics import Meter
from tests.http.little import Little
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
    assert one(found, "sink_published_step", sink="out") == 5
    assert one(found, "triggers_total", trigger="rows") == 5
    assert one(found, "checkpoints") == 2
    assert one(found, "checkpoint_step") == 4
    assert one(found, "checkpoint_clock") == 4
    assert one(found, "checkpoint_bytes") == 64
    assert one(found, "checkpoint_seconds") == 0.25


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
