"""Targets against brute force: every assignment of small cases is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import OperationRefused
from anabranch.protocol.rescale_requests import Assign, Balance, Rebalance, Scale, TargetRequest
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares, members
from anabranch.records.worker_load import BinLoad
from anabranch.rescale import by_load as by_load_module
from anabranch.rescale import membership
from anabranch.rescale.by_load import by_load, load_limit
from anabranch.rescale.loads import Loads, RegionLoad, weights
from anabranch.rescale.membership import KeptByCount, bins_worth, choose_members
from anabranch.rescale.targets import check_request, target_for
from tests.rescale.placed import REGION, loads, moved_bytes, placed

SIZES = st.integers(0, 50)


@st.composite
def small_regions(draw: st.DrawFn, most: int = 6) -> tuple[tuple[int, ...], list[int], list[float]]:
    bins = draw(st.integers(1, most))
    owners = draw(st.tuples(*[st.integers(0, 3)] * bins))
    size = draw(st.lists(SIZES, min_size=bins, max_size=bins))
    heat = draw(st.lists(st.integers(0, 20).map(float), min_size=bins, max_size=bins))
    return owners, size, heat


def equal_by_count(bins: int, workers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every assignment whose numbers of bins differ by one at most."""
    for owners in product(workers, repeat=bins):
        have = Counter(owners)
        counts = [have[worker] for worker in workers]
        if max(counts) - min(counts) <= 1:
            yield owners


def cost(before: Sequence[int], after: Sequence[int], size: Sequence[int]) -> int:
    return sum(s for s, a, b in zip(size, before, after, strict=True) if a != b)


@given(small_regions(5), st.integers(1, 5))
def test_moved_bytes_are_minimal_when_balancing_by_bin_count(
    region: tuple[tuple[int, ...], list[int], list[float]], count: int
) -> None:
    owners, size, heat = region
    known, placement = loads(size, heat), placed(*owners)
    target = target_for(Scale(count), placement, known)
    share = target[0].workers
    have = Counter(share)
    assert len(have) == min(count, len(owners))
    assert max(have.values()) - min(have.values()) <= 1 or len(owners) < count
    # Whoever owns bins or is new may be a worker: the best set of them, and the best shares.
    every = sorted(set(owners) | set(range(5)))
    best = min(
        cost(owners, other, size)
        for workers in combinations(every, count)
        for other in equal_by_count(len(owners), workers)
    )
    assert moved_bytes(placement, target, known) == best


@given(small_regions(), st.integers(1, 5), st.sampled_from(Balance))
def test_a_target_that_is_reached_stays(
    region: tuple[tuple[int, ...], list[int], list[float]], count: int, by: Balance
) -> None:
    owners, size, heat = region
    known = loads(size, heat)
    request = Scale(count, by=by)
    once = target_for(request, placed(*owners), known)
    assert target_for(request, placed(*once[0].workers), known) == once
    if by is Balance.BINS:
        other = loads(list(reversed(size)), list(reversed(heat)))
        assert target_for(request, placed(*once[0].workers), other) == once, (
            "other loads, same counts"
        )
    again = target_for(Rebalance(by=by), placed(*once[0].workers), known)
    assert again == once


def hot_bins(weight: Sequence[float], workers: int) -> tuple[set[int], float]:
    """The bins that no worker can have and be near the average, and the average of the others."""
    hot: set[int] = set()
    while True:
        left = {number: w for number, w in enumerate(weight) if number not in hot}
        average = sum(left.values()) / (workers - len(hot))
        hotter = [number for number, w in left.items() if w > 1.1 * average]
        if not hotter:
            return hot, average
        hot.add(max(hotter, key=lambda each: (weight[each], -each)))


class Balanced:
    """Hot bins alone, the others within their limit, and a bin for everybody while there are any.

    Bins without load may be anywhere.
    """

    def __init__(self, weight: Sequence[float], workers: Sequence[int]) -> None:
        self.weight, self.need = weight, min(len(workers), len(weight))
        self.hot, _ = hot_bins(weight, self.need)
        self.limit = load_limit(weight, self.need) * (1 + 1e-6)

    def __call__(self, shares: Sequence[int]) -> bool:
        busy: dict[int, float] = dict.fromkeys(shares, 0.0)
        for number, worker in enumerate(shares):
            if number not in self.hot:
                busy[worker] += self.weight[number]
        apart = {shares[number] for number in self.hot}
        return (
            len(apart) == len(self.hot)
            and not any(busy[worker] for worker in apart)
            and max(busy.values()) <= self.limit
            and len(busy) == self.need
        )


