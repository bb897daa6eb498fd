"""Copying ahead: what is acquired is at home but for its last step, and budgets hold."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from anabranch.messages import Hold, Prefetch
from anabranch.protocol.rescale_requests import CancelRescale, Scale
from anabranch.records.bins import BinSet
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.controller import Rescale, after_commit, plan_step
from anabranch.rescale.costs import CostModel, Prefetched
from anabranch.rescale.migration import Migration, MigrationView, Reports
from anabranch.rescale.phases import Steady
from anabranch.rescale.rounds import Budget, MovePolicy, RescaleSettings, allowed_bytes
from anabranch.rescale.step_moves import StepMoves
from tests.rescale.placed import REGION, answers, loads, placed

WAYS = st.builds(
    RescaleSettings,
    policy=st.sampled_from(list(MovePolicy)),
    budget_bytes=st.integers(1, 200),
    budget_ms=st.none() | st.floats(1, 10),
    answer_steps=st.integers(0, 1),
    prefetch_steps=st.integers(1, 4),
)


class World:
    """Homes as numbers: up to which step each worker has each bin."""

    def __init__(self, sizes: list[int], settings: RescaleSettings) -> None:
        self.known, self.settings = loads(sizes), settings
        self.placement: tuple[Assignment, ...] = placed(*[0] * len(sizes))
        self.rescale = Rescale()
        self.homes: dict[tuple[int, int], int] = {}
        self.step = 0

    def step_on(self) -> StepMoves:
        """A step: what is acquired is looked at, what is told is copied, everybody reports."""
        self.step += 1
        moves = plan_step(self.rescale, self.placement, self.known, (), self.settings)
        for move in moves.acquire:
            here = self.homes.get((move.to_worker, move.bin), -1)
            assert here >= self.step - 2, "all but the change of the last step is at home"
        for worker in moves.workers(REGION):
            for message in moves.messages(REGION, worker):
                if isinstance(message, Prefetch):
                    self.homes.update(((worker, bin), self.step - 1) for bin in message.bins)
        told = tuple(Prefetched(*m.end, m.bytes, 0.001) for m in moves.prefetch)
        self.rescale = after_commit(self.rescale, moves, Reports(0.1, answers(moves), told, 7))
        self.placement = moves.placement
        return moves


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=10),
    WAYS,
    st.lists(st.sampled_from([1, 2, 3, 5, "cancel", "back"]), min_size=1, max_size=4),
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
def test_what_is_acquired_is_at_home_but_for_the_last_step(
    sizes: list[int], settings: RescaleSettings, requests: list[int | str], between: list[int]
) -> None:
    world = World(sizes, settings)
    for request, steps in zip(requests, between, strict=False):
        if isinstance(request, int):
            asked = Scale(min(request, len(sizes)))
            world.rescale = apply_request(world.rescale, asked, world.placement)
        elif not isinstance(world.rescale.phase, Steady):
            undo = CancelRescale(roll_back=request == "back")
            if type(world.rescale.phase).__name__ != "Settled":
                world.rescale = apply_request(world.rescale, undo, world.placement)
        for _ in range(steps):
            world.step_on()
    for _ in range(80):
        world.step_on()
    assert isinstance(world.rescale.phase, Steady)


def test_both_owners_are_told_and_the_new_one_has_a_task() -> None:
    world = World([10, 10], RescaleSettings(policy=MovePolicy.FLUID, answer_steps=0))
    world.rescale = apply_request(world.rescale, Scale(2), world.placement)
    first = world.step_on()
    assert (first.workers(REGION), first.prefetch) == ((0, 1), ()), "a task, and nothing to copy"
    moves = world.step_on()
    (move,) = moves.prefetch
    assert moves.workers(REGION) == (0, 1)
    old, new = (moves.messages(REGION, worker) for worker in (0, 1))
    assert Hold(REGION, 1, BinSet.of([move.bin])) in old
    assert Prefetch(REGION, 1, BinSet.of([move.bin])) in new
    assert not [message for message in old if isinstance(message, Prefetch)]
    collecting = world.step_on()
    assert collecting.collect == (move,)
    assert Prefetch(REGION, 1, BinSet.of([move.bin])) in collecting.messages(REGION, 1)


def test_what_was_copied_stands_in_the_history() -> None:
    world = World([10, 10], RescaleSettings(policy=MovePolicy.FLUID, answer_steps=0))
    world.rescale = apply_request(world.rescale, Scale(2), world.placement)
    while not world.rescale.history:
        world.step_on()
    (done,) = world.rescale.history
    assert done.moved.copied_bytes == 7 * done.moved.steps > 0


def test_a_large_bin_is_waited_for_as_long_as_it_takes() -> None:
    settings = RescaleSettings(budget_bytes=1 << 20, budget_ms=1e9, prefetch_steps=2)
    migration = Migration((Shares(REGION, (1,)),), 0.1, announced=True)
    view = MigrationView(StepMoves(1, placed(0)), loads([200 << 20]), (), settings, CostModel())
    for step in range(202):
        moves = migration.plan(view)
        assert (len(moves.prefetch), moves.collect) == (1, ()), step
        assert moves.allowance == 1 << 20
        migration = migration.after(moves, Reports())
    assert len(migration.plan(view).collect) == 1, "in the end it goes without"


def _rounds(reports: list[Reports]) -> list[int]:
    """How many bins each step copies, with 10 ms for it and a little less than one for a bin."""
    costs = CostModel(bytes_per_second=1e12, seconds_per_bin=0.00099)
    step, settings = StepMoves(1, placed(*[0] * 50)), RescaleSettings(budget_ms=10)
    view = MigrationView(step, loads([100] * 50), (), settings, costs)
    migration = Migration((Shares(REGION, (1,) * 50),), 0.1, announced=True)
    found = []
    for report in reports:
        moves = migration.plan(view)
        assert moves.allowed == 0.01
        found.append(len(moves.prefetch))
        after = migration.after(moves, report)
        migration = msgspec.structs.replace(after, copying=())
    return found


def test_steps_in_which_moving_cost_too_much_are_followed_by_smaller_rounds() -> None:
    cost = (0.02, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01)
    took = [Reports(0.1, moving_seconds=each) for each in cost]
    assert _rounds(took) == [10, 7, 5, 7, 8, 11, 13, 17, 21]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 0.01)), min_size=1, max_size=20))
def test_steps_that_are_long_for_other_reasons_slow_nothing_down(
    steps: list[tuple[float, float]],
) -> None:
    """More tasks than cores, a busy machine, more rows: copying less would not help."""
    took = [Reports(seconds, moving_seconds=moving) for seconds, moving in steps]
    rounds = _rounds(took)
    assert rounds[0] == 10
    assert rounds == sorted(rounds)


def test_steps_that_move_nothing_do_not_set_the_pace() -> None:
    """While a rescale is paused, its steps cost nothing; that says nothing about the rounds."""
    migration = Migration((Shares(REGION, (1,)),), 0.1, announced=True, pace=0.5)
    for _ in range(10):
        migration = migration.after(StepMoves(1, placed(0), allowed=0.01), Reports(0.1))
    assert migration.pace == 0.5


def test_a_budget_as_bytes() -> None:
    costs = CostModel(bytes_per_second=1e9)
    assert allowed_bytes(Budget(), costs) is None
    assert allowed_bytes(Budget(bins=1), costs) is None
    assert allowed_bytes(Budget(bytes=5 << 20, seconds=1.0), costs) == 5 << 20
    assert allowed_bytes(Budget(bytes=5), costs) == 1 << 20, "something is always done"
