"""Who owns which bins, and what has been read, from commit to commit: R1, R2 and R4.

Everything here is learnt from outside, from plans, commits and reports. A commit is checked against
the one before it on the line of steps that leads to it; a rewind cuts that line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import positions_of
from anabranch.dataflow.graph import SplitNode, WhereNode
from anabranch.messages import Report
from anabranch.plan.physical import ChainNode, Physical, TimeAssignment, UntimedRows
from anabranch.records.bins import BinSet
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.plan import Input, Plan
from anabranch.records.run_list import RunInfo
from anabranch.rescale.moves import Move
from anabranch.rescale.step_moves import moves_of
from anabranch.task.program import Program
from anabranch.testing.cluster.rule_broken import require
from anabranch.testing.plane.exchange import owned_bins
from anabranch.testing.scenario import Positions

Bins = dict[tuple[str, int], int]
"""The owner of each bin of each region."""


@dataclass(slots=True)
class Line:
    """The steps that lead to where the pipeline stands: their commits, as far as they are known."""

    commits: dict[int, Commit] = field(default_factory=dict)

    def add(self, commit: Commit) -> None:
        """A step was committed."""
        self.commits[commit.step] = commit

    def cut(self, step: int) -> None:
        """The steps after this one are left behind."""
        for later in [each for each in self.commits if each > step]:
            del self.commits[later]

    def read(self, upto: int) -> list[int]:
        """The steps, up to one, that have read something."""
        found = []
        before: tuple[Input, ...] = ()
        for step in sorted(self.commits):
            commit = self.commits[step]
            if step <= upto and _moved_on(before, positions_of(commit)):
                found.append(step)
            before = positions_of(commit)
        return found

    def positions(self, step: int) -> Positions:
        """Where sources stood after a step."""
        found = positions_of(self.commits.get(step))
        return {each.source: msgspec.json.decode(each.position) for each in found}


def _moved_on(before: Sequence[Input], after: Sequence[Input]) -> bool:
    known = {each.source: bytes(each.position) for each in before}
    return any(known.get(each.source, b"") != bytes(each.position) for each in after)


class Ownership:
    """Checks plans, reports and commits of a program."""

    def __init__(self, program: Program) -> None:
        """Nothing has happened yet."""
        self._program = program
        self.line = Line()
        #: by branch, step and revision
        self.plans: dict[tuple[int, int, int], Plan] = {}
        self._regions = {
            edge.place: group.region
            for level in program.physical.levels[1:]
            for group in level.groups
            for edge in level.inputs
            if edge.consumer in group.operators and group.region is not None
        }
        self._whole = _whole_edges(program.physical)
        self._homes = {name: program.region_of(name) for name in program.layouts}
        #: how far each partition was read by a step
        self._read: dict[int, dict[tuple[str, int], Any]] = {}

    def planned(self, branch: int, plan: Plan) -> None:
        """A plan is durable: each bin has one owner, and another one only by a generation (R1)."""
        self.plans[branch, plan.step, plan.revision] = plan
        owners(plan.placement, self._program.bins)
        before = self.line.commits.get(plan.step - 1)
        if before is None:
            return
        known = {each.region: each for each in before.placement}
        for each in plan.placement:
            old = known.get(each.region)
            if old is not None:
                grown = each.generation > old.generation
                require(
                    grown or each == old,
                    f"R1: {each.region!r} has other owners in the same generation",
                )

    def ran(self, plan: Plan, reports: Iterable[Report]) -> None:
        """A step has run: no task has touched a bin that is not its worker's (R1)."""
        owned: dict[int, dict[str, BinSet]] = {}
        for report in reports:
            worker = report.attempt.worker
            if worker not in owned:
                owned[worker] = {a.region: owned_bins(a, worker) for a in plan.placement}
            mine = owned[worker]
            for tally in report.tallies:
                region = self._regions.get(tally.place)
                if region is not None:
                    strange = [each for each in tally.bins if each not in mine[region]]
                    require(
                        not strange,
                        f"R1: worker {worker} of {region!r} gets rows of {strange} in step "
                        f"{plan.step}, which it does not own",
                    )
            for state in report.states:
                home = self._homes[state.operator]
                require(
                    state.owned == mine[home],
                    f"R1: worker {worker} of {home!r} writes bins {list(state.owned)} of "
                    f"{state.operator!r} in step {plan.step}, and owns {list(mine[home])}",
                )

    def committed(self, branch: int, commit: Commit) -> None:
        """A step is committed: hand-overs are those that were begun (R1, R2), in this order."""
        plan = self.plans.get((branch, commit.step, commit.revision))
        before = self.line.commits.get(commit.step - 1)
        owned = owners(commit.placement, self._program.bins)
        _check_collected(commit, plan, owned)
        if before is not None:
            self._check_owners(before, commit, owned)
            require(
                commit.clock_ns >= before.clock_ns, f"R4: the clock of step {commit.step} goes back"
            )
        if plan is not None:
            require(plan.placement == commit.placement, "R1: a commit has another placement")
            self._check_read(plan, commit)
        self.line.add(commit)

    def _check_owners(self, before: Commit, commit: Commit, owned: Bins) -> None:
        if before.workers != commit.workers:
            return  # started with another number of workers: bins are shared anew at once
        handed = {(move.region, move.bin): move.to_worker for move in RESCALE.of(before).handing}
        for place, owner in owners(before.placement, self._program.bins).items():
            if place not in owned:
                continue
            wanted = handed.get(place, owner)
            require(
                owned[place] == wanted,
                f"R2: bin {place[1]} of {place[0]!r} is worker {wanted}'s after step "
                f"{before.step}, and worker {owned[place]} has it in step {commit.step}",
            )

    def _check_read(self, plan: Plan, commit: Commit) -> None:
        """No row is passed over, and none is read twice: a position is a frontier (R4)."""
        sizes: dict[str, int | None] = {}
        known = self._read.get(plan.step - 1)
        ends = dict(known or {})
        for given in plan.inputs:
            for part in given.slices:
                if part.partition is None:
                    return
                place = (given.source, part.partition)
                require(
                    known is None or part.follows(ends.get(place)),
                    f"R4: step {plan.step} reads {given.source!r} from row {part.first} on, and "
                    f"{ends.get(place)} was read last",
                )
                ends[place] = part
                size, rows = sizes.get(given.source, 0), part.rows
                sizes[given.source] = None if size is None or rows is None else size + rows
        self._read[plan.step] = ends
        counted = {count.place: count.rows for count in commit.counts}
        for edge, source in self._whole.items():
            size, found = sizes.get(source, 0), counted.get(edge, 0)
            require(
                size is None or found == size,
                f"R4: step {commit.step} passes {size} rows of {source!r} and has worked on "
                f"{found}",
            )


