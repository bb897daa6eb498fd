"""A data plane without Spark: the node, the journal and the region tasks run for real.

It moves rows between tasks in this process. What it does not have: SQL beyond ``plain_sql``,
and any parallelism. Rows reach a task backwards, as a shuffle might bring them. As Spark
does, it may run attempts whose work is not used, lose a report, let two tasks use different
attempts of a third, and let attempts go on long after their step is over.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from anabranch.errors import AnabranchError, ReadFailed
from anabranch.messages import Attempt, Report
from anabranch.node.step_outcome import task_of
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.task.program import Program
from anabranch.task.task_place import TaskPlace
from anabranch.task.worker_home import Homes
from anabranch.testing.plane.chains import Chains
from anabranch.testing.plane.computed_step import ComputedStep
from anabranch.testing.plane.step_memo import DoneStep, OpenStore, Role, StepMemo


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely it is, in each step, that something happens to one of its tasks.

    ``retried``: an attempt is repeated and its work not used. ``late``: one goes on after the step
    is over. ``mixed``: two tasks use different attempts of another. ``unreported``: a report is
    lost. ``failed``: the step fails.
    """

    retried: float = 0.0
    late: float = 0.0
    mixed: float = 0.0
    unreported: float = 0.0
    failed: float = 0.0


@dataclass
class MemoryPlane:
    """Runs steps in this process.

    ``mixed`` is how many of the next runs let two workers use different attempts of a read task;
    ``before`` is called with every plan, and may raise. With ``memo``, a step that was computed
    before is not computed again.
    """

    program: Program
    store: Path
    mixed: int = 0
    before: Callable[[Plan], None] = lambda plan: None
    ran: list[Plan] = field(default_factory=list)
    random: Random = field(default_factory=Random)
    chances: Chances = field(default_factory=Chances)
    memo: StepMemo | None = None
    homes: Homes | None = None
    #: attempts that go on: each is one more action of somebody whose work nobody waits for
    late: deque[Callable[[], object]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Open nothing yet; ``InvalidDataflow`` if the dataflow needs Spark."""
        self.chains = Chains.of(self.program)
        self.open = OpenStore(self.store)

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step and give the reports of all its tasks."""
        self.ran.append(plan)
        self.before(plan)
        if self._happens(self.chances.failed):
            raise ReadFailed("a task was lost", where=f"step {plan.step}", do="Run it again.")
        done = None if self.memo is None else self.memo.find(plan, states)
        if done is None:
            reports, done = ComputedStep(
                self.program,
                self.chains,
                self.open,
                self.attempt,
                plan,
                states,
                homes=self.homes,
                memo=self.memo,
                recorded=self.memo is not None or self.chances != Chances(),
            ).run()
            if self.memo is not None:
                self.memo.keep(plan, states, done)
        else:
            reports = [self._read_again(report) for report in done.sources]
            for role in done.roles:
                reports.append(role.task.perform(self.open, states, self._place(plan, role)))
        return self._disturbed(_linked(reports), done, plan, states)

    def attempt(self, level: int, group: str, worker: int) -> Attempt:
        """A new attempt of a task."""
        return Attempt(level, group, worker, f"{self.random.getrandbits(128):032x}")

    def _place(self, plan: Plan, role: Role) -> TaskPlace:
        """A new attempt of a task that was done before."""
        return TaskPlace(plan.step, plan.revision, self.attempt(*role.name), plan.clock_ns)

    def _disturbed(
        self, reports: list[Report], done: DoneStep, plan: Plan, states: Sequence[OperatorState]
    ) -> list[Report]:
        """What Spark makes of the reports: more attempts, fewer reports, other attempts used."""
        states = tuple(states)
        role = self.random.choice(done.roles)
        task, place = role.task, self._place(plan, role)
        if self._happens(self.chances.retried):
            task.perform(self.open, states, place)
        elif self._happens(self.chances.late):
            self.late.append(lambda: task.perform(self.open, states, place))

        def again(attempt: Attempt) -> Report:
            return self._again(attempt, done, plan, states)

        using = [place for place, report in enumerate(reports) if report.consumed]
        if self.mixed > 0:
            self.mixed -= 1
            reports = self._with_another(reports, using[0], 0, again)
        elif self._happens(self.chances.mixed):
            chosen = self.random.choice(using)
            number = self.random.randrange(len(reports[chosen].consumed))
            reports = self._with_another(reports, chosen, number, again)
        if self._happens(self.chances.unreported):
            reports.pop(self.random.randrange(len(reports)))
        return reports

    def _with_another(
        self, reports: list[Report], place: int, number: int, again: Callable[[Attempt], Report]
    ) -> list[Report]:
        """Reports of which one used another attempt of a task than the others did."""
        used = list(reports[place].consumed)
        first = next(report for report in reports if report.attempt == used[number])
        other = msgspec.structs.replace(again(used[number]), consumed=first.consumed)
        used[number] = other.attempt
        changed = msgspec.structs.replace(reports[place], consumed=tuple(used))
        return [*reports[:place], changed, *reports[place + 1 :], other]

    def _again(
        self, attempt: Attempt, done: DoneStep, plan: Plan, states: Sequence[OperatorState]
    ) -> Report:
        """Let a task be done by another attempt."""
        for role in done.roles:
            if role.name == task_of(attempt):
                return role.task.perform(self.open, states, self._place(plan, role))
        return self._read_again(
            next(each for each in done.sources if task_of(each.attempt) == task_of(attempt))
        )

    def _read_again(self, report: Report) -> Report:
        """The report of another attempt of a read task."""
        was = report.attempt
        again = self.attempt(was.level, was.group, was.worker)
        return msgspec.structs.replace(report, attempt=again)

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


def go_on(late: deque[Callable[[], object]]) -> None:
    """Let the next attempt of a step that is over do its work. Nobody hears if it fails."""
    with contextlib.suppress(AnabranchError):
        late.popleft()()


def _linked(reports: Sequence[Report]) -> list[Report]:
    """Reports, in the order of their levels, that say which attempts their tasks used.

    They are all those of the level before.
    """
    by_level: dict[int, tuple[Attempt, ...]] = {}
    for attempt in (report.attempt for report in reports):
        by_level[attempt.level] = (*by_level.get(attempt.level, ()), attempt)
    used = dict(zip([*by_level][1:], by_level.values(), strict=False))
    return [
        msgspec.structs.replace(report, consumed=used.get(report.attempt.level, ()))
        for report in reports
    ]
