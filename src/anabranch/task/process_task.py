"""A ``process`` in a task's step that time, the end of its input or messages concern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa

from anabranch.messages import Acquire, Collect, Message
from anabranch.operators.control.message_dispatch import ProcessStep, no_keys
from anabranch.operators.control.messaging import Passage
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows, StateChanges
from anabranch.operators.timed import FrontierMove, TimedResult
from anabranch.operators.timers.process_work import ProcessWork
from anabranch.operators.timers.timed_process import TimedProcess
from anabranch.records.bins import BinSet, Hashes, bin_of
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import Groups
from anabranch.task.state_access import StateAccess
from anabranch.task.task_state import all_keys


@dataclass
class ProcessTask:
    """One operator in one task; its key has the columns ``key``."""

    operator: ProcessOperator
    access: StateAccess
    failures: list[RowFailure] | None
    key: pa.Schema

    def __post_init__(self) -> None:
        self._states: dict[str, RegionState] = self.access.open_all(self.operator)
        self._timed = TimedProcess(self.operator)

    @property
    def frontier(self) -> FrontierMove:
        """How far the operator's frontier moves."""
        return self.access.notes.frontier(self.operator.name)

    def run(self, rows: Rows | None) -> TimedResult:
        """Run a step, and write its changes."""
        with self.access.times.operating():
            made = self._timed.step(
                rows,
                self.frontier,
                self.access.views(self._states),
                now_ns=self.access.place.clock_ns,
                dead=self.failures,
                ending=self._ending(),
            )
        self.write(made.changes, made.overdue)
        return made

    def whole_work(self, rows: Rows | None) -> tuple[ProcessWork, Rows | None]:
        """All work of a step at once, for a class that gets messages; and the late rows.

        It also knows the keys with saved state in bins that arrive or leave.
        """
        clock, views = self.access.place.clock_ns, self.access.views(self._states)
        parts, late = self._timed.parts(rows, self.frontier, views, clock)
        work = ProcessWork(
            self.operator,
            parts,
            views,
            clock,
            dead=self.failures,
            frontier=self.frontier,
            more=(*self._ending(), *self._moving(), no_keys(self.key)),
        )
        return work, late

    def write(self, changes: dict[str, StateChanges], overdue: Hashes | None) -> None:
        """Write the changes of a step, and note what is pending."""
        access, operator = self.access, self.operator
        access.write_all(self._states, changes)
        due = list(access.due_states(operator, self._states))
        if overdue is not None:
            bins, clock = access.program.bins, access.place.clock_ns
            waiting = bin_of(overdue, bins)
            due.append(access.notes.note_overdue(operator.name, waiting, bins, clock))
        access.notes.note_pending(self._timed, due)

    def _ending(self) -> Iterable[Groups]:
        """The keys with state, if the class is to be told the end of the input."""
        if not (self.operator.handles_end and self.frontier.ends):
            return ()
        return self.access.keys_with_state(self.operator, self._states, self.frontier)

    def _moving(self) -> Iterable[Groups]:
        """The keys with saved state in bins that arrive or leave."""
        saved = self.operator.saved
        if saved is None:
            return ()
        moves = [m for m in self.access.control.messages if isinstance(m, Acquire | Collect)]
        handled = (m.bins for m in moves if self.operator.handles_message(m))
        bins = reduce(or_, handled, BinSet())
        state = self.access.open(saved.state, bins)
        found = all_keys([(state, self.access.place.clock_ns)], bins)
        return () if found is None else (found,)


class ToldProcess:
    """A class that gets messages: before the data, and after it, when its state is written."""

    def __init__(self, task: ProcessTask, passage: Passage, node: int) -> None:
        self._task = task
        self._passage = passage
        self._node = node

    def run(self, rows: Rows | None) -> tuple[Rows | None, Rows | None]:
        """Deliver the messages before the data, then run the step; returns output and late rows."""
        with self._task.access.times.spent("operator"):
            work, late = self._task.whole_work(rows)
            self.step = ProcessStep(self._task.operator, work, self._task.access.program.bins)
            for message in self._passage.before_data(self._node):
                self.handle(message)
            return work.run(), late

    def handle(self, message: Message) -> None:
        """Deliver a message, if the class has a method for it."""
        if self._task.operator.handles_message(message):
            with self._task.access.times.spent("messages"):
                count = self.step.handle(message)
                self._passage.mark_handled(self._node, message, count)

    def finish(self) -> None:
        """Write the state, after the last message."""
        with self._task.access.times.spent("operator"):
            changes = self.step.work.changes()
        self._task.write(changes, self.step.work.overdue())
