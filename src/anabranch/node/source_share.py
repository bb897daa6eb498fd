"""What sources have given to one offer so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from anabranch.protocol.sources import Batch
from anabranch.records.plan import Input
from anabranch.records.slices import Slice


@dataclass(slots=True)
class SourceShare:
    """What one source has given to an offer; of unknown rows, ``rows`` counts the slices.

    ``ended``: nothing follows.
    """

    slices: tuple[Slice, ...] = ()
    position: bytes = b""
    rows: int = 0
    full: bool = False
    ended: bool = False


@dataclass(slots=True)
class Gathered:
    """An offer while it grows; once it is ``closed`` nothing is added to it."""

    shares: dict[str, SourceShare] = field(default_factory=dict)
    closed: bool = False

    @property
    def rows(self) -> int:
        """How many rows, as far as sources know."""
        return sum(share.rows for share in self.shares.values())

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return sum(part.bytes for share in self.shares.values() for part in share.slices)

    def add(self, name: str, batch: Batch) -> None:
        """Take in what a source gave, or has added."""
        share = self.shares.setdefault(name, SourceShare())
        share.slices += batch.slices
        share.position = batch.position
        share.rows += max(batch.rows or 0, len(batch.slices))
        share.full = batch.full
        share.ended = batch.ended

    def inputs(self) -> tuple[Input, ...]:
        """The input of a step that takes it."""
        return tuple(
            Input(name, share.slices, msgspec.Raw(share.position), ended=share.ended)
            for name, share in self.shares.items()
        )
