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
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from anabranch.coordinator.driver.journal_writer import JournalWriter
from anabranch.coordinator.events import Asked, Begun, TimePassed
from anabranch.coordinator.machine import Machine
from anabranch.coordinator.operations import Operation, StartPipeline
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import Leadership
from anabranch.runs.run_file import forget_runs
from anabranch.task.program import Program
from anabranch.testing.clock import ManualClock
from anabranch.testing.cluster.actions import OF_EXECUTORS, Action, Kind, of_coordinator, of_node
from anabranch.testing.cluster.calls import Calls
from anabranch.testing.cluster.coordination import Coordination
from anabranch.testing.cluster.fault_injection import Trouble
from anabranch.testing.cluster.faults import CALM, Weather, drawn_settings
from anabranch.testing.cluster.node_work import NodeWork
from anabranch.testing.cluster.ownership import Ownership
from anabranch.testing.cluster.processes import CoordinatorProcess, SimulatedNode
from anabranch.testing.cluster.rule_broken import Broken
from anabranch.testing.cluster.rules import Rules
from anabranch.testing.faulty_disk import Crash, FaultyDisk
from anabranch.testing.plane.memory_plane import go_on
from anabranch.testing.plane.step_memo import StepMemo
from anabranch.testing.plane.tables import Known, Tables
from anabranch.testing.scenario import Live

ACTIONS = 20_000
"""A run that is not over after so many actions never ends (R8)."""

TROUBLE = 1_200
"""After so many actions nothing goes wrong any more."""


