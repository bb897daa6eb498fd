"""Stories of requests, crashes and lost reports: every rescale ends, and no row is forgotten."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol.rescale_history import KEPT, RescaleOutcome
from anabranch.protocol.rescale_requests import (
    Balance,
    CancelRescale,
    PauseRescale,
    Rebalance,
    ResumeRescale,
    Scale,
)
from anabranch.records.placed import Assignment
from anabranch.records.shares import members
from anabranch.rescale.apply_request import apply_at_once
from anabranch.rescale.moved_counts import moved_of
from anabranch.rescale.phases import Paused, Steady
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.rescale.pipeline import DEFAULTS, Pipeline, Row, is_scale, without_rescale

REGIONS = {"source": 5, "a": 8, "b": 4}

SETTINGS = st.builds(
    RescaleSettings,
    policy=st.sampled_from(MovePolicy),
    budget_bytes=st.none() | st.integers(0, 100),
    budget_ms=st.none() | st.sampled_from([0.0, 1.0, 5.0]),
    prefetch=st.booleans(),
    answer_steps=st.integers(0, 2),
    prefetch_steps=st.integers(0, 3),
)

EVENTS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(["all", "all", "none", "late"])),
    st.tuples(st.just("step"), st.sampled_from(["all", "all", "none", "late"])),
    st.tuples(st.just("plan"), st.none()),
    st.tuples(st.just("crash"), st.none()),
    st.tuples(
        st.just("ask"),
        st.one_of(
            st.builds(Scale, st.integers(1, 10), by=st.sampled_from(Balance)),
            st.builds(Scale, regions=st.tuples(st.tuples(st.just("a"), st.integers(1, 9)))),
            st.builds(Scale, remove=st.tuples(st.integers(0, 4))),
            st.just(Rebalance()),
            st.just(PauseRescale()),
            st.just(ResumeRescale()),
            st.builds(CancelRescale, st.booleans()),
        ),
    ),
)


def pipeline(policy: RescaleSettings = DEFAULTS, workers: int = 2) -> Pipeline:
    placement = tuple(
        Assignment(region, 1, tuple(number * workers // bins for number in range(bins)))
        for region, bins in REGIONS.items()
    )
    return Pipeline(placement, policy, sources=("source",))


@given(
    SETTINGS,
    st.lists(EVENTS, max_size=25),
    st.lists(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40)), max_size=6)),
)
@settings(max_examples=150)
def test_every_story_ends_at_its_target_and_nothing_is_forgotten(
    policy: RescaleSettings,
    events: list[tuple[str, object]],
    given_rows: list[list[tuple[str, int]]],
) -> None:
    checked = pipeline(policy)
    numbers = count()
    rows: list[Row] = []
    waiting = iter(given_rows)
    for kind, what in events:
        match kind:
            case "step":
                arriving = [(region, key, next(numbers)) for region, key in next(waiting, [])]
                rows += arriving
                checked.step(arriving, str(what))
            case "plan":
                checked.plan()
            case "crash":
                checked.crash()
            case _:
                checked.ask(what)  # type: ignore[arg-type]
    if isinstance(checked.rescale.phase, Paused):
        checked.ask(ResumeRescale())
    checked.finish()
    assert isinstance(checked.rescale.phase, Steady)
    assert checked.result() == without_rescale(rows, REGIONS)
    if is_scale(checked.wanted):
        assert isinstance(checked.wanted, Scale)
        for each in checked.placement:
            wanted = dict(checked.wanted.regions).get(each.region, checked.wanted.workers)
            assert wanted is not None
            assert len(members([each])) == min(wanted, len(each.workers))
    assert set(checked.rescale.workers) <= set(members(checked.placement))
    assert len(checked.rescale.history) <= KEPT
    if len(checked.rescale.history) < KEPT:
        counted = sum(each.moved.bins for each in checked.rescale.history)
        assert counted == len(checked.moved), "every bin counts, whatever was asked meanwhile"


def test_two_four_one_with_new_keys_in_every_step() -> None:
    """A storm of keys cannot postpone the end: what moves is the bin."""
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    rows: list[Row] = []
    keys = count()
    for workers in (4, 1):
        assert checked.ask(Scale(workers))
        before = checked.steps
        while not isinstance(checked.rescale.phase, Steady):
            storm = [("a", next(keys), checked.steps) for _ in range(20)]
            rows += storm
            checked.step(storm)
        assert checked.steps - before <= sum(REGIONS.values()) + 6
        assert len(members(checked.placement)) == workers
    assert checked.result() == without_rescale(rows, REGIONS)
    assert [each.outcome for each in checked.rescale.history] == [RescaleOutcome.SETTLED] * 2
    assert sorted(checked.shut) == [
        worker for worker in range(4) if worker not in members(checked.placement)
    ]


def test_a_cancelled_rescale_stops_where_it_is() -> None:
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    for _ in range(5):
        checked.step()
    assert checked.rescale.handing
    moved = len(checked.moved)
    checked.ask(CancelRescale())
    checked.finish()
    assert len(checked.moved) == moved, "what was in hand-over has arrived, and nothing else moved"
    assert checked.rescale.history[-1].outcome is RescaleOutcome.CANCELLED


def test_a_rolled_back_rescale_returns() -> None:
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    before = [each.workers for each in checked.placement]
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    for _ in range(6):
        checked.step()
    assert [each.workers for each in checked.placement] != before
    checked.ask(CancelRescale(roll_back=True))
    checked.finish()
    assert [each.workers for each in checked.placement] == before
    assert checked.rescale.history[-1].outcome is RescaleOutcome.ROLLED_BACK
    assert checked.shut, "workers that were begun and are not needed are told"


def test_a_second_request_goes_on_from_where_things_are() -> None:
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    for _ in range(6):
        checked.step()
    there = len(checked.moved)
    checked.ask(Scale(3))
    checked.finish()
    assert len(members(checked.placement)) == 3
    assert [e.outcome for e in checked.rescale.history] == [
        RescaleOutcome.REPLACED,
        RescaleOutcome.SETTLED,
    ]
    assert checked.rescale.history[-1].number == 2
    assert len(checked.moved) > there


def test_a_paused_rescale_asks_for_no_steps_and_goes_on() -> None:
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    for _ in range(5):
        checked.step()
    checked.ask(PauseRescale())
    checked.finish()
    moved = len(checked.moved)
    for _ in range(20):
        checked.step([("a", 1, 1)])
    assert len(checked.moved) == moved
    checked.ask(ResumeRescale())
    checked.finish()
    assert len(members(checked.placement)) == 4


AT_ONCE = RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, answer_steps=0, prefetch=False)


def collecting(policy: RescaleSettings = AT_ONCE) -> Pipeline:
    """A pipeline that goes from two to four workers, with a plan that collects under way."""
    checked = pipeline(policy)
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    while not checked.plan().collect:
        checked.step()
    return checked


@pytest.mark.parametrize("back", [False, True], ids=["cancelled", "rolled back"])
def test_what_was_collected_while_a_rescale_was_cancelled_counts(back: bool) -> None:
    checked = collecting()
    collected = checked.plan().collect
    checked.ask(CancelRescale(roll_back=back))
    checked.step()
    assert moved_of(checked.rescale.phase).bins == len(collected)
    checked.finish()
    (entry,) = checked.rescale.history
    assert entry.moved.bins == len(checked.moved) == len(collected) * (2 if back else 1)
    assert entry.moved.keys >= sum(move.keys for move in collected) > 0
    assert entry.moved.bytes >= sum(move.bytes for move in collected) > 0
    assert entry.moved.longest_seconds == 0.1


def test_what_was_collected_while_a_rescale_was_replaced_counts_for_that_one() -> None:
    """Also if the one that replaced it was cancelled before the step was committed."""
    checked = collecting()
    collected = len(checked.plan().collect)
    checked.ask(Scale(3))
    checked.ask(Scale(2))
    checked.ask(CancelRescale())
    checked.finish()
    moved = {each.number: (each.outcome, each.moved.bins) for each in checked.rescale.history}
    assert moved == {
        1: (RescaleOutcome.REPLACED, collected),
        2: (RescaleOutcome.REPLACED, 0),
        3: (RescaleOutcome.CANCELLED, 0),
    }


def test_a_pause_does_not_keep_workers_from_being_told_what_they_will_have() -> None:
    """A roll-back that is paused before its first step: its target is announced when it goes on."""
    checked = collecting(RescaleSettings(policy=MovePolicy.FLUID, answer_steps=0, prefetch=False))
    checked.step()
    checked.ask(CancelRescale(roll_back=True))
    checked.ask(PauseRescale())
    for _ in range(3):
        assert not checked.plan().announced
        checked.step()
    checked.ask(ResumeRescale())
    assert checked.plan().announced
    checked.step()
    assert not checked.plan().announced, "once"
    checked.finish()


def test_steps_of_a_pause_count_only_while_bins_arrive() -> None:
    checked = collecting(RescaleSettings(policy=MovePolicy.FLUID, answer_steps=0, prefetch=False))
    collected = len(checked.plan().collect)
    checked.ask(PauseRescale())
    checked.step()
    checked.step()
    before = moved_of(checked.rescale.phase)
    assert isinstance(checked.rescale.phase, Paused)
    assert (before.bins, before.steps) == (collected, 2)
    for _ in range(50):
        checked.step([("a", 1, 1)])
    assert moved_of(checked.rescale.phase) == before
    checked.ask(ResumeRescale())
    steps = 2
    while not checked.rescale.history:
        steps += bool(checked.plan().collect or checked.plan().acquire)
        checked.step()
    assert checked.rescale.history[-1].moved.steps == steps


def test_history_is_bounded_and_generations_grow() -> None:
    checked = pipeline(
        RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, answer_steps=0, prefetch=False)
    )
    for turn in range(KEPT + 5):
        before = checked.placement[1].generation
        checked.ask(Scale(2 + turn % 2))
        checked.finish()
        assert checked.placement[1].generation > before or turn == 0
    assert len(checked.rescale.history) == KEPT
    assert checked.rescale.history[-1].number == KEPT + 5


@pytest.mark.parametrize(
    "asked", [PauseRescale(), ResumeRescale(), CancelRescale(), CancelRescale(roll_back=True)]
)
def test_what_needs_a_rescale_is_refused_without_one(
    asked: PauseRescale | ResumeRescale | CancelRescale,
) -> None:
    assert not pipeline().ask(asked)


def test_a_checkpoint_opens_with_another_number_of_workers() -> None:
    checked = pipeline(RescaleSettings(policy=MovePolicy.FLUID))
    checked.step([("a", key, 0) for key in range(16)])
    checked.ask(Scale(4))
    for _ in range(5):
        checked.step()
    assert checked.rescale.handing
    opened, placement = apply_at_once(checked.rescale, Scale(3), checked.placement, checked.loads())
    assert len(members(placement)) == 3
    assert not opened.handing
    assert placement[1].generation > checked.placement[1].generation
    assert set(opened.workers) >= set(members(checked.placement)), "they are told in the next step"


def test_a_worker_whose_host_is_gone_is_replaced_at_once() -> None:
    checked = pipeline()
    _, placement = apply_at_once(
        checked.rescale, Scale(remove=(0,)), checked.placement, checked.loads()
    )
    assert members(placement) == (1,)
