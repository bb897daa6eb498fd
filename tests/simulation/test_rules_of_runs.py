"""Rules about time, files and output, in schedules with rescales; and that their watch can bite.

R1 to R3 and R7 to R9 have their tests in ``tests/rescale/test_rules.py``, where the rescale is
driven by hand. Here they are watched too, in every schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import positions_of
from anabranch.node.step_outcome import rows_read
from anabranch.records.commit import Commit, RowCount
from anabranch.records.placed import Assignment
from anabranch.records.plan import Input, Plan
from anabranch.records.slices import RangeSlice
from anabranch.rescale.controller import Rescale
from anabranch.rescale.moves import Move
from anabranch.sinks.memory import MemorySink
from anabranch.task.program import Program
from anabranch.testing.cluster.cluster import SimulatedCluster
from anabranch.testing.cluster.ownership import Ownership
from anabranch.testing.cluster.rule_broken import Broken
from anabranch.testing.cluster.rules import Rules
from anabranch.testing.plane.plain_columns import typed_without_spark
from anabranch.testing.shop import shop
from anabranch.testing.simulation import Simulation
from tests.coordinator.parts_kit import parts_with

SCHEDULES = 3


@dataclass
class Ran:
    """A schedule in which bins have moved, what was acknowledged in it, and what came of it."""

    cluster: SimulatedCluster
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    published: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def runs() -> Iterator[list[Ran]]:
    found: list[Ran] = []
    heard: list[tuple[int, int]] = []
    acknowledged = Rules.acknowledged

    def noting(self: Rules, source: str, position: bytes, opening: object) -> None:
        heard.append((_rows(position), _committed(self)))
        acknowledged(self, source, position, opening)

    with Simulation() as simulation, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rules, "acknowledged", noting)
        for seed in range(100):
            heard.clear()
            cluster = simulation.run(seed)
            if any(RESCALE.of(each).handing for each in cluster.rules.commits.values()):
                sink = simulation.program.sinks["rows"].sink
                assert isinstance(sink, MemorySink)
                found.append(Ran(cluster, list(heard), set(sink.steps())))
            if len(found) == SCHEDULES:
                break
        yield found
    assert len(found) == SCHEDULES


def _rows(position: bytes) -> int:
    return int(msgspec.json.decode(position)["rows"])


def _committed(rules: Rules) -> int:
    """How far the commits so far have read, those that were left behind too."""
    every = (each for commit in rules.commits.values() for each in positions_of(commit))
    return max((_rows(bytes(each.position)) for each in every), default=0)


def line(ran: Ran) -> list[Commit]:
    commits = ran.cluster.rules.ownership.line.commits
    return [commits[step] for step in sorted(commits)]


def test_r4_a_frontier_never_passes_a_held_time(runs: list[Ran]) -> None:
    """A commit's clock and positions are its frontiers; what is held is what was not worked on."""
    for ran in runs:
        done, clock_ns = 0, 0
        for commit in line(ran):
            done += rows_read(ran.cluster.program.physical, commit.counts)
            assert [_rows(bytes(each.position)) for each in positions_of(commit)] == [done]
            assert commit.clock_ns >= clock_ns
            clock_ns = commit.clock_ns
        assert done


def test_r5_acknowledged_is_committed(runs: list[Ran]) -> None:
    for ran in runs:
        assert ran.acknowledged
        assert all(report <= committed for report, committed in ran.acknowledged)


def test_r6_published_is_committed_each_step_once(runs: list[Ran]) -> None:
    for ran in runs:
        staged = {
            commit.step
            for commit in line(ran)
            if any(file.sink == "rows" for file in commit.staged)
        }
        assert ran.published == staged


# ------------------------------------------------------------------------- the watch can bite


@pytest.fixture
def watch(tmp_path: Path) -> Ownership:
    return Ownership(Program(typed_without_spark(shop().make(tmp_path)), 4))


def placed(*workers: int, generation: int = 1) -> tuple[Assignment, ...]:
    return tuple(Assignment(region, generation, workers) for region in ("by-customer", "by-times"))


def plan(step: int, rows: tuple[int, int], **changes: Any) -> Plan:
    slices = (RangeSlice(0, *rows),)
    inputs = (Input("orders", slices, msgspec.Raw(b'{"rows": %d}' % rows[1])),)
    made = Plan(step, 0, step, "code", inputs, placed(0, 0, 1, 1), 2, started_with=2)
    return msgspec.structs.replace(made, **changes)


