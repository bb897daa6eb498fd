"""Orders that arrive while the demo runs: JSON files, written by a thread of its own."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

CUSTOMERS = 10_000
LONGEST_AMOUNT = 20_000
PATIENCE_SECONDS = 1.5
FIRST_PATIENCE_SECONDS = 30.0
MOVING_PATIENCE_SECONDS = 30.0


def write_orders(path: Path, rows: int, chance: random.Random) -> None:
    """Write a file of orders aside and move it into place: it appears whole or not at all.

    A few customers order much more than the others.
    """
    lines = []
    for _ in range(rows):
        customer = int(CUSTOMERS * chance.random() ** 3)
        amount = chance.randint(100, LONGEST_AMOUNT)
        lines.append(f'{{"customer":"c{customer:05d}","amount":{amount}}}\n')
    aside = path.with_name(f".{path.name}")
    aside.write_text("".join(lines), encoding="utf-8")
    os.replace(aside, path)


def shares(rows: int, files: int) -> list[int]:
    """Rows per file, as equal as can be; no file is empty.

    >>> shares(10, 3)
    [4, 3, 3]
    >>> shares(2, 5)
    [1, 1]
    """
    files = min(files, rows)
    return [rows // files + (number < rows % files) for number in range(files)]


class OrderWriter:
    """Writes the files one after the other: each when the last but one is committed.

    So one waits whenever a step ends, and rows flow also through steps that follow each other at
    once because bins move. Where steps take long it does not wait for them beyond its patience, so
    that a slow machine gets fewer and larger steps instead of a longer demo. The first step, which
    warms everything up, gets more.
    """

    def __init__(
        self, directory: Path, rows: int, files: int, seed: int, clock: Callable[[], float]
    ) -> None:
        """Nothing is written before ``start``."""
        self._directory = directory
        self._shares = shares(rows, files)
        self._chance = random.Random(seed)
        self._clock = clock
        self._changed = threading.Condition()
        self._committed = 0
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-orders", daemon=True)
        self.written = 0
        self.last_written_at = clock()
        self._patience = PATIENCE_SECONDS

    @classmethod
    def into(cls, directory: Path, rows: int, files: int, seed: int) -> OrderWriter:
        """A writer by the real clock."""
        return cls(directory, rows, files, seed, time.monotonic)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def committed(self, rows: int) -> None:
        """Be told how many rows are committed by now."""
        with self._changed:
            self._committed = rows
            self._changed.notify_all()

    def keep_pace(self, moving: bool) -> None:
        """While bins move, orders keep the pace of the steps: so that there are some to the end."""
        self._patience = MOVING_PATIENCE_SECONDS if moving else PATIENCE_SECONDS

    def finished(self) -> bool:
        """Whether the last file is written; raises what made writing fail."""
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Write no more, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            for number, rows in enumerate(self._shares, start=1):
                path = self._directory / f"orders-{number:05d}.json"
                write_orders(path, rows, self._chance)
                earlier = self.written
                self.written += rows
                self.last_written_at = self._clock()
                patience = FIRST_PATIENCE_SECONDS if number <= 2 else self._patience
                if not self._wait(earlier, patience):
                    return
        except Exception as error:
            self._failure = error

    def _wait(self, rows: int, patience: float) -> bool:
        """Wait until so many rows are committed, or patience ends; False when told to stop."""
        deadline = self._clock() + patience
        with self._changed:
            while not self._stopping and self._committed < rows:
                left = deadline - self._clock()
                if left <= 0:
                    break
                self._changed.wait(left)
            return not self._stopping
