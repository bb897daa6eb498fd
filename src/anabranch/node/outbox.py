"""Committed output on its way: published in step order to each sink, whatever the others do.

A sink that fails is retried with exponential back-off, as its ``Retry`` says; once that is over,
publishing to it stops with the reason, and what is staged stays. No sink waits for another one:
each has a thread of its own that publishes its steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from anabranch.errors import AnabranchError, PublishFailed, StoreError
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, Output, SinkRetry
from anabranch.protocol.sinks import Publisher, PublishingMany, Retry, StagedStep, TakingBack
from anabranch.records.staged_file import StagedFile

#: how many steps a publisher that takes several is given at most
MOST_AT_ONCE = 64


@dataclass(slots=True, eq=False)
class _SinkProgress:
    """How far one sink is. ``working`` is held while it publishes."""

    name: str
    publisher: Publisher
    retry: Retry
    done: int
    working: threading.Lock = field(default_factory=threading.Lock)
    #: while it fails: since when, how often, how long it was left alone last, and why
    since: float | None = None
    tries: int = 0
    delay: float | None = None
    failure: Failure | None = None
    not_before: float = 0.0
    #: whether it has been given up
    stopped: bool = False
    #: how many steps it takes at once
    most: int = field(init=False)

    def __post_init__(self) -> None:
        """Ask once: whether an object has a protocol's methods takes long to find out."""
        self.most = MOST_AT_ONCE if isinstance(self.publisher, PublishingMany) else 1

    def publish(self, steps: Sequence[StagedStep]) -> None:
        """Let the publisher have steps, no more than it takes at once."""
        if isinstance(self.publisher, PublishingMany):
            self.publisher.publish_many(steps)
        else:
            for staged in steps:
                self.publisher.publish(staged)


class Outbox:
    """What waits to be published, and how far each sink is. Any thread may call."""

    def __init__(
        self,
        publishers: Mapping[str, Publisher],
        done: Mapping[str, int],
        outputs: Sequence[Output],
        clock: Callable[[], float],
        reached: Callable[[str, int], None],
        retries: Mapping[str, Retry] = MappingProxyType({}),
        check_plane: Callable[[], None] = lambda: None,
    ) -> None:
        """``done`` is the last step that each sink has; ``reached`` is told of each point.

        ``check_plane`` raises where a sink failed only because Spark is dead.
        """
        self._sinks = {
            name: _SinkProgress(name, publisher, retries.get(name, Retry()), done[name])
            for name, publisher in publishers.items()
        }
        behind = min(done.values(), default=None)
        self._waiting = {
            output.step: output for output in outputs if behind is not None and output.step > behind
        }
        self._clock = clock
        self._reached = reached
        self._check_plane = check_plane
        self._guard = threading.Lock()
        self._closed = False

    @property
    def failure(self) -> Failure | None:
        """Why publishing to a sink has stopped."""
        with self._guard:
            return next((s.failure for s in self._sinks.values() if s.stopped), None)

    def retries(self) -> dict[str, SinkRetry]:
        """The sinks that fail."""
        with self._guard:
            now = self._clock()
            return {
                sink.name: SinkRetry(
                    sink.failure,
                    sink.tries,
                    now - sink.since,
                    None if sink.stopped else max(0.0, sink.not_before - now),
                )
                for sink in self._sinks.values()
                if sink.failure is not None and sink.since is not None
            }

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
        """How long a sink has to be left alone; None when nothing waits for it."""
        with self._guard:
            sink = self._sinks[name]
            return max(0.0, sink.not_before - self._clock()) if self._waits_for(sink) else None

    def take_back(self, step: int) -> None:
        """Let the sinks that can remove what they have published after a step."""
        for sink in self._sinks.values():
            if isinstance(sink.publisher, TakingBack):
                with sink.working:
                    sink.publisher.take_back(step)

    def publish_next(self, name: str, is_led: Callable[[], bool] = lambda: True) -> bool:
        """Publish what comes next to a sink, if something waits and may be tried now.

        Nothing is given to a sink while the node is not led: another leader may have a node that
        takes back from the same sink.
        """
        sink = self._sinks[name]
        with sink.working:
            due = self._due(sink)
            steps = [staged for staged in due if staged.files]
            if not due:
                return False
            if steps:
                try:
                    if not is_led():
                        return False
                except StoreError as error:
                    self._failed_once(sink, steps, error)
                    return True
                for staged in steps:
                    self._reached(f"publishing {name}", staged.step)
                if self._closed:
                    return False
                try:
                    sink.publish(steps)
                except Exception as error:
                    self._failed_once(sink, steps, error)
                    return True
            over = self._has(sink, due[-1].step)
        for step in over:
            self._reached("published", step)
        return True

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

    def _due(self, sink: _SinkProgress) -> list[StagedStep]:
        """What the sink is to be given now: also steps that have no file for it."""
        with self._guard:
            if self._closed or sink.not_before > self._clock():
                return []
            outputs = [self._waiting[step] for step in self._waits_for(sink)[: sink.most]]
        return [
            StagedStep(each.branch, each.step, tuple(f for f in each.staged if f.sink == sink.name))
            for each in outputs
        ]

    def _waits_for(self, sink: _SinkProgress) -> list[int]:
        if sink.stopped:
            return []
        return sorted(step for step in self._waiting if step > sink.done)

    def _has(self, sink: _SinkProgress, step: int) -> list[int]:
        """Count everything up to a step as published; the steps that all sinks have by that."""
        with self._guard:
            sink.done, sink.tries, sink.not_before = step, 0, 0.0
            sink.since = sink.delay = sink.failure = None
            everywhere = min(each.done for each in self._sinks.values())
            over = sorted(step for step in self._waiting if step <= everywhere)
            for each in over:
                del self._waiting[each]
            return over

    def _failed_once(
        self, sink: _SinkProgress, steps: Sequence[StagedStep], error: Exception
    ) -> None:
        self._check_plane()
        if not isinstance(error, AnabranchError):
            error = PublishFailed(
                f"Sink {sink.name!r} raised {type(error).__name__}: {error}",
                where=f"step {steps[0].step}",
                do="The output stays staged. Mend the sink: it is retried for as long as its "
                "Retry says; after that, run the pipeline again.",
            )
        with self._guard:
            now, timeout = self._clock(), sink.retry.timeout
            sink.since = now if sink.since is None else sink.since
            sink.tries += 1
            sink.failure = failure_of(error)
            sink.delay = sink.retry.delay(sink.delay)
            sink.not_before = now + sink.delay
            if timeout is not None:
                sink.stopped = now >= sink.since + timeout
                # The last try comes when the time is over, not before.
                sink.not_before = min(sink.not_before, sink.since + timeout)
