"""The rules of design section 5, watched from outside while a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.parts.sources import positions_of
from anabranch.journal.entry_names import CommitName
from anabranch.messages import Report
from anabranch.records.commit import Checkpoint, Commit, Repair
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.run_list import files
from anabranch.testing.cluster.ownership import Ownership, same_content
from anabranch.testing.cluster.rule_broken import require
from anabranch.testing.scenario import Live

_ROOMS = ("run/", "stage/")


@dataclass(slots=True)
class Rules:
    """What is known of a run from outside, and the checks on it.

    ``live`` is as in ``Scenario``.
    """

    store: Path
    ownership: Ownership
    live: Live
    #: the newest leader; lower ones must not commit any more
    leader: int = 0
    #: the commits that were in the journal when it came: one of them may be told only later
    before: frozenset[str] = frozenset()
    #: branch and step of the newest commit, and the state after it
    branch: int = 0
    step: int = 0
    states: tuple[OperatorState, ...] | None = None
    commits: dict[tuple[int, int], Commit] = field(default_factory=dict)
    #: files that a commit, a checkpoint or a repair names
    named: set[str] = field(default_factory=set)
    #: files of steps that were replayed: a repair names the last ones, queries may read them all
    replayed: set[str] = field(default_factory=set)
    positions: set[tuple[str, bytes]] = field(default_factory=set)
    #: what each opened source was last told to be committed, by name and opening
    heard: dict[tuple[str, object], bytes] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    #: files that were damaged on purpose
    damaged: set[str] = field(default_factory=set)

    def led(self, leader: int) -> None:
        """A coordinator leads."""
        require(leader > self.leader, f"leader {leader} comes after leader {self.leader}")
        self.leader = leader
        journal = self.store / "journal"
        found = journal.glob(f"{CommitName.kind}/*/*")
        self.before = frozenset([str(path.relative_to(journal)) for path in found])

    def planned(self, branch: int, plan: Plan) -> None:
        """A plan is durable."""
        # Whoever was frozen may be told late, when the pipeline has long gone back to before it.
        if branch >= self.branch:
            self.ownership.planned(branch, plan)

    def committed(self, leader: int, branch: int, commit: Commit, *, ours: bool) -> None:
        """A coordinator was told that a step is committed."""
        known = self.commits.get((branch, commit.step))
        if known is not None:
            require(known == commit, f"step {commit.step} is committed twice, differently")
            return
        there = str(CommitName(commit.step, branch)) in self.before
        require(
            not ours or leader == self.leader or there,
            f"leader {leader} has committed step {commit.step} after leader {self.leader} came",
        )
        self.know(branch, commit)

    def know(self, branch: int, commit: Commit) -> None:
        """Take note of a commit."""
        self.ownership.committed(branch, commit)
        self.commits[branch, commit.step] = commit
        self.branch, self.step = max((branch, commit.step), (self.branch, self.step))
        self.states = commit.states
        self._name(commit.states)
        self.named.update(file.name for file in commit.staged)
        self.positions.update((each.source, bytes(each.position)) for each in positions_of(commit))

    def branched(self, view: JournalView) -> None:
        """The pipeline went back to a checkpoint."""
        self._stands(view)
        self.published = {sink: min(s, self.step) for sink, s in self.published.items()}

    def kept(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is durable."""
        self._name(checkpoint.states)

    def repaired(self, repair: Repair) -> None:
        """A replay has ended: what it came to is what was lost (R9)."""
        if repair.step == self.step:
            require(
                self.states is None or same_content(self.states, repair.states),
                f"R9: the replay of step {repair.step} has come to another state",
            )
            self.states = repair.states
        self._name(repair.states)

    def ran(self, plan: Plan, reports: Sequence[Report]) -> None:
        """A step was run; if it was committed before, this was a replay."""
        self.ownership.ran(plan, reports)
        if plan.step <= self.step:
            self.wrote(reports)

    def wrote(self, reports: Sequence[Report]) -> None:
        """A replay has written files, which it may read in the steps after this one."""
        runs = (run for report in reports for state in report.states for run in state.runs)
        self.replayed |= files(tuple(runs))

    def found(self, view: JournalView) -> None:
        """A coordinator has read the journal: nothing that was committed may be missing."""
        where = (view.branch, view.step)
        require(
            where >= (self.branch, self.step),
            f"the journal stands at {where}, and {self.branch, self.step} was committed",
        )
        if view.commit is not None and where > (self.branch, self.step):
            if view.branch == self.branch:
                self.know(view.branch, view.commit)
            else:
                self._stands(view)
        if view.plan is not None:
            self.planned(view.branch, view.plan)
        self._stands(view)
        for checkpoint in view.checkpoints:
            self.kept(checkpoint)
            self._whole(checkpoint)

    def _whole(self, checkpoint: Checkpoint) -> None:
        """Whoever reads of a checkpoint in the journal can open it."""
        needed = files(*(state.runs for state in checkpoint.states)) - self.damaged
        gone = sorted(name for name in needed if not (self.store / name).exists())
        require(not gone, f"checkpoint {checkpoint.step} is kept without its files {gone}")

    def _stands(self, view: JournalView) -> None:
        self.branch, self.step = view.branch, view.step
        self.states = view.states if view.commit is not None else None
        self.ownership.line.cut(view.step)
        self._name(view.states)

    def held(self, step: int) -> Mapping[str, int]:
        """How many keys each state holds after a step, as far as that is (still) known."""
        line = self.ownership.line
        if step and step not in line.commits:
            return {}
        if callable(self.live):
            return self.live(line.positions(step))
        pages = len(line.read(step))
        return {name: known[pages] for name, known in self.live.items() if pages in known}

    def starts(self, plan: Plan, states: Sequence[OperatorState]) -> None:
        """A step begins with this state: that after the step before it (R2)."""
        if plan.step == self.step + 1 and self.states is not None:
            require(
                same_content(self.states, states),
                f"R2: step {plan.step} does not start with the state of step {self.step}",
            )
        held = self.held(plan.step - 1)
        for state in states:
            wanted = held.get(state.operator)
            require(
                wanted is None or sum(state.live) == wanted,
                f"R2: step {plan.step} starts with {sum(state.live)} keys of {state.operator!r}, "
                f"not {wanted}",
            )

    def read(self, process: str, path: Path | str) -> None:
        """A file is about to be read (R3)."""
        name = str(path).removeprefix(f"{self.store}/")
        if name.startswith(_ROOMS):
            require(
                name in self.named or name in self.replayed,
                f"R3: {process} reads {name}, which no commit names",
            )

    def acknowledged(self, source: str, position: bytes, opening: object) -> None:
        """A source was told that everything up to a position is committed (R5)."""
        require(
            (source, position) in self.positions,
            f"R5: {source!r} is told that {position!r} is committed",
        )
        self.heard[source, opening] = position

    def closed(self) -> None:
        """The pipeline has ended in order: its sources know what is committed (R5).

        A node that was left behind on another host may still tell its own opening of the source of
        an older commit: no fence reaches the outside, so each opening is looked at by itself.
        """
        last = self.commits.get((self.branch, self.step))
        for each in positions_of(last):
            told = {at for (name, _), at in self.heard.items() if name == each.source}
            require(
                bytes(each.position) in told,
                f"R5: {each.source!r} was last told of {sorted(told)}, and "
                f"{bytes(each.position)!r} is committed",
            )

    def publishing(self, sink: str, step: int) -> None:
        """A sink is about to be given a step (R6)."""
        known = any(committed == step for _, committed in self.commits)
        require(known, f"R6: {sink!r} publishes step {step} before its commit")
        require(
            step >= self.published.get(sink, 0),
            f"R6: {sink!r} publishes step {step} after {self.published.get(sink)}",
        )
        self.published[sink] = step

    def opened(self) -> None:
        """A node has opened its sinks: it may give them again what it is not sure of."""
        self.published.clear()

    def _name(self, states: Sequence[OperatorState]) -> None:
        self.named |= files(*(state.runs for state in states))
