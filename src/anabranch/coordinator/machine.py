"""The coordinator as a state machine: events in, effects out.

Only ``Machine.handle`` changes the memory. It never waits and never reads a clock: events carry
the time. The driver performs the effects; every outcome, failures included, returns as an event.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.coordinator import closing, deadlines, events, phases, recovering, requests, stepping
from anabranch.coordinator.batch_size import BatchSize
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
from anabranch.coordinator.events import Event, Moment, NodeReported
from anabranch.coordinator.invariants import check
from anabranch.coordinator.jobs.checkpoint import CheckpointJob
from anabranch.coordinator.jobs.load import LoadJob
from anabranch.coordinator.jobs.paused_sources import PausedSourcesJob
from anabranch.coordinator.jobs.profile import ProfileJob
from anabranch.coordinator.jobs.replay import ReplayJob
from anabranch.coordinator.jobs.rescale import RescaleJob
from anabranch.coordinator.jobs.shutdown import ShutdownJob
from anabranch.coordinator.memory import Memory, Pace
from anabranch.coordinator.operations import REWIND, LoadCheckpoint
from anabranch.coordinator.outlook import next_offer
from anabranch.coordinator.parts.parts import STANDARD, AnyPart, Parts
from anabranch.coordinator.phases import Closing, Ended, Idle, Meeting, Opening, Stepping
from anabranch.coordinator.settings import Settings
from anabranch.protocol.node import Closed, Failure, NodeReport, StepResult
from anabranch.records.plan import Plan

#: what a call failed with that did not reach a node which works: it is found or replaced
UNREACHABLE = frozenset({"node.unreachable", "node.jvm_died"})


class UnexpectedOutcome(RuntimeError):
    """An outcome that no effect explains: a bug in the coordinator. The message has the log."""

    def __init__(self, event: Event, phase: phases.AnyPhase, log: EventLog) -> None:
        """Keep the entries of ``log``."""
        self.entries = tuple(log.entries)
        told = log_text(self.entries[-40:])
        super().__init__(f"{type(event).__name__} in {type(phase).__name__}\n{told}")


def _is_of(result: StepResult, plan: Plan) -> bool:
    return (result.step, result.revision) == (plan.step, plan.revision)


def new_memory(settings: Settings, parts: Sequence[AnyPart] = STANDARD) -> Memory:
    """The memory of a coordinator before its first event, with all its jobs."""
    return Memory(
        settings,
        Parts.initial(parts),
        CheckpointJob(),
        LoadJob(),
        ReplayJob(),
        ShutdownJob(),
        ProfileJob(),
        PausedSourcesJob(),
        RescaleJob(),
        Pace(BatchSize(settings.target_latency_seconds)),
    )


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
        memory = self.memory = new_memory(settings, parts)
        memory.code, memory.take_over, memory.directory = code, take_over, directory
        if rewind is not None:
            memory.load.ask(memory, REWIND, rewind)
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
        self.memory.now, self.memory.clock_ns = now.seconds, now.clock_ns
        over = self.ended and not isinstance(event, events.Asked)
        effects = [] if over else self._dispatch(event)
        effects += self._advance()
        if not isinstance(event, events.TimePassed | NodeReported) or effects:
            after = type(self.memory.phase).__name__
            self.log.add(now.seconds, event, before, after, effects)
        if self._validate:
            check(self.memory, effects, self.log)
        return effects

    def wakes_at(self) -> float | None:
        """When to send ``TimePassed`` if no other event comes first."""
        return None if self.ended else deadlines.wakes_at(self.memory)

    def _dispatch(self, event: Event) -> list[Effect]:
        memory = self.memory
        match event:
            case events.Begun():
                memory.phase = phases.Leading()
                memory.checkpoint.last_at = memory.pace.last_step_at = memory.now
                memory.node.heard = memory.now
                return [Lead(memory.take_over)]
            case events.TimePassed():
                return deadlines.handle_overdue(memory)
            case NodeReported():
                return self._on_report(event)
            case events.NodeLost(failure):
                return deadlines.node_lost(memory, failure)
            case events.EffectFailed(effect, failure):
                return self._effect_failed(event, effect, failure)
            case events.LeaderFenced(failure):
                return closing.end(memory, failure)
            case events.Asked(number, operation):
                return requests.handle_request(memory, number, operation)
            case events.CheckpointWritten() | events.JournalTrimmed():
                return memory.checkpoint.handle(memory, event)
            case _:
                return self._on_outcome(event)

    def _on_outcome(self, event: Event) -> list[Effect]:
        """Handle an outcome that the phase or a job waits for."""
        memory = self.memory
        match memory.phase, event:
            case phases.Leading(), events.Led(leader, members):
                memory.leader = leader
                memory.join(members)
                memory.phase = phases.ReadingJournal()
                return [ReadJournal()]
            case phases.ReadingJournal(), events.JournalRead(journal):
                refused = recovering.unknown_parts(memory, journal)
                if refused is not None:
                    return closing.fail_pipeline(memory, refused)
                recovering.adopt_journal(memory, journal)
                return recovering.find_node(memory)
            case phases.Identifying(), events.IdentityWritten(identity):
                memory.journal = replace(memory.journal, identity=identity)
                return recovering.reopen(memory)
            case phases.Taking(step) as phase, events.InputTaken(taken, inputs) if taken == step:
                return stepping.on_input(memory, phase, inputs)
            case phases.Planning() as phase, events.PlanWritten(plan):
                return stepping.on_plan(memory, phase, plan)
            case Stepping(plan) as phase, events.ResultFetched(result) if _is_of(result, plan):
                return stepping.on_result(memory, phase, result)
            case phases.Committing() as phase, events.CommitWritten(commit, ours):
                return stepping.on_commit(memory, phase, commit, ours)
            case (phases.Recalling(), events.StepRead()) | (
                phases.Repairing(),
                events.RepairWritten(),
            ):
                return memory.replay.handle(memory, event)
            case phases.Branching(), events.BranchMade():
                return memory.load.handle(memory, event)
        if not self._is_late(event):
            raise UnexpectedOutcome(event, memory.phase, self.log)
        return []

    def _is_late(self, event: Event) -> bool:
        """Whether an outcome that nothing waits for is legitimately late.

        A node may answer after it was given up. The journal answers at once: its outcomes are late
        only if the phase has changed meanwhile, for another node or the end.
        """
        if isinstance(event, events.InputTaken | events.ResultFetched):
            return True
        return isinstance(self.memory.phase, Meeting | Opening | Closing | Ended)

    def _on_report(self, event: NodeReported) -> list[Effect]:
        memory, report = self.memory, event.report
        known = memory.node.report
        if known is not None and known.boot == report.boot and report.version < known.version:
            return []
        other = known is not None and known.boot != report.boot
        memory.node.report, memory.node.heard = report, memory.now
        memory.sources.adopt(report)
        if isinstance(memory.phase, Meeting):
            return recovering.on_first_report(memory, report)
        if (other or self._opened_anew(report)) and not isinstance(memory.phase, Closing):
            # Another process answers at this address, or this one has restarted: what was open is
            # lost.
            recovering.await_report(memory)
            return recovering.on_first_report(memory, report)
        self._note_progress(report)
        return [
            *memory.sources.handle(memory, event),
            *memory.checkpoint.handle(memory, event),
            *self._report_in_phase(event),
        ]

    def _opened_anew(self, report: NodeReport) -> bool:
        """Whether a delayed order to open, already given up, has arrived after all."""
        opened = self.memory.node.opened
        waits = isinstance(self.memory.phase, (Opening, Ended))
        return not waits and opened is not None and report.opened > opened

    def _note_progress(self, report: NodeReport) -> None:
        """Note what matters in every phase: published steps and waiting input."""
        memory = self.memory
        if report.opened == memory.node.opened:
            done = min(report.published.values(), default=memory.step)
            memory.outputs = {s: o for s, o in memory.outputs.items() if s > done}
        offer = next_offer(memory)
        if offer is None or not offer.rows:
            memory.pace.first_at = None
        elif memory.pace.first_at is None:
            memory.pace.first_at = memory.now

    def _report_in_phase(self, event: NodeReported) -> list[Effect]:
        memory, report = self.memory, event.report
        effects: list[Effect] = []
        match memory.phase:
            case Opening() as phase:
                return recovering.on_opening(memory, phase, report)
            case Closing() as phase:
                closed = isinstance(report.state, Closed)
                return closing.on_closed(memory, phase) if closed else []
            case Stepping() as phase:
                effects = stepping.step_on_report(memory, phase, report)
            case Idle():
                effects = memory.load.handle(memory, event)
        # A pending rewind leaves behind whatever fails now.
        left = memory.load.rewind is not None and memory.stop.request is None
        if effects or left or report.opened != memory.node.opened or self.ended:
            return effects
        failure = report.sink_failure
        if failure is None and isinstance(memory.phase, Idle):
            failure = report.source_failure
        return [] if failure is None else closing.fail_pipeline(memory, failure)

    def _effect_failed(
        self, event: events.EffectFailed, effect: Effect, failure: Failure
    ) -> list[Effect]:
        memory = self.memory
        match effect:
            case Give() | Take() | Fetch() if failure.code in UNREACHABLE:
                self._repeat_call(effect)
                return []
            case WriteCheckpoint():
                return memory.checkpoint.handle(memory, event)
            case Trim() | WritePublished():
                return []
            case Lead() | ReadJournal():
                return closing.end(memory, failure)
            case _:
                return closing.fail_pipeline(memory, failure)

    def _repeat_call(self, effect: Give | Take | Fetch) -> None:
        """Schedule a call that did not reach its peer."""
        memory = self.memory
        order = effect.order if isinstance(effect, Give) else None
        if order is not None and isinstance(memory.phase, Opening) and order != memory.phase.order:
            return  # the state it was for is being left
        memory.peers[effect.to].repeat(order, memory.now + memory.settings.deadlines.again)
        if order is None and isinstance(memory.phase, Stepping):
            memory.phase = replace(memory.phase, fetching=False)

    def _advance(self) -> list[Effect]:
        """Begin what is due: a checkpoint, a replay, a request, the next step."""
        memory = self.memory
        effects = memory.moving.apply_early(memory)
        if memory.node.opened is not None and memory.checkpoint.is_due(memory):
            effects += memory.checkpoint.begin(memory)
        if isinstance(memory.phase, Idle):
            lost = memory.replay.take_lost()
            if lost is not None:
                return effects + memory.replay.begin(memory, lost)
            return effects + requests.on_idle(memory)
        # Nothing is under way while a sink takes back: the next start goes on with it.
        stops = memory.stop.at_once or (memory.stop.request is not None and memory.taking_back)
        return effects + (deadlines.stop_at_once(memory) if stops else [])
