"""The feed of committed steps: one thread listens to the coordinator for all watchers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.port import Coordinator
from anabranch.errors import TooManyRequests

REMEMBERED = 600
QUEUED = 1000
MOST_WATCHERS = 32
LISTEN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step, and when it arrived by the monotonic clock."""

    done: StepDone
    at: float


class Watcher:
    """A subscriber: a queue between the listening thread and an event loop.

    It holds at most ``QUEUED`` steps. A slow watcher misses the oldest; ``missed`` counts them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, queued: int = QUEUED) -> None:
        self._loop = loop
        self._steps: deque[StepDone] = deque(maxlen=queued)
        self._come = asyncio.Event()
        self._ended = False
        self.missed = 0

    def tell(self, done: StepDone | None) -> None:
        """Deliver a step, or None for the end. Any thread may call."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the watcher
            self._loop.call_soon_threadsafe(self._put, done)

    def _put(self, done: StepDone | None) -> None:
        if done is None:
            self._ended = True
        else:
            self.missed += len(self._steps) == self._steps.maxlen
            self._steps.append(done)
        self._come.set()

    @property
    def ended(self) -> bool:
        """Whether the feed has ended and the queue is empty."""
        return self._ended and not self._steps

    async def next(self, seconds: float) -> StepDone | None:
        """The next step; None on timeout or at the end."""
        if not self._steps and not self._ended:
            self._come.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._come.wait()
        return self._steps.popleft() if self._steps else None


@dataclass(slots=True)
class StepFeed:
    """Listens to a coordinator from ``start`` on and remembers the last steps."""

    coordinator: Coordinator
    observe: Callable[[StepDone], None]
    _seen: deque[TimedStep] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _watchers: set[Watcher] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closing: threading.Event = field(default_factory=threading.Event)
    _over: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start listening."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="anabranch-feed", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End all watchers; the thread ends by itself soon after."""
        self._closing.set()
        self._end()

    def recent(self) -> list[TimedStep]:
        """The last steps, oldest first."""
        with self._lock:
            return list(self._seen)

    @contextmanager
    def watching(self, after: int | None) -> Iterator[Watcher]:
        """A watcher of all steps from now on, preceded by those remembered after ``after``.

        ``TooManyRequests`` at the limit of watchers, which is checked and counted in one.
        """
        watcher = Watcher(asyncio.get_running_loop())
        with self._lock:
            if len(self._watchers) >= MOST_WATCHERS:
                raise TooManyRequests(
                    f"There are {MOST_WATCHERS} watchers already, which is the limit",
                    do="Wait until some of them have finished.",
                )
            for seen in self._seen if after is not None else ():
                if after is not None and seen.done.step > after:
                    watcher.tell(seen.done)
            self._watchers.add(watcher)
            if self._over:
                watcher.tell(None)
        try:
            yield watcher
        finally:
            with self._lock:
                self._watchers.discard(watcher)

    def _listen(self) -> None:
        try:
            for done in self.coordinator.steps(LISTEN_SECONDS):
                if done is not None:
                    self._tell(done)
                if self._closing.is_set():
                    return
        finally:
            self._end()

    def _tell(self, done: StepDone) -> None:
        self.observe(done)
        with self._lock:
            self._seen.append(TimedStep(done, time.monotonic()))
            for watcher in self._watchers:
                watcher.tell(done)

    def _end(self) -> None:
        with self._lock:
            self._over = True
            for watcher in self._watchers:
                watcher.tell(None)
