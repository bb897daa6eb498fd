"""The rules of design section 5, watched from outside while a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.coordinator.standing import Standing
from anabranch.messages import Report
from anabranch.plan.step import Checkpoint, Commit, OperatorState, Plan, Repair
from anabranch.state.run_list import files

_ROOMS = ("run/", "stage/")


class RuleBroken(AssertionError):
    """Something happened that must never happen: with the seed, and what led to it."""


class Broken(BaseException):
    """A rule does not hold. No error: nothing of what is simulated may catch it."""


@dataclass(slots=True)
class Rules:
    """What is known of a run from outside, and the checks on it."""

    store: Path
    bins: int
    live: Mapping[str, Mapping[int, int]]
    #: the newest leader; lower ones must not commit any more
    leader: int = 0
    #: branch and step of the newest commit
    branch: int = 0
    step: int = 0
    commits: dict[tuple[int, int], Commit] = field(default_factory=dict)
    #: files that a commit, a checkpoint or a repair names
    named: set[str] = field(default_factory=set)
    #: files of steps that were replayed: a repair names the last ones, queries may read them all
    replayed: set[str] = field(default_factory=set)
    positions: set[tuple[str, bytes]] = field(default_factory=set)
    published: dict[str, int] = field(default_factory=dict)

    def led(self, leader: int) -> None:
        """A coordinator leads."""
        _require(leader > self.leader, f"leader {leader} comes after leader {self.leader}")
        self.leader = leader

    def committed(self, leader: int, branch: int, commit: Commit, *, ours: bool) -> None:
        """A coordinator was told that a step is committed."""
        known = self.commits.get((branch, commit.step))
        if known is not None:
            _require(known == commit, f"step {commit.step} is committed twice, differently")
            return
        _require(
            not ours or leader == self.leader,
            f"leader {leader} has committed step {commit.step} after leader {self.leader} came",
        )
        self._check_owners(commit)
        self.know(branch, commit)

    def know(self, branch: int, commit: Commit) -> None:
        """Take note of a commit."""
        self.commits[branch, commit.step] = commit
        self.branch, self.step = max((branch, commit.step), (self.branch, self.step))
        self._name(commit.states)
        self.named.update(file.name for file in commit.staged)
        self.positions.update((each.source, bytes(each.position)) for each in commit.positions)

    def branched(self, standing: Standing) -> None:
        """The pipeline went back to a checkpoint."""
        self.branch, self.step = standing.branch, standing.step
        self.published = {sink: min(s, self.step) for sink, s in self.published.items()}

    def kept(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is durable."""
        self._name(checkpoint.states)

    def repaired(self, repair: Repair) -> None:
        """A replay has ended."""
        self._name(repair.states)

    def planned(self, branch: int, plan: Plan) -> None:
        """A plan is durable."""

    def ran(self, plan: Plan, reports: Sequence[Report]) -> None:
        """A step was run; if it was committed before, this was a replay."""
        if plan.step <= self.step:
            runs = (
                listed for report in reports for state in report.states for listed in state.runs
            )
            self.replayed |= files(tuple(runs))

    def found(self, standing: Standing) -> None:
        """A coordinator has read the journal: nothing that was committed may be missing."""
        where = (standing.branch, standing.step)
        _require(
            where >= (self.branch, self.step),
            f"the journal stands at {where}, and {self.branch, self.step} was committed",
        )
        if standing.commit is not None and where > (self.branch, self.step):
            self.know(standing.branch, standing.commit)
        self.branch, self.step = where
        self._name(standing.states)
        for checkpoint in standing.checkpoints:
            self.kept(checkpoint)

    def starts(self, plan: Plan, states: Sequence[OperatorState]) -> None:
        """A step begins with this state: that after the step before it (R2)."""
        for state in states:
            wanted = self.live.get(state.operator, {}).get(plan.step - 1)
            _require(
                wanted is None or sum(state.live) == wanted,
                f"R2: step {plan.step} starts with {sum(state.live)} keys of {state.operator!r}, "
                f"not {wanted}",
            )

    def read(self, process: str, path: Path) -> None:
        """A file is about to be read (R3)."""
        name = str(path).removeprefix(f"{self.store}/")
        if name.startswith(_ROOMS):
            _require(
                name in self.named or name in self.replayed,
                f"R3: {process} reads {name}, which no commit names",
            )

    def acknowledged(self, source: str, position: bytes) -> None:
        """A source was told that everything up to a position is committed (R5)."""
        _require(
            (source, position) in self.positions,
            f"R5: {source!r} is told that {position!r} is committed",
        )

    def publishing(self, sink: str, step: int) -> None:
        """A sink is about to be given a step (R6)."""
        known = any(committed == step for _, committed in self.commits)
        _require(known, f"R6: {sink!r} publishes step {step} before its commit")
        _require(
            step >= self.published.get(sink, 0),
            f"R6: {sink!r} publishes step {step} after {self.published.get(sink)}",
        )
        self.published[sink] = step

    def opened(self) -> None:
        """A node has opened its sinks: it may give them again what it is not sure of."""
        self.published.clear()

    def _check_owners(self, commit: Commit) -> None:
        for each in commit.placement:
            _require(len(each.workers) == self.bins, f"R1: {each.region!r} has bins without owner")

    def _name(self, states: Sequence[OperatorState]) -> None:
        self.named |= files(*(state.runs for state in states))


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise Broken(text)
