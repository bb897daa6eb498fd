"""Placement of bins on workers, and the state of operators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from anabranch.records.run_list import RunList


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The worker of each bin of one region; ``generation`` only grows.

    A ``source`` is a region too: its bins are the source's partitions.
    """

    region: str
    generation: int
    workers: tuple[int, ...]
    source: bool = False

    @property
    def count(self) -> int:
        """The highest worker plus one. Numbers may have gaps: see ``shares.members``."""
        return max(self.workers, default=-1) + 1


class OperatorShape(msgspec.Struct, frozen=True):
    """The fixed properties of a state, with schemas as DDL. They must not change while it exists.

    ``operator`` names the state: an operator, or a handle of one. ``packed`` names the state
    columns that hold MessagePack, which readers show as JSON. With ``dues`` rows can be found by
    when they expire.
    """

    operator: str
    kind: str
    region: str
    keys: str
    state: str
    subkeys: str = ""
    expires: bool = False
    packed: tuple[str, ...] = ()
    dues: bool = False


class OperatorState(msgspec.Struct, frozen=True):
    """An operator's state after a step: its runs, newest first, and its live keys by bin.

    ``frontier`` is what its rows expire by, in microseconds; None for the step's clock.
    """

    shape: OperatorShape
    runs: RunList
    live: tuple[int, ...]
    frontier: int | None = None

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.shape.operator


def state_fingerprint(states: Iterable[OperatorState]) -> str:
    """A hash that is equal only if the same runs count for the same bins.

    Every run of a step writes its own files, so it tells two runs with equal rows apart. States
    without runs are ignored.
    """
    found = {state.operator: state.runs for state in states if state.runs}
    return hashlib.blake2b(
        msgspec.msgpack.encode(found, order="sorted"), digest_size=16
    ).hexdigest()
