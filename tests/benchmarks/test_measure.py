"""The numbers that sum a case up."""

from __future__ import annotations

import pytest

from benchmarks.measure import (
    Batch,
    Outcome,
    measured,
    overall_rate,
    part_medians,
    rates,
    spread,
    stretches,
)


def test_spread_of_twenty_numbers() -> None:
    found = spread([float(number) for number in range(20, 0, -1)])
    assert (found.median, found.low, found.high) == (10.5, 1.0, 20.0)
    assert found.p95 == 19.0  # 19 of 20 are not larger
    assert (found.mean, found.count) == (10.5, 20)


def test_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        spread([])


@pytest.mark.parametrize(
    ("done", "warm", "counted"),
    [(9, 2, 7), (9, 5, 6), (3, 10, 2), (2, 10, 1), (1, 10, 1), (0, 1, 0)],
)
def test_warm_up_is_dropped_but_never_everything(done: int, warm: int, counted: int) -> None:
    batches = tuple(Batch(1, float(number)) for number in range(1, done + 1))
    assert measured(Outcome(batches, 99.0), warm) == batches[done - counted :]


def test_rates_are_per_batch_and_overall_counts_the_end() -> None:
    outcome = Outcome((Batch(100, 50.0), Batch(100, 1.0), Batch(100, 4.0)), 60.0)
    assert rates(measured(outcome, 1)).median == pytest.approx((100.0 + 25.0) / 2)
    # 200 rows in what is left of 60 s after the 50 s of the warm-up: 5 s of batches, 5 s of end.
    assert overall_rate(outcome, 1) == pytest.approx(20.0)


def test_a_part_that_a_batch_lacks_counts_as_nothing() -> None:
    batches = [Batch(1, 1.0, {"a": 1.0}), Batch(1, 1.0, {"a": 3.0, "b": 4.0}), Batch(1, 1.0)]
    assert part_medians(batches) == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize(
    ("told", "joined"),
    [
        ([], []),
        ([Batch(7, 0.1)], [Batch(7, 0.1)]),
        ([Batch(5, 24.0), Batch(5, 0.5)], [Batch(10, 24.5)]),
        (
            [Batch(1, 0.5), Batch(2, 0.25), Batch(3, 0.25), Batch(4, 2.0)],
            [Batch(6, 1.0), Batch(4, 2.0)],
        ),
        (
            [Batch(1, 1.0), Batch(2, 0.5), Batch(0, 0.5), Batch(9, 0.5)],
            [Batch(1, 1.0), Batch(11, 1.5)],
        ),
    ],
)
def test_stretches_that_are_too_short_to_tell_a_rate_are_joined(
    told: list[Batch], joined: list[Batch]
) -> None:
    assert list(stretches(told)) == joined
