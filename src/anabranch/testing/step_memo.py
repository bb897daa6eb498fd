"""Steps that were computed before, to be performed again without computing.

A step is a pure function of its input, its placement and the content of its state. A simulation
runs the same few steps again and again, in thousands of schedules; computing each of them once is
enough. What is not spared: every run of the state is opened and checked, every file is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from anabranch.messages import Attempt, Report, StateReport
from anabranch.node.program import Program
from anabranch.node.region_task import TaskPlace
from anabranch.operators.process import ProcessOperator
from anabranch.plan.step import OperatorState, Plan
from anabranch.state.bins import BinSet
from anabranch.state.disk import Disk
from anabranch.state.files import create_bulk_many
from anabranch.state.run_file import mapped
from anabranch.state.run_list import Listed, RunInfo, RunList

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
            mapped(self.root / run.name, run.bytes, run.checksum, "run")
            self.runs.add(run.name)


@dataclass(frozen=True, slots=True)
class DoneTask:
    """A task that was computed: what it read, what it wrote, and its report, as they were then."""

    place: TaskPlace
    report: Report
    owned: BinSet
    reads: tuple[str, ...]
    groups: tuple[Group, ...]

    def perform(
        self, store: OpenStore, states: Sequence[OperatorState], place: TaskPlace, old: RunNames
    ) -> Report:
        """Do it again under the names of another attempt, over state with the same content."""
        for state in states:
            if state.operator in self.reads:
                for listed in state.runs:
                    if listed.bins & self.owned:
                        store.read(listed.run)
        before, after = _stem(self.place), _stem(place)
        for group in self.groups:
            create_bulk_many(
                [(store.root / name.replace(before, after), data) for name, data in group],
                within=store.root,
            )
        return Report(
            place.attempt,
            (),
            tuple(_renamed(state, before, after, old) for state in self.report.states),
            tuple(
                msgspec.structs.replace(file, name=file.name.replace(before, after))
                for file in self.report.staged
            ),
            self.report.tallies,
            {},
        )


RunNames = dict[str, RunInfo]
"""The runs of a state when it was recorded, by name, and what they are called now."""


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was computed, task by task, level by level."""

    states: tuple[OperatorState, ...]
    tasks: tuple[DoneTask, ...]
    sources: tuple[Attempt, ...]

    def names(self, states: Sequence[OperatorState]) -> RunNames:
        """What the runs of the recorded state are called in this one."""
        return {
            then.run.name: now.run
            for before, after in zip(self.states, states, strict=True)
            for then, now in zip(before.runs, after.runs, strict=True)
        }


@dataclass(slots=True)
class StepMemo:
    """The steps that were computed, by all that determines them. For one program."""

    program: Program
    limit: int = 20_000
    hits: int = 0
    _steps: dict[Hashable, DoneStep] = field(default_factory=dict)

    def find(self, plan: Plan, states: Sequence[OperatorState]) -> DoneStep | None:
        """The same step, if it was computed before."""
        found = self._steps.get(self._key(plan, states))
        self.hits += found is not None
        return found

    def keep(self, plan: Plan, states: Sequence[OperatorState], done: DoneStep) -> None:
        """Remember a step."""
        if len(self._steps) < self.limit:
            self._steps[self._key(plan, states)] = done

    def _key(self, plan: Plan, states: Sequence[OperatorState]) -> Hashable:
        return (
            plan.step,
            plan.clock_ns if self._looks_at_clock() else 0,
            tuple((given.source, given.slices) for given in plan.inputs),
            tuple((a.region, a.workers, plan.workers(a.region)) for a in plan.placement),
            plan.unkeyed_workers,
            plan.ending,
            self._told(plan),
            tuple((state.live, _content(state.runs)) for state in states),
        )

    def _told(self, plan: Plan) -> Hashable:
        """What is told to workers, as far as it makes a difference."""
        if plan.moves is None:
            return None
        operators = self.program.operators.values()
        heard = any(isinstance(each, ProcessOperator) and each.hears for each in operators)
        return msgspec.json.encode(plan.moves) if heard else plan.moves.shutdown

    def _looks_at_clock(self) -> bool:
        expires = any(layout.expires for layout in self.program.layouts.values())
        operators = self.program.operators.values()
        return expires or any(isinstance(each, ProcessOperator) for each in operators)


@dataclass(slots=True)
class Recording(Disk):
    """Hands every call to another disk, and notes which files are created together."""

    inner: Disk
    groups: list[list[tuple[Path, bytes]]] = field(default_factory=list)
    _open: dict[int, tuple[Path, bytearray]] = field(default_factory=dict)

    def open(self, path: Path, flags: int) -> int:
        """Open."""
        handle = self.inner.open(path, flags)
        self._open[handle] = (path, bytearray())
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        """Write, and note what."""
        written = self.inner.write(handle, data)
        self._open[handle][1].extend(data[:written])
        return written

    def sync(self, handles: Mapping[Path, int]) -> dict[Path, OSError]:
        """Sync; the files among these are one group."""
        failed = self.inner.sync(handles)
        files = [self._open[handle] for path, handle in handles.items() if not path.is_dir()]
        if files:
            self.groups.append([(path, bytes(data)) for path, data in files])
        return failed

    def close(self, handle: int) -> None:
        """Close."""
        self._open.pop(handle, None)
        self.inner.close(handle)

    def link(self, source: Path, target: Path) -> None:
        """Link."""
        self.inner.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Rename."""
        self.inner.rename(source, target)

    def unlink(self, path: Path) -> None:
        """Remove."""
        self.inner.unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove a directory."""
        self.inner.rmdir(path)

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        self.inner.mkdir(path)

    def reading(self, path: Path) -> None:
        """Pass it on."""
        self.inner.reading(path)

    def settled(self) -> set[str]:
        """Pass it on."""
        return self.inner.settled()

    def taken(self, store: Path) -> tuple[Group, ...]:
        """What was created since the last time."""
        found = tuple(
            tuple((str(path.relative_to(store)), data) for path, data in group)
            for group in self.groups
        )
        self.groups.clear()
        return found


def _content(runs: RunList) -> Hashable:
    return tuple(
        (listed.run.checksum, listed.run.bytes, listed.run.rows, listed.bins) for listed in runs
    )


def _stem(place: TaskPlace) -> str:
    """The part of a file's name that is the attempt's."""
    return place.file_name("", "", "").removeprefix("//").removesuffix(".")


def _renamed(state: StateReport, before: str, after: str, old: RunNames) -> StateReport:
    runs = []
    for listed in state.runs:
        run = old.get(listed.run.name)
        if run is None:
            name = listed.run.name.replace(before, after)
            run = msgspec.structs.replace(listed.run, name=name)
        runs.append(Listed(run, listed.bins))
    return msgspec.structs.replace(state, runs=tuple(runs))
