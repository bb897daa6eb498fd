"""Who owns which bins, and what state they hold: what plans, commits and rescaling speak of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from anabranch.records.run_list import RunList


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Bin → worker of one region; ``generation`` only grows.

    A ``source`` is a region too: its name is the source's, and its bins are its partitions.
    """

    region: str
    generation: int
    workers: tuple[int, ...]
    source: bool = False

    @property
    def count(self) -> int:
        """One more than the highest worker: their numbers may have gaps (``shares.members``)."""
        return max(self.workers, default=-1) + 1


class OperatorShape(msgspec.Struct, frozen=True):
    """What must not change of a state while it lives; schemas as DDL.

    ``operator`` names the state: the operator's, or of a handle of it. ``packed`` names the state
    columns that hold MessagePack: readers show them as JSON.
    """

    operator: str
    kind: str
    region: str
    keys: str
    state: str
    subkeys: str = ""
    expires: bool = False
    packed: tuple[str, ...] = ()


class OperatorState(msgspec.Struct, frozen=True):
    """An operator's state after a step: its runs, newest first, and its live keys by bin."""

    shape: OperatorShape
    runs: RunList
    live: tuple[int, ...]

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.shape.operator


def state_fingerprint(states: Iterable[OperatorState]) -> str:
    """A name for a state: equal only where the same runs count for the same bins.

    No two runs of a step write the same files, so it tells one from another that has the same
    rows. States without runs do not count.
    """
    found = {state.operator: state.runs for state in states if state.runs}
    return hashlib.blake2b(
        msgspec.msgpack.encode(found, order="sorted"), digest_size=16
    ).hexdigest()
