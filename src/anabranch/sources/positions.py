"""Positions as JSON: what stands in the journal, and the refusal of what does not fit.

Every position names the kind of source that wrote it and its format, so that a source which was
replaced under the same name is noticed instead of starting somewhere by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from anabranch.errors import ChangedDataflow, CorruptEntry, FutureFormat
from anabranch.records.slices import Slice

FORMAT = 1


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """What all positions have. Kinds are told apart by `source`."""

    source: str
    format: int = FORMAT


P = TypeVar("P", bound=Position)


class PositionOnly:
    """A source that keeps nothing but its position, and whose slices cannot change."""

    __slots__ = ()

    def check(self, slices: Sequence[Slice]) -> None:
        """Do nothing."""

    def log_files(self, position: bytes) -> frozenset[str]:
        """Name nothing."""
        return frozenset()


def encode_position(position: Position) -> bytes:
    """Write a position down.

    >>> encode_position(Position(source="example"))
    b'{"source":"example","format":1}'
    """
    return msgspec.json.encode(position)


def decode_position(data: bytes, kind: type[P], source: str) -> P:
    """Read a position of one kind of source back, or say why it is none."""
    head = _decode(data, Position)
    if head.source != source:
        raise ChangedDataflow(
            f"the pipeline's directory has a position of a source of kind {head.source!r} "
            f"and the dataflow now has one of kind {source!r} in its place",
            do="Give the new source another name, or start in a new directory.",
        )
    if head.format > FORMAT:
        raise FutureFormat(
            f"a source position has format {head.format} and this version reads up to {FORMAT}",
            do="Run it with the newer version of Anabranch.",
        )
    return _decode(data, kind)


def _decode(data: bytes, kind: type[P]) -> P:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptEntry(f"a source position cannot be read: {error}") from error
