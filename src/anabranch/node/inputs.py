"""The sources of a running pipeline: opened where the journal says, asked for the next step."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from anabranch.plan.physical import Physical
from anabranch.plan.step import Input
from anabranch.sources.port import Attended, Enumerator, Opener, Source, SourceLog


def open_plainly(name: str, source: Source, position: bytes | None, log: SourceLog) -> Enumerator:
    """Open a source that needs nothing but its description."""
    return source.open(position, log)


class Inputs:
    """The open sources of a pipeline, and which of them have ended."""

    def __init__(
        self,
        physical: Physical,
        log: SourceLog,
        at: Sequence[Input],
        open_source: Opener = open_plainly,
    ) -> None:
        """Open every source after the last of its positions in ``at``, or at its beginning."""
        positions = {given.source: bytes(given.position) for given in at}
        self._sources: dict[str, Source] = {n.name: n.source for n in physical.sources()}
        self._enumerators: dict[str, Enumerator] = {}
        self._ended: set[str] = set()
        try:
            for name, source in self._sources.items():
                self._enumerators[name] = open_source(name, source, positions.get(name), log)
        except BaseException:
            self.close()
            raise

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

    def acknowledge(self, committed: Sequence[Input]) -> None:
        """Tell the sources that want to know what a commit covers (R5)."""
        for given in committed:
            enumerator = self._enumerators.get(given.source)
            if isinstance(enumerator, Attended):
                enumerator.acknowledge(bytes(given.position))

    def close(self) -> None:
        """Let the sources let go: every one is asked, whatever the others raise."""
        with contextlib.ExitStack() as closing:
            for enumerator in self._enumerators.values():
                if isinstance(enumerator, Attended):
                    closing.callback(enumerator.close)

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
