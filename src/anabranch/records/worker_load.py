"""The load of a worker in a step, by bin."""

from __future__ import annotations

import msgspec


class BinLoad(msgspec.Struct, frozen=True):
    """A bin's keys and bytes, and its rows and useful seconds in a step."""

    keys: int = 0
    bytes: int = 0
    rows: float = 0.0
    seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to hand over."""
        return not self.keys and not self.bytes


NOTHING = BinLoad()


class WorkerLoad(msgspec.Struct, frozen=True):
    """A worker's report after a step: its bins of one region and their loads.

    The commit has the keys and bytes of a bin, so ``keys`` counts only those beyond it: registered
    in the interrogation. ``generation`` is that of the assignment; it exposes late answers.
    """

    region: str
    worker: int
    generation: int
    bins: tuple[int, ...]
    loads: tuple[BinLoad, ...]
