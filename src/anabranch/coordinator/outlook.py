"""What the coordinator knows of a step before it is planned: its clock, and its sources.

A source counts as silent up to the moment at which it was last asked, not up to the clock: one that
hangs, or whose node does, may have rows that nobody has seen.
"""

from __future__ import annotations

from anabranch.coordinator.memory import Memory
from anabranch.coordinator.parts.port import WaitContext
from anabranch.progress.dataflow.outlook import SourceOutlook, StepOutlook
from anabranch.protocol.node import Offer
from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.plan import Input

REPORT_SECONDS = 0.1
"""How long a report may take to arrive. A step that comes too early would be empty."""


def next_offer(memory: Memory) -> Offer | None:
    """The node's offer of input for the next step, if it has reported one."""
    report = memory.node.report
    if report is None or report.opened != memory.node.opened or report.offer is None:
        return None
    return report.offer if report.offer.step == memory.step + 1 else None


def partition_counts(memory: Memory, inputs: tuple[Input, ...]) -> dict[str, int]:
    """How many partitions each source has that Python reads: as it was told, and as is read."""
    report = memory.node.report
    assert report is not None, "no node was met"
    found = dict(report.info.partitions)
    told = [] if report.offer is None else list(report.offer.partitions.items())
    told += [(g.source, (part.partition or 0) + 1) for g in inputs for part in g.slices]
    for source, count in told:
        if source in found:
            found[source] = max(found[source], count)
    return found


def wait_context(memory: Memory) -> WaitContext:
    """What parts see while no step runs. Nothing is known of sources before there is an offer."""
    info, offer, clock_us = memory.info, next_offer(memory), latest_clock(memory) // 1000
    sources: tuple[SourceOutlook, ...] = ()
    if info is not None and offer is not None:
        counts = partition_counts(memory, ())
        sources = tuple(
            SourceOutlook(
                name,
                frozenset([None]) if offer.by_source.get(name) else frozenset(),
                _asked_us(memory, offer, name, clock_us),
                name in offer.ended_sources,
                counts.get(name),
            )
            for name in info.sources
        )
    outlook = StepOutlook(clock_us, sources, memory.stop.drains)
    return WaitContext(memory.now, TimeGraph() if info is None else info.times, outlook)


def step_outlook(
    memory: Memory, inputs: tuple[Input, ...], clock_ns: int, asked_ns: int
) -> StepOutlook:
    """What a step gets that is planned with this input, which was asked for at ``asked_ns``."""
    counts = partition_counts(memory, inputs)
    sources = tuple(
        SourceOutlook(
            given.source,
            frozenset(part.partition for part in given.slices),
            None
            if given.asked_seconds is None
            else asked_ns // 1000 - round(given.asked_seconds * 1e6),
            given.ended,
            counts.get(given.source),
        )
        for given in inputs
    )
    return StepOutlook(clock_ns // 1000, sources, memory.stop.drains)


def latest_clock(memory: Memory) -> int:
    """The clock of a step that is planned now. It never goes back."""
    return max(memory.clock_ns, memory.journal.clock_ns)


def _asked_us(memory: Memory, offer: Offer, source: str, clock_us: int) -> int | None:
    """When a source was last asked and had no more than it has offered."""
    seconds = offer.asked.get(source)
    if seconds is None:
        return None
    heard = max(memory.now - memory.node.heard, 0.0)
    return clock_us - round((seconds + heard + REPORT_SECONDS) * 1e6)
