"""The states of a task's operators: how they are opened, read and written in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from anabranch.messages import Control, Load, StateReport
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import StateChanges
from anabranch.operators.states import StatefulOperator, state_shapes
from anabranch.operators.timed import FrontierMove
from anabranch.records.bins import BinSet
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups
from anabranch.task.program import Program
from anabranch.task.task_place import TaskPlace
from anabranch.task.task_state import TimedState, all_keys, shares_of_keys
from anabranch.task.task_times import TaskTimes
from anabranch.task.time_notes import DueState, TimeNotes
from anabranch.task.worker_home import WorkerHome


@dataclass
class StateAccess:
    """Opens the states of a task as the commit before left them, and writes their changes.

    ``written`` are the reports of what was written.
    """

    program: Program
    store: Path
    control: Control
    place: TaskPlace
    home: WorkerHome
    times: TaskTimes
    notes: TimeNotes
    written: list[StateReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loads = {m.operator: m for m in self.control.messages if isinstance(m, Load)}

    def open_all(self, operator: StatefulOperator) -> dict[str, RegionState]:
        """The states of an operator in the owned bins."""
        return {shape.name: self.open(shape.name) for shape in state_shapes(operator)}

    def open(self, name: str, bins: BinSet | None = None) -> RegionState:
        """A state in some bins; in the owned ones if none are given."""
        load = self._loads[name]
        return RegionState(
            name,
            self.program.layouts[name],
            load.runs,
            self.store,
            self.program.bins,
            self.control.owned if bins is None else bins,
            load.live,
            files=self.home.files,
        )

    def views(self, states: Mapping[str, RegionState]) -> dict[str, TimedState]:
        """The states as an operator reads them."""
        clock, step = self.place.clock_ns, self.place.step
        return {
            name: TimedState(state, clock, self.expires_at(name), step, self.times)
            for name, state in states.items()
        }

    def expires_at(self, state: str) -> int:
        """What the rows of a state expire by: the step's clock, or the operator's frontier."""
        shape, operator = self.program.states[state]
        by_event = shape.clock == "event"
        return self.notes.frontier(operator).until if by_event else self.place.clock_ns

    def write_all(
        self, states: Mapping[str, RegionState], changes: Mapping[str, StateChanges]
    ) -> None:
        """Write the changes of states, and the merges that are due."""
        for name, state in states.items():
            changed = changes.get(name)
            # Without changes there may be merges that are due.
            if changed is not None or self._loads[name].runs:
                with self.times.spent("write"):
                    self._write(name, state, changed)

    def due_states(
        self, operator: StatefulOperator, states: Mapping[str, RegionState]
    ) -> Iterator[DueState]:
        """What falls due of an operator's states, as the step leaves them."""
        for shape in state_shapes(operator):
            if shape.dues:
                now = self.expires_at(shape.name)
                left = self._reopen(shape.name, states[shape.name])
                yield DueState(shape.name, shape.clock, now, left.next_due(now))

    def keys_with_state(
        self, operator: ProcessOperator, states: Mapping[str, RegionState], frontier: FrontierMove
    ) -> Iterator[Groups]:
        """The keys of which an operator keeps something, timers aside, a few bins at a time.

        By event time: before the frontier moves.
        """
        kept = [
            (states[spec.state], frontier.since if spec.clock == "event" else self.place.clock_ns)
            for spec in operator.states
        ]
        for bins in shares_of_keys(np.sum([state.live for state, _ in kept], axis=0)):
            groups = all_keys(kept, bins)
            if groups is not None:
                yield groups

    def _reopen(self, name: str, before: RegionState) -> RegionState:
        """The state as the step leaves it."""
        written = next((each for each in self.written if each.operator == name), None)
        if written is None:
            return before
        return RegionState(
            name,
            self.program.layouts[name],
            written.runs,
            self.store,
            self.program.bins,
            self.control.owned,
            written.live,
            files=self.home.files,
        )

    def _write(self, state_name: str, state: RegionState, changes: StateChanges | None) -> None:
        name = self.place.file_name("run", state_name, "arrow")
        change = state.write(
            None if changes is None else changes.changed,
            name,
            found=None if changes is None else changes.found,
            now_ns=self.expires_at(state_name),
            still=self.home.held,
            # Both copies and merges would make this the longest step of a rescale.
            bursts=not self.home.is_moving,
        )
        if change is None:
            return
        self.times.seconds["merge"] += change.compaction_seconds
        live, owned = tuple(change.live.tolist()), self.control.owned
        self.written.append(
            StateReport(state_name, owned, change.runs, live, change.compacted_rows)
        )
