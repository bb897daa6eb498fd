"""Commits, checkpoints and repairs: the durable results of steps."""

from __future__ import annotations

import msgspec

from anabranch.records.home_use import HomeUse
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.staged_file import StagedFile


class RowCount(msgspec.Struct, frozen=True):
    """The rows that passed a place in a step, with their number and hash per non-empty bin."""

    place: str
    rows: int
    bins: tuple[int, ...]
    bin_rows: tuple[int, ...]
    bin_hashes: tuple[str, ...]


class Commit(msgspec.Struct, frozen=True):
    """The result of a step. The first commit of a step wins; only the files it names count.

    ``published`` is the last step that each sink had at that time. ``workers`` is the number that
    the run was started with, ``homes`` what the step read and copied. ``parts`` holds the value of
    each committed part, by name: everything else that a pipeline carries from step to step.
    ``files`` are the files in the store that the parts need.
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
    workers: int = 0
    homes: HomeUse = HomeUse()
    parts: dict[str, msgspec.Raw] = {}
    files: tuple[str, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True):
    """A kept step with its whole commit.

    ``branch`` is the branch it was taken in, ``published`` the last step that each sink had then.
    ``repaired`` is the state after a replay, which supersedes that of the commit.
    """

    branch: int
    commit: Commit
    published: dict[str, int]
    repaired: tuple[OperatorState, ...] | None = None

    @property
    def step(self) -> int:
        """The kept step."""
        return self.commit.step

    @property
    def states(self) -> tuple[OperatorState, ...]:
        """The state at the step."""
        return self.commit.states if self.repaired is None else self.repaired

    def opened(self) -> Commit:
        """The commit to continue from, with the repaired state and nothing staged.

        Its staged output is published, or listed in the journal beside the checkpoint.
        """
        return msgspec.structs.replace(
            self.commit, states=self.states, staged=(), published=self.published
        )


class Repair(msgspec.Struct, frozen=True):
    """The state at a step after a replay. It supersedes the commit's state and nothing else.

    The replay started at checkpoint ``from_step``. ``diverged`` lists the places whose counts or
    hashes differed from the commits, if the user accepted that.
    """

    step: int
    number: int
    from_step: int
    states: tuple[OperatorState, ...]
    diverged: tuple[str, ...] = ()


decode_commit = msgspec.json.Decoder(Commit).decode
decode_checkpoint = msgspec.json.Decoder(Checkpoint).decode
decode_repair = msgspec.json.Decoder(Repair).decode
