"""Sources that are paused: what users want of them, and what the node knows of that.

What is wanted is one value, all sources that are paused, under a number that grows from change to
change and from leader to leader. The node tells which value it goes by. A higher one than ours is
of a coordinator before us, and is taken over. While the node's is lower, an order was lost or is
on its way: it is given again.
"""

from __future__ import annotations

from anabranch.coordinator.closing import refusal
from anabranch.coordinator.effects import Effect, Give
from anabranch.coordinator.memory import OPENS, Memory
from anabranch.coordinator.operations import PauseSource, StartSource
from anabranch.coordinator.phases import Closing
from anabranch.protocol.node import Failure, NodeReport, PausedSources, SourcesOrder


def source_refusal(memory: Memory, source: str) -> Failure | None:
    """Why a source can neither be paused nor started."""
    if source in memory.sources:
        return None
    if not memory.sources:
        what = "Which sources there are is not known before the node has started"
        return refusal(what, "Ask again in a moment.")
    known = ", ".join(map(repr, memory.sources))
    return refusal(f"There is no source {source!r}", f"Sources: {known}.")


def heed(memory: Memory, request: PauseSource | StartSource, now: float) -> list[Effect]:
    """Pause or start a source; one that is as it should be stays so."""
    before = memory.paused_sources
    names = set(before.names)
    match request:
        case PauseSource(source):
            names.add(source)
        case StartSource(source):
            names.discard(source)
    if names == set(before.names):
        return []
    number = max(before.number, memory.leader * OPENS) + 1
    known = tuple(each for each in memory.sources if each in names)
    memory.paused_sources = PausedSources(number, known)
    # A node that is being looked for gets it with its order to open.
    return [] if memory.report is None else _give(memory, now)


def adopt(memory: Memory, report: NodeReport) -> None:
    """Take over what a coordinator before us has paused."""
    memory.sources = report.info.sources
    if report.paused.number > memory.paused_sources.number:
        memory.paused_sources = report.paused


def give_again(memory: Memory, report: NodeReport, now: float) -> list[Effect]:
    """Repeat the order while the node that is open goes by an older one."""
    if report.opened != memory.opened or isinstance(memory.phase, Closing):
        return []
    if report.paused.number >= memory.paused_sources.number:
        return []
    if now < memory.sources_given + 4 * memory.settings.deadlines.again:
        return []
    return _give(memory, now)


def _give(memory: Memory, now: float) -> list[Effect]:
    memory.sources_given = now
    return [Give(SourcesOrder(memory.paused_sources))]
