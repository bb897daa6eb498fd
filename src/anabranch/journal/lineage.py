"""Which branch a step belongs to: a branch's own steps, and those of its parents before it left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from anabranch.journal.entry_names import BranchName
from anabranch.journal.envelope import Entry, corrupt_entry
from anabranch.journal.journal import Journal
from anabranch.records.leader import Branch, decode_branch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of one branch that another one sees: all up to ``until``, or all. None is all."""

    branch: int
    until: int | None

    def sees(self, step: int) -> bool:
        """Whether a step of this branch is seen."""
        return self.until is None or step <= self.until


def newest_branch(journal: Journal) -> int:
    """The branch that the pipeline is in.

    A branch that holds something counts also when its entry was not copied.
    """
    numbers = [name.number for name in journal.branches()]
    return max([*numbers, *journal.lines()], default=0)


def lineage(journal: Journal, branch: int) -> tuple[Stretch, ...]:
    """A branch and those it comes from, the newest first, each with the steps that it sees."""
    found = [Stretch(branch, None)]
    while True:
        last = found[-1]
        origin = origin_of(journal, last.branch)
        if origin is None:
            return tuple(found)
        until = origin.parent_step if last.until is None else min(last.until, origin.parent_step)
        found.append(Stretch(origin.parent, until))


def origin_of(journal: Journal, branch: int) -> Branch | None:
    """Where a branch has left another one; None for the first, and in a copy of a checkpoint.

    ``MissingEntry`` if there are steps of the branch and of others, but not its entry.
    """
    if not branch:
        return None
    entry = journal.find(BranchName(branch))
    if entry is None:
        lines = journal.lines()
        if branch in lines and lines[0] < branch:
            raise journal.missing(BranchName(branch))
        return None
    found = decoded(journal, entry, decode_branch)
    if found.parent >= branch:
        raise corrupt_entry(entry.name, journal.where(entry.name), "it has no beginning")
    return found


def stands_at(journal: Journal, branch: int) -> int:
    """The last step of a branch by the names alone: its own, or the one it left from; or 0."""
    names = (*journal.commits(branch), *journal.checkpoints(branch))
    if names:
        return max(name.step for name in names)
    origin = origin_of(journal, branch)
    return 0 if origin is None else origin.parent_step


def owner_of(stretches: tuple[Stretch, ...], step: int) -> int:
    """The branch that a step belongs to."""
    # From the oldest: a step that a parent has made before it was left is the parent's.
    owners = [each.branch for each in stretches if each.until is not None and each.sees(step)]
    return owners[-1] if owners else stretches[0].branch


def decoded(journal: Journal, entry: Entry, decode: Callable[[bytes], T]) -> T:
    """What an entry says; ``CorruptEntry`` if its body makes no sense."""
    try:
        return decode(entry.body)
    except msgspec.DecodeError as error:
        where = journal.where(entry.name)
        raise corrupt_entry(entry.name, where, f"its content makes no sense ({error})") from error
