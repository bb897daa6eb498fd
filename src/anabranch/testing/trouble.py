"""What goes wrong in a simulated cluster, drawn from its seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.coordinator.operations import Load, Pause, Shutdown, Start, TakeCheckpoint
from anabranch.errors import AnabranchError
from anabranch.node.state_reader import Snapshot, read_table
from anabranch.state.run_list import files
from anabranch.testing.faults import WEIGHTS, Fault
from anabranch.testing.processes import CoordinatorProcess
from anabranch.testing.rules import Broken

if TYPE_CHECKING:
    from anabranch.testing.cluster import SimulatedCluster

QUERY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Query:
    """A query that has begun: it reads its snapshot at some time before its limit."""

    snapshot: Snapshot
    reads_at: float


class Trouble:
    """Draws and does what goes wrong."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """Nothing has gone wrong yet."""
        self._cluster = cluster
        self._random = cluster.random
        self._kinds = list(WEIGHTS)
        self._weights = list(WEIGHTS.values())
        self._mends_at: float | None = None
        self._queries: list[_Query] = []
        #: files that were damaged on purpose
        self.damaged: set[str] = set()

    def happens(self) -> bool:
        """Perhaps something happens now."""
        cluster = self._cluster
        self._mend()
        if self._queries and self._read():
            return True
        if self._random.random() >= cluster.weather.fault:
            return False
        (kind,) = self._random.choices(self._kinds, self._weights)
        cluster.note("world", kind)
        self._do(kind)
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

    def _do(self, kind: Fault) -> None:
        cluster, random = self._cluster, self._random
        one, node = cluster.leading(), cluster.node
        match kind:
            case Fault.KILL_COORDINATOR if one is not None:
                cluster.kill_coordinator(one)
            case Fault.CRASH_COORDINATOR if one is not None:
                cluster.disk.crash_at(one.name, random.randrange(40))
            case Fault.KILL_NODE:
                cluster.kill_node()
            case Fault.CRASH_NODE if node is not None:
                cluster.disk.crash_at(node.name, random.randrange(100))
            case Fault.KILL_BOTH:
                cluster.kill_node()
                if one is not None:
                    cluster.kill_coordinator(one)
            case Fault.POWER_CUT:
                cluster.power_cut()
            case Fault.TAKE_OVER if one is not None:
                one.frozen = random.random() < 0.9
                cluster.start_coordinator(take_over=True)
            case Fault.CONTINUE:
                for each in cluster.coordinators:
                    each.frozen = False
            case Fault.CLOCK_JUMP:
                cluster.clock.jump(random.uniform(-7200, 7200))
            case Fault.DISK_FULL:
                cluster.disk.fill(random.randrange(20_000))
                self._for_a_while()
            case Fault.FAILED_SYNC:
                cluster.disk.fail_syncs(random.randint(1, 3))
                self._for_a_while()
            case Fault.SLOW_DISK:
                cluster.disk.sync_seconds = random.random()
                self._for_a_while()
            case Fault.STUCK_STEP if node is not None:
                node.stuck = cluster.clock.seconds + random.choice((1.0, 10.0, 5000.0))
            case Fault.DAMAGE:
                self._damage()
            case Fault.ASK if one is not None:
                self._ask(one)
            case Fault.QUERY if node is not None:
                at = cluster.clock.seconds + random.random() * QUERY_SECONDS
                self._queries.append(_Query(node.core.snapshot, at))
            case Fault.TIME:
                cluster.clock.pass_time(random.choice((0.5, 5.0, 25.0, 100.0)))
            case _:
                pass

    def _ask(self, one: CoordinatorProcess) -> None:
        kept = [each.step for each in one.machine.memory.standing.checkpoints]
        wishes: list[Callable[[], Any]] = [
            Pause,
            Start,
            Start,
            TakeCheckpoint,
            TakeCheckpoint,
            Shutdown,
            lambda: Shutdown(at_once=True),
            lambda: Load(self._random.choice(kept or [0])),
        ]
        self._cluster.ask(one, self._random.choice(wishes)())

    def _damage(self) -> None:
        """Remove or shorten a file that the state needs and that no checkpoint does."""
        one = self._cluster.leading()
        if one is None:
            return
        standing = one.machine.memory.standing
        spare = files(*(state.runs for state in standing.states))
        for checkpoint in standing.checkpoints:
            spare -= files(*(state.runs for state in checkpoint.states))
        under_way = one.machine.memory.checkpointing
        names = sorted(n for n in spare if (self._cluster.store / n).exists())
        if not names or under_way is not None:
            return
        name = self._random.choice(names)
        path = self._cluster.store / name
        data = path.read_bytes()
        path.unlink()
        if self._random.random() < 0.5:
            path.write_bytes(data[: len(data) // 2])
        self.damaged.add(name)

    def _read(self) -> bool:
        """Let a query read, if its time has come."""
        cluster = self._cluster
        now = cluster.clock.seconds
        for query in self._queries:
            if query.reads_at <= now:
                self._queries.remove(query)
                # Whoever was asleep for longer than a query may take has missed it.
                if now <= query.reads_at + QUERY_SECONDS:
                    self._query(query.snapshot)
                return True
        return False

    def _query(self, snapshot: Snapshot) -> None:
        cluster = self._cluster
        cluster.note("query", f"step {snapshot.step}")
        needed = files(*(state.runs for state in snapshot.states))
        if needed & self.damaged:
            return
        for state in snapshot.states:
            try:
                rows = read_table(snapshot.view(state.operator), cluster.store).num_rows
            except AnabranchError as error:
                raise Broken(f"a query of step {snapshot.step} fails: {error}") from error
            wanted = cluster.rules.live.get(state.operator, {}).get(snapshot.step)
            if wanted is not None and rows != wanted:
                raise Broken(
                    f"a query of step {snapshot.step} finds {rows} keys of {state.operator!r}, "
                    f"not {wanted}"
                )