def best_by_load(
    owners: Sequence[int], size: Sequence[int], weight: Sequence[float], workers: Sequence[int]
) -> int:
    balanced = Balanced(weight, workers)
    every = product(workers, repeat=len(owners))
    return min(cost(owners, other, size) for other in every if balanced(other))


@given(small_regions(6), st.integers(1, 4))
def test_moved_bytes_are_near_the_best_when_balancing_by_load(
    region: tuple[tuple[int, ...], list[int], list[float]], count: int
) -> None:
    owners, size, heat = region
    known, placement = loads(size, heat), placed(*owners)
    target = target_for(Scale(count, by=Balance.LOAD), placement, known)
    weight = weights(known.of(REGION), len(owners))
    chosen = choose_members(
        sorted(set(owners)), count, [KeptByCount(owners, bins_worth(size), count)], range(9)
    )
    assert set(members(target)) <= set(chosen)
    assert Balanced(weight, chosen)(target[0].workers)
    best = best_by_load(owners, size, weight, chosen)
    assert moved_bytes(placement, target, known) <= 1.2 * best


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 10.0, 300.0]), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_hot_bins_stand_alone_also_among_many(weight: list[float], before: int, count: int) -> None:
    owners = tuple(number % before for number in range(len(weight)))
    found = by_load(owners, [1] * len(weight), weight, range(count))
    assert Balanced(weight, range(count))(found)
    assert by_load(found, [1] * len(weight), weight, range(count)) == found


@given(st.lists(st.integers(0, 20).map(float), min_size=1, max_size=12), st.integers(1, 6))
def test_the_limit_is_a_tenth_above_the_average_of_what_is_not_hot_if_that_can_be_reached(
    weight: list[float], workers: int
) -> None:
    hot, average = hot_bins(weight, workers)
    left = [w for number, w in enumerate(weight) if number not in hot]
    limit = load_limit(weight, workers)
    assert limit >= 1.1 * average or limit == pytest.approx(1.1 * average)
    assert limit <= max(1.1 * average, average + max(left, default=0.0)) * 1.000001


def pseudo_random(seed: int) -> Iterator[int]:
    """Numbers below 1,000 that look random and are always the same."""
    state = seed
    while True:
        state = (state * 1103515245 + 12345) % (1 << 31)
        yield (state >> 12) % 1000


