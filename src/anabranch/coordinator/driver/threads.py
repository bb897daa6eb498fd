"""The driver's other threads: one polls the node's reports, one calls the user's watch function."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.events import Event, LeaderFenced, NodeLost, NodeReported
from anabranch.errors import AnabranchError, Fenced, JvmDied
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Node

HEARTBEAT = 1.0


class Watch:
    """The thread that calls a user's function with each committed step, in order."""

    def __init__(
        self, watch: Callable[[StepDone], None], failed: Callable[[StepDone, Exception], None]
    ) -> None:
        self._watch = watch
        self._failed = failed
        self._waiting: queue.SimpleQueue[StepDone | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-watch", daemon=True)
        self._thread.start()

    def put(self, done: StepDone) -> None:
        """Queue a step."""
        self._waiting.put(done)

    def finish(self) -> None:
        """End after the queued steps. Returns at once."""
        self._waiting.put(None)

    def wait(self, seconds: float | None) -> bool:
        """Wait until every step was seen; False on timeout.

        Returns at once in the user's function, which would wait for itself.
        """
        return threading.current_thread() is self._thread or self._over.wait(seconds)

    def _run(self) -> None:
        try:
            while (done := self._waiting.get()) is not None:
                try:
                    self._watch(done)
                except Exception as error:
                    self._failed(done, error)
                    return
        finally:
            self._over.set()


class Listener:
    """The thread that polls a node's reports and posts them as events."""

    def __init__(
        self,
        name: str,
        node: Node,
        leader: int,
        alive: Callable[[], bool],
        post: Callable[[Event], None],
    ) -> None:
        self._name = name
        self._node = node
        self._leader = leader
        self._alive = alive
        self._post = post
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-listen", daemon=True)

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Post no more events; the thread ends by itself."""
        self._stopped.set()

    def _run(self) -> None:
        seen = -1
        while not self._stopped.is_set():
            try:
                report = self._node.report(self._leader, seen, HEARTBEAT)
            except Fenced as error:
                self._post_live(LeaderFenced(failure_of(error)))
                return
            except AnabranchError as error:
                if isinstance(error, JvmDied) or not self._alive():
                    self._post_live(NodeLost(failure_of(error), self._name))
                    return
                self._stopped.wait(HEARTBEAT / 4)
                continue
            seen = report.version
            self._post_live(NodeReported(report, self._name))

    def _post_live(self, event: Event) -> None:
        if not self._stopped.is_set():
            self._post(event)
