"""Profiles of the time or the memory that a worker's tasks use in one step.

The next plan that reads input carries the request, and the tasks it selects report their profiles.
A profile changes no result, but slows its step.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MOST_ENTRIES = 100
"""A profile holds at most this many functions or lines: the most expensive ones."""


class ProfileKind(StrEnum):
    """What is measured: time or memory."""

    TIME = "time"
    HEAP = "heap"


class ProfileRequest(msgspec.Struct, frozen=True):
    """The tasks to profile: those of a worker, in one region or in all."""

    kind: ProfileKind
    worker: int
    region: str | None = None

    def is_about(self, region: str | None, worker: int) -> bool:
        """Whether to profile a task of this region and worker.

        >>> request = ProfileRequest(ProfileKind.TIME, 1)
        >>> request.is_about("by-customer", 1), request.is_about("by-customer", 0)
        (True, False)
        """
        return self.worker == worker and self.region in (None, region)


class FunctionTime(msgspec.Struct, frozen=True):
    """A function's calls, and its seconds without (``own_seconds``) and with its callees.

    Functions not written in Python have no file, and line 0.
    """

    function: str
    file: str
    line: int
    calls: int
    own_seconds: float
    seconds: float


class LineMemory(msgspec.Struct, frozen=True):
    """What a line of Python allocated in the step and still held at its end."""

    file: str
    line: int
    bytes: int
    blocks: int


class MemoryUse(msgspec.Struct, frozen=True):
    """The memory of a task's process at the end of the step, in bytes.

    ``resident`` is the resident set, with shared pages. ``arrow`` is Arrow's pool, and
    ``arrow_most`` its peak since the process started. ``python`` are the objects that the step
    allocated, and ``python_most`` their peak in the step.
    """

    resident: int
    arrow: int
    arrow_most: int
    python: int
    python_most: int


class TaskProfile(msgspec.Struct, frozen=True):
    """The profile of one task. ``group`` is the region it ran, or a group without one.

    The most expensive come first: ``functions`` by own seconds, ``lines`` by bytes. ``left_out``
    more are omitted. ``seconds`` is the task's duration, including the profiler.
    """

    kind: ProfileKind
    group: str
    worker: int
    seconds: float
    functions: tuple[FunctionTime, ...] = ()
    lines: tuple[LineMemory, ...] = ()
    memory: MemoryUse | None = None
    left_out: int = 0
