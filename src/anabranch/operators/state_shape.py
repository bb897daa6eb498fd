"""The shape of an operator's state: its columns, and by which clock its rows expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from anabranch.records.layout import Layout, may_be_large

_NONE = pa.schema([])


@dataclass(frozen=True, slots=True)
class StateShape:
    """The kind and the columns of an operator's state, fixed while the state lives.

    ``packed`` are the columns that hold arbitrary values as MessagePack. With ``dues``, rows are
    found when they fall due: they are what the operator still makes output of. ``clock`` is what
    their expiry is read against: the clock of the step, in nanoseconds, or the frontier of event
    time, in microseconds.
    """

    name: str
    kind: str
    values: pa.Schema
    subkeys: pa.Schema = field(default_factory=lambda: _NONE)
    expires: bool = False
    packed: tuple[str, ...] = ()
    dues: bool = False
    clock: Literal["step", "event"] = "step"

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
