"""What is known about a step before it is planned, beside what is committed."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SourceOutlook:
    """A source before a step.

    ``reading`` are the partitions that the step reads, or that have rows waiting; None stands for
    rows of unknown partitions. ``asked_us`` is the clock at which the source was last asked and
    handed out all that it had; None if it may have more. ``ended``: no rows follow those that it
    has handed out. ``partitions`` is their number, None if that is not known.
    """

    name: str
    reading: frozenset[int | None] = frozenset()
    asked_us: int | None = None
    ended: bool = False
    partitions: int | None = None

    def reads(self, partition: int | None) -> bool:
        """Whether the step may read rows of a partition."""
        return bool(self.reading) and (
            partition is None or None in self.reading or partition in self.reading
        )


@dataclass(frozen=True, slots=True)
class StepOutlook:
    """A step before it is planned: its clock, and its sources. ``draining``: none reads further."""

    clock_us: int = 0
    sources: tuple[SourceOutlook, ...] = ()
    draining: bool = False

    def source(self, name: str) -> SourceOutlook:
        """What is known of a source; one that is not named holds."""
        found = (each for each in self.sources if each.name == name)
        return next(found, None) or SourceOutlook(name)

    @property
    def drains(self) -> bool:
        """Whether the step closes all inputs: what was handed out is read first."""
        return self.draining and not any(each.reading for each in self.sources)

    def later(self, microseconds: int) -> StepOutlook:
        """The same at a later clock, if nothing comes until then and all is asked again."""
        clock = self.clock_us + microseconds
        asked = (
            each if each.asked_us is None else replace(each, asked_us=clock)
            for each in self.sources
        )
        return replace(self, clock_us=clock, sources=tuple(asked))
