"""Plans and commits: what determines a step, and what it came to."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.sinks.port import StagedFile
from anabranch.sources.port import Slice
from anabranch.state.run_list import RunList


class Input(msgspec.Struct, frozen=True):
    """What a step reads of one source, and where the source stands after it."""

    source: str
    slices: tuple[Slice, ...]
    position: msgspec.Raw


class Assignment(msgspec.Struct, frozen=True):
    """Bin → worker of one region; ``generation`` only grows."""

    region: str
    generation: int
    workers: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many workers there are."""
        return max(self.workers, default=-1) + 1


class Plan(msgspec.Struct, frozen=True):
    """Everything that determines a step. A revision of it changes ``placement`` only.

    ``ending`` is the operator whose keys are told in this step that the input has ended.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    inputs: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    unkeyed_workers: int
    ending: str | None = None


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


class Count(msgspec.Struct, frozen=True):
    """How many rows passed a place in a step, and their number and hash in each bin used."""

    place: str
    rows: int
    bins: tuple[int, ...]
    bin_rows: tuple[int, ...]
    bin_hashes: tuple[str, ...]


class Commit(msgspec.Struct, frozen=True):
    """What a step came to. The first commit of a step wins; its files are the only ones that count.

    ``published`` is how far each sink was when the commit was made.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    positions: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    states: tuple[OperatorState, ...]
    staged: tuple[StagedFile, ...]
    counts: tuple[Count, ...]
    published: dict[str, int]
    ending: str | None = None


class Identity(msgspec.Struct, frozen=True):
    """Whose directory this is: fixed when it is created."""

    pipeline: str
    dataflow: str
    bins: int


Body: TypeAlias = Plan | Commit | Identity

encode = msgspec.json.Encoder().encode


def decode_plan(body: bytes) -> Plan:
    """A plan from the journal."""
    return msgspec.json.decode(body, type=Plan)


def decode_commit(body: bytes) -> Commit:
    """A commit from the journal."""
    return msgspec.json.decode(body, type=Commit)


def decode_identity(body: bytes) -> Identity:
    """The identity from the journal."""
    return msgspec.json.decode(body, type=Identity)
