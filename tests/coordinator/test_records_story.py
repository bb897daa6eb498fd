"""Any story of steps, checkpoints, repairs, rewinds, trims and restarts agrees with a plain model.

The model is one list: the steps that lead to where the pipeline stands. A rewind cuts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.coordinator.effects import ReadStep, WritePlan
from anabranch.coordinator.events import StepRead
from anabranch.coordinator.journal_view import JournalView
from anabranch.protocol.node import Output
from anabranch.records.commit import Checkpoint, Commit
from anabranch.records.leader import Identity
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from tests.coordinator.records_kit import Office, plan, state

Action: TypeAlias = tuple[str, int]


@dataclass
class Model:
    """Where a pipeline stands, and the line of steps behind it."""

    branches: list[int] = field(default_factory=lambda: [0])
    newest: int = 0
    #: whether the branch has left another one and has no commit of its own
    rewound: bool = False
    #: where the branch has left another one, as long as nothing has happened in it
    untouched: tuple[int, int] | None = None
    line: list[Commit] = field(default_factory=list)
    #: the branch of each step of the line
    owners: dict[int, int] = field(default_factory=dict)
    at: Commit | None = None
    states: tuple[OperatorState, ...] = ()
    repairs: int = 0
    plan: Plan | None = None
    published: int = 0
    #: by branch and step, what was said durably
    said: list[tuple[int, int]] = field(default_factory=list)
    below: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)

    @property
    def branch(self) -> int:
        return self.branches[-1]

    @property
    def step(self) -> int:
        return 0 if self.at is None else self.at.step

    def stands_at(self, commit: Commit) -> None:
        self.at, self.states, self.repairs, self.plan = commit, commit.states, 0, None

    def expected(self) -> JournalView:
        unpublished = [c for c in self.line if max(self.published + 1, self.below) <= c.step]
        return JournalView(
            identity=Identity("drawn-0", "orders", 2),
            branch=self.branch,
            commit=self.at,
            states=self.states,
            plan=self.plan,
            outputs=tuple(Output(c.step, c.staged, self.owners[c.step]) for c in unpublished),
            published={} if self.at is None else {"out": self.published},
            checkpoints=tuple(self.checkpoints),
            replayable=min(max(self.below, 1), self.step + 1),
            repairs=self.repairs,
            rewound=self.rewound,
        )


def take_step(office: Office, model: Model, number: int) -> None:
    """Publish a little, then commit a step that says so."""
    model.untouched = None
    model.published = min(model.published + number, model.step)
    commit = office.step(model.step + 1, model.published, branch=model.branch)
    model.line.append(commit)
    model.owners[commit.step] = model.branch
    model.stands_at(commit)
    model.rewound = False


def write_plan(office: Office, model: Model, number: int) -> None:
    model.untouched = None
    revision = 0 if model.plan is None else model.plan.revision + 1
    model.plan = plan(model.step + 1, revision)
    office.perform(WritePlan(model.branch, model.plan))


def keep(office: Office, model: Model, number: int) -> None:
    if model.at is None or any(kept.step == model.step for kept in model.checkpoints):
        return
    model.untouched = None
    repaired = None if model.states == model.at.states else model.states
    kept = Checkpoint(model.branch, model.at, {"out": model.published}, repaired)
    model.checkpoints.append(office.keep(kept))
    model.rewound = False


def repair(office: Office, model: Model, number: int) -> None:
    if model.at is not None:
        model.untouched = None
        model.repairs += 1
        text = f"repaired-{model.branch}-{model.step}-{model.repairs}"
        model.states = state(text)
        office.repair(model.branch, model.step, model.repairs, text)


def publish(office: Office, model: Model, number: int) -> None:
    if model.at is not None:
        model.published = max(model.published, model.step - number)
        model.untouched = None
        model.said.append((model.branch, model.published))
        office.publish(model.branch, model.published)


def rewind(office: Office, model: Model, number: int) -> None:
    if not model.checkpoints:
        return
    place = number % len(model.checkpoints)
    kept = model.checkpoints[place]
    journal = office.rewind(kept)
    if model.untouched != (kept.branch, kept.step):
        model.newest += 1
        older = model.branches[: model.branches.index(kept.branch) + 1]
        model.branches = [*older, model.newest]
        model.untouched = (kept.branch, kept.step)
    assert journal.branch == model.branch
    model.rewound = True
    model.checkpoints = model.checkpoints[: place + 1]
    model.line = [commit for commit in model.line if commit.step <= kept.step]
    model.said = [(b, s) for b, s in model.said if b in model.branches and s <= kept.step]
    model.stands_at(kept.opened())
    # What was folded up had been published.
    folded = min(model.below - 1, kept.step)
    model.published = max([kept.published["out"], folded, *(step for _, step in model.said)])


def trim(office: Office, model: Model, number: int) -> None:
    if model.at is None:
        return
    model.checkpoints = model.checkpoints[-1 - number % 2 :]
    oldest = model.checkpoints[0].step if model.checkpoints else model.step
    below = min(oldest, model.published) + 1
    office.trim(model.branch, below, *(kept.step for kept in model.checkpoints))
    # The last step stays in any case.
    model.below = max(model.below, min(below, model.step))
    model.said = [(branch, step) for branch, step in model.said if step >= model.below]


def restart(office: Office, model: Model, number: int) -> None:
    office.restart()


VERBS = {
    "step": take_step,
    "plan": write_plan,
    "keep": keep,
    "repair": repair,
    "publish": publish,
    "rewind": rewind,
    "trim": trim,
    "restart": restart,
}

often = ["step", "step", "step", "keep", *VERBS]
stories = st.lists(st.tuples(st.sampled_from(often), st.integers(0, 3)), max_size=25)


@settings(max_examples=60)
@given(story=stories)
def test_the_journal_says_what_happened(
    tmp_path_factory: pytest.TempPathFactory, story: list[Action]
) -> None:
    office, model = Office(tmp_path_factory.mktemp("story")), Model()
    office.identify()
    for verb, number in story:
        VERBS[verb](office, model, number)
        assert office.view() == model.expected()
    for commit in model.line:
        if commit.step >= model.below:
            report = office.perform(ReadStep(model.branch, commit.step))
            assert report == StepRead(plan(commit.step), commit)
    office.leadership.release()
