"""The shape of an operator's state: its columns, and by which clock its rows expire."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.dataflow.durations import Clock
from anabranch.records.layout import Layout, may_be_large

_NONE = pa.schema([])


@dataclass(frozen=True, slots=True)
class StateShape:
    """The kind and the columns of an operator's state, fixed while the state lives.

    ``packed`` are the columns that hold arbitrary values as MessagePack. ``clock`` is what rows
    expire by: the step's clock in nanoseconds, or the operator's frontier in microseconds. With
    ``dues``, rows fall due when they expire.
    """

    name: str
    kind: str
    values: pa.Schema
    subkeys: pa.Schema = field(default_factory=lambda: _NONE)
    expires: bool = False
    packed: tuple[str, ...] = ()
    clock: Clock = "step"
    dues: bool = False

    def layout(self, keys: pa.Schema) -> Layout:
        """The layout of its runs."""
        return Layout(
            keys,
            self.values,
            self.subkeys,
            self.expires,
            blobs=may_be_large(self.values),
            dues=self.dues,
        )
