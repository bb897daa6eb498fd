"""Work that is frozen in the middle of a call to the disk, as by SIGSTOP, and goes on later.

The work has a thread of its own, which runs only while whoever resumed it waits: there is never
more than one thread that does something, so a run stays the same for the same seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Freezable(Generic[T]):
    """A call that may be frozen. ``resume`` runs it up to there, or to its end."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Nothing runs yet."""
        self._work = work
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.is_over = False
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> bool:
        """Let it run until it freezes or is over; says whether it is over."""
        self._mine.release()
        self._theirs.acquire()
        return self.is_over

    def result(self) -> T:
        """What the call came to, or raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def freeze(self) -> None:
        """Stand still until somebody resumes it. Called by the work itself."""
        self._theirs.release()
        self._mine.acquire()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self._result.append(self._work())
        except BaseException as error:  # whoever asks for the result gets it
            self._error = error
        self.is_over = True
        self._theirs.release()
