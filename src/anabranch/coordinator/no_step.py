"""Why no step runs now, for the status: one reason at a time, the first that applies."""

from __future__ import annotations

from anabranch.coordinator import phases, stepping
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.outlook import next_offer
from anabranch.coordinator.triggers import next_trigger_at
from anabranch.protocol.node import Offer
from anabranch.protocol.status import NoStep, NoStepReason
from anabranch.records.leader import NODE


def no_step(memory: Memory, now: float) -> NoStep | None:
    """Why no step runs, in the order in which the machine decides; None while one does.

    The steps of a replay do not count: they commit nothing new.
    """
    phase = memory.phase
    match phase:
        case phases.Ended(failure) | phases.Closing(_, failure) if failure is not None:
            return NoStep(NoStepReason.ENDED, f"The pipeline has failed: {failure.what}")
        case phases.Ended():
            return NoStep(NoStepReason.ENDED, "The pipeline is over")
        case phases.NotBegun() | phases.Leading() | phases.ReadingJournal():
            return NoStep(NoStepReason.STARTING, "The coordinator starts and reads the journal")
        case phases.Taking() | phases.Planning() | phases.Committing():
            return None
        case phases.Stepping(replayed=None):
            return None
        case phases.Branching(checkpoint):
            return NoStep(NoStepReason.LOADING, f"The pipeline goes back to step {checkpoint.step}")
    if memory.taking_back:
        sink, text = memory.taking_back[0], f"Waits for {waiting_for(memory)}"
        return NoStep(NoStepReason.LOADING, text, sink, _sink_retried_in(memory, sink, now))
    if memory.replay.under_way is not None:
        to_step = memory.replay.under_way.to_step
        what = f"Lost state is recomputed: steps up to {to_step} run again"
        return NoStep(NoStepReason.REPLAY, what)
    if isinstance(phase, phases.Meeting | phases.Identifying | phases.Opening):
        return NoStep(NoStepReason.NODE, f"Waits for {waiting_for(memory) or 'the node'}", NODE)
    return _between_steps(memory, now)


def _between_steps(memory: Memory, now: float) -> NoStep | None:
    waits = waiting_for(memory)
    if isinstance(memory.phase, phases.Closing) or memory.stop.request is not None:
        text = "The pipeline shuts down" + ("" if waits is None else f": waits for {waits}")
        return NoStep(NoStepReason.STOPPING, text)
    if memory.load.queue:
        step = memory.load.queue[0][1].step
        what = f"The pipeline is to go back to step {step}"
        return NoStep(NoStepReason.LOADING, what if waits is None else f"{what}: waits for {waits}")
    if memory.paused:
        return NoStep(NoStepReason.PAUSED, "The pipeline is paused")
    behind = stepping.backpressure(memory)
    if behind is not None:
        text, left = f"Backpressure: {behind}", _sink_retried_in(memory, memory.slowest, now)
        return NoStep(NoStepReason.BACKPRESSURE, text, memory.slowest, left)
    report = memory.node.report
    if report is not None and report.source_failure is not None:
        failure = report.source_failure
        return NoStep(NoStepReason.SOURCE_FAILED, failure.what, failure.where)
    if stepping.is_complete(memory):
        return NoStep(NoStepReason.STOPPING, "All input is processed: the pipeline completes")
    return _without_input(memory, next_offer(memory), now)


def _sink_retried_in(memory: Memory, sink: str, now: float) -> float | None:
    """When a sink is tried again, if it fails: the node told it with a report."""
    retry = memory.sink_retries.get(sink)
    if retry is None or retry.next_seconds is None:
        return None
    return max(memory.node.heard + retry.next_seconds - now, 0.0)


def _without_input(memory: Memory, offer: Offer | None, now: float) -> NoStep:
    again_at = next_trigger_at(stepping.pending_input(memory), memory.settings)
    left = None if again_at is None else max(again_at - now, 0.0)
    if offer is not None and offer.rows:
        text = f"{offer.rows} rows wait for more of them, or for their time"
        return NoStep(NoStepReason.BATCH, text, retry_seconds=left)
    paused = memory.sources.paused.names
    names = ", ".join(map(repr, paused))
    text = "Waits for input" + (f"; paused: {names}" if paused else "")
    name = paused[0] if len(paused) == 1 else None
    return NoStep(NoStepReason.INPUT, text, name, left)


def waiting_for(memory: Memory) -> str | None:
    """What blocks the pipeline, if anything, as the end of a sentence."""
    match memory.phase:
        case phases.Meeting():
            lost = memory.node.lost
            why = "" if lost is None else f"; the one before was lost: [{lost.code}] {lost.what}"
            return f"the node to start{why}"
        case phases.Opening(order) if memory.taking_back:
            sink = memory.taking_back[0]
            what = f"sink {sink!r} to take back what it has published after step {order.rewound}"
            return f"{what}; it {memory.failing_text(sink)}"
        case phases.Opening(order):
            return f"the node to open step {order.step}"
        case phases.Closing():
            return "the node to publish and close"
        case phases.Idle():
            if memory.stop.down is not None:
                return memory.stop.waiting_for(memory)
            if memory.load.verifying is not None:
                return f"the files of checkpoint {memory.load.verifying.checkpoint.step} to be read"
            if not memory.paused:
                return stepping.backpressure(memory)
    return None
