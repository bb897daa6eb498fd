"""Orders that arrive while the demo runs: JSON files, written by a separate thread."""

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
    """Write a file of orders atomically. A few customers order much more than the others."""
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
    """Writes the files one after the other: each once the last but one is committed.

    So there is always input for the next step, even when moving bins make steps follow each other
    at once. Patience limits the wait: a slow machine gets fewer, larger steps, not a longer demo.
    The first step, which warms everything up, gets more patience.
    """

    def __init__(
        self, directory: Path, rows: int, files: int, seed: int, clock: Callable[[], float]
    ) -> None:
        """``start`` begins to write."""
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
        """A writer that uses the real clock."""
        return cls(directory, rows, files, seed, time.monotonic)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def committed(self, rows: int) -> None:
        """Note how many rows are committed by now."""
        with self._changed:
            self._committed = rows
            self._changed.notify_all()

    def keep_pace(self, moving: bool) -> None:
        """While bins move, write at the pace of the steps, so that orders last until the end."""
        self._patience = MOVING_PATIENCE_SECONDS if moving else PATIENCE_SECONDS

    def finished(self) -> bool:
        """Whether the last file is written; raises the error if writing failed."""
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop writing and end the thread."""
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
        """Wait until this many rows are committed or patience ends; False when stopped."""
        deadline = self._clock() + patience
        with self._changed:
            while not self._stopping and self._committed < rows:
                left = deadline - self._clock()
                if left <= 0:
                    break
                self._changed.wait(left)
            return not self._stopping
