"""What a coordinator knows of loads: rows and seconds of recent steps, keys and bytes as they are.

The machine is the real one; its steps are steady ones, each with what its workers report.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.coordinator.events import CommitWritten, InputTaken, PlanWritten, ResultFetched
from anabranch.coordinator.rescaling import forecast_of
from anabranch.protocol.node import Done, Open
from anabranch.protocol.rescale_requests import Rebalance, Scale, TargetRequest
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.run_list import Listed, RunInfo
from anabranch.records.worker_load import BinLoad, WorkerLoad
from anabranch.rescale.forecast import Forecast
from anabranch.rescale.loads import Loads
from tests.coordinator.bench import SHAPE, Bench, commit, journal, plan, read, result

HOT, COLD = 90.0, 10.0


class Measured:
    """A pipeline of four bins, two on each of its workers, of which every step says what it did."""

    def __init__(self) -> None:
        self.bench, self.number = Bench(), 0
        self.bench.open(journal(0))

    def step(self, rows: Sequence[float], keys: int = 1) -> None:
        """A step with so many rows for each bin, after which each has so many keys and bytes."""
        self.number += 1
        number, bench, before = self.number, self.bench, {"published": {"out": self.number - 1}}
        bench.report(Open(number - 1), offer=bench.offer(number), **before)
        bench.send(InputTaken(number, read(number)))
        bench.send(PlanWritten(plan(number)))
        bench.report(Open(number), done=Done(number, 0), **before)
        run = Listed(RunInfo("r", "total", 1, 4 * keys, "00"), BinSet.every(4))
        states = (OperatorState(SHAPE, (run,), (keys,) * 4),)
        told = tuple(
            WorkerLoad("by-name", worker, 1, bins, tuple(BinLoad(rows=rows[b]) for b in bins))
            for worker, bins in enumerate(((0, 1), (2, 3)))
        )
        bench.send(ResultFetched(result(number, states=states, loads=told)))
        bench.send(CommitWritten(commit(number, states=states), ours=True))

    def steps(self, count: int, hot: int) -> None:
        """Steps in which one bin has most of the rows."""
        for _ in range(count):
            self.step([HOT if number == hot else COLD for number in range(4)])

    def forecast(self, request: TargetRequest) -> Forecast:
        return forecast_of(self.bench.machine.memory, request)

    def measured(self) -> Loads:
        return self.bench.machine.memory.moving.measured

    def rebalanced(self) -> tuple[int, ...]:
        return self.forecast(Rebalance()).target[0].workers


def test_a_load_that_has_jumped_is_balanced_when_it_is_asked_for_again() -> None:
    pipeline = Measured()
    pipeline.steps(20, hot=0)
    assert pipeline.rebalanced() == (0, 1, 1, 1)
    pipeline.steps(20, hot=2)
    assert pipeline.rebalanced() == (0, 0, 1, 0), "the bin that was hot is not any more"


def test_one_odd_step_does_not_make_the_load() -> None:
    pipeline = Measured()
    pipeline.steps(20, hot=0)
    pipeline.steps(1, hot=2)
    assert pipeline.rebalanced() == (0, 1, 1, 1)


def test_a_step_without_rows_says_nothing_of_the_load() -> None:
    """A request between two batches makes such a step, at once."""
    pipeline = Measured()
    pipeline.steps(3, hot=2)
    before = pipeline.measured()
    for _ in range(3):
        pipeline.step([0.0] * 4)
    assert pipeline.measured() == before
    assert pipeline.rebalanced() == (0, 0, 1, 0)


def test_keys_and_bytes_are_those_of_the_last_commit() -> None:
    pipeline = Measured()
    for keys in (1, 10_000, 500):
        pipeline.step([1.0] * 4, keys)
        found = pipeline.forecast(Scale(1))
        assert (found.keys, found.bytes) == (2 * keys, 2 * keys)
