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


class Checkpoint(msgspec.Struct, frozen=True):
    """A kept step: everything that is needed to go on from it, and nothing else.

    ``published`` is how far each sink was when it was made.
    """

    step: int
    branch: int
    clock_ns: int
    code: str
    positions: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    states: tuple[OperatorState, ...]
    published: dict[str, int]
    ending: str | None = None


class Repair(msgspec.Struct, frozen=True):
    """The state at a step after a replay: it supersedes that of the commit, and nothing else.

    ``from_step`` is the checkpoint that was opened; ``diverged`` are the places whose counts or
    hashes differed from those of the commits, where that was accepted.
    """

    step: int
    number: int
    from_step: int
    states: tuple[OperatorState, ...]
    diverged: tuple[str, ...] = ()


class Leader(msgspec.Struct, frozen=True):
    """Who coordinates: a number that only grows, and where to find whoever holds it."""

    number: int
    host: str
    pid: int
    since_ns: int
    address: str = ""


class Branch(msgspec.Struct, frozen=True):
    """A line of steps that leaves another one after ``parent_step``."""

    number: int
    parent: int
    parent_step: int


class Identity(msgspec.Struct, frozen=True):
    """Whose directory this is: fixed when it is created."""

    pipeline: str
    dataflow: str
    bins: int


Body: TypeAlias = Plan | Commit | Checkpoint | Repair | Leader | Branch | Identity

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


def decode_checkpoint(body: bytes) -> Checkpoint:
    """A checkpoint from the journal."""
    return msgspec.json.decode(body, type=Checkpoint)


def decode_repair(body: bytes) -> Repair:
    """A repair from the journal."""
    return msgspec.json.decode(body, type=Repair)


def decode_leader(body: bytes) -> Leader:
    """A leader from the journal."""
    return msgspec.json.decode(body, type=Leader)


def decode_branch(body: bytes) -> Branch:
    """A branch from the journal."""
    return msgspec.json.decode(body, type=Branch)
