"""Threads for queries: a few run at a time, and one that never returns is replaced.

A thread cannot be ended from outside. What it waits for may never come: the thread of the JVM that
serves a result may have died. So a cancelled call that has not returned after a while is
*abandoned*: its place gets another thread. How many threads may be lost in this way is bounded, and
so are the cores that their tasks still hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from queue import Empty, Queue, SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

from anabranch.errors import QueriesStuck, QueryTimeout

T = TypeVar("T")

MOST_ABANDONED = 4
"""How many abandoned threads there may be; with as many, queries are refused."""

GRACE_SECONDS = 10.0
"""How long a cancelled query has to return before its thread is abandoned."""


@dataclass(frozen=True)
class Work(Generic[T]):
    """A call that can be cancelled; ``cores`` tells how many cores it holds at the moment."""

    call: Callable[[], T]
    cancel: Callable[[], None]
    cores: Callable[[], int]


class QueryWorkers(Generic[T]):
    """Runs calls on ``places`` threads; any thread may ask. Threads begin with the first call.

    They are daemons: one that is stuck does not keep the process from ending.
    """

    def __init__(self, places: int, spare_cores: int, grace: float = GRACE_SECONDS) -> None:
        """``spare_cores``: how many cores the tasks of abandoned calls may hold."""
        self._free: Queue[_Worker[T] | None] = Queue()
        for _ in range(places):
            self._free.put(None)
        self._spare_cores = spare_cores
        self._grace = grace
        self._lock = threading.Lock()
        self._abandoned: dict[Future[T], Work[T]] = {}

    @property
    def abandoned(self) -> int:
        """How many threads are lost at the moment."""
        return len(self._abandoned)

    def run(self, work: Work[T], seconds: float) -> T:
        """What the call returns or raises; ``QueryTimeout`` if that takes longer.

        ``QueriesStuck`` if too many threads are lost.
        """
        self._refuse_if_stuck()
        deadline = monotonic() + seconds
        try:
            worker = self._free.get(timeout=seconds) or _Worker[T]()
        except Empty:
            raise QueryTimeout(
                f"The query waited longer than {seconds:g} seconds for its turn",
                do="Other queries, or tasks of a cancelled one, still run. Try again later.",
            ) from None
        answer: Future[T] = Future()
        answer.add_done_callback(lambda _: self._returned(worker, answer))
        worker.calls.put((work.call, answer))
        try:
            wait([answer], max(deadline - monotonic(), 0.0))
            if not answer.done():
                raise QueryTimeout(
                    f"The query took longer than {seconds:g} seconds and was cancelled",
                    do="Ask for less, or raise limit_seconds.",
                )
        except BaseException:
            self._abandon_later(work, answer)
            work.cancel()
            raise
        return answer.result()

    def _refuse_if_stuck(self) -> None:
        if self.abandoned >= MOST_ABANDONED:
            raise QueriesStuck(
                f"{self.abandoned} queries have returned neither in time nor when they were "
                "cancelled, and hold their threads",
                do="Try again later; if they never return, stop the pipeline and run it again.",
            )

    def _returned(self, worker: _Worker[T], answer: Future[T]) -> None:
        """The call has returned, in time or late: in its thread."""
        with self._lock:
            if self._abandoned.pop(answer, None) is None:
                self._free.put(worker)
            else:
                worker.calls.put(None)

    def _abandon_later(self, work: Work[T], answer: Future[T]) -> None:
        timer = threading.Timer(self._grace, self._abandon, (work, answer))
        timer.daemon = True
        timer.start()

    def _abandon(self, work: Work[T], answer: Future[T]) -> None:
        """Give the place of a call that has not returned to another thread."""
        if answer.done():
            return
        held = work.cores() + sum(each.cores() for each in list(self._abandoned.values()))
        with self._lock:
            if not answer.done() and held <= self._spare_cores:
                self._abandoned[answer] = work
                self._free.put(None)
                return
        self._abandon_later(work, answer)


class _Worker(Generic[T]):
    """A daemon thread that runs one call after the other, until it gets None."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="anabranch-query", daemon=True).start()

    def _run(self) -> None:
        while (given := self.calls.get()) is not None:
            call, answer = given
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)
