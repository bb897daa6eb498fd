"""Source positions as a committed part: what has been read of each source.

What the next plan gets of it are the plan's inputs, which the node offers.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anabranch.coordinator.parts.port import CommitContext, Part
from anabranch.records.commit import Commit
from anabranch.records.plan import Input


class SourcePositions(msgspec.Struct, frozen=True):
    """Where each source stands, by name, without slices."""

    inputs: tuple[Input, ...] = ()


class SourcesPart(Part[SourcePositions, msgspec.Struct]):
    """Moves every source on to where the step's plan left it."""

    name = "sources"
    value_type = SourcePositions

    def initial(self) -> SourcePositions:
        """Nothing was read."""
        return SourcePositions()

    def after_commit(
        self, value: SourcePositions, planned: msgspec.Struct | None, context: CommitContext
    ) -> SourcePositions:
        """What has been read after the step."""
        return SourcePositions(read_up_to(value.inputs, context.plan.inputs))

    def files(self, value: SourcePositions) -> frozenset[str]:
        """The files of the source log that the positions need."""
        return frozenset(name for given in value.inputs for name in given.files)


SOURCES = SourcesPart()


def read_up_to(before: Iterable[Input], planned: Iterable[Input]) -> tuple[Input, ...]:
    """What has been read of each source after a step: the positions alone, by name."""
    after = {given.source: given for given in before} | {
        given.source: msgspec.structs.replace(given, slices=()) for given in planned
    }
    return tuple(after[name] for name in sorted(after))


def positions_of(commit: Commit | None) -> tuple[Input, ...]:
    """What had been read of each source at a commit."""
    raw = None if commit is None else commit.parts.get(SOURCES.name)
    return () if raw is None else msgspec.json.decode(raw, type=SourcePositions).inputs