def test_the_choice_for_many_bins_is_near_the_best_on_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way that many bins take, tried where brute force can judge it."""
    monkeypatch.setattr(by_load_module, "EXACT_BINS", 0)
    ours = theirs = 0
    for seed in range(150):
        numbers = pseudo_random(seed)
        owners = tuple(next(numbers) % 3 for _ in range(8))
        size = [next(numbers) for _ in owners]
        weight = [1.0 + next(numbers) for _ in owners]
        found = by_load(owners, size, weight, (0, 1, 2))
        ours += cost(owners, found, size)
        theirs += best_by_load(owners, size, weight, (0, 1, 2))
    print(f"moved {ours} bytes, {ours / theirs:.2f} of the best")
    assert ours <= 1.35 * theirs


@pytest.mark.parametrize("seed", range(8))
def test_many_bins_are_balanced_by_load(seed: int) -> None:
    numbers = pseudo_random(seed)
    owners = tuple(number * 2 // 256 for number in range(256))
    size = [next(numbers) for _ in owners]
    weight = [1.0 + next(numbers) for _ in owners]
    found = by_load(owners, size, weight, (0, 1, 2, 3))
    assert Balanced(weight, range(4))(found)
    assert load_limit(weight, 4) == pytest.approx(1.1 * sum(weight) / 4), "no bin is hot"
    # Two workers have all, so half of the load must go, less the tolerance: the bytes of that part,
    # if bytes and load have nothing to do with each other, are at most half of all bytes.
    assert cost(owners, found, size) <= 0.5 * sum(size)


@given(st.lists(st.tuples(st.integers(0, 7), SIZES), min_size=8, max_size=8), st.integers(1, 6))
def test_the_greedy_choice_of_workers_is_exact_for_one_region(
    bins: list[tuple[int, int]], count: int
) -> None:
    owners = tuple(owner for owner, _ in bins)
    kept = KeptByCount(owners, bins_worth([size for _, size in bins]), count)
    staying = sorted(set(owners))
    if len(staying) <= count:
        return
    best = max(kept.worth(chosen) for chosen in combinations(staying, count))
    assert kept.worth(membership._greedy(staying, count, kept.worth)) == best


def test_many_workers_are_chosen_without_looking_at_all_sets() -> None:
    owners = tuple(number % 40 for number in range(256))
    size = [100 if number % 40 < 20 else 1 for number in range(256)]
    target = target_for(Scale(20), placed(*owners), loads(size))
    assert members(target) == tuple(range(20))


# -------------------------------------------------------------------------------- what is asked for


def two_regions() -> tuple[Assignment, ...]:
    return (Assignment("a", 1, (0, 1, 2, 3)), Assignment("b", 1, (0, 0, 1, 1, 2, 2, 3, 3)))


def test_regions_with_equal_counts_keep_the_same_workers() -> None:
    known = Loads(
        (
            RegionLoad("a", tuple(BinLoad(1, size) for size in (9, 1, 1, 1))),
            RegionLoad("b", tuple(BinLoad(1, size) for size in (1, 1, 1, 1, 1, 1, 30, 30))),
        )
    )
    target = target_for(Scale(2), two_regions(), known)
    assert members(target) == (0, 3)


def test_a_region_with_fewer_workers_has_some_of_the_others() -> None:
    target = target_for(Scale(3, regions=(("a", 1),)), two_regions(), Loads())
    assert set(members(target[:1])) < set(members(target[1:]))
    assert len(members(target[:1])) == 1
    assert len(members(target)) == 3


def test_only_the_named_region_changes() -> None:
    target = target_for(Scale(regions=(("a", 2),)), two_regions(), Loads())
    assert target[1].workers == two_regions()[1].workers
    assert len(members(target[:1])) == 2


def test_a_region_grows_into_workers_that_are_there() -> None:
    placement = (Assignment("a", 1, (0, 0)), Assignment("b", 1, (0, 5)))
    target = target_for(Scale(regions=(("a", 2),)), placement, Loads())
    assert members(target[:1]) == (0, 5)


def test_a_region_grows_beyond_the_workers_that_are_there() -> None:
    placement = (Assignment("a", 1, (0, 0, 0, 0)), Assignment("b", 1, (0, 1)))
    target = target_for(Scale(regions=(("a", 3),)), placement, Loads())
    assert members(target[:1]) == (0, 1, 2)


def test_named_workers_are_removed() -> None:
    target = target_for(Scale(remove=(1,)), two_regions(), Loads())
    assert members(target) == (0, 2, 3)
    target = target_for(Scale(4, remove=(1,)), two_regions(), Loads())
    assert members(target) == (0, 2, 3, 4), "a removed worker's number is not taken again"


def test_a_removed_worker_that_has_everything_by_now_is_replaced() -> None:
    """It was asked for while the last bins of the others were on their way to it."""
    target = target_for(Scale(remove=(1,)), placed(1, 1, 1, 1), Loads())
    assert members(target) == (0,)


def test_down_to_one() -> None:
    target = target_for(Scale(1), two_regions(), Loads())
    assert len(members(target)) == 1


def test_more_workers_than_bins() -> None:
    target = target_for(Scale(9), placed(0, 0, 1, 1), loads([1, 1, 1, 1]))
    assert len(members(target)) == 4


def test_more_workers_than_keys() -> None:
    """One key holds everything; the other bins are free to move and its bin stays."""
    size = [0, 0, 500, 0, 0, 0, 0, 0]
    target = target_for(Scale(8), placed(*[0] * 8), loads(size))
    assert len(members(target)) == 8
    assert target[0].workers[2] == 0


def test_a_region_without_state_is_shared_equally() -> None:
    target = target_for(Scale(2), placed(*[0] * 8), Loads())
    assert Counter(target[0].workers) == {0: 4, 1: 4}


def test_a_giant_bin_stays_and_the_others_leave_it() -> None:
    known = loads([200_000_000, 10, 10, 10], [1.0, 1.0, 1.0, 1.0])
    target = target_for(Rebalance(), placed(0, 0, 0, 1), known)
    assert target[0].workers[0] == 0
    assert Counter(target[0].workers) == {0: 2, 1: 2}


def test_a_hot_bin_is_left_alone_with_its_worker() -> None:
    known = loads([10, 10, 10, 10], [9.0, 1.0, 1.0, 1.0])
    target = target_for(Rebalance(), placed(0, 0, 1, 1), known)
    assert target[0].workers == (0, 1, 1, 1)


def test_a_bin_that_has_most_of_the_load_does_not_keep_the_others_together() -> None:
    known = loads([10, 10, 10, 10], [10.0, 0.5, 0.5, 0.5])
    target = target_for(Scale(4, by=Balance.LOAD), placed(0, 0, 1, 1), known)
    assert members(target) == (0, 1, 2, 3)
    assert moved_bytes(placed(0, 0, 1, 1), target, known) == 20, "one bin of each worker leaves it"
    again = target_for(Rebalance(), placed(*target[0].workers), known)
    assert again == target


def test_a_small_hot_bin_leaves_the_large_cold_ones() -> None:
    known = loads([1, 500, 500, 10], [9.0, 1.0, 1.0, 1.0])
    target = target_for(Scale(2, by=Balance.LOAD), placed(0, 0, 0, 1), known)
    assert target[0].workers == (1, 0, 0, 0)


def test_bins_without_load_stay_beside_a_hot_one() -> None:
    known = loads([10, 500, 10, 10], [9.0, 0.0, 1.0, 1.0])
    target = target_for(Rebalance(), placed(0, 0, 0, 1), known)
    assert target[0].workers == (0, 0, 1, 1)


def test_as_many_workers_as_were_asked_for_have_bins_also_without_load() -> None:
    known = loads([10] * 6, [9.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    target = target_for(Scale(4, by=Balance.LOAD), placed(*[0] * 6), known)
    assert members(target) == (0, 1, 2, 3)
    assert cost([0] * 6, target[0].workers, [1] * 6) == 3, "a bin for each that joins"


def test_partitions_of_a_source_are_shared_by_the_same_code() -> None:
    known = loads([0, 0, 0, 0], region="source orders", source=True)
    placement = placed(0, 0, 0, 0, region="source orders")
    assert Counter(target_for(Scale(2), placement, known)[0].workers) == {0: 2, 1: 2}


def test_a_source_without_partitions_has_nothing_to_share() -> None:
    placement = (Assignment("files", 1, ()), Assignment("a", 1, (0, 0)))
    target = target_for(Scale(2), placement, Loads())
    assert target[0] == Shares("files", ())
    assert len(members(target)) == 2


def test_exactly_these_shares() -> None:
    target = target_for(Assign((Shares("a", (3, 3, 3)),)), two_regions(), Loads())
    assert target[0].workers == (3, 3, 3, 3)
    assert target[1].workers == two_regions()[1].workers


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Scale(0), "at least one worker"),
        (Scale(regions=(("a", 0),)), "at least one worker"),
        (Scale(), "neither"),
        (Scale(regions=(("x", 2),)), "no region 'x'"),
        (Scale(remove=(9,)), "no worker 9"),
        (Scale(remove=(0, 1, 2, 3)), "without a worker"),
        (Rebalance(("x",)), "no region 'x'"),
        (Assign((Shares("x", (0,)),)), "no region 'x'"),
        (Assign((Shares("a", (0,) * 5),)), "has 4 bins"),
        (Assign((Shares("a", (-1,)),)), "cannot be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: TargetRequest, why: str) -> None:
    with pytest.raises(OperationRefused, match=why):
        check_request(asked, two_regions())
