"""A cache of the open files that a process used last."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

CHECKED_PER_PUT = 8
"""How many cached files each ``put`` checks for removal."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class OpenFileCache(Generic[Key, Value]):
    """An LRU cache of at most ``limit`` open files by name; a name never changes its content.

    An entry whose file was removed is evicted, which frees the file's space. That happens soon, not
    at once: checking every entry on each ``put`` would take longer than reading a small file.
    """

    def __init__(self, limit: int, exists: Callable[[Key], bool]) -> None:
        """``exists`` says whether the file of a key still exists."""
        self._limit = limit
        self._exists = exists
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._to_check: deque[Key] = deque()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        """Add a value; evict some whose files are gone, and the least recently used."""
        with self._lock:
            self._evict_removed()
            if key not in self._values:
                self._to_check.append(key)
            self._values[key] = value
            while len(self._values) > self._limit:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Evict everything, as if the process were new."""
        with self._lock:
            self._values.clear()
            self._to_check.clear()

    def _evict_removed(self) -> None:
        for _ in range(min(CHECKED_PER_PUT, len(self._to_check))):
            key = self._to_check.popleft()
            if key not in self._values:
                continue
            if self._exists(key):
                self._to_check.append(key)
            else:
                del self._values[key]
