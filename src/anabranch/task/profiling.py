"""Looking at a task while it works: where its time goes, or what it holds in memory."""

from __future__ import annotations

import cProfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psutil
import pyarrow as pa

from anabranch.records.profiles import (
    MOST_ENTRIES,
    FunctionTime,
    LineMemory,
    MemoryUse,
    ProfileKind,
    TaskProfile,
)

Entry = TypeVar("Entry")


class Watched:
    """A task that may be looked at; ``profile`` is there when it has come to its end."""

    def __init__(self, kind: ProfileKind | None, group: str, worker: int) -> None:
        """None: nobody looks."""
        self._kind = kind
        self._group = group
        self._worker = worker
        self.profile: TaskProfile | None = None

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at what happens within. A user's own profiler, where one is on, stays on."""
        started = time.perf_counter()
        match self._kind:
            case None:
                yield
                return
            case ProfileKind.TIME:
                with _timed() as functions:
                    yield
                found = TaskProfile(
                    ProfileKind.TIME,
                    self._group,
                    self._worker,
                    time.perf_counter() - started,
                    functions=_first(functions),
                    left_out=_beyond(functions),
                )
            case ProfileKind.HEAP:
                with _traced() as (lines, used):
                    yield
                found = TaskProfile(
                    ProfileKind.HEAP,
                    self._group,
                    self._worker,
                    time.perf_counter() - started,
                    lines=_first(lines),
                    memory=used[0],
                    left_out=_beyond(lines),
                )
        self.profile = found


@contextmanager
def _timed() -> Iterator[list[FunctionTime]]:
    """The functions that are called within, those that take longest first."""
    found: list[FunctionTime] = []
    profiler = cProfile.Profile()
    try:
        profiler.enable()
    except ValueError:
        # From Python 3.12 on there is one at a time: somebody else's is on.
        yield found
        return
    try:
        yield found
    finally:
        profiler.disable()
    found += [_function(entry) for entry in profiler.getstats()]
    found.sort(key=lambda each: each.own_seconds, reverse=True)


def _function(entry: Any) -> FunctionTime:  # noqa: ANN401  (what cProfile gives has no public name)
    code = entry.code
    if isinstance(code, str):
        name, file, line = code, "", 0
    else:
        name, file, line = code.co_qualname, code.co_filename, code.co_firstlineno
    return FunctionTime(name, file, line, entry.callcount, entry.inlinetime, entry.totaltime)


@contextmanager
def _traced() -> Iterator[tuple[list[LineMemory], list[MemoryUse]]]:
    """The lines whose objects are held at the end, the largest first, and the bytes of all."""
    lines: list[LineMemory] = []
    used: list[MemoryUse] = []
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    tracemalloc.reset_peak()
    try:
        yield lines, used
        held, most = tracemalloc.get_traced_memory()
        snapshot = tracemalloc.take_snapshot()
    finally:
        if ours:
            tracemalloc.stop()
    own = tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)
    for each in snapshot.filter_traces((own,)).statistics("lineno"):
        frame = each.traceback[0]
        lines.append(LineMemory(frame.filename, frame.lineno, each.size, each.count))
    pool = pa.default_memory_pool()
    resident = psutil.Process().memory_info().rss
    arrow_most = pool.max_memory() or pool.bytes_allocated()
    used.append(MemoryUse(resident, pool.bytes_allocated(), arrow_most, held, most))


def _first(entries: list[Entry]) -> tuple[Entry, ...]:
    return tuple(entries[:MOST_ENTRIES])


def _beyond(entries: list[Entry]) -> int:
    return max(len(entries) - MOST_ENTRIES, 0)
