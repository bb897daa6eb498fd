"""The sources of a running pipeline: opened where the journal says, asked for the next step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.plan.physical import Physical
from anabranch.plan.step import Input
from anabranch.sources.port import Enumerator, Source, SourceLog


class Inputs:
    """The open sources of a pipeline, and which of them have ended."""

    def __init__(self, physical: Physical, log: SourceLog, at: Sequence[Input]) -> None:
        """Open every source after the last of its positions in ``at``, or at its beginning."""
        positions = {given.source: bytes(given.position) for given in at}
        self._sources: dict[str, Source] = {n.name: n.source for n in physical.sources()}
        self._enumerators: dict[str, Enumerator] = {
            name: source.open(positions.get(name), log) for name, source in self._sources.items()
        }
        self._ended: set[str] = set()

    def next(self) -> tuple[Input, ...]:
        """What the next step reads of every source that has not ended."""
        found = []
        for name, enumerator in self._enumerators.items():
            if name in self._ended:
                continue
            batch = enumerator.next()
            if batch.ended:
                self._ended.add(name)
            found.append(Input(name, batch.slices, msgspec.Raw(batch.position)))
        return tuple(found)

    def ended(self) -> bool:
        """Whether every source has handed out its last input."""
        return self._ended >= set(self._sources)

    def check(self, inputs: Sequence[Input]) -> None:
        """Raise if some input is not what it was when it was planned."""
        for given in inputs:
            self._sources[given.source].check(given.slices)

    def log_files(self, committed: Sequence[Input]) -> frozenset[str]:
        """The files of the source log that are needed: by the sources now, and by a commit."""
        found: frozenset[str] = frozenset()
        for enumerator in self._enumerators.values():
            found |= enumerator.files()
        for given in committed:
            source = self._sources.get(given.source)
            if source is not None:
                found |= source.log_files(bytes(given.position))
        return found
