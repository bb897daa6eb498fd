from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.records.bins import BinSet
from anabranch.records.placed import Assignment, OperatorShape, OperatorState
from anabranch.records.run_list import BlobInfo, Listed, RunInfo
from anabranch.records.worker_load import BinLoad, WorkerLoad
from anabranch.rescale.loads import (
    SMOOTHING,
    Loads,
    RegionLoad,
    combine_loads,
    from_states,
    update_loads,
    weights,
)

PLACEMENT = (Assignment("a", 1, (0, 0, 1, 1)), Assignment("b", 1, (0, 1)))


def state(
    operator: str, region: str, live: tuple[int, ...], *runs: tuple[int, set[int]]
) -> OperatorState:
    listed = tuple(
        Listed(RunInfo(f"{operator}-{place}", operator, 1, size, "00"), BinSet.of(bins))
        for place, (size, bins) in enumerate(runs)
    )
    return OperatorState(OperatorShape(operator, "value", region, "k int", "v int"), listed, live)


def test_keys_of_all_operators_of_a_region_are_added() -> None:
    states = (
        state("x", "a", (1, 2, 3, 4)),
        state("y", "a", (10, 0, 0, 0)),
        state("z", "b", (5, 6)),
    )
    known = from_states((PLACEMENT[0], replace(PLACEMENT[1], source=True)), states)
    assert [load.keys for load in known.of("a").bins] == [11, 2, 3, 4]
    assert [load.keys for load in known.of("b").bins] == [5, 6]
    assert (known.of("a").source, known.of("b").source) == (False, True)


def test_bytes_are_spread_by_live_keys_and_none_are_lost() -> None:
    states = (state("x", "a", (1, 3, 0, 0), (101, {0, 1}), (10, {2, 3})),)
    bins = from_states(PLACEMENT, states).of("a").bins
    assert [load.bytes for load in bins] == [25, 76, 5, 5]


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 10_000))
def test_the_bytes_of_a_run_are_those_of_its_bins(live: list[int], size: int) -> None:
    states = (state("x", "a", tuple(live), (size, {0, 2, 3})),)
    bins = from_states(PLACEMENT, states).of("a").bins
    assert sum(load.bytes for load in bins) == size
    assert bins[1].bytes == 0


def test_the_bytes_of_a_blob_are_its_bins() -> None:
    run = RunInfo("r", "x", 1, 0, "00", blobs=(BlobInfo("r.0", 900, "00", 2),))
    shape = OperatorShape("x", "value", "a", "k int", "v binary")
    states = (OperatorState(shape, (Listed(run, BinSet.of([1, 2])),), (0, 1, 1, 0)),)
    assert [load.bytes for load in from_states(PLACEMENT, states).of("a").bins] == [0, 0, 900, 0]


def answer(worker: int, loads: dict[int, BinLoad], region: str = "a") -> WorkerLoad:
    return WorkerLoad(region, worker, 1, tuple(loads), tuple(loads.values()))


def test_rows_and_seconds_are_smoothed_and_keys_are_the_newest() -> None:
    known = update_loads(Loads(), [answer(0, {1: BinLoad(5, 0, 100.0, 1.0)})])
    assert known.of("a").bin(1) == BinLoad(5, 0, 100.0, 1.0), "the first answer counts whole"
    known = update_loads(known, [answer(0, {0: BinLoad(rows=1.0), 1: BinLoad(7, 0, 0.0, 0.0)})])
    assert known.of("a").bin(1) == BinLoad(7, 0, 100 * (1 - SMOOTHING), 1 - SMOOTHING)
    for _ in range(100):
        known = update_loads(known, [answer(0, {1: BinLoad(7, 0, 8.0, 0.5)})])
    assert known.of("a").bin(1).rows == pytest.approx(8.0)
    assert known.of("a").bin(1).seconds == pytest.approx(0.5)


def test_a_region_without_rows_in_a_step_stays_as_it_is() -> None:
    known = update_loads(Loads(), [answer(0, {1: BinLoad(0, 0, 100.0, 1.0)})])
    other = answer(0, {0: BinLoad(rows=5.0)}, "b")
    after = update_loads(known, [answer(0, {1: BinLoad()}), other])
    assert after.of("a") == known.of("a")
    assert after.of("b").bin(0).rows == 5.0


def test_answers_count_in_any_order() -> None:
    given = [
        answer(0, {0: BinLoad(1, 1, 1.0, 1.0)}),
        answer(1, {3: BinLoad(2, 2, 2.0, 2.0)}),
        answer(1, {1: BinLoad(3, 3, 3.0, 3.0)}, "b"),
    ]
    start = update_loads(Loads(), [answer(0, {0: BinLoad(9, 9, 9.0, 9.0)})])
    assert len({update_loads(start, order) for order in permutations(given)}) == 1


def test_a_bin_that_nobody_reports_stays() -> None:
    known = update_loads(Loads(), [answer(0, {0: BinLoad(1, 0, 1.0, 1.0)})])
    after = update_loads(known, [answer(1, {2: BinLoad(2, rows=1.0)})])
    assert after.of("a").bin(0) == BinLoad(1, 0, 1.0, 1.0)


def test_r1_two_workers_do_not_report_one_bin() -> None:
    with pytest.raises(ValueError, match="R1"):
        update_loads(Loads(), [answer(0, {0: BinLoad()}), answer(1, {0: BinLoad()})])


def test_keys_and_bytes_are_what_a_commit_says_and_registered_keys_come_on_top() -> None:
    measured = update_loads(
        Loads(), [answer(0, {0: BinLoad(3, 0, 1.0, 0.1), 9: BinLoad(rows=2.0)})]
    )
    default = from_states(PLACEMENT, (state("x", "a", (5, 6, 7, 8), (26, {0, 1, 2, 3})),))
    found = combine_loads(measured, default)
    assert found.of("a").bins == (
        BinLoad(8, 5, 1.0, 0.1),
        BinLoad(6, 6),
        BinLoad(7, 7),
        BinLoad(8, 8),
    )
    assert found.of("b") == default.of("b")


def test_partitions_that_came_later_are_reported() -> None:
    known = update_loads(Loads(), [answer(0, {5: BinLoad(rows=3.0)}, "b")])
    assert known.of("b").bin(5).rows == 3
    assert known.of("b").bin(4) == BinLoad()
    assert known.of("nowhere").bin(0) == BinLoad()


def test_load_is_weighed_by_the_best_measure_there_is() -> None:
    bins = (BinLoad(5, 1, 2.0, 0.0), BinLoad(1, 1, 0.0, 0.0))
    assert weights(RegionLoad("a", bins), 2) == (2.0, 0.0)
    assert weights(RegionLoad("a", ()), 3) == (1.0, 1.0, 1.0)
    measured = (*bins[:1], BinLoad(1, 1, 9.0, 0.5))
    assert weights(RegionLoad("a", measured), 2) == (0.0, 0.5)
