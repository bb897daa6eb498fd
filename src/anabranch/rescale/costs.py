"""The cost model of moves: two numbers, learned from past moves."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

BYTES_PER_SECOND = 25e6
"""The assumed rate until one is measured. It is below that of most disks, so that the first round
is small and not the longest step of a rescale."""

SECONDS_PER_BIN = 0.001
LEARNING = 0.25
_LEAST_BYTES = 1 << 16


class Prefetched(msgspec.Struct, frozen=True):
    """A bin was copied to the new owner's home, as of some commit: its bytes and seconds.

    ``bytes`` is 0 if nothing had to be copied.
    """

    region: str
    bin: int
    to_worker: int
    bytes: int = 0
    seconds: float = 0.0

    @property
    def end(self) -> tuple[str, int, int]:
        """The bin and its new worker."""
        return self.region, self.bin, self.to_worker


class CostModel(msgspec.Struct, frozen=True):
    """The seconds of a move: its bytes at the copy rate, plus a constant per bin.

    The rate is a guess until it is ``measured``.

    >>> CostModel(bytes_per_second=1e6, seconds_per_bin=0.0).seconds(2_000_000)
    2.0
    """

    bytes_per_second: float = BYTES_PER_SECOND
    seconds_per_bin: float = SECONDS_PER_BIN
    measured: bool = False

    def seconds(self, size: int) -> float:
        """The seconds to copy a bin of ``size`` bytes."""
        return self.seconds_per_bin + size / self.bytes_per_second

    def learn_from(self, copies: Iterable[Prefetched]) -> CostModel:
        """The model updated by some copies. Tiny copies do not count."""
        large = [each for each in copies if each.bytes >= _LEAST_BYTES and each.seconds > 0]
        if not large:
            return self
        measured = sum(each.bytes for each in large) / sum(each.seconds for each in large)
        rate, weight = self.bytes_per_second, LEARNING if self.measured else 1.0
        return CostModel(rate + weight * (measured - rate), self.seconds_per_bin, measured=True)
