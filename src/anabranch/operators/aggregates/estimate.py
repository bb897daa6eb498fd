"""``approx_count_distinct``: a HyperLogLog estimate of the number of distinct values.

The first bits of a value's hash choose a register. A register holds the greatest number of leading
zeros (plus one) in the rest of its hashes. Only registers that are not empty are kept, sorted, each
as ``number * 64 + zeros``: a key with few values has a short list. The estimator is Ertl's, which
needs no tables and keeps its error bound from the first value on.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.dataflow.aggregates.constant import precision_of
from anabranch.operators.aggregates.lists import FlatLists, concat_lists, flatten_lists
from anabranch.operators.aggregates.moments import Floats
from anabranch.operators.aggregates.port import Function, Segments, State
from anabranch.operators.order.row_order import Int64s, begins

_ZEROS = 64
"""More than any register can hold."""
_SHORT = 9
"""Up to this precision in bits, a register's number and content fit two bytes."""


class DistinctEstimate(Function):
    """An estimate from hashes, which are sent in place of the values."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The registers that are not empty."""
        return [("registers", pa.list_(self._kind))]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The registers of the step's hashes."""
        hashes, owner = step.present()
        codes = register_codes(hashes.to_numpy().view(np.uint64), self._bits)
        registers = FlatLists((pa.array(codes).cast(self._kind),), owner)
        return _maxima(registers).lists(len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """The maximum of each register."""
        both = concat_lists(flatten_lists(before), flatten_lists(after))
        return _maxima(both).lists(len(before[0]), where)

    def result(self, state: State, where: str) -> pa.Array:
        """The estimate, rounded."""
        found = flatten_lists(state)
        zeros = found.values.to_numpy().astype(np.int64) % _ZEROS
        keys, registers = len(state[0]), 1 << self._bits
        counts = np.bincount(found.owner * _ZEROS + zeros, minlength=keys * _ZEROS)
        table = counts.reshape(keys, _ZEROS).astype(np.float64)
        table[:, 0] = registers - table.sum(axis=1)
        return pa.array(np.rint(estimate(table, self._bits)).astype(np.int64))

    @property
    def _bits(self) -> int:
        error = self.spec.parameters[0]
        assert isinstance(error, float)
        bits = precision_of(error)
        assert bits is not None
        return bits

    @property
    def _kind(self) -> pa.DataType:
        return pa.int16() if self._bits <= _SHORT else pa.int32()


def _maxima(registers: FlatLists) -> FlatLists:
    """Each owner's registers, sorted, with the maximum of what each holds."""
    codes = registers.values.to_numpy().astype(np.int64)
    order = np.lexsort((codes, registers.owner))
    new = begins(codes[order] // _ZEROS, registers.owner[order])
    # A register's greatest code is the last before another register begins.
    return registers.take(order[np.append(new[1:], True)] if len(order) else order)


def register_codes(hashes: npt.NDArray[np.uint64], bits: int) -> Int64s:
    """The register of each hash and its content, as ``number * 64 + zeros``."""
    number = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    # A bit set behind the rest bounds the leading zeros of a rest that is all zero.
    rest = (hashes << np.uint64(bits)) | np.uint64(1 << (bits - 1))
    high, low = rest >> np.uint64(32), rest & np.uint64(0xFFFFFFFF)
    length = np.where(high > 0, 32 + _length(high), _length(low))
    codes: Int64s = number * _ZEROS + 65 - length
    return codes


def _length(words: npt.NDArray[np.uint64]) -> Int64s:
    """The bit length of each of these numbers below 2^32."""
    return np.frexp(words.astype(np.float64))[1].astype(np.int64)


def estimate(table: Floats, bits: int) -> Floats:
    """The estimated number of values; each row counts the registers that hold 0, 1, … 63."""
    registers, longest = 1 << bits, 64 - bits
    z = registers * _tau(1.0 - table[:, longest + 1] / registers)
    for zeros in range(longest, 0, -1):
        z = 0.5 * (z + table[:, zeros])
    z = z + registers * _sigma(table[:, 0] / registers)
    # If every register is at its maximum, more values cannot be distinguished.
    least = registers * registers / 2.0**62
    found: Floats = registers * registers / (2.0 * math.log(2.0) * np.maximum(z, least))
    return found


def _sigma(share: Floats) -> Floats:
    """``x + Σ x^(2^k) 2^(k-1)``: the term of empty registers; infinite if all are empty."""
    x, y, z = share.copy(), 1.0, share.copy()
    whole = share == 1.0
    x[whole] = 0.0
    while x.max(initial=0.0) > 0.0:
        x = x * x
        z = z + x * y
        y *= 2.0
    return np.where(whole, np.inf, z)


def _tau(share: Floats) -> Floats:
    """``(1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3``: the term of full registers."""
    x, y, z = share.copy(), 1.0, 1.0 - share
    while True:
        x, y, before = np.sqrt(x), 0.5 * y, z
        z = z - (1.0 - x) ** 2 * y
        if np.array_equal(z, before):
            break
    return np.where((share == 0.0) | (share == 1.0), 0.0, z / 3.0)