def commit(
    planned: Plan, watch: Ownership, rescale: Rescale | None = None, **changes: Any
) -> Commit:
    (edge, *_) = watch._program.physical.levels[1].inputs
    slices = [part for given in planned.inputs for part in given.slices]
    size = sum(part.end - part.start for part in slices if isinstance(part, RangeSlice))
    made = Commit(
        step=planned.step,
        revision=0,
        clock_ns=planned.clock_ns,
        code="code",
        placement=planned.placement,
        states=(),
        staged=(),
        counts=(RowCount(edge.place, size, (), (), ()),),
        published={},
        workers=2,
        parts=parts_with(planned.inputs, rescale),
    )
    return msgspec.structs.replace(made, **changes)


def test_what_is_right_is_let_through(watch: Ownership) -> None:
    move = Move("by-customer", 1, 0, 1, 1, 1)
    handing = Rescale(handing=(move,))
    first = plan(1, (0, 2))
    watch.planned(0, first)
    # A commit whose plan nobody has seen is taken as it is.
    watch.committed(1, commit(first, watch, rescale=handing))
    there = (Assignment("by-customer", 2, (0, 1, 1, 1)), placed(0, 0, 1, 1)[1])
    second = plan(2, (2, 3), placement=there)
    watch.planned(0, second)
    watch.committed(0, commit(second, watch))
    assert watch.line.read(2) == [1, 2]


@pytest.mark.parametrize(
    ("rule", "changes", "committed"),
    [
        ("R1: .* without owner", {"placement": placed(0, 0, 1)}, {}),
        ("R1: .* no owner", {"placement": placed(0, 0, 1, -1)}, {}),
        ("R1: .* same generation", {"placement": placed(0, 1, 1, 1)}, {}),
        ("R2: bin 1 .* worker 1 has it", {"placement": placed(0, 1, 1, 1, generation=2)}, {}),
        ("R2: .* is to be acquired", {}, {"rescale": Rescale(handing=(Move("a", 1, 0, 1, 1, 1),))}),
        ("R4: the clock", {"clock_ns": 0}, {}),
        ("R4: .* end=2\\) was read last", {"inputs": plan(2, (3, 4)).inputs}, {}),
        ("R4: .* passes 1 rows", {}, {"counts": ()}),
    ],
)
def test_what_is_wrong_is_not(
    watch: Ownership, rule: str, changes: dict[str, Any], committed: dict[str, Any]
) -> None:
    first = plan(1, (0, 2))
    watch.planned(0, first)
    watch.committed(0, commit(first, watch))
    second = plan(2, (2, 3), **changes)

    def both() -> None:
        watch.planned(0, second)
        watch.committed(0, commit(second, watch, **committed))

    with pytest.raises(Broken, match=rule):
        both()


def test_a_leader_that_was_followed_commits_nothing_more_but_may_be_told_late(
    watch: Ownership, tmp_path: Path
) -> None:
    rules = Rules(tmp_path, watch, {})
    rules.led(1)
    for step in (1, 2):
        watch.planned(0, plan(step, (step - 1, step)))
    there = tmp_path / "journal" / "commit" / "0" / "000000000001"
    there.parent.mkdir(parents=True)
    there.touch()
    rules.led(2)
    rules.committed(1, 0, commit(plan(1, (0, 1)), watch), ours=True)
    with pytest.raises(Broken, match="leader 1 has committed step 2 after leader 2 came"):
        rules.committed(1, 0, commit(plan(2, (1, 2)), watch), ours=True)


def test_a_plan_that_is_told_when_its_branch_was_left_is_not_compared(
    watch: Ownership, tmp_path: Path
) -> None:
    rules = Rules(tmp_path, watch, {})
    first = plan(1, (0, 1), placement=placed(0, 0, 1, 1, generation=2))
    rules.planned(1, first)
    rules.committed(0, 1, commit(first, watch), ours=True)
    late = plan(2, (1, 2), placement=placed(0, 1, 1, 1))
    rules.planned(0, late)
    with pytest.raises(Broken, match="other owners in the same generation"):
        rules.planned(1, late)
