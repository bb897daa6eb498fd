"""Builds the status that users see from the coordinator's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from anabranch.coordinator import phases
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.no_step import no_step, waiting_for
from anabranch.coordinator.phases import Closing, Ended, Idle
from anabranch.coordinator.rescaling import rescale_status
from anabranch.protocol.node import Closed, NodeReport, Open, Running
from anabranch.protocol.status import (
    CheckpointStatus,
    CheckpointUnderWay,
    NodeStatus,
    OperatorStatus,
    Phase,
    RegionStatus,
    SinkStatus,
    SourceStatus,
    Status,
    StepUnderWay,
)
from anabranch.records.commit import Checkpoint
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.shares import members


def pipeline_status(memory: Memory, now: float) -> Status:
    """The status of the pipeline."""
    info, journal, last = memory.info, memory.journal, memory.stats.last
    placement = () if journal.commit is None else journal.commit.placement
    return Status(
        phase=phase_of(memory),
        dataflow="" if info is None else info.dataflow,
        leader=memory.leader,
        branch=journal.branch,
        step=memory.step,
        clock_ns=journal.clock_ns,
        published=memory.published_step,
        workers=len(members(placement)) or memory.workers,
        under_way=_under_way(memory, now),
        waiting_for=waiting_for(memory),
        no_step=no_step(memory, now),
        replaying=None if memory.replay.under_way is None else memory.replay.under_way.to_step,
        failure=memory.phase.failure if isinstance(memory.phase, Closing | Ended) else None,
        node=None
        if memory.node.report is None
        else _node(memory.node.report, now - memory.node.heard),
        regions=tuple(_region(each, journal.states) for each in placement if not each.source),
        operators=_operators(memory),
        sources=_sources(memory, placement),
        sinks=_sinks(memory, now),
        checkpoints=tuple(
            _checkpoint(each, memory.checkpoint.seconds.get(each.step))
            for each in journal.checkpoints
        ),
        checkpoint=_checkpointing(memory),
        queued=_queued(memory),
        triggers=dict(memory.stats.triggers),
        rows=memory.stats.rows,
        homes=memory.stats.homes,
        last_seconds=None if last is None else last.seconds,
        last_rows=None if last is None else last.rows,
        batch_rows=memory.pace.batch.rows,
        rescale=rescale_status(memory),
        rescales=memory.rescale.history,
        node_lost=memory.node.lost,
        members=tuple(peer.member for peer in memory.peers.values()),
    )


def phase_of(memory: Memory) -> Phase:
    """The phase in users' terms."""
    match memory.phase:
        case Ended(failure) | Closing(_, failure) if failure is not None:
            return Phase.FAILED
        case Ended():
            return Phase.COMPLETED if memory.stop.request is None else Phase.STOPPED
        case Closing():
            return Phase.STOPPING
        case phases.NotBegun() | phases.Leading() | phases.ReadingJournal():
            return Phase.STARTING
    if memory.stop.request is not None:
        return Phase.STOPPING
    if memory.replay.under_way is not None:
        return Phase.RECOVERING
    if memory.node.opened is None:
        return Phase.STARTING if memory.stats.last is None else Phase.RECOVERING
    if memory.paused:
        return Phase.PAUSED if isinstance(memory.phase, Idle) else Phase.PAUSING
    return Phase.RUNNING


def _under_way(memory: Memory, now: float) -> StepUnderWay | None:
    match memory.phase:
        case phases.Taking(step, since):
            return StepUnderWay(step, 0, "taking input", now - since)
        case phases.Planning(plan):
            return StepUnderWay(plan.step, plan.revision, "writing its plan", 0.0)
        case phases.Stepping(plan, since, cancelled=cancelled):
            doing = "running" if cancelled is None else "being cancelled"
            return StepUnderWay(plan.step, plan.revision, doing, now - since)
        case phases.Committing(plan, _, since):
            return StepUnderWay(plan.step, plan.revision, "writing its commit", now - since)
    return None


def _node(report: NodeReport, seconds: float) -> NodeStatus:
    match report.state:
        case Closed():
            state = "closed"
        case Open(step):
            state = f"open at step {step}"
        case Running(step):
            state = f"running step {step}"
    return NodeStatus(report.boot, report.application, report.info.code, state, max(seconds, 0.0))


