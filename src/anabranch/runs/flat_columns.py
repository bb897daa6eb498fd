"""Columns of many batches in one buffer, such as a mapped file, gathered with one NumPy call.

Arrow takes rows out of one batch at a time: for a file with a hundred batches that is a hundred
calls for a few hundred rows each. The offset of a fixed-width value in the buffer is plain
arithmetic, so one NumPy gather serves all batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.records.bins import Mask
from anabranch.runs.keys import Index

_WORDS: dict[int, type[np.unsignedinteger[Any]]] = {
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}
_WIDEST = 64


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
    """Row numbers across all batches, not descending, and how many of them each batch has."""

    positions: Index
    counts: Index

    def shifted(self, shifts: Index, times: int = 1) -> Index:
        """``times`` the position of each row, plus the shift of its batch."""
        places: Index = np.repeat(shifts, self.counts)
        places += self.positions if times == 1 else times * self.positions
        return places


@dataclass(frozen=True, slots=True, eq=False)
class PackedBits:
    """A bitmap scattered over a buffer: row *p* is bit ``p + shifts[batch]``.

    Batches that are not ``present`` have no bitmap: all their rows are true.
    """

    data: npt.NDArray[np.uint8]
    shifts: Index
    present: Mask

    def take(self, selection: RowSelection) -> Mask:
        """The bits of the selected rows."""
        bits = selection.shifted(self.shifts)
        data = self.data.take(bits >> 3)
        data >>= (bits & 7).astype(np.uint8)
        truth: Mask = (data & 1).view(np.bool_)
        if not self.present.all():
            truth |= np.repeat(~self.present, selection.counts)
        return truth


@dataclass(frozen=True, slots=True, eq=False)
class FlatColumn:
    """A column of fixed width: row *p* begins at word ``per_row * p + shifts[batch]``.

    Values are copied bit for bit, NaNs included.
    """

    kind: pa.DataType
    words: npt.NDArray[Any]
    per_row: int
    shifts: Index
    valid: PackedBits | None

    def values(self, selection: RowSelection) -> npt.NDArray[Any]:
        """The words of the selected rows, whether NULL or not."""
        places = selection.shifted(self.shifts, self.per_row)
        if self.per_row > 1:
            places = (places[:, None] + np.arange(self.per_row)).ravel()
        words: npt.NDArray[Any] = self.words.take(places)
        return words

    def take(self, selection: RowSelection) -> pa.Array:
        """The selected rows of the column."""
        values = pa.py_buffer(self.values(selection))
        valid = None
        if self.valid is not None:
            truth = self.valid.take(selection)
            if not truth.all():
                valid = pa.py_buffer(np.packbits(truth, bitorder="little"))
        return pa.Array.from_buffers(self.kind, len(selection.positions), [valid, values])


@dataclass(frozen=True, slots=True, eq=False)
class FlatBooleans:
    """A boolean column without NULLs."""

    bits: PackedBits

    def take(self, selection: RowSelection) -> pa.Array:
        """The selected rows of the column."""
        return pa.array(self.bits.take(selection))


Flat = FlatColumn | FlatBooleans


def flat_columns(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], starts: Index, whole: pa.Buffer
) -> tuple[Flat | None, ...]:
    """The columns that can be gathered from ``whole``; None for others, such as text and lists.

    ``starts`` is the number of each batch's first row. A column with a part outside ``whole``, or
    not aligned to its width, cannot be gathered.
    """
    return tuple(
        _flat(field.type, [batch.column(place) for batch in batches], starts, whole)
        for place, field in enumerate(schema)
    )


def _flat(
    kind: pa.DataType, parts: Sequence[pa.Array], starts: Index, whole: pa.Buffer
) -> Flat | None:
    if pa.types.is_boolean(kind):
        truth = _bits(parts, 1, starts, whole)
        nulls = any(part.null_count for part in parts)
        return None if nulls or truth is None else FlatBooleans(truth)
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return None
    width = int(kind.bit_width)
    word = min(width, _WIDEST)
    offsets = _offsets([part.buffers()[1] for part in parts], whole)
    if offsets is None or np.any(offsets % (word // 8)):
        return None
    valid = None
    if any(part.null_count for part in parts):
        valid = _bits(parts, 0, starts, whole)
        if valid is None:
            return None
    per_row = width // word
    rows = np.array([part.offset for part in parts], dtype=np.int64) - starts[:-1]
    shifts = offsets // (word // 8) + per_row * rows
    return FlatColumn(kind, _view(whole, word), per_row, shifts, valid)


def _bits(
    parts: Sequence[pa.Array], number: int, starts: Index, whole: pa.Buffer
) -> PackedBits | None:
    """The bitmaps in a column's buffers of this number; None if one lies outside ``whole``."""
    buffers = [part.buffers()[number] for part in parts]
    present = np.array([buffer is not None for buffer in buffers], dtype=np.bool_)
    offsets = _offsets(buffers, whole)
    if offsets is None:
        return None
    rows = np.array([part.offset for part in parts], dtype=np.int64) - starts[:-1]
    # Without a bitmap, every row reads the first bit of the buffer.
    shifts = np.where(present, 8 * offsets + rows, -starts[:-1])
    return PackedBits(_view(whole, 8), shifts, present)


def _offsets(buffers: Sequence[pa.Buffer | None], whole: pa.Buffer) -> Index | None:
    """The offset of each buffer in ``whole``, 0 for no buffer; None if one lies outside."""
    offsets = np.zeros(len(buffers), dtype=np.int64)
    for place, buffer in enumerate(buffers):
        if buffer is not None:
            offsets[place] = buffer.address - whole.address
            if offsets[place] < 0 or offsets[place] + buffer.size > whole.size:
                return None
    return offsets


def _view(whole: pa.Buffer, width: int) -> npt.NDArray[Any]:
    """The buffer as words of ``width`` bits, as many as fit."""
    return np.frombuffer(whole, dtype=_WORDS[width], count=whole.size // (width // 8))
