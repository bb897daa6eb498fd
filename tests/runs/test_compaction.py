from __future__ import annotations

import random as stdlib_random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runs.compaction import CompactionLimits, Stack, choose_depths, default_budget

PLENTY = 10**9
KIB = 1024
#: Rule 1 off, and no bin so small that its runs count as equal.
PLAIN = CompactionLimits(young_bytes=0, small_rows=1)


def stack(
    rows: Sequence[Sequence[int]],
    sizes: Sequence[int] | None = None,
    shares: Sequence[float] | None = None,
) -> Stack:
    """A stack from rows per run and bin; files are large and fully listed unless told."""
    return Stack(
        np.array(rows, dtype=np.int64),
        np.array(shares or [1.0] * len(rows)),
        np.array(sizes or [10**7] * len(rows), dtype=np.int64),
    )


def column(*rows: int) -> list[list[int]]:
    """A stack of one bin, newest first."""
    return [[count] for count in rows]


def depths(
    held: Stack,
    changed: Sequence[int],
    live: Sequence[int] | None = None,
    *,
    changed_bytes: int = 0,
    budget: int = PLENTY,
    limits: CompactionLimits = PLAIN,
) -> list[int]:
    """The depths chosen; without ``live`` no row is dead."""
    added = np.array(changed, dtype=np.int64)
    keys = held.rows.sum(axis=0) + added if live is None else np.array(live, dtype=np.int64)
    chosen: list[int] = choose_depths(held, added, changed_bytes, keys, budget, limits).tolist()
    return chosen


def test_places_are_counted_bin_by_bin() -> None:
    held = stack([[5, 0, 1], [0, 7, 2], [3, 0, 4]])
    assert held.places.tolist() == [[1, 0, 1], [0, 1, 2], [2, 0, 3]]
    assert held.heights.tolist() == [2, 1, 3]
    assert held.by_place.tolist() == [[5, 7, 1], [3, 0, 2], [0, 0, 4]]
    assert held.rows_above(np.array([2, 0, 2])).tolist() == [8, 0, 3]
    assert held.absorbed(np.array([1, 0, 2])).tolist() == [
        [True, False, True],
        [False, False, True],
        [False, False, False],
    ]


def test_without_runs_there_is_nothing_to_absorb() -> None:
    empty = Stack(np.zeros((0, 4), dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64))
    assert depths(empty, [1, 0, 2, 3], limits=CompactionLimits()) == [0, 0, 0, 0]


class TestYoung:
    def test_a_small_newest_run_is_absorbed_in_all_its_bins(self) -> None:
        held = stack([[1, 1, 0], [9999, 9999, 9999]], sizes=[500 * KIB, 10**9])
        assert depths(held, [1, 0, 0], limits=CompactionLimits(), changed_bytes=500 * KIB) == [
            1,
            1,
            0,
        ]

    def test_not_when_it_would_grow_too_large(self) -> None:
        held = stack([[1, 1, 0], [9999, 9999, 9999]], sizes=[600 * KIB, 10**9])
        assert depths(held, [1, 0, 0], limits=CompactionLimits(), changed_bytes=500 * KIB) == [
            0,
            0,
            0,
        ]

    def test_not_when_nothing_changed(self) -> None:
        held = stack([[1, 1]], sizes=[KIB])
        assert depths(held, [0, 0], limits=CompactionLimits()) == [0, 0]

    def test_not_below_a_newer_run(self) -> None:
        held = stack([[5000, 0], [1, 1]], sizes=[10**7, KIB])
        assert depths(held, [1, 1], limits=CompactionLimits()) == [0, 0]

    def test_the_young_runs_of_former_owners_grow_together(self) -> None:
        held = stack([[1, 0], [0, 1], [9999, 9999]], sizes=[300 * KIB, 300 * KIB, 10**9])
        assert depths(held, [1, 0], limits=CompactionLimits(), changed_bytes=KIB) == [1, 1]

    def test_it_is_outside_the_budget(self) -> None:
        held = stack([[10, 10]], sizes=[KIB])
        assert depths(held, [1, 1], limits=CompactionLimits(), budget=0) == [1, 1]


