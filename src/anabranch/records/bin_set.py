"""Sets of bins. Nothing here imports numpy until a mask is asked for: clients read plans too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from anabranch.records.bins import Mask


def bin_bits(bins: int) -> int:
    """How many top bits of a hash give its bin; ``bins`` must be a power of two."""
    if bins < 1 or bins & (bins - 1):
        raise ValueError(f"the number of bins must be a power of two, not {bins}")
    return bins.bit_length() - 1


class BinSet(msgspec.Struct, frozen=True):
    """An immutable set of bins, stored as a bitmap in hexadecimal text.

    The text is canonical (lower case, no leading zeros), so equal sets compare and hash equal.
    Iteration is ascending.

    >>> BinSet.of([0, 5]) | BinSet.of([4])
    BinSet(hex='31')
    >>> list(BinSet.of([9, 2]) - BinSet.of([2]))
    [9]
    """

    hex: str = "0"

    def __post_init__(self) -> None:
        """Reject text that is not canonical."""
        bits = int(self.hex, 16)
        if bits < 0 or format(bits, "x") != self.hex:
            raise ValueError(f"not the canonical text of a set of bins: {self.hex!r}")

    @classmethod
    def of(cls, numbers: Iterable[int]) -> BinSet:
        """The set of these bin numbers."""
        bits = 0
        for number in numbers:
            bits |= 1 << int(number)
        return cls.from_bits(bits)

    @classmethod
    def every(cls, bins: int) -> BinSet:
        """All bins below ``bins``."""
        return cls.from_bits((1 << bins) - 1)

    @classmethod
    def from_bits(cls, bits: int) -> BinSet:
        """The set with this bitmap: bin *b* is bit *b*."""
        return cls(format(bits, "x"))

    @classmethod
    def from_mask(cls, mask: Mask) -> BinSet:
        """The set of bins whose mask is true."""
        import numpy as np  # noqa: PLC0415

        packed = np.packbits(mask, bitorder="little").tobytes()
        return cls.from_bits(int.from_bytes(packed, "little"))

    @property
    def bits(self) -> int:
        """The bitmap."""
        return int(self.hex, 16)

    def mask(self, bins: int) -> Mask:
        """A truth value per bin; all bins must be below ``bins``."""
        bits = self.bits
        if bits >> bins:
            raise ValueError(f"the set holds bin {bits.bit_length() - 1} of only {bins} bins")
        import numpy as np  # noqa: PLC0415

        packed = np.frombuffer(bits.to_bytes((bins + 7) // 8, "little"), dtype=np.uint8)
        return np.unpackbits(packed, count=bins, bitorder="little").astype(np.bool_)

    def __or__(self, other: BinSet) -> BinSet:
        """Union."""
        return BinSet.from_bits(self.bits | other.bits)

    def __and__(self, other: BinSet) -> BinSet:
        """Intersection."""
        return BinSet.from_bits(self.bits & other.bits)

    def __sub__(self, other: BinSet) -> BinSet:
        """Difference."""
        return BinSet.from_bits(self.bits & ~other.bits)

    def __len__(self) -> int:
        """The number of bins."""
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        """Whether the set is not empty."""
        return self.hex != "0"

    def __contains__(self, number: int) -> bool:
        """Whether this bin is in the set."""
        return bool(self.bits >> number & 1)

    def __iter__(self) -> Iterator[int]:
        """The bin numbers, ascending."""
        bits = self.bits
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest
