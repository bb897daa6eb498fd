from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.rescale_requests import Scale
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.records.worker_load import BinLoad
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.controller import Rescale, after_commit, plan_step
from anabranch.rescale.costs import CostModel, Prefetched
from anabranch.rescale.forecast import forecast
from anabranch.rescale.loads import Loads, RegionLoad
from anabranch.rescale.migration import Reports
from anabranch.rescale.moves import Move, moves_between
from anabranch.rescale.phases import Moving, Steady
from anabranch.rescale.rounds import (
    Budget,
    MovePolicy,
    Purse,
    RescaleSettings,
    budget_for,
    next_pace,
    rounds,
    scale_budget,
    usual_seconds,
)
from tests.rescale.placed import REGION, all_told, loads, placed

COSTS = CostModel(bytes_per_second=1000.0, seconds_per_bin=0.01)


def moves(*sizes: int) -> tuple[Move, ...]:
    return tuple(Move("r", number, 0, 1, size, size) for number, size in enumerate(sizes))


def sizes(cut: tuple[tuple[Move, ...], ...]) -> list[list[int]]:
    return [[move.bytes for move in taken] for taken in cut]


@given(
    st.lists(st.integers(0, 100), max_size=12),
    st.none() | st.integers(0, 150),
    st.none() | st.floats(0, 0.2),
    st.none() | st.integers(1, 3),
)
def test_a_budget_is_never_exceeded_by_more_than_one_bin(
    given: list[int], size: int | None, seconds: float | None, bins: int | None
) -> None:
    every = moves(*given)
    cut = rounds(every, Budget(size, seconds, bins), COSTS)
    assert tuple(move for taken in cut for move in taken) == every, "all, once, in their order"
    for taken in cut:
        paid = [move for move in taken if not move.is_empty]
        if bins is not None:
            assert len(paid) <= bins
        if len(paid) > 1:
            assert size is None or sum(move.bytes for move in paid) <= size
            spent = sum(COSTS.seconds(move.bytes) for move in paid)
            assert seconds is None or spent <= seconds * 1.000001


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=10),
    st.integers(0, 150),
    st.lists(st.sampled_from(["all", "none"]), max_size=40),
    st.booleans(),
)
def test_no_step_of_a_rescale_exceeds_the_budget_by_more_than_one_bin(
    given: list[int], size: int, told: list[str], prefetch: bool
) -> None:
    known, placement = loads(given), placed(*[0] * len(given))
    asked = RescaleSettings(
        budget_bytes=size, budget_ms=1e9, prefetch=prefetch, answer_steps=0, prefetch_steps=2
    )
    rescale = apply_request(Rescale(), Scale(3), placement)
    for say in [*told, *["all"] * 60]:
        moves = plan_step(rescale, placement, known, (), asked)
        ready = rescale.phase.migration.ready if isinstance(rescale.phase, Moving) else ()
        paid = [move.bytes for move in moves.prefetch if not move.is_empty]
        paid += [0 if m.end in ready else m.bytes for m in moves.collect if not m.is_empty]
        assert sum(paid) <= size or sum(paid) - max(paid) <= size
        rescale = after_commit(rescale, moves, all_told(moves) if say == "all" else Reports())
        placement = moves.placement
    assert isinstance(rescale.phase, Steady)


IN_PLACE = RescaleSettings(answer_steps=0, prefetch=False)


def rescaled(
    known: Loads, asked: RescaleSettings, moving_seconds: float = 0.0
) -> list[tuple[Move, ...]]:
    """What the steps of a rescale from one worker to three hand over, with steps of 0.3 s.

    ``moving_seconds`` is what it takes to take over a bin.
    """
    placement = placed(*[0] * len(known.of(REGION).bins))
    rescale, found = apply_request(Rescale(), Scale(3), placement), []
    while not isinstance(rescale.phase, Steady):
        moves = plan_step(rescale, placement, known, [0.3], asked)
        found.append(moves.collect)
        spent = Counter(move.to_worker for move in moves.acquire)
        cost = max(spent.values(), default=0) * moving_seconds
        rescale = after_commit(rescale, moves, Reports(0.3, moving_seconds=cost))
        placement = moves.placement
    return found


