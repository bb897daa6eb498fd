"""Blocking calls to the coordinator, made from the event loop in separate threads.

A call may wait for minutes (a checkpoint of a stuck pipeline), so each kind of call has its own
limit: ``status`` and ``pause`` always find a thread. The threads are daemons, so that a waiting
call does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from anabranch.errors import TooManyRequests

T = TypeVar("T")


class Callers:
    """Limits the concurrent calls of one kind; more are refused, not queued."""

    def __init__(self, kind: str, most: int) -> None:
        """``kind`` names these calls in errors."""
        self._kind = kind
        self.most = most
        self._free = threading.BoundedSemaphore(most)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread; ``TooManyRequests``.

        If the client disconnects, the function still runs and counts until it returns.
        """
        if not self._free.acquire(blocking=False):
            raise TooManyRequests(
                f"{self.most} calls ({self._kind}) are in progress, which is the limit",
                do="Wait until some of them have finished.",
            )
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # the waiting call may be cancelled, this one not

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                self._free.release()
                future.set_exception(error)
            else:
                self._free.release()
                future.set_result(result)

        try:
            threading.Thread(target=run, name=f"anabranch-http-{self._kind}", daemon=True).start()
        except BaseException:
            self._free.release()
            raise
        return await asyncio.wrap_future(future)
