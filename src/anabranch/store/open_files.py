"""Files that a process keeps open, the last ones used, for as long as they are there."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LOOKED_AT = 8
"""After how many files it looks whenever one is added."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class KeptOpen(Generic[Key, Value]):
    """What was made of files, by their names; the names never change their content.

    At most ``limit`` are kept. One whose file was removed is let go, so that its space is freed,
    soon and not at once: to look after all of them whenever one is added would take longer than
    to read a small file.
    """

    def __init__(self, limit: int, is_there: Callable[[Key], bool]) -> None:
        """``is_there`` says whether the file of a name is still there."""
        self._limit = limit
        self._is_there = is_there
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._to_look_at: deque[Key] = deque()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """What is kept under this name; it was used just now."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def keep(self, key: Key, value: Value) -> None:
        """Keep one more; let go of some whose files are gone, and of the one unused longest."""
        with self._lock:
            self._look_after_some()
            if key not in self._kept:
                self._to_look_at.append(key)
            self._kept[key] = value
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Let go of all, as a new process would."""
        with self._lock:
            self._kept.clear()
            self._to_look_at.clear()

    def _look_after_some(self) -> None:
        for _ in range(min(LOOKED_AT, len(self._to_look_at))):
            key = self._to_look_at.popleft()
            if key not in self._kept:
                continue
            if self._is_there(key):
                self._to_look_at.append(key)
            else:
                del self._kept[key]
