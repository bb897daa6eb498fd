"""Commits, checkpoints and repairs: the result of a step, and what is kept of it."""

from __future__ import annotations

import msgspec

from anabranch.records.home_use import HomeUse
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.staged_file import StagedFile


class RowCount(msgspec.Struct, frozen=True):
    """How many rows passed a place in a step, and their number and hash in each bin used."""

    place: str
    rows: int
    bins: tuple[int, ...]
    bin_rows: tuple[int, ...]
    bin_hashes: tuple[str, ...]


class Commit(msgspec.Struct, frozen=True):
    """The result of a step. The first commit of a step wins; only the files it names count.

    ``published`` is how far each sink was when the commit was made. ``workers`` is the number that
    the run was started with, ``homes`` what the step read and copied. ``parts`` holds everything
    else that a pipeline carries from step to step: the value of each committed part, by name;
    ``files`` are the files in the store that they need.
    """

    step: int
    revision: int
    clock_ns: int
    code: str
    placement: tuple[Assignment, ...]
    states: tuple[OperatorState, ...]
    staged: tuple[StagedFile, ...]
    counts: tuple[RowCount, ...]
    published: dict[str, int]
    ending: str | None = None
    workers: int = 0
    homes: HomeUse = HomeUse()
    parts: dict[str, msgspec.Raw] = {}
    files: tuple[str, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True):
    """A kept step: its commit, whole.

    ``branch`` is the branch it was kept in, ``published`` how far each sink was by then.
    ``repaired`` is the state where a replay has superseded that of the commit.
    """

    branch: int
    commit: Commit
    published: dict[str, int]
    repaired: tuple[OperatorState, ...] | None = None

    @property
    def step(self) -> int:
        """The step that is kept."""
        return self.commit.step

    @property
    def states(self) -> tuple[OperatorState, ...]:
        """The state at the step."""
        return self.commit.states if self.repaired is None else self.repaired

    def opened(self) -> Commit:
        """The commit as the pipeline goes on from it: with its repaired state, and nothing staged.

        What was staged has been published, or is in the journal beside the checkpoint.
        """
        return msgspec.structs.replace(
            self.commit, states=self.states, staged=(), published=self.published
        )


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


def decode_commit(body: bytes) -> Commit:
    """A commit from the journal."""
    return msgspec.json.decode(body, type=Commit)


def decode_checkpoint(body: bytes) -> Checkpoint:
    """A checkpoint from the journal."""
    return msgspec.json.decode(body, type=Checkpoint)


def decode_repair(body: bytes) -> Repair:
    """A repair from the journal."""
    return msgspec.json.decode(body, type=Repair)
