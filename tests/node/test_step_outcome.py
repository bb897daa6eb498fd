"""From reports to a commit: one attempt per task, or the step runs again."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.messages import Attempt, Report, StateReport, Tally
from anabranch.node.interrogation import moving_seconds
from anabranch.node.step_outcome import (
    Disagreement,
    StepOutcome,
    Task,
    rows_read,
    step_outcome,
    task_of,
)
from anabranch.plan.lower import lower
from anabranch.records.bins import BinSet
from anabranch.records.commit import RowCount
from anabranch.records.placed import OperatorShape, OperatorState
from anabranch.records.run_list import Listed, RunInfo, RunList, runs_of
from anabranch.records.staged_file import StagedFile
from tests.plan import flows

BINS = 4
SHAPE = OperatorShape("totals", "Aggregate", "r", "k string", "n bigint")


def staged(name: str) -> StagedFile:
    return StagedFile(name=name, sink="out", rows=1, bytes=1, checksum="00000000")


def report(
    attempt: Attempt,
    consumed: tuple[Attempt, ...] = (),
    states: tuple[StateReport, ...] = (),
    tallies: tuple[Tally, ...] = (),
    seconds: dict[str, float] | None = None,
) -> Report:
    """A report that stages a file named after its attempt."""
    file = staged(f"stage/{attempt.group}-{attempt.worker}-{attempt.attempt}")
    return Report(attempt, consumed, states, (file,), tallies, seconds or {})


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[Report], list[Task]]:
    """Any reports of attempts of the tasks of three levels, each having used any attempts."""
    levels = [draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2))]
    before: list[list[Attempt]] = []
    found: list[Report] = []
    tasks: list[Task] = []
    for level, workers in enumerate(levels):
        here = []
        for worker in range(workers):
            tasks.append((level, f"g{level}", worker))
            count = draw(st.sampled_from([1, 1, 1, 2]))
            attempts = [Attempt(level, f"g{level}", worker, f"x{i}") for i in range(count)]
            here.append(attempts)
            for attempt in attempts:
                used = tuple(draw(st.sampled_from(choices)) for choices in before)
                found.append(report(attempt, used))
        before = here
    lost = draw(st.sets(st.integers(0, len(found) - 1), max_size=1))
    kept = [r for i, r in enumerate(found) if i not in lost]
    return draw(st.permutations(kept)), tasks


@settings(max_examples=200, deadline=None)
@given(mixtures())
def test_any_mixture_gives_one_consistent_set_or_a_disagreement(
    mixture: tuple[list[Report], list[Task]],
) -> None:
    reports, tasks = mixture
    by_attempt = {r.attempt: r for r in reports}
    used: dict[Task, set[Attempt]] = {}
    for attempt in (a for r in reports for a in r.consumed):
        used.setdefault(task_of(attempt), set()).add(attempt)
    settled = step_outcome((), reports, tasks)
    if isinstance(settled, Disagreement):
        torn = any(len(attempts) > 1 for attempts in used.values())
        unknown = any(a not in by_attempt for attempts in used.values() for a in attempts)
        silent = any(all(task_of(a) != task for a in by_attempt) for task in tasks)
        assert torn or unknown or silent
        return
    names = {file.name for file in settled.staged}
    chosen = [r for r in reports if r.staged[0].name in names]
    # One attempt per task, all tasks, and nobody used anything but the chosen attempts.
    assert sorted(task_of(r.attempt) for r in chosen) == sorted(tasks)
    assert len(settled.staged) == len(chosen)
    for attempts in used.values():
        assert attempts <= {r.attempt for r in chosen}


ONE = Attempt(1, "r", 0, "a")
OTHER = Attempt(1, "r", 0, "b")
LAST = Attempt(2, "s", 0, "c")


def why(reports: list[Report], expected: list[Task]) -> str:
    settled = step_outcome((), reports, expected)
    assert isinstance(settled, Disagreement)
    return settled.why


def test_what_is_wrong_is_said() -> None:
    other_last = Attempt(2, "s", 1, "d")
    torn = [report(ONE), report(OTHER), report(LAST, (ONE,)), report(other_last, (OTHER,))]
    assert why(torn, []) == "worker 0 of r (level 1) was used in 2 different attempts"
    lost = [report(LAST, (ONE,))]
    assert why(lost, []) == "worker 0 of r (level 1) was used in an attempt that did not report"
    assert why([report(ONE)], [(1, "r", 1)]) == "worker 1 of r (level 1) did not report"
    assert why([], [(1, "r", 0)]) == "worker 0 of r (level 1) did not report"


def test_an_attempt_that_nobody_used_does_not_count() -> None:
    settled = step_outcome((), [report(OTHER), report(ONE), report(LAST, (ONE,))], [(1, "r", 0)])
    assert isinstance(settled, StepOutcome)
    assert [file.name for file in settled.staged] == ["stage/r-0-a", "stage/s-0-c"]


def test_what_is_staged_stands_in_the_order_of_the_tasks_whatever_the_order_of_reports() -> None:
    reports = [report(Attempt(1, "r", worker, f"x{worker}")) for worker in range(3)]
    found = set()
    for order in itertools.permutations(reports):
        settled = step_outcome((), list(order), [])
        assert isinstance(settled, StepOutcome)
        found.add(tuple(file.name for file in settled.staged))
    assert found == {("stage/r-0-x0", "stage/r-1-x1", "stage/r-2-x2")}


def run(name: str) -> RunInfo:
    return RunInfo(name, "totals", 1, 1, "00000000")


bin_sets = st.integers(0, 2**BINS - 1).map(BinSet.from_bits)
numbers = st.tuples(*[st.integers(0, 9)] * BINS)


@st.composite
def parts(draw: st.DrawFn, before: RunList, owned: BinSet, fresh: str) -> RunList:
    """What an owner makes of its share of a list: perhaps a new run, and less of the old ones."""
    new = Listed(run(fresh), draw(bin_sets) & owned)
    kept = [Listed(listed.run, listed.bins & owned & draw(bin_sets)) for listed in before]
    return tuple(listed for listed in (new, *kept) if listed.bins)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_lists_of_all_owners_are_put_together_bin_by_bin(data: st.DataObject) -> None:
    old = [Listed(run(name), data.draw(bin_sets)) for name in ("old1", "old2", "old3")]
    before = tuple(listed for listed in old if listed.bins)
    live = data.draw(numbers)
    owners = [owner % 3 for owner in data.draw(numbers)]
    reports = []
    wanted_runs = {number: runs_of(before, number) for number in range(BINS)}
    wanted_live = dict(enumerate(live))
    for worker in range(3):
        owned = BinSet.of(b for b, owner in enumerate(owners) if owner == worker)
        states: tuple[StateReport, ...] = ()
        if data.draw(st.booleans()):
            part = data.draw(parts(before, owned, f"new{worker}"))
            # A worker reports a number for every bin; only those of its own bins count.
            counted = data.draw(numbers)
            states = (StateReport("totals", owned, part, counted, worker),)
            for number in owned:
                wanted_runs[number], wanted_live[number] = runs_of(part, number), counted[number]
        reports.append(report(Attempt(1, "r", worker, "x"), states=states))
    settled = step_outcome(
        [OperatorState(SHAPE, before, live)], data.draw(st.permutations(reports)), []
    )
    assert isinstance(settled, StepOutcome)
    (after,) = settled.states
    assert after.shape == SHAPE
    assert {n: runs_of(after.runs, n) for n in range(BINS)} == wanted_runs
    assert dict(enumerate(after.live)) == wanted_live
    merged = [s.rows_merged for r in reports for s in r.states]
    assert settled.rows_merged == sum(merged)


def test_an_operator_that_nobody_reports_on_stays_as_it_was() -> None:
    before = OperatorState(SHAPE, (Listed(run("old"), BinSet.of([1])),), (0, 3, 0, 0))
    settled = step_outcome([before], [report(ONE)], [])
    assert isinstance(settled, StepOutcome)
    assert settled.states == (before,)


LARGE = 2**64 - 1


def test_counts_add_up_over_tasks_and_bins() -> None:
    settled = step_outcome(
        (),
        [
            report(
                Attempt(1, "r", 0, "x"),
                tallies=(
                    Tally("edge 0-1", (1, 3), (2, 5), (10, LARGE)),
                    Tally("b", (0,), (1,), (7,)),
                ),
            ),
            report(
                Attempt(1, "r", 1, "x"),
                tallies=(Tally("edge 0-1", (0, 3), (1, 1), (4, 2)), Tally("a", (), (), ())),
            ),
        ],
        [],
    )
    assert isinstance(settled, StepOutcome)
    assert settled.counts == (
        RowCount("a", 0, (), (), ()),
        RowCount("b", 1, (0,), (1,), (f"{7:016x}",)),
        RowCount("edge 0-1", 9, (0, 1, 3), (1, 2, 6), (f"{4:016x}", f"{10:016x}", f"{1:016x}")),
    )


def test_seconds_add_up_by_what_they_were_spent_on() -> None:
    settled = step_outcome(
        (),
        [
            report(Attempt(1, "r", 0, "x"), seconds={"lookup": 1.0, "write": 2.0}),
            report(Attempt(1, "r", 1, "x"), seconds={"lookup": 0.5}),
        ],
        [],
    )
    assert isinstance(settled, StepOutcome)
    assert settled.seconds == {"lookup": 1.5, "write": 2.0}


def test_rows_are_counted_where_a_source_is_read_or_else_behind_its_transform() -> None:
    physical = lower(flows.typed(flows.transform_of_a_union()))
    edges = [edge for level in physical.levels for edge in level.inputs]
    # orders → m is read by itself; "more" only through a transform, which a relay gets.
    assert [(e.producer in (0, 1), e.distributes) for e in edges] == [
        (True, True),
        (False, False),
        (False, True),
    ]
    rows = [5, 3, 100]
    counts = [RowCount(e.place, n, (), (), ()) for e, n in zip(edges, rows, strict=True)]
    more = next(n.id for n in physical.sources() if n.name == "more")
    assert more == 1
    # The relay's rows, or those of the outer transform, which has rows of "more" too.
    assert rows_read(physical, counts) == 5 + 3
    assert rows_read(physical, counts[:1]) == 5


def test_moving_costs_what_the_worker_that_spends_most_on_it_spends() -> None:
    """Tasks of one worker may come one after the other; those of others run beside them."""
    spent = {
        (1, "a", 0): {"acquire": 0.01, "prefetch": 0.02, "write": 9.0},
        (1, "a", 1): {"prefetch": 0.04},
        (2, "b", 0): {"acquire": 0.03},
        (2, "b", 2): {"write": 9.0},
    }
    reports = [
        report(Attempt(level, group, worker, "x"), seconds=seconds)
        for (level, group, worker), seconds in spent.items()
    ]
    found = step_outcome((), reports, spent)
    assert isinstance(found, StepOutcome)
    assert round(moving_seconds(found), 6) == 0.06
    assert moving_seconds(replace(found, moving={})) == 0.0
