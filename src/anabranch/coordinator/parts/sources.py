"""Source positions as a committed part: how far each source has been read.

It plans nothing: the node offers the inputs of a plan.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anabranch.coordinator.parts.port import CommitContext, Part
from anabranch.records.commit import Commit
from anabranch.records.plan import Input


class SourcePositions(msgspec.Struct, frozen=True):
    """The position of each source, by name, without slices."""

    inputs: tuple[Input, ...] = ()


class SourcesPart(Part[SourcePositions, msgspec.Struct]):
    """Advances every source to the position that the step's plan reached."""

    name = "sources"
    value_type = SourcePositions

    def initial(self) -> SourcePositions:
        """No positions."""
        return SourcePositions()

    def after_commit(
        self, value: SourcePositions, planned: msgspec.Struct | None, context: CommitContext
    ) -> SourcePositions:
        """The positions after the step."""
        return SourcePositions(positions_after(value.inputs, context.plan.inputs))

    def files(self, value: SourcePositions) -> frozenset[str]:
        """The files of the source log that the positions need."""
        return frozenset(name for given in value.inputs for name in given.files)


SOURCES = SourcesPart()


def positions_after(before: Iterable[Input], planned: Iterable[Input]) -> tuple[Input, ...]:
    """The position of each source after a step, sorted by name, without slices."""
    after = {given.source: given for given in before} | {
        given.source: given.after() for given in planned
    }
    return tuple(after[name] for name in sorted(after))


def positions_of(commit: Commit | None) -> tuple[Input, ...]:
    """The position of each source at a commit."""
    return SOURCES.of(commit).inputs
