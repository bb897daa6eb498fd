"""The load of a worker: what each of its bins had to do in a step."""

from __future__ import annotations

import msgspec


class BinLoad(msgspec.Struct, frozen=True):
    """A bin's keys and bytes now, and what a step gives it to do: rows and useful seconds."""

    keys: int = 0
    bytes: int = 0
    rows: float = 0.0
    seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be handed over."""
        return not self.keys and not self.bytes


NOTHING = BinLoad()


class WorkerLoad(msgspec.Struct, frozen=True):
    """What a worker says after a step: its bins of one region, and what each had to do.

    Keys and bytes of a bin are in the commit, so ``keys`` are only those beyond it: registered when
    it was interrogated. ``generation`` is that of the assignment it worked under: an answer that
    comes late is known by it.
    """

    region: str
    worker: int
    generation: int
    bins: tuple[int, ...]
    loads: tuple[BinLoad, ...]
