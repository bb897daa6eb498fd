"""Publishing: committed output becomes visible, in step order, beside later steps.

One thread publishes, one step at a time per sink. A sink that fails is asked again a few times;
then the pipeline stops with the reason, and what is staged stays for the next start.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError, PublishFailed
from anabranch.sinks.port import Publisher, StagedFile

TRIES = 5
FIRST_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Output:
    """The staged files of one committed step, by sink."""

    step: int
    files: Mapping[str, tuple[StagedFile, ...]]
    bytes: int


def output_of(step: int, staged: Sequence[StagedFile]) -> Output:
    """The output that a commit names."""
    by_sink: dict[str, list[StagedFile]] = {}
    for file in staged:
        by_sink.setdefault(file.sink, []).append(file)
    return Output(
        step, {sink: tuple(files) for sink, files in by_sink.items()}, sum(f.bytes for f in staged)
    )


class Publishing:
    """The thread that publishes, and how far it is."""

    def __init__(
        self,
        publishers: Mapping[str, Publisher],
        done: Mapping[str, int],
        reached: Callable[[str, int], None],
    ) -> None:
        """``done`` is the last step that each sink has; ``reached`` is told of each point."""
        self._publishers = publishers
        self._done = dict(done)
        self._reached = reached
        self._waiting: deque[Output] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-publish", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, output: Output) -> None:
        """Publish a committed step after those before it."""
        with self._changed:
            self._waiting.append(output)
            self._changed.notify_all()

    def done(self) -> dict[str, int]:
        """The last step that each sink has wholly published."""
        with self._changed:
            return dict(self._done)

    def backlog(self) -> tuple[int, int]:
        """How many steps and bytes wait."""
        with self._changed:
            return len(self._waiting), sum(output.bytes for output in self._waiting)

    def wait_below(self, steps: int, size: int, seconds: float) -> bool:
        """Wait until fewer than so many steps and bytes wait; False when it takes longer."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or (
                        len(self._waiting) < steps
                        and (not self._waiting or sum(o.bytes for o in self._waiting) < size)
                    )
                ),
                seconds,
            )

    def check(self) -> None:
        """Raise what stopped publishing, if anything did."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def stop(self) -> None:
        """Publish what waits, then end. What fails now stays staged and is raised."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                output = self._waiting[0]
            try:
                self._publish(output)
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()

    def _publish(self, output: Output) -> None:
        for sink, publisher in self._publishers.items():
            if self._done.get(sink, 0) >= output.step:
                continue
            files = output.files.get(sink, ())
            if files:
                self._reached(f"publishing {sink}", output.step)
                self._insist(sink, publisher, output.step, files)
            with self._changed:
                self._done[sink] = output.step
        self._reached("published", output.step)

    def _insist(
        self, sink: str, publisher: Publisher, step: int, files: Sequence[StagedFile]
    ) -> None:
        pause = FIRST_PAUSE
        for left in reversed(range(TRIES)):
            try:
                publisher.publish(step, files)
                return
            except AnabranchError:
                if not left:
                    raise
            except Exception as error:
                if not left:
                    raise PublishFailed(
                        f"Sink {sink!r} raised {type(error).__name__}: {error}",
                        where=f"step {step}",
                        do="The output stays staged. Mend the sink and run the pipeline again.",
                    ) from error
            with self._changed:
                self._changed.wait_for(lambda: False, pause)
            pause *= 2
