"""Garbage collection: removes runs, staged files and code that nothing refers to any more.

A file is garbage when no retained state lists it, it is not staged and unpublished, and its step
is over. Late attempts keep writing for a while, so the store is swept repeatedly. A grace period
lets readers finish before a file goes. Code goes at once: only this process loads it, and it knows
what it runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from anabranch.records.placed import OperatorState
from anabranch.records.run_list import files as run_files
from anabranch.records.staged_file import StagedFile
from anabranch.store.files import list_names, remove_file

ROOMS = ("run", "stage", "part")
LOG_ROOM = "log"
CODE_ROOM = "code"

_STEP = re.compile(r"(\d{12})-")


class Sweeper:
    """Removes the files of a store after they have been unneeded for a grace period."""

    def __init__(self, store: Path, grace_seconds: float) -> None:
        """``grace_seconds`` is how long an unneeded file stays."""
        self._store = store
        self._grace = grace_seconds
        self._since: dict[str, float] = {}

    def sweep(self, step: int, needed: Collection[str], now: float) -> int:
        """Remove files unneeded for the grace period; return how many.

        ``needed`` are paths below the store. Files of steps after ``step`` count as needed.
        """
        unneeded = [n for n in self._names() if n not in needed and file_step(n) <= step]
        self._since = {name: self._since.get(name, now) for name in unneeded}
        gone = [name for name, since in self._since.items() if now - since >= self._grace]
        for name in gone:
            remove_file(f"{self._store}/{name}")
            del self._since[name]
        return len(gone)

    def due(self) -> float | None:
        """When the next file may be removed; None if none is waiting."""
        return min(self._since.values()) + self._grace if self._since else None

    def sweep_code(self, needed: Collection[str]) -> int:
        """Remove all pickled dataflows but those with the needed hashes; return how many."""
        room = self._store / CODE_ROOM
        return sum(remove_file(room / name) for name in list_names(room) if name not in needed)

    def _names(self) -> Iterable[str]:
        for room in ROOMS:
            for operator in list_names(f"{self._store}/{room}"):
                for name in list_names(f"{self._store}/{room}/{operator}"):
                    yield f"{room}/{operator}/{name}"
        for name in list_names(f"{self._store}/{LOG_ROOM}"):
            yield f"{LOG_ROOM}/{name}"


def needed_files(
    states: Iterable[Sequence[OperatorState]], staged: Iterable[StagedFile], others: Iterable[str]
) -> frozenset[str]:
    """The paths below the store that states and staged output need, and other files."""
    runs = run_files(*(state.runs for each in states for state in each))
    return runs | {file.name for file in staged} | {*others}


def file_step(name: str) -> int:
    """The step that wrote a file; 0 for names without one, such as those of source logs.

    >>> file_step("run/total/000000000007-0-by-customer-1-0-f00d.arrow")
    7
    """
    match = _STEP.match(name.rpartition("/")[2])
    return 0 if match is None else int(match[1])
