"""What moving costs: a model of two numbers, learnt from the moves that were made."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

BYTES_PER_SECOND = 100e6
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

    >>> CostModel(bytes_per_second=1e6, seconds_per_bin=0.0).seconds(2_000_000)
    2.0
    """

    bytes_per_second: float = BYTES_PER_SECOND
    seconds_per_bin: float = SECONDS_PER_BIN

    def seconds(self, size: int) -> float:
        """What it takes to copy a bin of so many bytes."""
        return self.seconds_per_bin + size / self.bytes_per_second

    def learnt(self, done: Iterable[Prefetched]) -> CostModel:
        """The model after some copies. Tiny ones say nothing of the rate."""
        rate = self.bytes_per_second
        told = [each for each in done if each.bytes >= _LEAST_BYTES and each.seconds > 0]
        if told:
            seen = sum(each.bytes for each in told) / sum(each.seconds for each in told)
            rate += LEARNING * (seen - rate)
        return CostModel(rate, self.seconds_per_bin)