def test_where_nothing_is_copied_bytes_take_no_time() -> None:
    """By the rate of copying, 5 GB would take thousands of such steps."""
    handed = rescaled(loads([20_000_000] * 256), IN_PLACE)
    assert sum(len(each) for each in handed) == 170
    assert len(handed) <= 5


def test_where_nothing_is_copied_a_budget_of_bytes_bounds_what_is_handed_over() -> None:
    asked = msgspec.structs.replace(IN_PLACE, budget_bytes=250)
    handed = [len(each) for each in rescaled(loads([100] * 12), asked) if each]
    assert handed == [2, 2, 2, 2]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300), st.floats(0, 1))
def test_where_nothing_is_copied_rounds_are_bounded_by_bins_and_time(
    sizes: list[int], usual: float
) -> None:
    """A new owner gets no more bins than a millisecond for each allows, and one more."""
    known, placement = loads(sizes), placed(*[0] * len(sizes))
    rescale = apply_request(Rescale(), Scale(3), placement)
    moves = plan_step(rescale, placement, known, [usual], IN_PLACE)
    got = Counter(move.to_worker for move in moves.collect)
    assert all(0.001 * (count - 1) <= 0.25 * usual for count in got.values())


@pytest.mark.parametrize(("cost", "faster"), [(0.0, True), (0.01, False)])
def test_rounds_follow_what_taking_over_has_cost(cost: float, faster: bool) -> None:
    """Of 30 bins a round is estimated to be right: they turn out to cost nothing, or too much."""
    asked = msgspec.structs.replace(IN_PLACE, budget_ms=30.5)
    handed = [
        max(Counter(m.to_worker for m in each).values())
        for each in rescaled(loads([1] * 600), asked, cost)
        if each
    ]
    assert handed[0] == 30
    assert handed[1] == 30, "what it cost to take over the first round is known after the next"
    if faster:
        assert handed[2] > 30
    else:
        assert handed[2] < 30


def test_the_three_ways_are_budgets_of_one_planner() -> None:
    every = moves(10, 20, 30)
    for policy, expected in (
        (MovePolicy.ALL_AT_ONCE, [[10, 20, 30]]),
        (MovePolicy.FLUID, [[10], [20], [30]]),
        (MovePolicy.BATCHED, [[10, 20], [30]]),
    ):
        budget = budget_for(RescaleSettings(policy, budget_bytes=35), usual=100.0)
        assert sizes(rounds(every, budget, COSTS)) == expected


def test_a_step_may_take_a_quarter_longer() -> None:
    assert budget_for(RescaleSettings(), usual_seconds([0.4, 9.0, 0.2])).seconds == 0.1
    assert budget_for(RescaleSettings(budget_ms=30), 9.0).seconds == 0.03


def test_a_bin_larger_than_the_budget_goes_alone() -> None:
    budget = Budget(bytes=50)
    assert sizes(rounds(moves(10, 200_000_000, 20, 20), budget, COSTS)) == [
        [10],
        [200_000_000],
        [20, 20],
    ]


def test_bins_that_hold_nothing_are_free() -> None:
    assert sizes(rounds(moves(0, 0, 5, 0, 5), Budget(bins=1), COSTS)) == [[0, 0, 5, 0], [5]]


def test_sources_go_first_then_hot_bins_of_all_regions() -> None:
    placement = (
        Assignment("a", 1, (0, 0)),
        Assignment("b", 1, (0, 0)),
        Assignment("source", 1, (0, 0)),
    )
    known = Loads(
        (
            RegionLoad("a", (BinLoad(1, 1, 0, 0.1), BinLoad(1, 1, 0, 0.3))),
            RegionLoad("b", (BinLoad(1, 1, 0, 0.2), BinLoad(1, 1, 0, 0.4))),
            RegionLoad("source", (BinLoad(), BinLoad(1, 0, 0, 0.01)), source=True),
        )
    )
    target = tuple(Shares(each.region, (1, 1)) for each in placement)
    order = [(move.region, move.bin) for move in moves_between(placement, target, known)]
    assert order[:2] == [("source", 1), ("source", 0)]
    assert order[2:] == [("b", 1), ("a", 1), ("b", 0), ("a", 0)]


