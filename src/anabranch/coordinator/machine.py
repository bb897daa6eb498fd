"""The coordinator as a state machine: events in, effects out.

Only ``Machine.handle`` changes the memory. It never waits and never reads a clock: events carry
the time. The driver performs the effects; every outcome, failures included, returns as an event.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.coordinator import closing, deadlines, recovering, requests, stepping
from anabranch.coordinator.assembly import new_memory
from anabranch.coordinator.effects import (
    Effect,
    Fetch,
    Give,
    Lead,
    ReadJournal,
    Take,
    Trim,
    WriteCheckpoint,
    WritePublished,
)
from anabranch.coordinator.event_log import EventLog, log_text
from anabranch.coordinator.events import (
    Asked,
    Begun,
    BranchMade,
    CheckpointWritten,
    CommitWritten,
    EffectFailed,
    Event,
    IdentityWritten,
    InputTaken,
    JournalRead,
    JournalTrimmed,
    LeaderFenced,
    Led,
    Moment,
    NodeLost,
    NodeReported,
    PlanWritten,
    RepairWritten,
    ResultFetched,
    StepRead,
    TimePassed,
)
from anabranch.coordinator.invariants import check
from anabranch.coordinator.operations import REWIND, LoadCheckpoint
from anabranch.coordinator.parts.parts import AnyPart
from anabranch.coordinator.parts.standard import STANDARD
from anabranch.coordinator.phases import (
    AnyPhase,
    Branching,
    Closing,
    Committing,
    Ended,
    Identifying,
    Idle,
    Leading,
    Meeting,
    Opening,
    Planning,
    ReadingJournal,
    Recalling,
    Repairing,
    Stepping,
    Taking,
)
from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import Closed, Failure, NodeReport, StepResult
from anabranch.records.plan import Plan

UNREACHABLE = "node.unreachable"


class UnexpectedOutcome(RuntimeError):
    """An outcome that no effect explains: a bug in the coordinator. The message has the log."""

    def __init__(self, event: Event, phase: AnyPhase, log: EventLog) -> None:
        """Keep the entries of ``log``."""
        self.entries = tuple(log.entries)
        told = log_text(self.entries[-40:])
        super().__init__(f"{type(event).__name__} in {type(phase).__name__}\n{told}")


def _is_of(result: StepResult, plan: Plan) -> bool:
    return (result.step, result.revision) == (plan.step, plan.revision)


class Machine:
    """Decides what happens next. Not shared between threads."""

    def __init__(
        self,
        settings: Settings,
        *,
        code: str | None = None,
        take_over: bool = False,
        directory: str = "",
        rewind: LoadCheckpoint | None = None,
        parts: Sequence[AnyPart] = STANDARD,
        validate: bool = False,
    ) -> None:
        """``directory`` is named in errors; ``parts`` are what commits carry.

        ``validate`` checks the invariants after every event, for tests.
        """
        self.memory = new_memory(
            settings, code=code, take_over=take_over, directory=directory, parts=parts
        )
        if rewind is not None:
            self.memory.load.ask(REWIND, rewind)
        self._validate = validate
        #: the last events, for error reports and simulations
        self.log = EventLog()

    @property
    def ended(self) -> bool:
        """Whether the pipeline is over."""
        return isinstance(self.memory.phase, Ended)

    def handle(self, now: Moment, event: Event) -> list[Effect]:
        """Handle an event; returns the effects to perform, in order."""
        before = type(self.memory.phase).__name__
        self.memory.now = now.seconds
        effects = [] if self.ended and not isinstance(event, Asked) else self._dispatch(now, event)
        effects += self._advance(now)
        self._log_event(now, event, before, effects)
        if self._validate:
            check(self.memory, effects, self.log)
        return effects

    def wakes_at(self) -> float | None:
        """When to send ``TimePassed`` if no other event comes first."""
        return None if self.ended else deadlines.wakes_at(self.memory)

    def _dispatch(self, now: Moment, event: Event) -> list[Effect]:
        memory = self.memory
        match event:
            case Begun():
                memory.phase = Leading()
                memory.checkpoint.last_at = memory.pace.last_step_at = memory.node.heard = (
                    now.seconds
                )
                return [Lead(memory.take_over)]
            case TimePassed():
                return deadlines.handle_overdue(memory, now.seconds)
            case NodeReported():
                return self._on_report(now, event)
            case NodeLost(failure):
                return deadlines.node_lost(memory, failure, now.seconds)
            case EffectFailed(effect, failure):
                return self._effect_failed(now, effect, failure)
            case LeaderFenced(failure):
                return closing.end(memory, failure)
            case Asked(number, operation):
                return requests.handle_request(memory, number, operation, now.seconds)
            case CheckpointWritten() | JournalTrimmed():
                return memory.checkpoint.handle(memory, event, now.seconds)
            case _:
                return self._on_outcome(now, event)

    def _on_outcome(self, now: Moment, event: Event) -> list[Effect]:
        """Handle an outcome that the phase or a job waits for."""
        memory, seconds = self.memory, now.seconds
        match memory.phase, event:
            case Leading(), Led(leader, members):
                memory.leader = leader
                memory.join(members)
                memory.phase = ReadingJournal()
                return [ReadJournal()]
            case ReadingJournal(), JournalRead(journal):
                refused = recovering.unknown_parts(memory, journal)
                if refused is not None:
                    return closing.fail_pipeline(memory, refused, seconds)
                recovering.adopt_journal(memory, journal)
                return recovering.find_node(memory, seconds)
            case Identifying(), IdentityWritten(identity):
                return recovering.on_identity(memory, identity, seconds)
            case Taking(step) as phase, InputTaken(taken, inputs) if taken == step:
                return stepping.on_input(memory, phase, inputs, seconds, now.clock_ns)
            case Planning() as phase, PlanWritten(plan):
                return stepping.on_plan(memory, phase, plan, seconds)
            case Stepping(plan) as phase, ResultFetched(result) if _is_of(result, plan):
                return stepping.on_result(memory, phase, result, seconds)
            case Committing() as phase, CommitWritten(commit, ours):
                return stepping.on_commit(memory, phase, commit, ours, seconds)
            case Recalling(), StepRead():
                return memory.replay.handle(memory, event, seconds)
            case Repairing(), RepairWritten():
                return memory.replay.handle(memory, event, seconds)
            case Branching(), BranchMade():
                return memory.load.handle(memory, event, seconds)
        if not self._is_late(event):
            raise UnexpectedOutcome(event, memory.phase, self.log)
        return []

    def _is_late(self, event: Event) -> bool:
        """Whether an outcome that nothing waits for is legitimately late.

        A node may answer after it was given up. The journal answers at once: its outcomes are late
        only if the phase has changed meanwhile, for another node or the end.
        """
        if isinstance(event, InputTaken | ResultFetched):
            return True
        return isinstance(self.memory.phase, Meeting | Opening | Closing | Ended)

    def _on_report(self, now: Moment, event: NodeReported) -> list[Effect]:
        memory, seconds, report = self.memory, now.seconds, event.report
        known = memory.node.report
        if known is not None and known.boot == report.boot and report.version < known.version:
            return []
        other = known is not None and known.boot != report.boot
        memory.node.report, memory.node.heard = report, seconds
        memory.sources.adopt(report)
        if isinstance(memory.phase, Meeting):
            return recovering.on_first_report(memory, report, seconds)
        if (other or self._opened_anew(report)) and not isinstance(memory.phase, Closing):
            # Another process answers at this address, or this one has restarted: what was open is
            # lost.
            memory.requeue_requests()
            memory.phase = Meeting(seconds)
            memory.node.leave()
            memory.replay.stop()
            return recovering.on_first_report(memory, report, seconds)
        self._note_progress(report, seconds)
        return [
            *memory.sources.handle(memory, event, seconds),
            *memory.checkpoint.handle(memory, event, seconds),
            *self._report_in_phase(report, seconds),
        ]

    def _opened_anew(self, report: NodeReport) -> bool:
        """Whether a delayed order to open, already given up, has arrived after all."""
        opened = self.memory.node.opened
        waits = isinstance(self.memory.phase, (Opening, Ended))
        return not waits and opened is not None and report.opened > opened

    def _note_progress(self, report: NodeReport, seconds: float) -> None:
        """Note what matters in every phase: published steps and waiting input."""
        memory = self.memory
        if report.opened == memory.node.opened:
            done = min(report.published.values(), default=memory.step)
            memory.outputs = {s: o for s, o in memory.outputs.items() if s > done}
        offer = stepping.next_offer(memory)
        if offer is None or not offer.rows:
            memory.pace.first_at = None
        elif memory.pace.first_at is None:
            memory.pace.first_at = seconds

    def _report_in_phase(self, report: NodeReport, seconds: float) -> list[Effect]:
        memory = self.memory
        match memory.phase:
            case Opening() as phase:
                return recovering.on_opening(memory, phase, report, seconds)
            case Stepping() as phase:
                effects = stepping.step_on_report(memory, phase, report, seconds)
                if effects:
                    return effects
            case Closing() as phase:
                closed = isinstance(report.state, Closed)
                return closing.on_closed(memory, phase) if closed else []
            case Idle():
                effects = memory.load.handle(memory, NodeReported(report), seconds)
                if effects:
                    return effects
        # A pending rewind leaves behind whatever fails now.
        left = memory.load.rewind is not None and memory.stop.request is None
        if report.opened == memory.node.opened and not left and not isinstance(memory.phase, Ended):
            failure = report.sink_failure
            if failure is None and isinstance(memory.phase, Idle):
                failure = report.source_failure
            if failure is not None:
                return closing.fail_pipeline(memory, failure, seconds)
        return []

    def _effect_failed(self, now: Moment, effect: Effect, failure: Failure) -> list[Effect]:
        memory, seconds = self.memory, now.seconds
        match effect:
            case Give(order):
                if failure.code != UNREACHABLE:
                    return closing.fail_pipeline(memory, failure, seconds)
                if isinstance(memory.phase, Opening) and order != memory.phase.order:
                    return []  # the state it was for is being left
                memory.peers[effect.to].repeat(order, seconds + memory.settings.deadlines.again)
                return []
            case Take() | Fetch():
                if failure.code != UNREACHABLE:
                    return closing.fail_pipeline(memory, failure, seconds)
                memory.peers[effect.to].repeat(None, seconds + memory.settings.deadlines.again)
                if isinstance(memory.phase, Stepping):
                    memory.phase = replace(memory.phase, fetching=False)
                return []
            case WriteCheckpoint():
                event = EffectFailed(effect, failure)
                return memory.checkpoint.handle(memory, event, seconds)
            case Trim() | WritePublished():
                return []
            case Lead() | ReadJournal():
                return closing.end(memory, failure)
            case _:
                return closing.fail_pipeline(memory, failure, seconds)

    def _advance(self, now: Moment) -> list[Effect]:
        """Begin what is due: a checkpoint, a replay, a request, the next step."""
        memory, seconds = self.memory, now.seconds
        effects: list[Effect] = []
        if memory.node.opened is not None and memory.checkpoint.is_due(memory, seconds):
            effects += memory.checkpoint.begin(memory, seconds)
        if isinstance(memory.phase, Idle):
            lost = memory.replay.take_lost()
            if lost is not None:
                effects += memory.replay.begin(memory, lost, seconds)
            else:
                effects += requests.on_idle(memory, seconds)
        elif memory.stop.at_once:
            effects += deadlines.stop_at_once(memory, seconds)
        return effects

    def _log_event(self, now: Moment, event: Event, before: str, effects: list[Effect]) -> None:
        if not isinstance(event, TimePassed | NodeReported) or effects:
            after = type(self.memory.phase).__name__
            self.log.add(now.seconds, event, before, after, effects)
