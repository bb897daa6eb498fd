"""What sources have given to one offer so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.protocol.sources import Batch
from anabranch.records.plan import Input
from anabranch.records.slices import Slice


@dataclass
class SourceShare:
    """What one source has given to an offer."""

    slices: tuple[Slice, ...]
    position: bytes
    rows: int
    full: bool

    def add(self, batch: Batch) -> None:
        """Take in what the source has added."""
        self.slices += batch.slices
        self.position = batch.position
        self.rows += batch_rows(batch)
        self.full = batch.full


@dataclass
class Gathered:
    """An offer while it grows; once it is ``closed`` nothing is added to it."""

    shares: dict[str, SourceShare] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    closed: bool = False

    @property
    def rows(self) -> int:
        """How many rows, as far as sources know."""
        return sum(share.rows for share in self.shares.values())

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return sum(bytes_of(share.slices) for share in self.shares.values())

    def add(self, name: str, batch: Batch) -> None:
        """Take in what a source gave."""
        self.asked.add(name)
        if name in self.shares:
            self.shares[name].add(batch)
        else:
            rows = batch_rows(batch)
            self.shares[name] = SourceShare(batch.slices, batch.position, rows, batch.full)

    def inputs(self) -> tuple[Input, ...]:
        """The input of a step that takes it."""
        return tuple(
            Input(name, share.slices, msgspec.Raw(share.position))
            for name, share in self.shares.items()
        )


def batch_rows(batch: Batch) -> int:
    """Rows, where their number is known and something is there at all; else slices."""
    return len(batch.slices) if batch.rows is None else max(batch.rows, len(batch.slices))


def bytes_of(slices: Sequence[Slice]) -> int:
    """The bytes of what is read from files."""
    return sum(part.bytes for part in slices)
