"""A node with threads: for steps, for preparing the next one, for input, each sink and chores.

They wait for one condition, which every order and every change notifies: nothing on the way of a
step sleeps. Sources cannot say when they have something, so they are asked when a step begins,
when a commit comes, and every ``IDLE_SECONDS`` between, or less often where asking takes long. One
that may block is asked in a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from anabranch.errors import JvmDied, NodeError, NodeUnreachable, QueryFailed
from anabranch.node.core import NodeCore
from anabranch.protocol.node import CommitOrder, Node, NodeOrder, NodeReport, StepResult
from anabranch.records.plan import Input
from anabranch.task.queries import Queries, QueryLimits

#: lets a function be called with the reason, returns what takes that back
OnDeath: TypeAlias = Callable[[Callable[[JvmDied], None]], Callable[[], None]]

IDLE_SECONDS = 0.05
LONGEST_IDLE_SECONDS = 2.0
CHORES_SECONDS = 0.5
#: how long all threads together may take to end
JOIN_SECONDS = 10.0
#: how long a step that is being published is waited for when everything ends
SHUT_SECONDS = 5.0


class ThreadedNode:
    """A node in this process, as its server calls it, or a coordinator that is in it too."""

    inline = True

    def __init__(
        self, core: NodeCore, queries: Queries | None = None, on_death: OnDeath | None = None
    ) -> None:
        """Start the threads. ``queries`` is Spark, where the node runs on it.

        ``on_death`` calls back when what runs the steps has died, and gives what ends that.
        """
        self.core = core
        self.queries = queries
        self._broken: BaseException | None = None
        self._breaking = threading.Lock()
        self._stopping = threading.Event()
        self._closed = threading.Event()
        self._heard = threading.Event()
        together, *alone = core.source_groups
        sources = {"inputs": together} | {f"inputs-{name}": [name] for (name,) in alone}
        #: for each thread that asks sources: whether to do it at once
        self._poll_now = {name: threading.Event() for name in sources}
        work: dict[str, Callable[[], float | None]] = {
            "steps": self._steps,
            "prepare": lambda: 0.0 if core.prepare_next() else None,
            "chores": self._chores,
        }
        for name, asked in sources.items():
            work[name] = partial(self._inputs, asked, self._poll_now[name])
        work |= {f"publish-{sink}": partial(self._publish, sink) for sink in core.sinks}
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=f"anabranch-{name}", daemon=True)
            for name, loop in work.items()
        ]
        for thread in self._threads:
            thread.start()
        self._stop_listening = None if on_death is None else on_death(self._break_down)

    def find(self, leader: int) -> Node:
        """The node itself."""
        return self

    def replace(self, leader: int, why: str) -> Node:
        """Refuse: the node's process is the coordinator's."""
        raise NodeUnreachable(
            f"The node must be replaced ({why}), and it runs in this process",
            do="Nothing committed is lost. Run the pipeline again in a new process.",
        )

    def alive(self) -> bool:
        """Whether no thread has ended that should not have: by a bug, or at a killed point."""
        return self._broken is None

    def close(self, exiting: bool) -> None:
        """End, as ``shut`` does."""
        self.shut()

    def report(self, leader: int, seen: int, seconds: float) -> NodeReport:
        """What the node says, as soon as it is newer than ``seen`` or so many seconds are over."""
        try:
            self._check()
            report = self.core.report(leader)
            if report.version > seen or seconds <= 0:
                return report
            self.core.wait_told(seen, seconds, lambda: not self.alive())
            self._check()
            return self.core.report(leader)
        except NodeError:
            self._heard.set()
            raise

    def order(self, leader: int, order: NodeOrder) -> None:
        """Give an order. Returns once it is taken; raises ``Fenced``."""
        self._check()
        self.core.take_order(leader, order)
        if isinstance(order, CommitOrder):
            self._ask_sources()

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step; from then on the offer does not change."""
        inputs = self.core.take(leader, step)
        self._ask_sources()
        return inputs

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run."""
        return self.core.result(leader, step, revision)

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """The rows of one SQL query over the state at the last committed step."""
        self._check()
        if self.queries is None:
            raise QueryFailed("This node takes no queries", do="Let it run on Spark.")
        limits = QueryLimits(rows, bytes, seconds)
        return self.queries.run(sql, lambda: self.core.snapshot, limits)

    def wait_heard(self, seconds: float) -> bool:
        """Wait until whoever polls has heard that the node has broken down; False after a while."""
        return self._heard.wait(seconds)

    def wait_closed(self, seconds: float) -> bool:
        """Wait until an order to close with ``exit`` was carried out; False after a while."""
        return self._closed.wait(seconds)

    def shut(self) -> bool:
        """End the threads and let go of everything; a step under way is given up.

        False if something hangs, in the code of a sink or a source: it is left alone after a
        while. It publishes nothing but the step that it is in.
        """
        if self._stop_listening is not None:
            self._stop_listening()
        self._stopping.set()
        self._ask_sources()
        self.core.give_up_step()
        self.core.wake()
        late = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(late - time.monotonic(), 0.0))
        # In a thread of its own: a source that is told to let go may hang as well.
        closing = threading.Thread(
            target=self.core.shut, args=(SHUT_SECONDS,), name="anabranch-close", daemon=True
        )
        closing.start()
        closing.join(2 * SHUT_SECONDS)
        return not any(thread.is_alive() for thread in (*self._threads, closing))

    def _check(self) -> None:
        """A node one of whose threads has ended does not answer: it is to be replaced."""
        error = self._broken
        if isinstance(error, JvmDied):
            raise error
        if error is not None:
            raise NodeUnreachable(
                f"The node has broken down: {type(error).__name__}: {error}",
                do="It is replaced by another one; its log has the traceback.",
            ) from error

    def _run(self, loop: Callable[[], float | None]) -> None:
        """Work until there is nothing left to do; then wait until there may be something."""
        try:
            while not self._stopping.is_set():
                beat = self.core.beat
                pause = loop()
                if pause is None or pause > 0:
                    self.core.wait_beat(beat, pause)
        except BaseException as error:
            self._break_down(self.core.cause_of(error))

    def _break_down(self, error: BaseException) -> None:
        """End the threads: what is left of the node is of no use. The first reason counts."""
        with self._breaking:
            if self._broken is not None:
                return
            # Under spark-submit it goes to the JVM, which may be what has died.
            with contextlib.suppress(OSError):
                traceback.print_exception(error)
            self._broken = error
        self._stopping.set()
        self._closed.set()
        self.core.wake()

    def _steps(self) -> float | None:
        core = self.core
        busy = core.open_pending() or core.run_step() or core.close_pending()
        if core.exit_asked:
            self._closed.set()
        return 0.0 if busy else None

    def _ask_sources(self) -> None:
        """Let sources be asked without waiting any longer."""
        for now in self._poll_now.values():
            now.set()

    def _inputs(self, sources: Sequence[str], now: threading.Event) -> float | None:
        now.clear()
        begun = time.monotonic()
        changed = self.core.poll_inputs(sources)
        now.wait(idle_seconds(time.monotonic() - begun, changed=changed))
        return 0.0

    def _publish(self, sink: str) -> float | None:
        return 0.0 if self.core.publish_next(sink) else self.core.publish_pause(sink)

    def _chores(self) -> float | None:
        core = self.core
        busy = core.check_next() or core.sweep()
        if core.cancel_pending():
            self._stopping.wait(CHORES_SECONDS)
            return 0.0
        return 0.0 if busy else core.chores_pause()


def idle_seconds(took: float, *, changed: bool) -> float:
    """How long sources are left alone after a look at them that took so long.

    To list a directory with very many files takes a while, and nothing is gained by doing nothing
    else: looks that find nothing take a fifth of the time at most.

    >>> idle_seconds(0.001, changed=False), idle_seconds(0.1, changed=False)
    (0.05, 0.4)
    >>> idle_seconds(0.1, changed=True), idle_seconds(60, changed=False)
    (0.05, 2.0)
    """
    if changed:
        return IDLE_SECONDS
    return min(max(4 * took, IDLE_SECONDS), LONGEST_IDLE_SECONDS)
