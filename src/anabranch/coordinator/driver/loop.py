"""The loop of the driver: performs the machine's effects and turns every outcome into an event.

One thread takes an event, lets the machine handle it, and performs the effects in order. Calls to
a peer go to its ``PeerLink``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.coordinator import effects, events
from anabranch.coordinator.driver.journal_writer import JournalWriter
from anabranch.coordinator.driver.peer_link import Nodes, PeerLink
from anabranch.coordinator.driver.threads import Watch
from anabranch.coordinator.effects import Effect, StepDone
from anabranch.coordinator.events import Event
from anabranch.coordinator.machine import Machine
from anabranch.coordinator.operations import Operation
from anabranch.coordinator.port import Answered
from anabranch.coordinator.rescaling import forecast_of
from anabranch.coordinator.status_view import pipeline_status
from anabranch.errors import AnabranchError, InvalidRequest, QueryFailed
from anabranch.journal.leadership import Leadership
from anabranch.protocol.failures import error_of, failure_of
from anabranch.protocol.node import Failure, ProgramInfo
from anabranch.protocol.rescale_requests import TargetRequest
from anabranch.protocol.status import Status
from anabranch.records.leader import NODE
from anabranch.rescale.forecast import Forecast

WATCHED_STEPS = 1000


class Driver:
    """A running coordinator: ``coordinator.port.Coordinator``."""

    def __init__(
        self,
        machine: Machine,
        leading: Leadership,
        nodes: Nodes,
        watch: Callable[[StepDone], None] | None = None,
        reached: Callable[[str, int], None] = lambda point, step: None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Start nothing yet. ``reached`` is called at the named points of a step.

        ``watch`` runs in its own thread: a slow one sees steps late and delays only the end.
        """
        self._machine = machine
        self._records = JournalWriter(leading.journal, lambda: secrets.token_hex(16))
        self._leading = leading
        self._nodes = nodes
        self._watch = None if watch is None else Watch(watch, self._watch_failed)
        self._reached = reached
        self._clock_ns = clock_ns
        self._events: queue.SimpleQueue[Event | _Abandoned] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open = threading.Event()
        self._led = threading.Event()
        self._links = {NODE: PeerLink(NODE, nodes, lambda: machine.memory.leader, self._events.put)}
        self._asked: dict[int, queue.SimpleQueue[Answered]] = {}
        self._numbers = 0
        self._watchers: list[queue.Queue[StepDone]] = []
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-coordinator", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._events.put(events.Begun())
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, when ``watch`` has seen every step; False on timeout.

        ``watch`` may call it too: it does not wait for the steps it has yet to see.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._over.wait(seconds):
            return False
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        return self._watch is None or self._watch.wait(left)

    def wait_led(self) -> None:
        """Wait until this process leads or the pipeline is over."""
        self._led.wait()

    def wait_open(self) -> None:
        """Wait until state is open for the first time or the pipeline is over. Always returns."""
        self._open.wait()

    def failure(self) -> BaseException | None:
        """The error that made the pipeline fail, if any."""
        if self._raised is not None:
            return self._raised
        failure = self.status().failure
        return None if failure is None else error_of(failure)

    def abandon(self) -> None:
        """End like a killed process, without telling the node. Nothing is lost."""
        self._events.put(_Abandoned())
        self.wait()

    def status(self) -> Status:
        """What the pipeline is doing now."""
        with self._lock:
            return pipeline_status(self._machine.memory, time.monotonic())

    def info(self) -> ProgramInfo | None:
        """The dataflow that the node has loaded."""
        with self._lock:
            return self._machine.memory.info

    def forecast(self, request: TargetRequest) -> Forecast:
        """Predict a rescale without changing anything. Raises ``OperationRefused``."""
        with self._lock:
            return forecast_of(self._machine.memory, request)

    def ask(self, operation: Operation, seconds: float | None) -> Answered:
        """Request an operation, and wait up to ``seconds`` for its outcome."""
        answers: queue.SimpleQueue[Answered] = queue.SimpleQueue()
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._asked[number] = answers
        self._events.put(events.Asked(number, operation))
        if self._over.is_set():
            self._refuse_rest()
        try:
            return answers.get(timeout=seconds)
        except queue.Empty:
            return Answered(step=self.status().step, waiting=True)

    def query(self, sql: str, rows: int, bytes: int, seconds: float) -> pa.Table:
        """The rows of one SQL query over the state at the last committed step.

        Raises ``InvalidRequest`` for more than ``query_seconds``: files may be gone after that.
        """
        longest = self._machine.memory.settings.query_seconds
        if not longest:
            raise QueryFailed(
                "This pipeline takes no queries", do="Run it with query_seconds above 0."
            )
        if seconds > longest:
            raise InvalidRequest(
                f"A query of this pipeline may take {longest:g} seconds, not {seconds:g}",
                do="Ask for fewer seconds, or run the pipeline with --query-seconds.",
            )
        return self._nodes.query(sql, rows, bytes, seconds)

    def steps(self, seconds: float) -> Iterator[StepDone | None]:
        """Every committed step from now on; None after each ``seconds`` without one."""
        waiting: queue.Queue[StepDone] = queue.Queue(WATCHED_STEPS)
        with self._lock:
            self._watchers.append(waiting)
        try:
            while not (self._over.is_set() and waiting.empty()):
                try:
                    yield waiting.get(timeout=seconds)
                except queue.Empty:
                    yield None
        finally:
            with self._lock:
                self._watchers.remove(waiting)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                event = self._next_event()
                if isinstance(event, _Abandoned):
                    self._end()
                else:
                    self._handle(event)
        except BaseException as error:
            self._raised = error
            self._end()

    def _next_event(self) -> Event | _Abandoned:
        wakes = self._machine.wakes_at()
        timeout = None if wakes is None else max(wakes - time.monotonic(), 0.0)
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return events.TimePassed()

    def _handle(self, event: Event) -> None:
        waiting: list[Event] = [event]
        while waiting:
            now = events.Moment(time.monotonic(), self._clock_ns())
            with self._lock:
                wanted = self._machine.handle(now, waiting.pop(0))
                if self._machine.memory.node.opened is not None:
                    self._open.set()
                if self._machine.memory.leader:
                    self._led.set()
            for effect in wanted:
                outcome = self._perform(effect)
                if outcome is not None:
                    self._report_point(outcome)
                    waiting.append(outcome)

    def _report_point(self, outcome: Event) -> None:
        match outcome:
            case events.PlanWritten(plan):
                self._reached("planned", plan.step)
            case events.CommitWritten(commit):
                self._reached("committed", commit.step)

    def _perform(self, effect: Effect) -> Event | None:
        """Perform an effect; returns its outcome if it is known at once."""
        match effect:
            case effects.Give() | effects.Take() | effects.Fetch():
                return self._links[effect.to].call(effect)
            case effects.FindNode() | effects.ReplaceNode():
                self._links[effect.peer].find(effect)
                return None
            case effects.Announce(done):
                self._announce(done)
                return None
            case effects.Answer(number, failure, step, profiles):
                with self._lock:
                    answers = self._asked.pop(number, None)
                if answers is not None:
                    answers.put(Answered(failure, step, profiles=profiles))
                return None
            case effects.EndPipeline():
                self._end()
                return None
            case effects.Lead(take_over):
                return self._lead(effect, take_over)
            case _:
                return self._records.perform(effect)

    def _lead(self, effect: effects.Lead, take_over: bool) -> Event:
        try:
            host, pid = socket.gethostname(), os.getpid()
            leader = self._leading.lead(take_over, host, pid, self._clock_ns())
            return events.Led(leader, self._leading.members)
        except AnabranchError as error:
            return events.EffectFailed(effect, failure_of(error))

    def _announce(self, done: StepDone) -> None:
        with self._lock:
            watchers = tuple(self._watchers)
        for watcher in watchers:
            with contextlib.suppress(queue.Full):
                watcher.put_nowait(done)
        if self._watch is not None:
            self._watch.put(done)

    def _watch_failed(self, done: StepDone, error: Exception) -> None:
        self._raised = error
        self._events.put(events.EffectFailed(effects.Announce(done), failure_of(error)))

    def _end(self) -> None:
        """Release everything and wake all waiters, even if the release fails."""
        try:
            self._release()
        except BaseException as error:
            self._raised = self._raised or error
        if self._watch is not None:
            self._watch.finish()
        # Not after the last step was watched: ``watch`` may be asking, or waiting for the end.
        self._over.set()
        self._open.set()
        self._led.set()
        self._refuse_rest()

    def _release(self) -> None:
        try:
            for link in self._links.values():
                link.close()
        finally:
            self._leading.release()

    def _refuse_rest(self) -> None:
        """Refuse the requests that came too late."""
        with self._lock:
            late, self._asked = self._asked, {}
        over = Failure("operation.refused", "The pipeline is over", do="Run it again to go on.")
        for answers in late.values():
            answers.put(Answered(over))


class _Abandoned:
    """Tells the loop to end at once."""