def _region(assignment: Assignment, states: Sequence[OperatorState]) -> RegionStatus:
    own = [state for state in states if state.shape.region == assignment.region]
    keys = [0] * assignment.count
    sizes = [0.0] * assignment.count
    for state in own:
        for number, live in enumerate(state.live):
            keys[assignment.workers[number]] += live
        for listed in state.runs:
            # Hashes spread a run's rows evenly over its bins.
            numbers = list(listed.bins)
            for number in numbers:
                sizes[assignment.workers[number]] += listed.run.bytes / len(numbers)
    return RegionStatus(
        assignment.region,
        assignment.generation,
        assignment.workers,
        sum(keys),
        _bytes(own),
        sum(len(state.runs) for state in own),
        tuple(keys),
        tuple(round(size) for size in sizes),
    )


def _operators(memory: Memory) -> tuple[OperatorStatus, ...]:
    """All keyed state of the dataflow, even while empty."""
    held = {state.operator: state for state in memory.journal.states}
    shapes = () if memory.info is None else memory.info.shapes
    empty = [OperatorState(each, (), ()) for each in shapes if each.operator not in held]
    return tuple(
        OperatorStatus(
            state.operator, state.shape.region, sum(state.live), _bytes([state]), len(state.runs)
        )
        for state in (*held.values(), *empty)
    )


def _sources(memory: Memory, placement: Sequence[Assignment]) -> tuple[SourceStatus, ...]:
    offer = None if memory.node.report is None else memory.node.report.offer
    waiting = {} if offer is None else offer.by_source
    names = () if memory.info is None else memory.info.sources
    shared = {each.region: each for each in placement if each.source}
    paused = memory.sources.paused.names
    owned = [(name, shared.get(name, Assignment(name, 0, ()))) for name in names]
    return tuple(
        SourceStatus(name, waiting.get(name, 0), own.workers, own.generation, name in paused)
        for name, own in owned
    )


def _sinks(memory: Memory, now: float) -> tuple[SinkStatus, ...]:
    """How far each sink is; times of retries count from now, not from the node's report."""
    since = max(now - memory.node.heard, 0.0)
    found = []
    for name, step in sorted(memory.published.items()):
        retry = memory.sink_retries.get(name)
        if retry is not None:
            left = retry.next_seconds
            retry = replace(
                retry,
                seconds=retry.seconds + since,
                next_seconds=None if left is None else max(left - since, 0.0),
            )
        behind = max(memory.step - step, 0) if memory.outputs else 0
        found.append(SinkStatus(name, step, behind, retry))
    return tuple(found)


def _checkpoint(checkpoint: Checkpoint, seconds: float | None) -> CheckpointStatus:
    files = _files(checkpoint.states)
    return CheckpointStatus(
        checkpoint.step,
        checkpoint.branch,
        checkpoint.commit.clock_ns,
        len(files),
        sum(files.values()),
        seconds,
    )


def _checkpointing(memory: Memory) -> CheckpointUnderWay | None:
    under_way = memory.checkpoint.under_way
    if under_way is None:
        why = _checkpoint_blocker(memory)
        return None if why is None else CheckpointUnderWay(None, 0, 0, why)
    step = under_way.checkpoint.step
    checked = None if memory.node.report is None else memory.node.report.checked
    if checked is None or checked.asked is not None or checked.step != step:
        total = len(_files(under_way.checkpoint.states))
        return CheckpointUnderWay(step, total, 0, "the node to check its files")
    waiting = "its journal entry" if under_way.writing else None
    return CheckpointUnderWay(step, checked.files, checked.files_done, waiting)


def _checkpoint_blocker(memory: Memory) -> str | None:
    """Why a wanted checkpoint has not begun."""
    if memory.checkpoint.queue:
        return "the replay" if memory.replay.under_way is not None else "state to be open"
    if memory.checkpoint.delayed is not None and memory.step > memory.checkpoint.last_kept(memory):
        return f"another try: {memory.checkpoint.delayed.failure.what}"
    return None


def _queued(memory: Memory) -> tuple[str, ...]:
    loads = [f"load step {request.step}" for _, request in memory.load.queue]
    waits = memory.checkpoint.queue and memory.checkpoint.under_way is not None
    stop = [] if memory.stop.request is None or isinstance(memory.phase, Ended) else ["shutdown"]
    profiles = ["profile"] if memory.profile.queue else []
    return (*loads, *(["checkpoint"] if waits else []), *profiles, *stop)


def _files(states: Iterable[OperatorState]) -> dict[str, int]:
    found: dict[str, int] = {}
    for state in states:
        for listed in state.runs:
            found[listed.run.name] = listed.run.bytes
            found |= {blob.name: blob.bytes for blob in listed.run.blobs}
    return found


def _bytes(states: Iterable[OperatorState]) -> int:
    return sum(_files(states).values())
