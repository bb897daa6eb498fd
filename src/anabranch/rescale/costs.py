"""What moving costs: a model of two numbers, learnt from the moves that were made."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

BYTES_PER_SECOND = 25e6
"""Taken for the rate until one was measured: less than most disks have, so that the first round is
a small one and not the longest step of a rescale."""

SECONDS_PER_BIN = 0.001
LEARNING = 0.25
_LEAST_BYTES = 1 << 16


class Prefetched(msgspec.Struct, frozen=True):
    """A bin is in the new owner's home, as of some commit: so many bytes in so many seconds.

    A bin of which nothing had to be copied says 0 bytes.
    """

    region: str
    bin: int
    to_worker: int
    bytes: int = 0
    seconds: float = 0.0

    @property
    def end(self) -> tuple[str, int, int]:
        """The bin, and where it is."""
        return self.region, self.bin, self.to_worker


class CostModel(msgspec.Struct, frozen=True):
    """Seconds of a move: its bytes by the rate of copying, and a little for each bin.

    The rate is a guess until it was ``measured`` for the first time.

    >>> CostModel(bytes_per_second=1e6, seconds_per_bin=0.0).seconds(2_000_000)
    2.0
    """

    bytes_per_second: float = BYTES_PER_SECOND
    seconds_per_bin: float = SECONDS_PER_BIN
    measured: bool = False

    def seconds(self, size: int) -> float:
        """What it takes to copy a bin of so many bytes."""
        return self.seconds_per_bin + size / self.bytes_per_second

    def in_place(self) -> CostModel:
        """The model where bytes stay where they are: what is handed over is ownership."""
        return msgspec.structs.replace(self, bytes_per_second=inf)

    def learnt(self, done: Iterable[Prefetched]) -> CostModel:
        """The model after some copies. Tiny ones say nothing of the rate."""
        told = [each for each in done if each.bytes >= _LEAST_BYTES and each.seconds > 0]
        if not told:
            return self
        seen = sum(each.bytes for each in told) / sum(each.seconds for each in told)
        rate, weight = self.bytes_per_second, LEARNING if self.measured else 1.0
        return CostModel(rate + weight * (seen - rate), self.seconds_per_bin, measured=True)
