"""Steps that were computed before, to be performed again without computing.

A step is a pure function of its input, its placement and the content of its state. A simulation
runs the same few steps again and again, in thousands of schedules; computing each of them once is
enough. What is not spared: every run of the state is opened and checked, every file is written.
"""

from __future__ import annotations

import contextlib
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
from anabranch.store.disk import DIRECTORY, NEW, AnyPath, Disk, disk
from anabranch.store.files import create_bulk_many, store_errors
from anabranch.task.program import Program
from anabranch.task.region_task import TaskPlace
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

    def create(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Create files together, by the calls to the disk that ``create_bulk_many`` makes.

        Where all is well: anything else is left to that.
        """
        now, root = disk(), str(self.root)
        known = now.durable_directories()
        rooms = list({f"{root}/{name[: name.rindex('/')]}": None for name, _ in files})
        if not all(room in known for room in rooms):
            paths = [(self.root / name, data) for name, data in files]
            return create_bulk_many(paths, within=self.root)
        handles: dict[str, int] = {}
        try:
            with store_errors(self.root, "create"):
                for name, data in files:
                    path = f"{root}/{name}"
                    handles[path] = now.open(path, NEW)
                    rest = memoryview(data)
                    while rest.nbytes:
                        rest = rest[now.write(handles[path], rest) :]
                for room in rooms:
                    handles[room] = now.open(room, DIRECTORY)
                for error in now.sync(handles).values():
                    raise error
        except BaseException:
            for made in handles:
                if made not in rooms:
                    with contextlib.suppress(OSError):
                        now.unlink(made)
            raise
        finally:
            for handle in handles.values():
                now.close(handle)


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
        names: RunNames = {}
        by_name = {state.operator: state for state in states}
        mine = self.owned.bits
        for operator, read in self.read:
            now = [each.run for each in by_name[operator].runs if each.bins.bits & mine]
            for name, run in zip(read, now, strict=True):
                store.read(run)
                names[name] = run
        before, after = _stem(self.place), _stem(place)
        for group in self.groups:
            store.create([(name.replace(before, after), data) for name, data in group])
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
        )


RunNames = dict[str, RunInfo]
"""The runs of a state when it was recorded, by name, and what they are called now."""


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
    hits: int = 0
    arrivals: dict[Hashable, Any] = field(default_factory=dict)
    tasks: dict[Hashable, DoneTask] = field(default_factory=dict)
    keys: StepKeys = field(init=False)
    _steps: dict[Hashable, DoneStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing was computed yet."""
        self.keys = StepKeys.of(self.program)

    def find(self, plan: Plan, states: Sequence[OperatorState]) -> DoneStep | None:
        """The same step, if it was computed before."""
        found = self._steps.get(self.keys.step(plan, states))
        self.hits += found is not None
        return found

    def keep(self, plan: Plan, states: Sequence[OperatorState], done: DoneStep) -> None:
        """Remember a step."""
        if len(self._steps) < self.limit and all(role.task.is_repeatable for role in done.roles):
            self._steps[self.keys.step(plan, states)] = done

    def keep_task(self, key: Hashable, done: DoneTask) -> None:
        """Remember a task."""
        if len(self.tasks) < self.limit and done.is_repeatable:
            self.tasks[key] = done


@dataclass(slots=True)
class Recording(Disk):
    """Hands every call to another disk, and notes which files are created together."""

    inner: Disk
    groups: list[list[tuple[Path, bytes]]] = field(default_factory=list)
    _open: dict[int, tuple[Path, bytearray]] = field(default_factory=dict)

    def open(self, path: Path | str, flags: int) -> int:
        """Open."""
        handle = self.inner.open(path, flags)
        self._open[handle] = (Path(path), bytearray())
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        """Write, and note what."""
        written = self.inner.write(handle, data)
        self._open[handle][1].extend(data[:written])
        return written

    def sync(self, handles: Mapping[AnyPath, int]) -> dict[AnyPath, OSError]:
        """Sync; the files among these are one group."""
        failed = self.inner.sync(handles)
        files = [self._open[h] for path, h in handles.items() if not os.path.isdir(path)]
        if files:
            self.groups.append([(path, bytes(data)) for path, data in files])
        return failed

    def close(self, handle: int) -> None:
        """Close."""
        self._open.pop(handle, None)
        self.inner.close(handle)

    def link(self, source: Path | str, target: Path) -> None:
        """Link."""
        self.inner.link(source, target)

    def rename(self, source: Path | str, target: Path) -> None:
        """Rename."""
        self.inner.rename(source, target)

    def unlink(self, path: Path | str) -> None:
        """Remove."""
        self.inner.unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove a directory."""
        self.inner.rmdir(path)

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        self.inner.mkdir(path)

    def before_read(self, path: Path | str) -> None:
        """Pass it on."""
        self.inner.before_read(path)

    def durable_directories(self) -> set[str]:
        """Pass it on."""
        return self.inner.durable_directories()

    def taken(self, store: Path) -> tuple[Group, ...]:
        """What was created since the last time."""
        found = tuple(
            tuple((str(path.relative_to(store)), data) for path, data in group)
            for group in self.groups
        )
        self.groups.clear()
        return found


def _stem(place: TaskPlace) -> str:
    """The part of a file's name that is the attempt's."""
    return place.file_name("", "", "")[2:-1]


def _renamed(state: StateReport, before: str, after: str, old: RunNames) -> StateReport:
    runs = []
    for listed in state.runs:
        run = old.get(listed.run.name)
        if run is None:
            name = listed.run.name.replace(before, after)
            run = msgspec.structs.replace(listed.run, name=name)
        runs.append(Listed(run, listed.bins))
    return msgspec.structs.replace(state, runs=tuple(runs))
