"""The rules that concern who owns what, one test each.

R4 to R6, about time, input and output, are in ``tests/simulation/test_rules_of_runs.py``.
"""

from __future__ import annotations

import msgspec
import pytest

from anabranch.messages import AFTER_DATA, BEFORE_DATA, Acquire, Collect, Interrogate
from anabranch.protocol.rescale_requests import Scale
from anabranch.records.placed import Assignment
from anabranch.records.shares import members
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.controller import Rescale, after_commit, is_pending, plan_step
from anabranch.rescale.migration import Reports
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.rescale.pipeline import Pipeline, Row, without_rescale
from tests.rescale.placed import REGION, loads, placed

POLICIES = pytest.mark.parametrize("policy", list(MovePolicy))


def moving(policy: MovePolicy = MovePolicy.FLUID) -> Pipeline:
    started = Pipeline(placed(0, 0, 0, 0, 1, 1, 1, 1), RescaleSettings(policy=policy))
    started.step([(REGION, key, key) for key in range(64)])
    assert started.ask(Scale(4))
    return started


@POLICIES
def test_r1_one_owner_per_bin_and_step(policy: MovePolicy) -> None:
    checked = moving(policy)
    while is_pending(checked.rescale):
        moves = checked.plan()
        owned = [moves.owned(REGION, worker) for worker in range(5)]
        assert sum(len(bins) for bins in owned) == 8
        assert {bin for bins in owned for bin in bins} == set(range(8))
        checked.step()
    assert len(members(checked.placement)) == 4


@POLICIES
def test_r2_state_at_s_before_the_first_row_of_the_next_step(policy: MovePolicy) -> None:
    checked = moving(policy)
    collected: set[int] = set()
    seen = 0
    while is_pending(checked.rescale):
        moves = checked.plan()
        assert {move.bin for move in moves.acquire} == collected
        for move in moves.acquire:
            messages = moves.messages(REGION, move.to_worker)
            (arriving,) = (each for each in messages if isinstance(each, Acquire))
            assert move.bin in arriving.bins
            assert move.bin in moves.owned(REGION, move.to_worker)
        for move in moves.collect:
            messages = moves.messages(REGION, move.from_worker)
            (leaving,) = (each for each in messages if isinstance(each, Collect))
            assert move.bin in leaving.bins
            assert move.bin in moves.owned(REGION, move.from_worker)
        collected = {move.bin for move in moves.collect}
        seen += len(collected)
        checked.step([(REGION, key, 100) for key in range(64)])
    assert seen == 4
    assert Acquire in BEFORE_DATA
    assert AFTER_DATA.index(Interrogate) < AFTER_DATA.index(Collect)


def test_r3_what_no_commit_names_is_not_acquired() -> None:
    """A plan that collects and is not committed leaves nothing to acquire."""
    checked = moving()
    while not checked.plan().collect:
        checked.step()
    planned = checked.plan()
    lost = msgspec.json.decode(msgspec.json.encode(checked.rescale), type=Rescale)
    again = plan_step(lost, checked.placement, checked.loads(), (0.1,), checked.settings)
    assert again.acquire == planned.acquire == lost.handing == ()
    checked.step()
    assert checked.plan().acquire == planned.collect


@POLICIES
def test_r7_per_key_order_equals_the_order_without_rescale(policy: MovePolicy) -> None:
    checked = moving(policy)
    rows: list[Row] = [(REGION, key, key) for key in range(64)]
    number = 100
    while is_pending(checked.rescale):
        arriving = [(REGION, key % 64, number + key) for key in range(90)]
        number += len(arriving)
        rows += arriving
        checked.step(arriving)
    assert checked.result() == without_rescale(rows, [REGION])


@POLICIES
@pytest.mark.parametrize("told", ["all", "none", "late"])
def test_r8_every_rescale_ends_whatever_is_told(policy: MovePolicy, told: str) -> None:
    checked = moving(policy)
    bound = checked.settings.answer_steps + 4 * (checked.settings.prefetch_steps + 3)
    before = checked.steps
    while is_pending(checked.rescale):
        checked.step(report=told)
        assert checked.steps - before <= bound
    assert len(members(checked.placement)) == 4


def test_r9_placement_does_not_change_the_result() -> None:
    rows: list[Row] = [(REGION, key * 7 % 50, key) for key in range(300)]
    results = []
    for workers in (None, 1, 3, 4, 8):
        checked = Pipeline(placed(0, 0, 0, 0, 1, 1, 1, 1))
        for start in range(0, 300, 20):
            if start == 60 and workers is not None:
                checked.ask(Scale(workers))
            checked.step(rows[start : start + 20])
        checked.finish()
        results.append(checked.result())
    assert all(result == without_rescale(rows, [REGION]) for result in results)


def test_a_crash_resumes_from_the_journal() -> None:
    """The value that is stored with a commit is all that is needed, at every moment."""
    kept = moving()
    other = moving()
    while is_pending(kept.rescale):
        kept.step()
        other.plan()
        other.crash()
        other.step()
        other.crash()
        assert other.rescale == kept.rescale
    assert other.placement == kept.placement


def test_a_worker_without_bins_gets_shutdown_once() -> None:
    checked = Pipeline(placed(0, 1, 2, 3), RescaleSettings(policy=MovePolicy.FLUID))
    checked.step([(REGION, key, key) for key in range(8)])
    checked.ask(Scale(1))
    checked.finish()
    for _ in range(3):
        checked.step()
    assert len(checked.shut) == len(set(checked.shut)) == 3
    assert not set(checked.shut) & set(members(checked.placement))


def test_a_region_without_state_moves_in_one_round() -> None:
    placement = (Assignment("empty", 1, (0,) * 8),)
    checked = Pipeline(placement, RescaleSettings(policy=MovePolicy.FLUID, answer_steps=0))
    assert checked.ask(Scale(2))
    assert len(checked.plan().collect) == 4


def test_one_bin_is_copied_while_the_one_before_is_handed_over() -> None:
    checked = moving()
    while not checked.plan().collect:
        checked.step()
    moves = checked.plan()
    assert (len(moves.collect), len(moves.prefetch)) == (1, 1)
    assert moves.collect[0].bin != moves.prefetch[0].bin


def test_the_budget_does_not_grow_with_the_steps_that_it_makes_longer() -> None:
    settings = RescaleSettings(answer_steps=0, prefetch=False)
    placement = placed(*[0] * 100)
    known = loads([1_000_000] * 100)
    rescale = apply_request(Rescale(), Scale(2), placement)
    moves = plan_step(rescale, placement, known, (0.1,), settings)
    first = len(moves.collect)
    assert 20 < first <= 25, "a quarter of the step's time, and a millisecond for each"
    rescale = after_commit(rescale, moves, Reports(9.0))
    again = plan_step(rescale, moves.placement, known, (9.0, 9.0), settings)
    assert len(again.collect) <= first