class TestTiers:
    @pytest.mark.parametrize(
        ("changed", "held", "depth"),
        [
            (100, column(100, 100), 0),  # three of a size are left alone
            (100, column(100, 100, 100), 3),
            (100, column(100, 100, 100, 9000), 3),  # a much larger one stays
            (100, column(150, 90, 190, 9000), 3),  # about the same size is the same tier
            (100, column(100, 100, 100, 401, 400), 3),  # the result is smaller than the next
            (100, column(100, 100, 100, 400, 801), 4),  # as large: it goes along
            (100, column(100, 100, 100, 400, 800, 50, 9000), 6),  # and so on
            (100, column(100, 100, 400, 400), 0),  # but only below a merge
            (100, column(900, 100, 100, 100), 0),  # nothing is merged across a larger one
            (0, column(100, 100, 100), 0),
            (0, column(100, 100, 100, 100), 4),  # held back before: no change is needed
            (5, column(), 0),
        ],
    )
    def test_runs_of_a_size_become_one(
        self, changed: int, held: list[list[int]], depth: int
    ) -> None:
        empty = Stack(np.zeros((0, 1), dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64))
        assert depths(stack(held) if held else empty, [changed]) == [depth]

    def test_small_runs_are_all_of_a_size(self) -> None:
        held = stack(column(3, 60, 9))
        assert depths(held, [1], limits=CompactionLimits(young_bytes=0, small_rows=64)) == [3]
        assert depths(held, [1]) == [0]

    def test_what_is_young_counts_as_changed(self) -> None:
        held = stack(column(80, 100, 100, 100, 9000), sizes=[KIB, *[10**7] * 4])
        assert depths(held, [20], limits=CompactionLimits(small_rows=1)) == [4]


class TestDue:
    #: Each run more than twice the one above it: no tier.
    LADDER = column(*(3**power for power in range(1, 9)))

    def test_too_many_runs_go_down_to_half_the_limit(self) -> None:
        assert depths(stack(self.LADDER), [1]) == [4]

    def test_as_many_as_allowed_are_left_alone(self) -> None:
        assert depths(stack(self.LADDER), [0]) == [0]
        assert depths(stack(self.LADDER[1:]), [1]) == [0]

    @pytest.mark.parametrize(("live", "depth"), [(770, 0), (769, 2)])
    def test_dead_rows_need_a_merge_to_the_bottom(self, live: int, depth: int) -> None:
        # 1100 rows: 770 live keys leave 30 % dead.
        assert depths(stack(column(10, 990)), [100], [live]) == [depth]

    def test_rows_that_replace_young_ones_are_not_dead_twice(self) -> None:
        held = stack(column(100, 300), sizes=[KIB, 10**7])
        # The same 100 keys change again: 400 rows remain, 100 of them dead.
        assert depths(held, [100], [300], limits=CompactionLimits(small_rows=1)) == [1]
        assert depths(held, [100], [270], limits=CompactionLimits(small_rows=1)) == [2]


class TestSparse:
    def test_a_run_mostly_replaced_is_rewritten_where_it_counts(self) -> None:
        held = stack([[10, 0, 10], [0, 900, 900], [9000, 9000, 9000]], shares=[1, 0.49, 1])
        assert depths(held, [1, 1, 1]) == [0, 1, 2]

    def test_with_totals_a_run_that_this_write_makes_sparse_goes_too(self) -> None:
        rows, live = [[40, 40, 100]], [10, 10, 100]
        assert depths(stack(rows), [0, 0, 0], live) == [1, 1, 0]
        sizes, totals = np.array([10**7]), np.array([180])
        held = Stack(np.array(rows), np.ones(1), sizes, totals)
        assert depths(held, [0, 0, 0], live) == [1, 1, 0], "100 of 180 are more than half"
        rows, live = [[60, 60, 100]], [10, 10, 100]
        held = Stack(np.array(rows), np.ones(1), sizes, np.array([220]))
        assert depths(held, [0, 0, 0], live) == [1, 1, 1], "100 of 220 are less"

    def test_a_run_half_of_which_counts_stays(self) -> None:
        held = stack([[10, 0, 10], [0, 900, 900], [9000, 9000, 9000]], shares=[1, 0.5, 1])
        assert depths(held, [1, 1, 1]) == [0, 0, 0]


class TestBudget:
    def test_the_most_urgent_bins_come_first(self) -> None:
        rows = [[100, 100, 100], [300, 300, 300]]
        live = [250, 150, 200]  # dead: 38 %, 63 %, 50 %
        assert depths(stack(rows), [0] * 3, live, budget=PLENTY) == [2, 2, 2]
        assert depths(stack(rows), [0] * 3, live, budget=800) == [0, 2, 2]
        assert depths(stack(rows), [0] * 3, live, budget=799) == [0, 2, 0]

    def test_one_bin_is_served_however_small_the_budget(self) -> None:
        rows = [[100, 100, 100], [300, 300, 300]]
        assert depths(stack(rows), [0] * 3, [250, 150, 200], budget=0) == [0, 2, 0]

    def test_the_rules_share_it(self) -> None:
        rows = [[100, 100, 100], [100, 0, 0], [100, 0, 0], [0, 300, 300]]
        live = [400, 200, 250]  # bin 0 is a tier of 300 rows; the others are half and 38 % dead
        assert depths(stack(rows), [100, 0, 0], live, budget=1100) == [3, 2, 2]
        assert depths(stack(rows), [100, 0, 0], live, budget=1099) == [3, 2, 0]

    def test_a_rule_is_not_starved_by_those_before_it(self) -> None:
        rows = [[100, 100, 0], [100, 0, 0], [100, 0, 0], [0, 300, 0], [0, 0, 700]]
        live = [400, 200, 700]  # bin 1: half of its rows are dead
        held = stack(rows, shares=[1, 1, 1, 1, 0.2])
        assert depths(held, [100, 0, 0], live, budget=300) == [3, 2, 1]

    def test_it_grows_with_what_changed(self) -> None:
        assert default_budget(0, 0) == 200_000
        assert default_budget(100, 10**8) == 200_000
        # 100 k over 1.6 M: two tiers of four, and a third of the rows dead.
        assert default_budget(100_000, 1_600_000) == int(100_000 * (2 + 1 / 0.3))


