"""Removing what nobody needs: runs, staged files and code that nothing names any more.

A file may go when no state that is kept lists it, it is not staged and unpublished, and its step
is over. Late attempts go on writing for a while, so the store is swept again and again; nothing is
removed before it has been seen unneeded for some time, so that a reader can finish. Code is
loaded for the steps of this process alone, which knows what it runs: it goes at once.
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
    """Remembers since when a file has been unneeded, and removes it in time."""

    def __init__(self, store: Path, grace_seconds: float) -> None:
        """``grace_seconds`` is how long an unneeded file stays."""
        self._store = store
        self._grace = grace_seconds
        self._since: dict[str, float] = {}

    def sweep(self, step: int, needed: Collection[str], now: float) -> int:
        """Remove what has been unneeded for long enough; gives the number of files removed.

        ``needed`` are paths below the store. Files of steps after ``step`` stay, and count as
        needed until they are of a step that is over.
        """
        unneeded = [n for n in self._names() if n not in needed and _over(n, step)]
        self._since = {name: self._since.get(name, now) for name in unneeded}
        gone = [name for name, since in self._since.items() if now - since >= self._grace]
        for name in gone:
            remove_file(f"{self._store}/{name}")
            del self._since[name]
        return len(gone)

    def due(self) -> float | None:
        """When the next file may go; None when none waits for that."""
        return min(self._since.values()) + self._grace if self._since else None

    def sweep_code(self, needed: Collection[str]) -> int:
        """Remove pickled dataflows but for those of these hashes; gives the number removed."""
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
    states: Iterable[Sequence[OperatorState]],
    staged: Iterable[StagedFile],
    others: Iterable[str],
) -> frozenset[str]:
    """The paths below the store of what some states and output need, and of other files."""
    runs = run_files(*(state.runs for each in states for state in each))
    return runs | {file.name for file in staged} | {*others}


def _over(name: str, committed: int) -> bool:
    """Whether a file's step is committed; files without a step are the source logs'."""
    found = _STEP.match(name.rsplit("/", 1)[-1])
    return found is None or int(found[1]) <= committed