class SimulatedCluster:
    """One schedule. ``run`` goes through it; ``Broken`` says what was wrong."""

    def __init__(
        self,
        seed: int,
        program: Program,
        root: Path,
        *,
        memo: StepMemo | None = None,
        known: Known | None = None,
        live: Live | None = None,
        workers: int = 3,
        weather: Weather | None = None,
        sinks_away: float = 0.0,
    ) -> None:
        """``root`` is an empty directory; ``live`` and ``sinks_away`` as in ``Scenario``."""
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock()
        self.program = program
        self.store = root / "store"
        self.workers = workers
        self.sinks_away = sinks_away
        self.memo = memo
        self.tables = Tables(self.store, known)
        for name in ("graves", "store"):
            (root / name).mkdir()
        self.disk = FaultyDisk(root / "graves", Random(seed + 1))
        self.rules = Rules(self.store, Ownership(program), live or {})
        self.disk.on_read = self.rules.read
        self.weather = Weather.drawn(self.random) if weather is None else weather
        self.trouble = Trouble(self)
        self.coordinators: list[CoordinatorProcess] = []
        #: the one that coordinators find
        self.node: SimulatedNode | None = None
        #: those that were left behind on other hosts, and go on
        self.strays: list[SimulatedNode] = []
        #: for what must not change the rest of a schedule
        self.aside = Random(seed + 2)
        #: attempts of nodes that are gone
        self.orphans: deque[Callable[[], object]] = deque()
        self.history: deque[tuple[int, float, str, str]] = deque(maxlen=3000)
        self.actions = 0
        self.complete = False
        self.failures = 0
        #: what files held whose bytes were changed
        self.copies: dict[str, bytes] = {}
        self._starts_at = 0.0
        self._numbers = 0
        self._nodes = NodeWork(self)
        calls = Calls(self)
        self._coordinate: dict[Kind, Callable[[CoordinatorProcess], None]] = {
            Kind.THINK: Coordination(self).think,
            Kind.CALL: calls.call,
            Kind.FIND: calls.find,
            Kind.LOSE: calls.lose,
            Kind.HEAR: calls.hear,
            Kind.DELIVER: calls.deliver,
            Kind.WAKE: self._wake,
        }

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
        draw = self.random.random
        kind, process = found[int(draw() * len(found))]
        self.clock.pass_time(draw() * 0.01 + self.disk.spent_seconds)
        self.disk.spent_seconds = 0.0
        self._act(kind, process)

    def _act(self, kind: Kind, process: CoordinatorProcess | SimulatedNode | None) -> None:
        """Do something as a process, which may be its end."""
        name = "world" if process is None else process.name
        before = self.disk.switch("executor" if kind in OF_EXECUTORS else name)
        try:
            self._do(kind, process)
        except Crash:
            self.died(name)
        finally:
            self.disk.switch(before)

    def _do(self, kind: Kind, process: CoordinatorProcess | SimulatedNode | None) -> None:
        if isinstance(process, CoordinatorProcess):
            if kind is not Kind.THINK and kind is not Kind.CALL:
                self.note(process.name, kind)
            self._coordinate[kind](process)
        elif process is None:
            self.note("world", kind)
            if kind is Kind.START:
                self.start_coordinator()
            else:
                go_on(self.orphans)
        elif kind is Kind.WORK:
            self._nodes.work(process)
        else:
            self.note("executor", kind)
            go_on(process.plane.late)

    def _possible(self) -> list[Action]:
        """All that can happen next."""
        now = self.clock.seconds
        found: list[Action] = []
        idle = True
        for each in self.coordinators:
            if not each.frozen:
                idle = False
                of_coordinator(each, self.nodes, now, found)
        for node in self.nodes:
            of_node(node, now, found)
        if self.orphans:
            found.append((Kind.ORPHAN, None))
        if idle and now >= self._starts_at:
            found.append((Kind.START, None))
        return found

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
        for node in self.nodes:
            node.plane.chances, node.plane.diverging = CALM.chances, CALM.diverging
            node.stuck.clear()
        for each in self.coordinators:
            each.frozen = False
            self.ask(each, StartPipeline())

    def start_coordinator(self, *, take_over: bool = False) -> CoordinatorProcess:
        """Begin another coordinator."""
        frozen = any(each.frozen for each in self.coordinators)
        machine = Machine(
            drawn_settings(self.random, self.workers),
            take_over=take_over or (frozen and self.random.random() < 0.7),
            validate=True,
        )
        leadership = Leadership(FileDirectory(self.store / "journal"))
        records = JournalWriter(leadership.journal, self._draw)
        made = CoordinatorProcess(self._named("coordinator"), machine, leadership, records)
        made.inbox.append(Begun())
        self.coordinators.append(made)
        self._starts_at = self.clock.seconds + self.random.random() * 3
        return made

    def start_node(self) -> SimulatedNode:
        """Begin another node."""
        self.node = self._nodes.start(self._named("node"))
        return self.node

    @property
    def nodes(self) -> Sequence[SimulatedNode]:
        """All that live."""
        return self.strays if self.node is None else [*self.strays, self.node]

    def strand_node(self) -> None:
        """Let nobody find the node any more, as on another host; it goes on with what it has."""
        if self.node is not None:
            self.note(self.node.name, "is stranded")
            self.node.stranded()
            self.strays.append(self.node)
            self.node = None
            forget_runs()

    def ask(self, each: CoordinatorProcess, operation: Operation) -> None:
        """Let somebody ask a coordinator for something."""
        self._numbers += 1
        each.waiting.add(self._numbers)
        each.inbox.append(Asked(self._numbers, operation))

    def leading(self) -> CoordinatorProcess | None:
        """The coordinator that does something."""
        return next((each for each in self.coordinators if not each.frozen), None)

    def _wake(self, each: CoordinatorProcess) -> None:
        each.wakes = None
        each.inbox.append(TimePassed())

    def _named(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}-{self._numbers}"

    def _draw(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def died(self, process: str) -> None:
        """A process has crashed."""
        self.note(process, "is dead")
        for node in [each for each in self.nodes if each.name == process]:
            self.orphans.extend(node.plane.late)
            self.end_node(node)
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
            self.end_node(self.node)

    def end_node(self, node: SimulatedNode) -> None:
        """A node's process is over."""
        self.disk.kill(node.name)
        if node is self.node:
            self.node = None
        else:
            self.strays.remove(node)
        forget_runs()

    def power_cut(self) -> None:
        """Everything ends, and what was not synced is gone."""
        for each in list(self.coordinators):
            self.kill_coordinator(each)
        for node in list(self.nodes):
            self.end_node(node)
        self.orphans.clear()
        self.disk.power_cut()
        self.disk.revive("executor")
        self.disk.revive("")

    def note(self, process: str, what: str) -> None:
        """Keep what happened, for the story of a failure."""
        self.history.append((self.actions, self.clock.seconds, process, what))

    def story(self) -> list[str]:
        """The last actions, one a line."""
        return [
            f"{number:5d} {seconds:9.3f} {process}: {what}"
            for number, seconds, process, what in self.history
        ]
