"""Calls of the coordinator from the event loop, in threads of their own.

A call may wait for minutes (a checkpoint of a stuck pipeline), so kinds of calls are counted
apart: however many wait, ``status`` and ``pause`` find a thread. The threads are daemons: a call
that waits does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from anabranch.errors import TooManyRequests

T = TypeVar("T")
Value = TypeVar("Value")


class Callers:
    """At most so many calls of one kind at a time; more are refused, not queued."""

    def __init__(self, kind: str, most: int) -> None:
        """Nobody calls yet. ``kind`` is how users know these calls."""
        self._kind = kind
        self._most = most
        self._calling = 0
        self._lock = threading.Lock()

    async def call(self, function: Callable[[], T]) -> T:
        """Give what the function gives, or raise what it raises; ``TooManyRequests``.

        A caller that goes away does not end the function: it still counts until it returns.
        """
        self._enter()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                report = _setter(future.set_exception, future, error)
            else:
                report = _setter(future.set_result, future, result)
            finally:
                self._leave()
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(report)

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
                    f"{self._most} calls ({self._kind}) are under way, which is the most",
                    do="Wait until some of them have ended.",
                )
            self._calling += 1

    def _leave(self) -> None:
        with self._lock:
            self._calling -= 1


def _setter(
    set_it: Callable[[Value], None], future: asyncio.Future[T], value: Value
) -> Callable[[], None]:
    """Sets the future unless its caller has gone."""

    def report() -> None:
        if not future.done():
            set_it(value)

    return report
