"""A cluster in one thread: the real coordinator, node, journal, state and operators.

A seeded scheduler picks what happens next, one action at a time: an effect is performed, an event
handled, an order delivered, late or twice or not at all, a piece of a node's work done, something
goes wrong, time passes. Only Spark is replaced, by ``memory_plane``, and the disk, by
``faulty_disk``. At the end nothing goes wrong any more, the pipeline runs to its end, and what came
of it is compared with a reference. The same seed gives the same run.

``python -m anabranch.testing --seed 7`` runs one schedule and tells its story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random

from anabranch.coordinator.effects import (
    Announce,
    Answer,
    Effect,
    End,
    Fetch,
    FindNode,
    Give,
    Lead,
    MakeBranch,
    ReplaceNode,
    Take,
    WriteCommit,
)
from anabranch.coordinator.events import (
    Asked,
    Begun,
    BranchMade,
    CheckpointWritten,
    CommitWritten,
    EffectFailed,
    Event,
    Fenced,
    InputTaken,
    JournalRead,
    Led,
    NodeLost,
    NodeTold,
    RepairWritten,
    ResultFetched,
    TimePassed,
)
from anabranch.coordinator.machine import Machine
from anabranch.coordinator.operations import Operation, Start
from anabranch.coordinator.phases import Ended
from anabranch.coordinator.records import RecordEffect, Records
from anabranch.coordinator.settings import Settings
from anabranch.errors import AnabranchError, NodeUnreachable
from anabranch.errors import Fenced as FencedError
from anabranch.failures import failure_of
from anabranch.messages import Report
from anabranch.node.core import NodeCore
from anabranch.node.port import Failure
from anabranch.node.program import Program
from anabranch.plan.step import OperatorState, Plan
from anabranch.sources.port import NO_LIMIT, Batch, Enumerator, Limit, Source, SourceLog
from anabranch.state.leadership import Leadership
from anabranch.state.run_file import forget_runs
from anabranch.testing.clock import ManualClock
from anabranch.testing.faults import CALM, Weather
from anabranch.testing.faulty_disk import Crash, FaultyDisk
from anabranch.testing.freezing import Freezable
from anabranch.testing.memory_plane import MemoryPlane
from anabranch.testing.processes import CoordinatorProcess, NodeProcess
from anabranch.testing.rules import Broken, Rules
from anabranch.testing.step_memo import StepMemo
from anabranch.testing.trouble import Trouble

ACTIONS = 20_000
"""A run that is not over after so many actions never ends (R8)."""

TROUBLE = 1_500
"""After so many actions nothing goes wrong any more."""

CALM_FAILURES = 3
"""So often a pipeline may fail from what went wrong before, once nothing does any more."""


class Kind(StrEnum):
    """What can happen next."""

    THINK = "thinks"
    CALL = "calls"
    FIND = "finds the node"
    LOSE = "loses the node"
    HEAR = "hears"
    DELIVER = "is told"
    WAKE = "wakes"
    WORK = "works"
    LATE = "late attempt"
    ORPHAN = "orphaned attempt"
    START = "start"


_OF_EXECUTORS = frozenset({Kind.LATE, Kind.ORPHAN})


class SimulatedCluster:
    """One schedule. ``run`` goes through it; ``Broken`` says what was wrong."""

    def __init__(
        self,
        seed: int,
        program: Program,
        root: Path,
        *,
        memo: StepMemo | None = None,
        live: Mapping[str, Mapping[int, int]] | None = None,
        workers: int = 3,
        weather: Weather | None = None,
    ) -> None:
        """``root`` is an empty directory; ``live`` as in ``Scenario``."""
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock()
        self.program = program
        self.store = root / "store"
        self.workers = workers
        self.memo = memo
        for name in ("graves", "store"):
            (root / name).mkdir()
        self.disk = FaultyDisk(root / "graves", Random(seed + 1))
        self.rules = Rules(self.store, program.bins, live or {})
        self.disk.on_read = self.rules.read
        self.weather = Weather.drawn(self.random) if weather is None else weather
        self.trouble = Trouble(self)
        self.coordinators: list[CoordinatorProcess] = []
        self.node: NodeProcess | None = None
        #: attempts of nodes that are gone
        self.orphans: deque[Callable[[], None]] = deque()
        self.history: deque[tuple[int, float, str, str]] = deque(maxlen=3000)
        self.actions = 0
        self.complete = False
        self.failures = 0
        self._starts_at = 0.0
        self._numbers = 0
        self._coordinate: dict[Kind, Callable[[CoordinatorProcess], None]] = {
            Kind.THINK: self._think,
            Kind.CALL: self._call,
            Kind.FIND: self._find,
            Kind.LOSE: self._lose,
            Kind.HEAR: self._hear,
            Kind.DELIVER: self._deliver,
            Kind.WAKE: self._wake,
        }

    # -------------------------------------------------------------------------------- the schedule

    def run(self) -> None:
        """Let everything happen until the pipeline is complete."""
        try:
            while not self.complete:
                self.actions += 1
                if self.actions > ACTIONS:
                    raise Broken(f"R8: not over after {ACTIONS} actions")
                if self.actions == TROUBLE:
                    self._calm_down()
                self._happen()
        finally:
            self.trouble.end()
            for each in list(self.coordinators):
                self.kill_coordinator(each)

    def _happen(self) -> None:
        if self.trouble.happens():
            return
        found = self._possible()
        if not found:
            self._let_time_pass()
            return
        kind, process = self.random.choice(found)
        self.clock.pass_time(self.random.random() * 0.01 + self.disk.spent_seconds)
        self.disk.spent_seconds = 0.0
        self._act(kind, process)

    def _act(self, kind: Kind, process: CoordinatorProcess | NodeProcess | None) -> None:
        """Do something as a process, which may be its end."""
        name = "world" if process is None else process.name
        with self.disk.acting("executor" if kind in _OF_EXECUTORS else name):
            try:
                self._do(kind, process)
            except Crash:
                self.died(name)

    def _do(self, kind: Kind, process: CoordinatorProcess | NodeProcess | None) -> None:
        match process:
            case CoordinatorProcess():
                if kind is not Kind.THINK:
                    self.note(process.name, kind)
                self._coordinate[kind](process)
            case NodeProcess():
                if kind is Kind.WORK:
                    self._work(process)
                else:
                    self.note("executor", kind)
                    process.plane.go_on()
            case None:
                self.note("world", kind)
                if kind is Kind.START:
                    self.start_coordinator()
                else:
                    self._orphan()

    def _possible(self) -> list[tuple[Kind, CoordinatorProcess | NodeProcess | None]]:
        """All that can happen next."""
        now = self.clock.seconds
        found: list[tuple[Kind, CoordinatorProcess | NodeProcess | None]] = []
        idle = True
        for each in self.coordinators:
            if not each.frozen:
                idle = False
                self._of_coordinator(each, now, found)
        node = self.node
        if node is not None:
            if node.has_work(now):
                found += ((Kind.WORK, node), (Kind.WORK, node))
            if node.plane.late:
                found.append((Kind.LATE, node))
        if self.orphans:
            found.append((Kind.ORPHAN, None))
        if idle and now >= self._starts_at:
            found.append((Kind.START, None))
        return found

    def _of_coordinator(
        self,
        each: CoordinatorProcess,
        now: float,
        found: list[tuple[Kind, CoordinatorProcess | NodeProcess | None]],
    ) -> None:
        if each.effects or each.outcomes or each.inbox or each.stopped:
            found.append((Kind.THINK, each))
        if each.calls:
            found.append((Kind.CALL, each))
        if each.finding:
            found.append((Kind.FIND, each))
        if each.node is not None:
            if each.node is not self.node:
                found.append((Kind.LOSE, each))
            elif each.hears(now):
                found.append((Kind.HEAR, each))
        if each.tellings:
            found.append((Kind.DELIVER, each))
        if each.wakes is not None and each.wakes <= now:
            found.append((Kind.WAKE, each))

    def _let_time_pass(self) -> None:
        now = self.clock.seconds
        times = [now + 1.0, self._starts_at]
        times += [c.wakes for c in self.coordinators if c.wakes is not None and not c.frozen]
        later = min(time for time in times if time > now)
        self.clock.pass_time(later - now)

    def _calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.note("world", "calm")
        self.weather = CALM
        self.trouble.end()
        if self.node is not None:
            self.node.plane.chances = CALM.chances
            self.node.stuck = None
        for each in self.coordinators:
            each.frozen = False
            self.ask(each, Start())

    # -------------------------------------------------------------------------------- coordinators

    def start_coordinator(self, *, take_over: bool = False) -> CoordinatorProcess:
        """Begin another coordinator."""
        self._numbers += 1
        name = f"coordinator-{self._numbers}"
        frozen = any(each.frozen for each in self.coordinators)
        settings = Settings(
            workers=self.workers if self.random.random() < 0.8 else self.random.randint(1, 4),
            grace_seconds=62.0,
            query_seconds=2.0,
            checkpoint_seconds=self.random.choice((5.0, 300.0)),
            checkpoint_steps=self.random.choice((2, 5, 100)),
            max_unpublished_steps=self.random.choice((2, 64)),
        )
        machine = Machine(
            settings, take_over=take_over or (frozen and self.random.random() < 0.7), validate=True
        )
        leadership = Leadership(self.store / "journal")
        records = Records(leadership.journal, self._draw)
        made = CoordinatorProcess(name, machine, leadership, records)
        made.inbox.append(Begun())
        self.coordinators.append(made)
        self._starts_at = self.clock.seconds + self.random.random() * 3
        return made

    def ask(self, each: CoordinatorProcess, operation: Operation) -> None:
        """Let somebody ask a coordinator for something."""
        self._numbers += 1
        each.waiting.add(self._numbers)
        each.inbox.append(Asked(self._numbers, operation))

    def leading(self) -> CoordinatorProcess | None:
        """The coordinator that does something."""
        return next((each for each in self.coordinators if not each.frozen), None)

    def _think(self, each: CoordinatorProcess) -> None:
        self.note(each.name, _next_of(each))
        if each.stopped is not None:
            effect, work = each.stopped
            each.stopped = None
            self._go_on(each, effect, work)
        elif each.effects:
            outcome = self._perform(each, each.effects.popleft())
            if outcome is not None:
                each.outcomes.append(outcome)
        else:
            event = each.outcomes.popleft() if each.outcomes else each.inbox.popleft()
            each.effects.extend(each.machine.handle(self.clock.moment(), event))
            each.wakes = each.machine.wakes_at()
        if each.ended and not each.effects:
            self._over(each)

    def _over(self, each: CoordinatorProcess) -> None:
        phase = each.machine.memory.phase
        assert isinstance(phase, Ended)
        if each.waiting - {e.number for e in each.inbox if isinstance(e, Asked)}:
            raise Broken(f"R8: {each.name} ended without an answer to {each.waiting}")
        self.note(each.name, f"ended: {phase.failure}")
        each.leadership.release()
        self.coordinators.remove(each)
        if phase.failure is None and each.machine.memory.stopping is None:
            self.complete = True
        elif phase.failure is not None and self.weather is CALM:
            self.failures += 1
            fenced = phase.failure.code in ("coordinator.fenced", "directory.in_use")
            if self.failures > CALM_FAILURES and not fenced:
                raise Broken(f"the pipeline fails although nothing is wrong: {phase.failure}")

    def _perform(self, each: CoordinatorProcess, effect: Effect) -> Event | None:
        match effect:
            case Give() | Take() | Fetch():
                each.calls.append(effect)
            case FindNode() | ReplaceNode():
                each.finding.append(effect)
            case Announce():
                pass
            case Answer(number):
                each.waiting.discard(number)
            case End():
                each.ended = True
            case Lead(take_over):
                return self._lead(each, effect, take_over)
            case _:
                return self._record(each, effect)
        return None

    def _record(self, each: CoordinatorProcess, effect: RecordEffect) -> Event | None:
        """Perform an effect on the journal, in the middle of which the process may freeze."""
        if each.freezes is None:
            outcome = each.records.perform(effect)
            self._watch(each, effect, outcome)
            return outcome
        work = Freezable(lambda: each.records.perform(effect))
        self.disk.freeze_at(each.name, each.freezes, work.freeze)
        each.freezes = None
        self._go_on(each, effect, work)
        return None

    def _go_on(
        self, each: CoordinatorProcess, effect: Effect, work: Freezable[Event | None]
    ) -> None:
        if not work.resume():
            self.note(each.name, "is frozen")
            each.stopped, each.frozen = (effect, work), True
            self.start_coordinator(take_over=True)
            return
        self.disk.freeze_not(each.name)
        outcome = work.result()
        self._watch(each, effect, outcome)
        if outcome is not None:
            each.outcomes.append(outcome)

    def _lead(self, each: CoordinatorProcess, effect: Lead, take_over: bool) -> Event:
        try:
            leader = each.leadership.lead(take_over, "host", 1, self.clock.wall_ns)
        except AnabranchError as error:
            return EffectFailed(effect, failure_of(error))
        self.rules.led(leader)
        return Led(leader)

    def _watch(self, each: CoordinatorProcess, effect: Effect, outcome: Event | None) -> None:
        match effect, outcome:
            case WriteCommit(branch), CommitWritten(commit, ours):
                self.rules.committed(each.leader, branch, commit, ours=ours)
            case _, CheckpointWritten(checkpoint):
                self.rules.kept(checkpoint)
            case _, RepairWritten(repair):
                self.rules.repaired(repair)
            case MakeBranch(), BranchMade(standing) if each.leader == self.rules.leader:
                self.rules.branched(standing)
            case _, JournalRead(standing) if each.leader == self.rules.leader:
                # Whoever was frozen while it read has read what is long over.
                self.rules.found(standing)

    def _call(self, each: CoordinatorProcess) -> None:
        """Make a call to the node; it may be lost on its way there or back, or come twice."""
        effect = each.calls.popleft()
        self.note(each.name, _named(effect))
        drawn = self.random.random()
        lost, doubled = self.weather.lost_call, self.weather.doubled_call
        if drawn < lost / 2:
            outcome: Event | None = EffectFailed(effect, _unreachable("the call was lost"))
        else:
            outcome = self._made_call(each, effect)
            if drawn < lost:
                outcome = EffectFailed(effect, _unreachable("the answer was lost"))
            elif drawn < lost + doubled:
                outcome = self._made_call(each, effect)
        if outcome is not None:
            each.inbox.append(outcome)

    def _made_call(self, each: CoordinatorProcess, effect: Give | Take | Fetch) -> Event | None:
        node, leader = each.node, each.leader
        try:
            if node is None or node is not self.node:
                raise NodeUnreachable("The node is gone", do="It is being replaced.")
            core = node.core
            match effect:
                case Give(order):
                    core.take_order(leader, order)
                    return None
                case Take(step):
                    return InputTaken(step, core.take(leader, step))
                case Fetch(step, revision):
                    return ResultFetched(core.result(leader, step, revision))
        except FencedError as error:
            return Fenced(failure_of(error))
        except AnabranchError as error:
            return EffectFailed(effect, failure_of(error))

    def _find(self, each: CoordinatorProcess) -> None:
        effect = each.finding.popleft()
        try:
            if self.node is not None:
                self.node.core.told(each.leader)
                if isinstance(effect, ReplaceNode):
                    self.kill_node()
        except FencedError as error:
            each.inbox.append(Fenced(failure_of(error)))
            return
        each.node = self.node or self._start_node()
        each.heard_beat, each.heard_at = -1, self.clock.seconds
        each.tellings.clear()

    def _hear(self, each: CoordinatorProcess) -> None:
        node = each.node
        assert node is not None
        each.heard_beat, each.heard_at = node.core.beat, self.clock.seconds
        try:
            each.tellings.append(node.core.told(each.leader))
        except FencedError as error:
            each.node = None
            each.inbox.append(Fenced(failure_of(error)))

    def _deliver(self, each: CoordinatorProcess) -> None:
        """Deliver the oldest telling, or, now and then, one again or before its turn."""
        if self.random.random() < self.weather.old_telling:
            each.inbox.append(NodeTold(self.random.choice(each.tellings)))
        else:
            each.inbox.append(NodeTold(each.tellings.pop(0)))

    def _lose(self, each: CoordinatorProcess) -> None:
        each.node = None
        each.tellings.clear()
        each.inbox.append(NodeLost(_unreachable("its process is gone")))

    def _wake(self, each: CoordinatorProcess) -> None:
        each.wakes = None
        each.inbox.append(TimePassed())

    # ---------------------------------------------------------------------------------------- node

    def _start_node(self) -> NodeProcess:
        self._numbers += 1
        name = f"node-{self._numbers}"
        plane = _WatchedPlane(
            self.program,
            self.store,
            random=Random(self.random.getrandbits(64)),
            chances=self.weather.chances,
            memo=self.memo,
        )
        plane.rules = self.rules
        core = NodeCore(
            self.program,
            self.store,
            plane,
            "code",
            clock=lambda: self.clock.seconds,
            boot=name,
            open_source=self._open_source,
            grace_seconds=62.0,
            reached=self._reached,
        )
        self.node = NodeProcess(name, core, plane)
        return self.node

    def _work(self, node: NodeProcess) -> None:
        """Do one piece of work, of whichever kind has something to do."""
        kinds = list(node.work(self.clock.seconds))
        self.random.shuffle(kinds)
        for kind in kinds:
            beat = node.core.beat
            self.note(node.name, kind)
            if getattr(node.core, kind)():
                if kind == "open_pending":
                    self.rules.opened()
                break
            self.forget_note()
            node.idle[kind] = (beat, self.clock.seconds)
        if node.core.exit_asked:
            self._end_node(node)

    def _open_source(
        self, name: str, source: Source, position: bytes | None, log: SourceLog
    ) -> Enumerator:
        return _Watched(name, source.open(position, log), self.rules)

    def _reached(self, point: str, step: int) -> None:
        doing, _, sink = point.partition(" ")
        if doing == "publishing":
            self.rules.publishing(sink, step)

    def _orphan(self) -> None:
        work = self.orphans.popleft()
        try:
            work()
        except AnabranchError:
            return

    # ---------------------------------------------------------------------------------------- ends

    def died(self, process: str) -> None:
        """A process has crashed."""
        self.note(process, "is dead")
        if self.node is not None and self.node.name == process:
            self.kill_node()
        for each in [c for c in self.coordinators if c.name == process]:
            self.kill_coordinator(each)

    def kill_coordinator(self, each: CoordinatorProcess) -> None:
        """End a coordinator: its lock is free, and nobody gets an answer."""
        self.disk.kill(each.name)
        if each.stopped is not None:
            # Its next call to the disk is refused, so that its thread ends.
            with self.disk.acting(each.name):
                each.stopped[1].resume()
        each.leadership.abandon()
        self.coordinators.remove(each)
        self._starts_at = self.clock.seconds + self.random.random() * 5

    def kill_node(self) -> None:
        """End the node; attempts of its tasks may go on."""
        if self.node is not None:
            self.orphans.extend(self.node.plane.late)
            self._end_node(self.node)

    def _end_node(self, node: NodeProcess) -> None:
        self.disk.kill(node.name)
        self.node = None
        forget_runs()

    def power_cut(self) -> None:
        """Everything ends, and what was not synced is gone."""
        for each in list(self.coordinators):
            self.kill_coordinator(each)
        self.kill_node()
        self.orphans.clear()
        self.disk.power_cut()
        self.disk.revive("executor")
        self.disk.revive("supervisor")
        self.disk.revive("")

    def note(self, process: str, what: str) -> None:
        """Keep what happened, for the story of a failure."""
        self.history.append((self.actions, self.clock.seconds, process, what))

    def forget_note(self) -> None:
        """It did not happen after all."""
        self.history.pop()

    def story(self) -> list[str]:
        """The last actions, one a line."""
        return [
            f"{number:5d} {seconds:9.3f} {process}: {what}"
            for number, seconds, process, what in self.history
        ]

    def _draw(self) -> str:
        return f"{self.random.getrandbits(128):032x}"


class _WatchedPlane(MemoryPlane):
    """Runs steps, and tells the rules with which state they begin."""

    rules: Rules

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step."""
        self.rules.starts(plan, states)
        reports = super().run(plan, states)
        if plan.step <= self.rules.step:
            self.rules.ran([run for report in reports for s in report.states for run in s.runs])
        return reports


class _Watched:
    """An enumerator that tells the rules what is acknowledged (R5)."""

    def __init__(self, name: str, inner: Enumerator, rules: Rules) -> None:
        self._name = name
        self._inner = inner
        self._rules = rules

    def next(self, limit: Limit = NO_LIMIT) -> Batch:
        """The next input."""
        return self._inner.next(limit)

    def files(self) -> frozenset[str]:
        """What the source needs of its log."""
        return self._inner.files()

    def acknowledge(self, position: bytes) -> None:
        """Take note of what is committed."""
        self._rules.acknowledged(self._name, position)

    def close(self) -> None:
        """Let go of nothing."""


def _unreachable(what: str) -> Failure:
    return Failure("node.unreachable", what)


def _next_of(each: CoordinatorProcess) -> str:
    if each.stopped is not None:
        return f"goes on with {_named(each.stopped[0])}"
    if each.effects:
        return _named(each.effects[0])
    event = each.outcomes[0] if each.outcomes else each.inbox[0]
    return f"handles {type(event).__name__}"


def _named(effect: Effect) -> str:
    if isinstance(effect, Give):
        return f"gives {type(effect.order).__name__}"
    return type(effect).__name__
