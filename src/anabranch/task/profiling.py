"""Profiles a task: where its time goes, or what it holds in memory."""

from __future__ import annotations

import cProfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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


@dataclass
class TaskProfiler:
    """Profiles a task if ``kind`` says how; ``profile`` is set when the task has succeeded."""

    kind: ProfileKind | None
    group: str
    worker: int
    profile: TaskProfile | None = None

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Profile the block. Leaves a user's own profiler on."""
        if self.kind is None:
            yield
            return
        started = time.perf_counter()
        functions: list[FunctionTime] = []
        lines: list[LineMemory] = []
        memory: list[MemoryUse] = []
        is_time = self.kind is ProfileKind.TIME
        with _timed(functions) if is_time else _traced(lines, memory):
            yield
        self.profile = TaskProfile(
            self.kind,
            self.group,
            self.worker,
            time.perf_counter() - started,
            tuple(functions[:MOST_ENTRIES]),
            tuple(lines[:MOST_ENTRIES]),
            memory[0] if memory else None,
            max(len(functions) + len(lines) - MOST_ENTRIES, 0),
        )


@contextmanager
def _timed(found: list[FunctionTime]) -> Iterator[None]:
    """Add the functions called in the block, slowest first."""
    profiler = cProfile.Profile()
    try:
        profiler.enable()
    except ValueError:
        # Python 3.12 and later allow one profiler at a time, and another one is on.
        yield
        return
    try:
        yield
    finally:
        profiler.disable()
    found += [_function(entry) for entry in profiler.getstats()]
    found.sort(key=lambda each: each.own_seconds, reverse=True)


def _function(entry: Any) -> FunctionTime:  # noqa: ANN401  (cProfile has no public type for it)
    code = entry.code
    where = (code, "", 0)  # the name of a built-in function
    if not isinstance(code, str):
        where = (code.co_qualname, code.co_filename, code.co_firstlineno)
    return FunctionTime(*where, entry.callcount, entry.inlinetime, entry.totaltime)


@contextmanager
def _traced(lines: list[LineMemory], memory: list[MemoryUse]) -> Iterator[None]:
    """Add the lines whose objects survive the block, largest first, and the process's memory."""
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    tracemalloc.reset_peak()
    try:
        yield
        held, most = tracemalloc.get_traced_memory()
        snapshot = tracemalloc.take_snapshot()
    finally:
        if ours:
            tracemalloc.stop()
    own = tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)
    for each in snapshot.filter_traces((own,)).statistics("lineno"):
        frame = each.traceback[0]
        lines.append(LineMemory(frame.filename, frame.lineno, each.size, each.count))
    pool, resident = pa.default_memory_pool(), psutil.Process().memory_info().rss
    arrow_most = pool.max_memory() or pool.bytes_allocated()
    memory.append(MemoryUse(resident, pool.bytes_allocated(), arrow_most, held, most))
