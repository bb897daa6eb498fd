"""Steps that were computed before, to be performed again without computing.

A step is a pure function of its input, its placement and the content of its state. A simulation
runs the same few steps again and again, in thousands of schedules; computing each of them once is
enough. What is not spared: every run of the state is opened and checked, every file is written.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from anabranch.messages import Report, StateReport
from anabranch.operators.rows import Rows
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.records.run_list import Listed, RunInfo
from anabranch.runs.run_file import map_verified
from anabranch.store.disk import AnyPath, Disk
from anabranch.store.files import create_bulk_many
from anabranch.task.program import Program
from anabranch.task.task_place import TaskPlace
from anabranch.testing.plane.step_key import StepKeys

Group = tuple[tuple[str, bytes], ...]
"""Files that are created by one call: names below the store, and contents."""


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store as a process sees it: a run that was read once stays open."""

    root: Path
    runs: set[str] = field(default_factory=set)

    def read(self, run: RunInfo) -> None:
        """Make sure that a run is there, and whole."""
        if run.name not in self.runs:
            map_verified(f"{self.root}/{run.name}", run.bytes, run.checksum, "run")
            self.runs.add(run.name)


@dataclass(frozen=True, slots=True, eq=False)
class DoneTask:
    """A task that was computed: what it read, what it wrote, and its report, as they were then.

    ``read`` are, by operator, the names of the runs of its bins, and ``emitted`` the rows that it
    gave to later levels, by their producer.
    """

    place: TaskPlace
    report: Report
    owned: BinSet
    read: tuple[tuple[str, tuple[str, ...]], ...]
    groups: tuple[Group, ...]
    emitted: Mapping[int, Rows]

    @property
    def is_repeatable(self) -> bool:
        """Whether another attempt would write the same: blobs are named within a run."""
        return not any(run.run.blobs for state in self.report.states for run in state.runs)

    def perform(
        self, store: OpenStore, states: Sequence[OperatorState], place: TaskPlace
    ) -> Report:
        """Do it again under the names of another attempt, over state with the same content."""
        names: dict[str, RunInfo] = {}
        by_name = {state.operator: state for state in states}
        mine = self.owned.bits
        for operator, read in self.read:
            now = [each.run for each in by_name[operator].runs if each.bins.bits & mine]
            for name, run in zip(read, now, strict=True):
                store.read(run)
                names[name] = run
        before, after = _stem(self.place), _stem(place)
        for group in self.groups:
            files = [(store.root / name.replace(before, after), data) for name, data in group]
            create_bulk_many(files, within=store.root)
        report = self.report
        return Report(
            place.attempt,
            (),
            tuple([_renamed(state, before, after, names) for state in report.states]),
            tuple(
                [
                    msgspec.structs.replace(file, name=file.name.replace(before, after))
                    for file in report.staged
                ]
            ),
            report.tallies,
            {},
            pending=report.pending,
            wakes=report.wakes,
            late=report.late,
        )


@dataclass(frozen=True, slots=True)
class Role:
    """A task of a step, and who did it. Two workers may do the same, as those without bins do."""

    worker: int
    task: DoneTask

    @property
    def name(self) -> tuple[int, str, int]:
        """Level, group and worker."""
        attempt = self.task.place.attempt
        return attempt.level, attempt.group, self.worker


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was computed, task by task, level by level; and what read tasks reported."""

    roles: tuple[Role, ...]
    sources: tuple[Report, ...]


@dataclass(slots=True)
class StepMemo:
    """The steps and tasks that were computed, by all that determines them. For one program."""

    program: Program
    limit: int = 30_000
    arrivals: dict[Hashable, Any] = field(default_factory=dict)
    tasks: dict[Hashable, DoneTask] = field(default_factory=dict)
    keys: StepKeys = field(init=False)
    _steps: dict[Hashable, DoneStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing was computed yet."""
        self.keys = StepKeys.of(self.program)

    def find(self, plan: Plan, states: Sequence[OperatorState]) -> DoneStep | None:
        """The same step, if it was computed before."""
        return self._steps.get(self.keys.step(plan, states))

    def keep(self, plan: Plan, states: Sequence[OperatorState], done: DoneStep) -> None:
        """Remember a step."""
        if len(self._steps) < self.limit and all(role.task.is_repeatable for role in done.roles):
            self._steps[self.keys.step(plan, states)] = done

    def keep_task(self, key: Hashable, done: DoneTask) -> None:
        """Remember a task."""
        if len(self.tasks) < self.limit and done.is_repeatable:
            self.tasks[key] = done


class Recording:
    """Hands every call to another disk, and notes which files are synced together."""

    def __init__(self, inner: Disk) -> None:
        """Nothing was synced yet."""
        self._inner = inner
        self._groups: list[list[Path]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Pass everything else on."""
        return getattr(self._inner, name)

    def sync(self, handles: Mapping[AnyPath, int]) -> dict[AnyPath, OSError]:
        """Sync; the files among these are one group."""
        failed = self._inner.sync(handles)
        if files := [Path(path) for path in handles if not os.path.isdir(path)]:
            self._groups.append(files)
        return failed

    def taken(self, store: Path) -> tuple[Group, ...]:
        """What was created since the last time."""
        groups, self._groups = self._groups, []
        return tuple(
            tuple((str(path.relative_to(store)), path.read_bytes()) for path in group)
            for group in groups
        )


def _stem(place: TaskPlace) -> str:
    """The part of a file's name that is the attempt's."""
    return place.file_name("", "", "")[2:-1]


def _renamed(
    state: StateReport, before: str, after: str, old: Mapping[str, RunInfo]
) -> StateReport:
    """A state whose new runs are another attempt's; ``old`` are those that it had, by name."""
    runs = []
    for listed in state.runs:
        run = old.get(listed.run.name)
        if run is None:
            name = listed.run.name.replace(before, after)
            run = msgspec.structs.replace(listed.run, name=name)
        runs.append(Listed(run, listed.bins))
    return msgspec.structs.replace(state, runs=tuple(runs))
