"""Committed output on its way: published in step order, one step at a time per sink.

A sink that fails is asked again a few times, each time after a longer while; then publishing to it
stops with the reason, and what is staged stays. Other sinks go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from anabranch.errors import AnabranchError, PublishFailed, StoreError
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure, Output
from anabranch.protocol.sinks import Publisher, TakingBack
from anabranch.records.staged_file import StagedFile

TRIES = 5
FIRST_PAUSE = 0.1


class Outbox:
    """What waits to be published, and how far each sink is. Any thread may call."""

    def __init__(
        self,
        publishers: Mapping[str, Publisher],
        done: Mapping[str, int],
        outputs: Sequence[Output],
        clock: Callable[[], float],
        reached: Callable[[str, int], None],
    ) -> None:
        """``done`` is the last step that each sink has; ``reached`` is told of each point."""
        self._publishers = publishers
        self._done = dict(done)
        behind = min(self._done.values(), default=None)
        self._waiting = {
            output.step: output for output in outputs if behind is not None and output.step > behind
        }
        self._clock = clock
        self._reached = reached
        self._guard = threading.Lock()
        self._working = threading.Lock()
        self._tries: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._failed: dict[str, Failure] = {}
        self._closed = False

    @property
    def failure(self) -> Failure | None:
        """Why publishing to a sink has stopped."""
        with self._guard:
            return next(iter(self._failed.values()), None)

    def done(self) -> dict[str, int]:
        """The last step that each sink has wholly published."""
        with self._guard:
            return dict(self._done)

    def add(self, output: Output) -> None:
        """Publish a committed step after those before it."""
        with self._guard:
            if self._publishers:
                self._waiting[output.step] = output

    def skip(self, step: int) -> None:
        """Take note of a step that was published long ago."""
        with self._guard:
            if not self._waiting:
                self._done = {sink: max(step, has) for sink, has in self._done.items()}

    def staged(self) -> list[StagedFile]:
        """The files that wait."""
        with self._guard:
            return [file for output in self._waiting.values() for file in output.staged]

    def drained(self) -> bool:
        """Whether nothing waits, but for sinks that have stopped."""
        with self._guard:
            return all(self._next_of(sink) is None for sink in self._publishers)

    def pause(self) -> float | None:
        """How long nothing can be done although something waits; None when nothing waits."""
        with self._guard:
            now = self._clock()
            left = [
                self._not_before.get(sink, 0.0) - now
                for sink in self._publishers
                if self._next_of(sink) is not None
            ]
            return max(0.0, min(left)) if left else None

    def take_back(self, step: int) -> None:
        """Let the sinks that can remove what they have published after a step."""
        with self._working:
            for publisher in self._publishers.values():
                if isinstance(publisher, TakingBack):
                    publisher.take_back(step)

    def publish_next(self, is_led: Callable[[], bool] = lambda: True) -> bool:
        """Publish one step to one sink, if one waits and may be tried now.

        Nothing is given to a sink while the node is not led: another leader may have a node that
        takes back from the same sink.
        """
        with self._working:
            found = self._chosen()
            if found is None:
                return False
            sink, output = found
            files = tuple(file for file in output.staged if file.sink == sink)
            if files:
                try:
                    if not is_led():
                        return False
                except StoreError as error:
                    self._failed_once(sink, output.step, error)
                    return True
                self._reached(f"publishing {sink}", output.step)
                if self._is_closed():
                    return False
                try:
                    self._publishers[sink].publish(output.step, files)
                except Exception as error:
                    self._failed_once(sink, output.step, error)
                    return True
            over = self._has(sink, output.step)
        for step in over:
            self._reached("published", step)
        return True

    def close(self, seconds: float | None = None) -> None:
        """Publish nothing any more; waits for the step that is being published.

        With ``seconds`` no longer than that: a sink may never return. What it was given before is
        all that it gets.
        """
        with self._guard:
            self._closed = True
        if self._working.acquire(timeout=-1 if seconds is None else seconds):
            self._working.release()

    def _is_closed(self) -> bool:
        with self._guard:
            return self._closed

    def _chosen(self) -> tuple[str, Output] | None:
        with self._guard:
            if self._closed:
                return None
            for sink in self._publishers:
                output = self._next_of(sink)
                if output is not None and self._not_before.get(sink, 0.0) <= self._clock():
                    return sink, output
            return None

    def _next_of(self, sink: str) -> Output | None:
        if sink in self._failed:
            return None
        steps = [step for step in self._waiting if step > self._done[sink]]
        return self._waiting[min(steps)] if steps else None

    def _has(self, sink: str, step: int) -> list[int]:
        """Count a step as published; the steps that all sinks have by that."""
        with self._guard:
            self._done[sink] = step
            self._tries.pop(sink, None)
            self._not_before.pop(sink, None)
            everywhere = min(self._done.values())
            over = sorted(step for step in self._waiting if step <= everywhere)
            for each in over:
                del self._waiting[each]
            return over

    def _failed_once(self, sink: str, step: int, error: Exception) -> None:
        if not isinstance(error, AnabranchError):
            error = PublishFailed(
                f"Sink {sink!r} raised {type(error).__name__}: {error}",
                where=f"step {step}",
                do="The output stays staged. Mend the sink and run the pipeline again.",
            )
        with self._guard:
            tries = self._tries.get(sink, 0) + 1
            self._tries[sink] = tries
            self._not_before[sink] = self._clock() + FIRST_PAUSE * 2 ** (tries - 1)
            if tries >= TRIES:
                self._failed[sink] = failure_of(error)
