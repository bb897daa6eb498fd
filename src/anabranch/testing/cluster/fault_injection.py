"""What goes wrong in a simulated cluster, drawn from its seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    RescalePipeline,
    ShutDownPipeline,
    StartPipeline,
    TakeCheckpoint,
)
from anabranch.errors import AnabranchError
from anabranch.records.run_list import files
from anabranch.task.state_reader import Snapshot
from anabranch.testing.cluster.faults import Fault
from anabranch.testing.cluster.requests import drawn_request
from anabranch.testing.cluster.rule_broken import Broken

if TYPE_CHECKING:
    from anabranch.testing.cluster.cluster import SimulatedCluster

QUERY_SECONDS = 2.0

OLDER = 0.3
"""How often it is an older checkpoint that is damaged, where there is one."""

FLIPPED = 0.5
"""How often a byte of a file is changed where otherwise its end would be cut off."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A query that has begun: it reads its snapshot at some time before its limit."""

    snapshot: Snapshot
    reads_at: float
    held: Mapping[str, int]


class Trouble:
    """Draws and does what goes wrong."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """Nothing has gone wrong yet."""
        self._cluster = cluster
        self._random = cluster.random
        self._mends_at: float | None = None
        self._queries: list[_Query] = []
        #: how often each is drawn, and what it does; rescales have a chance of their own
        self._faults: dict[Fault, tuple[int, Callable[[], None]]] = {
            Fault.KILL_COORDINATOR: (3, self._kill_coordinator),
            Fault.CRASH_COORDINATOR: (6, self._crash_coordinator),
            Fault.KILL_NODE: (2, cluster.kill_node),
            Fault.CRASH_NODE: (4, self._crash_node),
            Fault.KILL_BOTH: (1, self._kill_both),
            Fault.POWER_CUT: (3, cluster.power_cut),
            Fault.TAKE_OVER: (4, self._take_over),
            Fault.CONTINUE: (4, self._continue),
            Fault.CLOCK_JUMP: (2, self._jump),
            Fault.DISK_FULL: (1, self._fill),
            Fault.FAILED_SYNC: (1, self._fail_syncs),
            Fault.SLOW_DISK: (1, self._slow_down),
            Fault.STUCK_STEP: (2, self._stick),
            Fault.DAMAGE: (2, self._damage),
            Fault.ASK: (12, self._ask),
            Fault.RESCALE: (0, self._rescale),
            Fault.QUERY: (6, self._begin_query),
            Fault.TIME: (4, self._let_time_pass),
        }
        self._kinds = list(self._faults)
        self._weights = [weight for weight, _ in self._faults.values()]

    def happens(self) -> bool:
        """Perhaps something happens now."""
        cluster = self._cluster
        self._mend()
        if self._queries and self._read():
            return True
        drawn = self._random.random()
        if drawn < cluster.weather.rescale:
            kind = Fault.RESCALE
        elif drawn < cluster.weather.rescale + cluster.weather.fault:
            (kind,) = self._random.choices(self._kinds, self._weights)
        else:
            return False
        cluster.note("world", kind)
        self._faults[kind][1]()
        return True

    def end(self) -> None:
        """Everything works again."""
        disk = self._cluster.disk
        disk.fill(None)
        disk.fail_syncs(0)
        disk.sync_seconds = 0.0
        self._mends_at = None

    def _mend(self) -> None:
        if self._mends_at is not None and self._cluster.clock.seconds >= self._mends_at:
            self.end()

    def _for_a_while(self) -> None:
        self._mends_at = self._cluster.clock.seconds + self._random.random() * 2

    def _kill_coordinator(self) -> None:
        one = self._cluster.leading()
        if one is not None:
            self._cluster.kill_coordinator(one)

    def _crash_coordinator(self) -> None:
        one = self._cluster.leading()
        if one is not None:
            self._cluster.disk.crash_at(one.name, self._random.randrange(40))

    def _crash_node(self) -> None:
        node = self._cluster.node
        if node is not None:
            self._cluster.disk.crash_at(node.name, self._random.randrange(100))

    def _kill_both(self) -> None:
        self._cluster.kill_node()
        self._kill_coordinator()

    def _take_over(self) -> None:
        """Let another coordinator take over, mostly from one that is frozen, or soon will be."""
        one = self._cluster.leading()
        if one is None:
            return
        drawn = self._random.random()
        if drawn < 0.5:
            one.freezes = self._random.randrange(8)
            return
        one.frozen = drawn < 0.95
        self._cluster.start_coordinator(take_over=True)

    def _continue(self) -> None:
        for each in self._cluster.coordinators:
            each.frozen = False

    def _jump(self) -> None:
        self._cluster.clock.jump(self._random.uniform(-7200, 7200))

    def _fill(self) -> None:
        self._cluster.disk.fill(self._random.randrange(20_000))
        self._for_a_while()

    def _fail_syncs(self) -> None:
        self._cluster.disk.fail_syncs(self._random.randint(1, 3))
        self._for_a_while()

    def _slow_down(self) -> None:
        self._cluster.disk.sync_seconds = self._random.random()
        self._for_a_while()

    def _stick(self) -> None:
        node = self._cluster.node
        if node is not None:
            seconds = self._random.choice((1.0, 10.0, 5000.0))
            node.stuck["run_step"] = self._cluster.clock.seconds + seconds

    def _begin_query(self) -> None:
        node = self._cluster.node
        if node is not None:
            at = self._cluster.clock.seconds + self._random.random() * QUERY_SECONDS
            snapshot = node.core.snapshot
            held = self._cluster.rules.held(snapshot.step)
            self._queries.append(_Query(snapshot, at, held))

    def _let_time_pass(self) -> None:
        self._cluster.clock.pass_time(self._random.choice((0.5, 5.0, 25.0, 100.0)))

    def _ask(self) -> None:
        one = self._cluster.leading()
        if one is None:
            return
        kept = [each.step for each in one.machine.memory.journal.checkpoints]
        requests: list[Callable[[], Operation]] = [
            PausePipeline,
            StartPipeline,
            StartPipeline,
            TakeCheckpoint,
            TakeCheckpoint,
            ShutDownPipeline,
            lambda: ShutDownPipeline(at_once=True),
            lambda: LoadCheckpoint(self._random.choice(kept or [0])),
        ]
        self._cluster.ask(one, self._random.choice(requests)())

    def _rescale(self) -> None:
        """Let somebody change who owns what, or his mind about it."""
        one = self._cluster.leading()
        if one is not None:
            asked = drawn_request(self._random, one.machine.memory)
            self._cluster.ask(one, RescalePipeline(asked))

    def _damage(self) -> None:
        """Remove, shorten or change a file of the state, or of an older checkpoint.

        What the newest one needs stays: somewhere it must be possible to begin anew.
        """
        one = self._cluster.leading()
        # One that was frozen knows only of checkpoints that were there before.
        if one is None or one.leader != self._cluster.rules.leader:
            return
        memory = one.machine.memory
        if memory.checkpoint.under_way is not None or memory.load.queue:
            return
        # The last checkpoint may have been checked already, and nobody is left to repair it.
        if memory.stop.down is not None:
            return
        state = files(*(each.runs for each in memory.journal.states))
        kept = [
            files(*(each.runs for each in checkpoint.states))
            for checkpoint in memory.journal.checkpoints
        ]
        spare = state.difference(*kept)
        if kept[:-1] and self._random.random() < OLDER:
            spare = kept[0].difference(state, *kept[1:])
        names = sorted(n for n in spare if (self._cluster.store / n).exists())
        if not names:
            return
        name = self._random.choice(names)
        path = self._cluster.store / name
        data = path.read_bytes()
        path.unlink()
        if self._random.random() < 0.5:
            path.write_bytes(data[: len(data) // 2])
            if self._cluster.aside.random() < FLIPPED and name in state:
                self._cluster.copies[name] = data
                flipped = bytearray(data)
                flipped[len(data) // 2] ^= 0xFF
                path.write_bytes(flipped)
                # Whoever has it open would never see it, and checkpoints only look at its size.
                self._cluster.kill_node()
        self._cluster.rules.damaged.add(name)

    def _read(self) -> bool:
        """Let a query read, if its time has come."""
        cluster = self._cluster
        now = cluster.clock.seconds
        for query in self._queries:
            if query.reads_at <= now:
                self._queries.remove(query)
                # Whoever was asleep for longer than a query may take has missed it.
                if now <= query.reads_at + QUERY_SECONDS:
                    self._query(query)
                return True
        return False

    def _query(self, query: _Query) -> None:
        cluster, snapshot = self._cluster, query.snapshot
        cluster.note("query", f"step {snapshot.step}")
        needed = files(*(state.runs for state in snapshot.states))
        if needed & cluster.rules.damaged:
            return
        for state in snapshot.states:
            try:
                rows = cluster.tables.read(snapshot, state).num_rows
            except AnabranchError as error:
                raise Broken(f"a query of step {snapshot.step} fails: {error}") from error
            wanted = query.held.get(state.operator)
            if wanted is not None and rows != wanted:
                raise Broken(
                    f"a query of step {snapshot.step} finds {rows} keys of {state.operator!r}, "
                    f"not {wanted}"
                )