def _whole_edges(physical: Physical) -> dict[str, str]:
    """The edges on which every row of a source goes to a task, and which source that is."""
    names = {source.id: source.name for source in physical.sources()}
    return {
        edge.place: names[edge.producer]
        for level in physical.levels
        for edge in level.inputs
        if edge.producer in names and not any(map(_may_drop, edge.chain))
    }


def _check_collected(commit: Commit, plan: Plan | None, owned: Bins) -> None:
    """What a step hands over is what its plan says, by who has it."""
    moved = None if plan is None else moves_of(plan)
    moves = () if moved is None else moved.collect
    handing = _ends(RESCALE.of(commit).handing)
    require(
        plan is None or handing == _ends(moves),
        f"R2: step {commit.step} collects {_ends(moves)}, and {handing} is to be acquired",
    )
    for move in moves:
        require(
            owned[move.region, move.bin] == move.from_worker,
            f"R1: bin {move.bin} of {move.region!r} is collected from worker {move.from_worker}, "
            f"and worker {owned[move.region, move.bin]} has it",
        )


def _ends(moves: Sequence[Move]) -> list[tuple[str, int, int]]:
    return sorted(move.end for move in moves)


def owners(placement: Sequence[Assignment], bins: int) -> Bins:
    """The one owner of each bin (R1)."""
    found: Bins = {}
    for each in placement:
        whole = bool(each.workers) if each.source else len(each.workers) == bins
        require(whole, f"R1: {each.region!r} has bins without owner")
        for number, worker in enumerate(each.workers):
            require(
                worker >= 0 and (each.region, number) not in found,
                f"R1: bin {number} of {each.region!r} has no owner, or two",
            )
            found[each.region, number] = worker
    return found


def same_content(before: Sequence[OperatorState], now: Sequence[OperatorState]) -> bool:
    """Whether two states are the same, bin by bin, whatever their files are called."""
    return [_content(state) for state in before] == [_content(state) for state in now]


def _content(state: OperatorState) -> tuple[object, ...]:
    runs = [(_run_content(each.run), each.run.rows, each.bins.hex) for each in state.runs]
    return state.operator, state.live, runs


def _run_content(run: RunInfo) -> object:
    """What a run holds: its checksum, or what its blobs hold, since it has their names in it."""
    return [(b.bin, b.bytes, b.checksum) for b in run.blobs] if run.blobs else run.checksum


def _may_drop(node: ChainNode) -> bool:
    """Whether an operator may leave out rows."""
    if isinstance(node, TimeAssignment):
        return node.node.on_error == "dead-letter"
    return isinstance(node, WhereNode | SplitNode | UntimedRows)
