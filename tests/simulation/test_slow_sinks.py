"""Three sinks in a simulated cluster: one is slow, one fails for a while, the third keeps up."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.coordinator.status_view import pipeline_status
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import PublishFailed
from anabranch.protocol.sinks import StagedStep
from anabranch.sinks.memory import MemoryPublisher, MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.store.disk import use_disk
from anabranch.task.program import Program
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.faults import CALM
from anabranch.testing.plane.plain_columns import typed_without_spark

STEPS = 12
FAILURES = 4
SLEEP = 5.0
AWAY = 200.0


def three_sinks() -> Dataflow:
    flow = Dataflow("three")
    pages = [[(step,)] for step in range(STEPS)]
    rows = flow.source("rows", ScriptedSource("n bigint", [*pages, EOF]))
    for name in ("a-slow", "b-failing", "c-third"):
        rows.sink(name, MemorySink())
    return flow


@pytest.mark.parametrize("seed", range(20))
def test_the_third_sink_stays_within_two_steps_of_the_last_commit(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(typed_without_spark(three_sinks()), 4)
    cluster = SimulatedCluster(seed, program, tmp_path, weather=CALM)
    publish = MemoryPublisher.publish
    given: dict[str, list[int]] = {name: [] for name in program.sinks}
    lags: list[tuple[int, int]] = []

    def misbehaving(self: MemoryPublisher, staged: StagedStep) -> None:
        name = self.context.sink
        given[name].append(staged.step)
        if name == "a-slow" and cluster.node is not None:
            # As a thread that sleeps: what it publishes with does nothing for a while.
            cluster.node.stuck[f"publish_next {name}"] = cluster.clock.seconds + SLEEP
        if name == "b-failing" and len(given[name]) <= FAILURES:
            raise PublishFailed("away")
        if name == "c-third":
            behind = staged.step - len(given["a-slow"])
            lags.append((cluster.rules.step - staged.step, behind))
        publish(self, staged)

    monkeypatch.setattr(MemoryPublisher, "publish", misbehaving)
    with use_disk(cluster.disk):
        cluster.run()
    every = list(range(1, STEPS + 1))
    assert given == {"a-slow": every, "b-failing": [1] * FAILURES + every, "c-third": every}
    assert max(lag for lag, _ in lags) <= 2
    assert max(behind for _, behind in lags) >= 2, "the slow one was not slow"


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_that_is_away_for_minutes_stops_nothing_and_is_named(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on until backpressure plans no more steps; then it comes back."""
    program = Program(typed_without_spark(three_sinks()), 4)
    cluster = SimulatedCluster(seed, program, tmp_path, weather=CALM)
    publish = MemoryPublisher.publish
    given: dict[str, list[int]] = {name: [] for name in program.sinks}
    away_from: list[float] = []
    #: while it is away: the last commit, what the others have, the most that may wait, and for what
    seen: list[tuple[int, int, int, str]] = []

    def misbehaving(self: MemoryPublisher, staged: StagedStep) -> None:
        name = self.context.sink
        if name == "b-failing":
            away_from.append(cluster.clock.seconds)
            if cluster.clock.seconds < away_from[0] + AWAY:
                memory = cluster.coordinators[-1].machine.memory
                status = pipeline_status(memory, cluster.clock.seconds)
                others = min(len(given["a-slow"]), len(given["c-third"]))
                most = memory.settings.max_unpublished_steps
                seen.append((memory.step, others, min(most, STEPS), status.waiting_for or ""))
                raise PublishFailed("The database is away")
        given[name].append(staged.step)
        publish(self, staged)

    monkeypatch.setattr(MemoryPublisher, "publish", misbehaving)
    with use_disk(cluster.disk):
        cluster.run()
    every = list(range(1, STEPS + 1))
    assert given == {"a-slow": every, "b-failing": every, "c-third": every}
    assert 5 < len(away_from) - STEPS < 40, "it was tried again and again, but ever more rarely"
    committed, others, most, waiting_for = seen[-1]
    assert committed == others == most
    assert "sink 'b-failing' has published up to step 0 and has failed" in waiting_for
    assert "[sink.publish_failed] The database is away" in waiting_for
