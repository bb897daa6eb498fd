"""Committed output on its way: published in step order to each sink, whatever the others do.

A sink that cannot be opened or that fails is retried with exponential back-off, as its ``Retry``
says; once that is over, or if no retry can help, publishing to it stops with the reason, and what
is staged stays. No sink waits for another one: each has a thread of its own that opens it again and
publishes its steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from anabranch.errors import AnabranchError, StoreError
from anabranch.node.sink_progress import SinkProgress, opening_error, publishing_error
from anabranch.protocol.node import Failure, Output, SinkRetry
from anabranch.protocol.sinks import StagedStep
from anabranch.records.staged_file import StagedFile


class Outbox:
    """What waits to be published, and how far each sink is. Any thread may call."""

    def __init__(
        self,
        sinks: Sequence[SinkProgress],
        outputs: Sequence[Output],
        clock: Callable[[], float],
        reached: Callable[[str, int], None],
        check_plane: Callable[[], None] = lambda: None,
    ) -> None:
        """No sink is open; ``reached`` is told of each point.

        ``check_plane`` raises where a sink failed only because Spark is dead.
        """
        self._sinks = {sink.name: sink for sink in sinks}
        behind = min((sink.done for sink in sinks), default=None)
        self._waiting = {
            output.step: output for output in outputs if behind is not None and output.step > behind
        }
        self._clock = clock
        self._reached = reached
        self._check_plane = check_plane
        self._guard = threading.Lock()
        self._closed = False

    def open(self) -> None:
        """Open all sinks, then let them take back; those that are away are tried again later.

        Raises the error of a sink that is not retried. Then nothing was taken back, unless that is
        what failed.
        """
        for work in (SinkProgress.open_publisher, SinkProgress.take_back):
            for sink in self._sinks.values():
                if sink.failure is not None:
                    continue
                try:
                    work(sink)
                except Exception as error:
                    told = opening_error(sink.name, error)
                    self._failed_once(sink, told)
                    if sink.stopped:
                        raise told from error

    @property
    def failure(self) -> Failure | None:
        """Why publishing to a sink has stopped."""
        with self._guard:
            return next((s.failure for s in self._sinks.values() if s.stopped), None)

    def retries(self) -> dict[str, SinkRetry]:
        """The sinks that fail."""
        with self._guard:
            now = self._clock()
            found = {sink.name: sink.retries(now) for sink in self._sinks.values()}
            return {name: retry for name, retry in found.items() if retry is not None}

    def taking_back(self) -> tuple[str, ...]:
        """The sinks that have yet to take back what a rewind left behind."""
        with self._guard:
            sinks = self._sinks.values()
            return tuple([s.name for s in sinks if s.back_to is not None and not s.ready])

    def done(self) -> dict[str, int]:
        """The last step that each sink has wholly published."""
        with self._guard:
            return {name: sink.done for name, sink in self._sinks.items()}

    def add(self, output: Output) -> None:
        """Publish a committed step after those before it."""
        with self._guard:
            if self._sinks:
                self._waiting[output.step] = output

    def skip(self, step: int) -> None:
        """Take note of a step that was published long ago."""
        with self._guard:
            if not self._waiting:
                for sink in self._sinks.values():
                    sink.done = max(step, sink.done)

    def staged(self) -> list[StagedFile]:
        """The files that wait."""
        with self._guard:
            return [file for output in self._waiting.values() for file in output.staged]

    def drained(self) -> bool:
        """Whether nothing waits, but for sinks that fail: those need not come back."""
        with self._guard:
            return not any(s.failure is None and self._waits_for(s) for s in self._sinks.values())

    def pause(self, name: str) -> float | None:
        """How long a sink has to be left alone; None when there is nothing to do for it."""
        with self._guard:
            sink = self._sinks[name]
            to_open = not sink.ready and not sink.stopped
            waits = to_open or self._waits_for(sink)
            return max(0.0, sink.not_before - self._clock()) if waits else None

    def publish_next(self, name: str, is_led: Callable[[], bool] = lambda: True) -> bool:
        """Publish what comes next to a sink, if something waits and may be tried now.

        A sink that was away is opened first. Nothing is given to a sink while the node is not led:
        another leader may have a node that takes back from the same sink.
        """
        sink = self._sinks[name]
        with sink.working:
            if not sink.ready:
                return self._open_again(sink, is_led)
            due = self._due(sink)
            steps = [staged for staged in due if staged.files]
            if not due:
                return False
            given = self._give(sink, steps, is_led) if steps else True
            over = self._has(sink, due[-1].step) if given else []
        for step in over:
            self._reached("published", step)
        return given is not None

    def close(self, seconds: float | None = None) -> None:
        """Publish nothing any more; waits for the steps that are being published.

        With ``seconds`` no longer than that: a sink may never return. What it was given before is
        all that it gets.
        """
        with self._guard:
            self._closed = True
        late = None if seconds is None else time.monotonic() + seconds
        for sink in self._sinks.values():
            left = -1 if late is None else max(late - time.monotonic(), 0.0)
            if sink.working.acquire(timeout=left):
                sink.working.release()

    def _open_again(self, sink: SinkProgress, is_led: Callable[[], bool]) -> bool:
        """Open a sink that was away, if it may be tried now."""
        with self._guard:
            if sink.stopped or not self._may_try(sink):
                return False
        try:
            if not is_led():
                return False
            sink.open_publisher()
            sink.take_back()
        except Exception as error:
            self._failed_once(sink, opening_error(sink.name, error))
            return True
        with self._guard:
            sink.succeeded()
        return True

    def _give(
        self, sink: SinkProgress, steps: Sequence[StagedStep], is_led: Callable[[], bool]
    ) -> bool | None:
        """Whether the sink has taken steps; None if they are not to be given."""
        try:
            if not is_led():
                return None
        except StoreError as error:
            self._failed_once(sink, error)
            return False
        for staged in steps:
            self._reached(f"publishing {sink.name}", staged.step)
        if self._closed:
            return None
        try:
            sink.publish(steps)
        except Exception as error:
            self._failed_once(sink, publishing_error(sink.name, steps[0].step, error))
            return False
        return True

    def _due(self, sink: SinkProgress) -> list[StagedStep]:
        """What the sink is to be given now: also steps that have no file for it."""
        with self._guard:
            if not self._may_try(sink):
                return []
            outputs = [self._waiting[step] for step in self._waits_for(sink)[: sink.most]]
        return [
            StagedStep(each.branch, each.step, tuple(f for f in each.staged if f.sink == sink.name))
            for each in outputs
        ]

    def _may_try(self, sink: SinkProgress) -> bool:
        return not self._closed and sink.not_before <= self._clock()

    def _waits_for(self, sink: SinkProgress) -> list[int]:
        if sink.stopped:
            return []
        return sorted(step for step in self._waiting if step > sink.done)

    def _has(self, sink: SinkProgress, step: int) -> list[int]:
        """Count everything up to a step as published; the steps that all sinks have by that."""
        with self._guard:
            sink.done = step
            sink.succeeded()
            everywhere = min(each.done for each in self._sinks.values())
            over = sorted(step for step in self._waiting if step <= everywhere)
            for each in over:
                del self._waiting[each]
            return over

    def _failed_once(self, sink: SinkProgress, error: AnabranchError) -> None:
        self._check_plane()
        with self._guard:
            sink.failed(error, self._clock())