@given(st.data())
def test_depths_stay_within_the_stack_and_the_budget(data: st.DataObject) -> None:
    bins, runs = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 12))
    counts = st.integers(0, 500)
    rows = np.array(
        data.draw(st.lists(counts, min_size=bins * runs, max_size=bins * runs)), dtype=np.int64
    ).reshape(runs, bins)
    changed = np.array(data.draw(st.lists(counts, min_size=bins, max_size=bins)))
    share = st.floats(0.01, 1)
    held = Stack(
        rows,
        np.array(data.draw(st.lists(share, min_size=runs, max_size=runs))),
        np.full(runs, 10**7),
    )
    dead = np.array(data.draw(st.lists(st.floats(0, 1), min_size=bins, max_size=bins)))
    live = ((rows.sum(axis=0) + changed) * (1 - dead)).astype(np.int64)
    budget = data.draw(st.integers(0, 3000))
    chosen = choose_depths(held, changed, 0, live, budget, PLAIN)
    assert (chosen >= 0).all()
    assert (chosen <= held.heights).all()
    # Each of the four rules serves its most urgent bin, whatever that costs.
    cost = np.sort(held.rows_above(chosen))
    assert cost[:-4].sum() <= budget
    again = choose_depths(held, changed, 0, live, budget, PLAIN)
    assert chosen.tolist() == again.tolist()


class Simulated:
    """Bins whose runs are sets of keys: what the policy makes of them over many steps."""

    def __init__(self, bins: int, limits: CompactionLimits) -> None:
        self.bins = bins
        self.limits = limits
        self.runs: list[list[set[int]]] = []
        self.written: list[int] = []
        self.live: list[set[int]] = [set() for _ in range(bins)]

    def step(self, keys: set[int], budget: int) -> int:
        """Change these keys; returns the rows that merging read."""
        changed = [{key for key in keys if key % self.bins == b} for b in range(self.bins)]
        self.live = [had | now for had, now in zip(self.live, changed, strict=True)]
        held = stack(
            [[len(rows) for rows in run] for run in self.runs] or [[0] * self.bins],
            shares=[
                sum(map(len, run)) / total
                for run, total in zip(self.runs, self.written, strict=True)
            ],
        )
        chosen = depths(
            held,
            [len(rows) for rows in changed],
            [len(rows) for rows in self.live],
            budget=budget,
            limits=self.limits,
        )
        read = int(held.rows_above(np.array(chosen)).sum())
        absorbed = held.absorbed(np.array(chosen))
        for at, run in enumerate(self.runs):
            for b in np.flatnonzero(absorbed[at]):
                changed[b] |= run[b]
                run[b] = set()
        alive = [(run, n) for run, n in zip(self.runs, self.written, strict=True) if any(run)]
        self.runs = [changed, *(run for run, _ in alive)]
        self.written = [sum(map(len, changed)), *(n for _, n in alive)]
        return read

    def height(self) -> int:
        return max(sum(bool(run[b]) for run in self.runs) for b in range(self.bins))

    def rows(self) -> int:
        return sum(len(rows) for run in self.runs for rows in run)


def test_updates_for_ever_keep_stacks_low_and_mostly_alive() -> None:
    random = stdlib_random.Random(5)
    state = Simulated(32, CompactionLimits(young_bytes=0, small_rows=4, budget_rows=0))
    state.step(set(range(4000)), 0)
    reads = []
    for number in range(200):
        keys = set(random.sample(range(4000), 100))
        budget = default_budget(len(keys), state.rows(), state.limits)
        reads.append(state.step(keys, budget))
        assert state.height() <= 9, number
        assert state.rows() <= 4000 / 0.65
        assert sum(state.written) <= 3.5 * 4000
        assert reads[-1] <= budget + 3 * 4000 / 32 / 0.6, "a bin per rule may exceed the budget"
    assert sum(reads) / len(reads) <= 600


def test_growth_for_ever_keeps_stacks_low() -> None:
    state = Simulated(32, CompactionLimits(young_bytes=0, small_rows=4, budget_rows=0))
    for number in range(150):
        keys = set(range(number * 100, number * 100 + 100))
        read = state.step(keys, default_budget(100, state.rows(), state.limits))
        assert state.height() <= 10, number
        assert read <= 2000
    assert state.rows() == 15_000
