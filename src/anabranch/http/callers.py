"""Blocking calls to the coordinator, made from the event loop in separate threads.

A call may wait for minutes (a checkpoint of a stuck pipeline), so each kind of call has its own
limit: ``status`` and ``pause`` always find a thread. The threads are daemons, so that a waiting
call does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from anabranch.errors import TooManyRequests

T = TypeVar("T")


class Callers:
    """Limits the concurrent calls of one kind; more are refused, not queued."""

    def __init__(self, kind: str, most: int) -> None:
        """``kind`` names these calls in errors."""
        self._kind = kind
        self._most = most
        self._calling = 0
        self._lock = threading.Lock()

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread; ``TooManyRequests``.

        If the client disconnects, the function still runs and counts until it returns.
        """
        self._enter()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return  # the client has disconnected
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("T", result))

        def run() -> None:
            result, failure = None, None
            try:
                result = function()
            except BaseException as error:
                failure = error
            self._leave()
            with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(finish, result, failure)

        try:
            threading.Thread(target=run, name=f"anabranch-http-{self._kind}", daemon=True).start()
        except BaseException:
            self._leave()
            raise
        return await future

    def _enter(self) -> None:
        with self._lock:
            if self._calling >= self._most:
                raise TooManyRequests(
                    f"{self._most} calls ({self._kind}) are in progress, which is the limit",
                    do="Wait until some of them have finished.",
                )
            self._calling += 1

    def _leave(self) -> None:
        with self._lock:
            self._calling -= 1
