"""Counts and hashes of the rows that pass a place, per bin.

A replayed step must produce the same rows. Their hash is the sum of a hash per row over the key and
every column that is not floating (the last bit of a floating sum may depend on how code was
compiled), so it does not depend on how the rows are distributed and sorted.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.messages import Tally
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.order.sortable_ints import dense
from anabranch.operators.rows import Rows
from anabranch.records.bins import Hashes, bin_of
from anabranch.runs.keys import one_chunk

_ODD = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0x165667B19E3779F9)
_HALF = np.uint64(32)
_WORD = 8
_LONG = 256
"""Texts with more bytes than this are rare enough to be hashed one by one."""
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype=np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_WRAP = 1 << 64


def tally(place: str, rows: Rows, bins: int) -> Tally:
    """Count rows and add up their hashes, per bin if they have a key."""
    if rows.hashes is not None and not len(rows):
        return Tally(place, (), (), ())
    hashes = row_hashes(rows.values, rows.hashes)
    if rows.hashes is None:
        return Tally(place, (0,), (len(rows),), (digest(hashes),))
    numbers = bin_of(rows.hashes, bins)
    counts = np.bincount(numbers, minlength=bins)
    used = np.flatnonzero(counts)
    sums = _sums(numbers, hashes, bins)
    return Tally(
        place,
        tuple(used.tolist()),
        tuple(counts[used].tolist()),
        tuple(sums[int(number)] for number in used),
    )


def _sums(numbers: Int64s, hashes: Hashes, bins: int) -> list[int]:
    """The sum of the hashes per bin, modulo 2^64.

    It adds 32-bit halves: a double adds two million of them without rounding.
    """
    totals = [0] * bins
    for start in range(0, len(hashes), 1 << 20):
        some, part = numbers[start : start + (1 << 20)], hashes[start : start + (1 << 20)]
        low = np.bincount(some, (part & _LOW).astype(np.float64), bins)
        high = np.bincount(some, (part >> _HALF).astype(np.float64), bins)
        for number in np.flatnonzero(np.bincount(some, minlength=bins)).tolist():
            more = int(low[number]) + (int(high[number]) << 32)
            totals[number] = (totals[number] + more) % _WRAP
    return totals


def row_hashes(rows: pa.Table, seed: Hashes | None = None) -> Hashes:
    """A hash of each row over its non-floating columns; ``seed`` is the key's hash."""
    total = np.zeros(rows.num_rows, dtype=np.uint64) if seed is None else seed.copy()
    for column in rows.columns:
        total = _add_column(total, column)
    return total


def digest(hashes: Hashes) -> int:
    """The hash of a set of rows: the sum of their hashes, in any order."""
    return int(hashes.sum(dtype=np.uint64)) if len(hashes) else 0


def _add_column(total: Hashes, column: pa.Array | pa.ChunkedArray) -> Hashes:
    if pa.types.is_floating(column.type) or pa.types.is_null(column.type):
        return total
    return _mix(total * _STEP + _column(one_chunk(column)))


def _mix(values: Hashes) -> Hashes:
    values = values * _ODD
    return values ^ (values >> _HALF)


def _column(array: pa.Array) -> Hashes:
    hashed = _mix(_words(array))
    if array.null_count:
        hashed[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashed


def _words(array: pa.Array) -> Hashes:
    """Each value as one word; equal values have equal words."""
    kind = array.type
    if pa.types.is_nested(kind):
        return _nested(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(array)
    if pa.types.is_boolean(kind):
        return _integer_words(array.cast(pa.int8()))
    if pa.types.is_decimal128(kind):
        return _pairs(array)
    width = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[kind.bit_width // _WORD]
    return _integer_words(array.view(width))


def _nested(array: pa.Array) -> Hashes:
    if pa.types.is_struct(array.type):
        return _structs(array)
    if pa.types.is_list(array.type):
        return _lists(array)
    printed = [repr(_without_floats(value)) for value in array.to_pylist()]
    return _texts(pa.array(printed, type=pa.string()))


def _structs(array: pa.Array) -> Hashes:
    total = np.zeros(len(array), dtype=np.uint64)
    for field in array.flatten():
        total = _add_column(total, field)
    return total


def _lists(array: pa.Array) -> Hashes:
    """Hashes of each list's length and its elements in order; of the length alone for floats."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    elements = _add_column(np.zeros(int(lengths.sum()), dtype=np.uint64), array.flatten())
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(elements)) - np.repeat(starts, lengths)
    mixed = _mix(elements + _mix((places + 1).astype(np.uint64)))
    total = _mix(lengths.astype(np.uint64))
    some = lengths > 0
    if some.any():
        total[some] += np.add.reduceat(mixed, starts[some])
    return total


def _pairs(array: pa.Array) -> Hashes:
    pairs: Hashes = np.frombuffer(array.buffers()[1], dtype="<u8").reshape(-1, 2)
    mine = pairs[array.offset : array.offset + len(array)]
    return _mix(mine[:, 0]) * _STEP + mine[:, 1]


def _without_floats(value: object) -> object:
    match value:
        case float():
            return None
        case list() | tuple():
            return [_without_floats(part) for part in value]
        case dict():
            return {name: _without_floats(part) for name, part in value.items()}
        case _:
            return value


def _integer_words(array: pa.Array) -> Hashes:
    return dense(array).astype(np.int64).view(np.uint64)


def _texts(array: pa.Array) -> Hashes:
    """Hashes of length and bytes: a word of all texts at a time, long texts one by one."""
    wide = array.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], dtype=np.int64)[wide.offset :][: len(wide) + 1]
    data = np.frombuffer(wide.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    total = lengths.astype(np.uint64)
    for row in np.flatnonzero(lengths > _LONG).tolist():
        text = data[starts[row] : starts[row] + lengths[row]].tobytes()
        total[row] = int.from_bytes(hashlib.blake2b(text, digest_size=_WORD).digest(), "little")
    padded = np.concatenate((data, np.zeros(_WORD, dtype=np.uint8)))
    word_at = np.ndarray(len(data) + 1, dtype="<u8", buffer=padded, strides=(1,))
    left = np.flatnonzero(lengths <= _LONG)
    for done in range(0, _LONG, _WORD):
        left = left[lengths[left] > done]
        if not len(left):
            break
        size = np.minimum(lengths[left] - done, _WORD)
        part = word_at[starts[left] + done] & _MASKS[size]
        total[left] = _mix(total[left] * _STEP + part)
    return total