def test_a_bin_that_the_target_does_not_know_stays() -> None:
    found = moves_between(placed(0, 0, 0), (Shares(REGION, (1, 0)),), Loads())
    assert [move.bin for move in found] == [0]
    assert moves_between(placed(0), (), Loads()) == ()


def test_the_rate_of_copying_is_learnt() -> None:
    model = CostModel().learn_from([Prefetched("r", 0, 1, 100_000_000, 1.0)])
    assert model.bytes_per_second == 1e8, "before that it was a guess"
    for _ in range(60):
        model = model.learn_from([Prefetched("r", 0, 1, 5_000_000, 1.0)])
    assert model.seconds(10_000_000) == pytest.approx(2.0, rel=0.01)
    assert model.learn_from([Prefetched("r", 0, 1, 10, 1.0)]) == model, "tiny copies say nothing"
    assert model.learn_from([Prefetched("r", 0, 1, 0, 0.0)]) == model


@given(st.floats(0.0, 0.04), st.floats(2e7, 1e9))
def test_rounds_come_to_what_they_may_cost(fixed: float, rate: float) -> None:
    """A round costs something whatever is copied, and that is learnt from rounds alone.

    None is far above what it may cost, and after some they are not far below it either.
    """
    model, pace, size, allowed, costs = CostModel(), 1.0, 160_000, 0.05, []
    todo = [Move(REGION, bin, 0, 1, 1, size) for bin in range(10_000)]
    for _ in range(40):
        taken = Purse(scale_budget(Budget(seconds=allowed), pace), model).take(todo, copies=True)
        costs.append(fixed + len(taken) * size / rate)
        share = costs[-1] / len(taken)
        model = model.learn_from(Prefetched(*move.end, size, share) for move in taken)
        pace = next_pace(pace, costs[-1], allowed)
    assert max(costs) <= 3 * allowed
    assert sum(costs[20:]) / 20 >= 0.6 * allowed


def test_new_owners_copy_beside_each_other() -> None:
    todo = [Move(REGION, bin, 0, 1 + bin % 4, 1, 0) for bin in range(100)]
    purse = Purse(Budget(seconds=0.055), CostModel(seconds_per_bin=0.01))
    assert len(purse.take(todo, copies=True)) == 20


def test_a_forecast_says_what_will_be_moved() -> None:
    known = loads([100] * 8)
    found = forecast(
        Scale(2), placed(*[0] * 8), known, [0.4], RescaleSettings(budget_bytes=250), CostModel()
    )
    assert (found.bins, found.keys, found.bytes) == (4, 400, 400)
    assert found.steps == 1 + 2 + 2, "one to ask, two rounds, one to copy ahead, one to arrive"
    assert found.seconds == pytest.approx(5 * 0.4, rel=0.01)
    assert found.longest_round_bytes == 200
    assert found.workers == (0, 1)


def test_a_forecast_counts_no_copying_where_nothing_is_copied() -> None:
    known, recent = loads([50_000_000] * 100), [0.3]
    found = forecast(Scale(2), placed(*[0] * 100), known, recent, IN_PLACE, CostModel())
    assert found.bytes == found.longest_round_bytes == 50 * 50_000_000
    assert found.steps == 1 + 1 + 1, "one to ask, one round, one to arrive"
    assert found.seconds == pytest.approx(3 * 0.3 + 50 * 0.001)


def test_a_forecast_of_nothing() -> None:
    found = forecast(Scale(1), placed(0, 0), loads([9, 9]), [], RescaleSettings(), CostModel())
    assert (found.bins, found.bytes, found.steps, found.seconds) == (0, 0, 0, 0.0)
