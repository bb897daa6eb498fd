"""Profiles: what the tasks of a worker spend, in time or in memory, over one step.

A user requests one, the next plan that reads something carries the request, and the tasks of the
worker report what they measured. A profile changes no result; it makes its step slower.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MOST_ENTRIES = 100
"""So many functions, or lines, are in a profile: those that spend most."""


class ProfileKind(StrEnum):
    """What is looked at: where the time goes, or where the memory is."""

    TIME = "time"
    HEAP = "heap"


class ProfileRequest(msgspec.Struct, frozen=True):
    """Whose tasks are to be looked at: those of a worker, in one region or in all of its."""

    kind: ProfileKind
    worker: int
    region: str | None = None

    def is_about(self, region: str | None, worker: int) -> bool:
        """Whether a task of this region and worker is to be looked at.

        >>> request = ProfileRequest(ProfileKind.TIME, 1)
        >>> request.is_about("by-customer", 1), request.is_about("by-customer", 0)
        (True, False)
        """
        return self.worker == worker and self.region in (None, region)


class FunctionTime(msgspec.Struct, frozen=True):
    """A function: its calls, its seconds alone (``own_seconds``) and with what it called.

    What is not written in Python has no file, and line 0.
    """

    function: str
    file: str
    line: int
    calls: int
    own_seconds: float
    seconds: float


class LineMemory(msgspec.Struct, frozen=True):
    """A line of Python: what it has allocated in the step and was still held at its end."""

    file: str
    line: int
    bytes: int
    blocks: int


class MemoryUse(msgspec.Struct, frozen=True):
    """The bytes of a task's process at the end of the step.

    ``resident`` is what the operating system counts, shared pages too. ``arrow`` are the buffers
    of its pool, ``python`` the objects that the step has allocated; the most of both at any time
    are ``arrow_most``, since the process began, and ``python_most``, in the step.
    """

    resident: int
    arrow: int
    arrow_most: int
    python: int
    python_most: int


class TaskProfile(msgspec.Struct, frozen=True):
    """What one task has found. ``group`` is the region, or what stands for one, that it ran.

    Those that spend most come first: ``functions`` by their own seconds, ``lines`` by bytes.
    ``left_out`` is how many more there were. ``seconds`` is what the task took, with looking.
    """

    kind: ProfileKind
    group: str
    worker: int
    seconds: float
    functions: tuple[FunctionTime, ...] = ()
    lines: tuple[LineMemory, ...] = ()
    memory: MemoryUse | None = None
    left_out: int = 0
