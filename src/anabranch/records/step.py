"""Plans and commits: what determines a step, and what it came to."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.records.home_use import HomeUse
from anabranch.records.placed import Assignment, OperatorShape, OperatorState
from anabranch.records.profiles import ProfileKind, ProfileRequest
from anabranch.records.shares import members
from anabranch.records.slices import Slice
from anabranch.records.staged_file import StagedFile
from anabranch.rescale.controller import Rescale, joining_next
from anabranch.rescale.step_moves import StepMoves

__all__ = [
    "Assignment",
    "Body",
    "Branch",
    "Checkpoint",
    "Commit",
    "Identity",
    "Input",
    "Leader",
    "OperatorShape",
    "OperatorState",
    "Plan",
    "Repair",
    "RowCount",
    "decode_branch",
    "decode_checkpoint",
    "decode_commit",
    "decode_identity",
    "decode_leader",
    "decode_plan",
    "decode_repair",
    "encode",
]


class Input(msgspec.Struct, frozen=True):
    """What a step reads of one source, and where the source stands after it."""

    source: str
    slices: tuple[Slice, ...]
    position: msgspec.Raw


class Plan(msgspec.Struct, frozen=True):
    """Everything that determines a step. A revision of it changes ``placement`` only.

    ``ending`` is the operator whose keys are told in this step that the input has ended. ``moves``
    is what the step does of a rescale, None while nothing moves, and ``rescale`` the value that it
    was made from; they belong to the placement. ``started_with`` is the number of workers that
    the run was started with. ``profile`` says whose tasks are looked at; it changes no result, and
    a plan without one does not mention it.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    inputs: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    unkeyed_workers: int
    ending: str | None = None
    moves: StepMoves | None = None
    rescale: Rescale | None = None
    started_with: int | None = None
    profile: ProfileRequest | msgspec.UnsetType = msgspec.UNSET

    def workers(self, region: str | None) -> tuple[int, ...]:
        """Who has a task of a region in this step; None stands for what has no region.

        Those are the owners of its bins, and in a rescale also who copies bins ahead and who is
        told to shut down.
        """
        if region is None:
            return tuple(range(self.unkeyed_workers))
        owners = members(each for each in self.placement if each.region == region)
        moving = () if self.moves is None else self.moves.workers(region)
        return tuple(sorted({*owners, *moving}))

    def looked_at(self, region: str | None, worker: int) -> ProfileKind | None:
        """How a task of this step is to be looked at; None for not at all."""
        request = self.profile
        if request is msgspec.UNSET or not request.is_about(region, worker):
            return None
        return request.kind

    def followed_by(self, inputs: tuple[Input, ...]) -> Plan | None:
        """What the step after this one may be like with some input; None where that is its end.

        While bins move, they move on: but it has most likely tasks for the same workers. When
        workers are asked, those who will have bins come next.
        """
        if self.ending is not None:
            return None
        moves = self.moves
        if moves is not None and moves.asked and self.rescale is not None:
            joining = joining_next(self.rescale, self.placement)
            moves = msgspec.structs.replace(moves, joining=joining)
        step = self.step + 1
        return msgspec.structs.replace(
            self, step=step, revision=0, inputs=inputs, moves=moves, profile=msgspec.UNSET
        )

    def reader(self, source: str, partition: int) -> int:
        """The worker that reads a partition; a plan that assigns none deals them out."""
        for each in self.placement:
            if each.source and each.region == source:
                return each.workers[partition % len(each.workers)]
        return partition % max(self.unkeyed_workers, 1)

    def assignment(self, region: str) -> Assignment:
        """Who owns what of a region."""
        return next(each for each in self.placement if each.region == region)


class RowCount(msgspec.Struct, frozen=True):
    """How many rows passed a place in a step, and their number and hash in each bin used."""

    place: str
    rows: int
    bins: tuple[int, ...]
    bin_rows: tuple[int, ...]
    bin_hashes: tuple[str, ...]


class Commit(msgspec.Struct, frozen=True):
    """What a step came to. The first commit of a step wins; its files are the only ones that count.

    ``published`` is how far each sink was when the commit was made. ``workers`` is the number that
    the run was started with, ``rescale`` how far a live change of it is, ``homes`` what the step
    read and copied.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    positions: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    states: tuple[OperatorState, ...]
    staged: tuple[StagedFile, ...]
    counts: tuple[RowCount, ...]
    published: dict[str, int]
    ending: str | None = None
    workers: int = 0
    rescale: Rescale = Rescale()
    homes: HomeUse = HomeUse()


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
    workers: int = 0
    rescale: Rescale = Rescale()


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
