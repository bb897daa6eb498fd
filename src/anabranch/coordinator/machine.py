"""The coordinator as a machine: events in, effects out, and nothing else.

``Machine.handle`` is the only way its memory changes. It never waits and never looks at a clock:
time comes in with events. What it asks for, the driver performs; every outcome comes back as an
event, failures too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from anabranch.coordinator import (
    checkpointing,
    closing,
    deadlines,
    loading,
    pausing,
    recovering,
    stepping,
)
from anabranch.coordinator import requests as lifecycle
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
from anabranch.coordinator.memory import Memory
from anabranch.coordinator.operations import REWIND, LoadCheckpoint
from anabranch.coordinator.parts.parts import AnyPart, Parts
from anabranch.coordinator.parts.standard import STANDARD
from anabranch.coordinator.phases import (
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
from anabranch.protocol.node import Closed, Failure, NodeReport, StepOrder

STORY = 200
UNREACHABLE = "node.unreachable"


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
        """``directory`` is what errors name, ``parts`` are what commits carry.

        ``validate`` checks the invariants after every event: for tests.
        """
        batch = BatchSize(settings.target_latency_seconds)
        self.memory = Memory(
            settings, code, take_over, directory, batch=batch, parts=Parts.initial(parts)
        )
        if rewind is not None:
            self.memory.loads.append((REWIND, rewind))
        self._validate = validate
        self._story: deque[str] = deque(maxlen=STORY)

    @property
    def story(self) -> tuple[str, ...]:
        """What happened last, oldest first: for error reports and simulations."""
        return tuple(self._story)

    @property
    def ended(self) -> bool:
        """Whether the pipeline is over."""
        return isinstance(self.memory.phase, Ended)

    def handle(self, now: Moment, event: Event) -> list[Effect]:
        """Take note of an event; gives what is to be done, in this order."""
        before = type(self.memory.phase).__name__
        self.memory.now = now.seconds
        effects = [] if self.ended and not isinstance(event, Asked) else self._on(now, event)
        effects += self._advance(now)
        self._note(now, event, before, effects)
        if self._validate:
            check(self.memory, effects, self._story)
        return effects

    def wakes_at(self) -> float | None:
        """When the machine wants to be told that time has passed, if nothing else happens."""
        return None if self.ended else deadlines.wakes_at(self.memory)

    def _on(self, now: Moment, event: Event) -> list[Effect]:
        memory = self.memory
        match event:
            case Begun():
                memory.phase = Leading()
                memory.checkpoint_at = memory.last_step_at = memory.heard = now.seconds
                return [Lead(memory.take_over)]
            case TimePassed():
                return deadlines.on_time(memory, now.seconds)
            case NodeReported(report):
                return self._told(now, report)
            case NodeLost(failure):
                return deadlines.node_lost(memory, failure, now.seconds)
            case EffectFailed(effect, failure):
                return self._effect_failed(now, effect, failure)
            case LeaderFenced(failure):
                return closing.end(memory, failure)
            case Asked(number, operation):
                return lifecycle.handle_request(memory, number, operation, now.seconds)
            case CheckpointWritten(checkpoint):
                return checkpointing.on_written(memory, checkpoint, now.seconds)
            case JournalTrimmed(kept):
                return checkpointing.on_trimmed(memory, kept)
            case _:
                return self._outcome(now, event)

    def _outcome(self, now: Moment, event: Event) -> list[Effect]:
        """The outcome of an effect that the phase waits for; one that nobody waits for is late."""
        memory, seconds = self.memory, now.seconds
        match memory.phase, event:
            case Leading(), Led(leader):
                memory.leader = leader
                memory.phase = ReadingJournal()
                return [ReadJournal()]
            case ReadingJournal(), JournalRead(journal):
                refused = recovering.unknown_parts(memory, journal)
                if refused is not None:
                    return closing.fail_pipeline(memory, refused, seconds)
                recovering.know(memory, journal)
                return recovering.find_node(memory, seconds)
            case Identifying(), IdentityWritten(identity):
                return recovering.on_identity(memory, identity, seconds)
            case Taking(step) as phase, InputTaken(taken, inputs) if taken == step:
                return stepping.on_input(memory, phase, inputs, seconds, now.clock_ns)
            case Planning() as phase, PlanWritten(plan):
                return stepping.on_plan(memory, phase, plan, seconds)
            case Stepping(plan) as phase, ResultFetched(result):
                if (result.step, result.revision) == (plan.step, plan.revision):
                    return stepping.on_result(memory, phase, result, seconds)
            case Committing() as phase, CommitWritten(commit, ours):
                return stepping.on_commit(memory, phase, commit, ours, seconds)
            case Recalling(step), StepRead(plan, commit) if plan.step == step:
                return recovering.on_step_read(memory, plan, commit, seconds)
            case Repairing(), RepairWritten(repair):
                return recovering.on_repaired(memory, repair, seconds)
            case Branching() as phase, BranchMade(journal):
                return loading.on_branch(memory, phase, journal, seconds)
        return []

    def _told(self, now: Moment, report: NodeReport) -> list[Effect]:
        memory, seconds = self.memory, now.seconds
        known = memory.report
        if known is not None and known.boot == report.boot and report.version < known.version:
            return []
        other = known is not None and known.boot != report.boot
        memory.report, memory.heard = report, seconds
        pausing.adopt(memory, report)
        if isinstance(memory.phase, Meeting):
            return recovering.on_met(memory, report, seconds)
        if (other or self._opened_anew(report)) and not isinstance(memory.phase, Closing):
            # Another process answers at this address, or this one has begun anew: whatever we knew
            # of what was open before is lost.
            memory.let_wait()
            memory.phase, memory.opened, memory.replay = Meeting(seconds), None, None
            return recovering.on_met(memory, report, seconds)
        self._heed(report, seconds)
        return [
            *pausing.give_again(memory, report, seconds),
            *checkpointing.checkpoint_on_report(memory, report, seconds),
            *self._told_in_phase(report, seconds),
        ]

    def _opened_anew(self, report: NodeReport) -> bool:
        """Whether an order to open that was given up while it was on its way has arrived."""
        opened = self.memory.opened
        waits = isinstance(self.memory.phase, (Opening, Ended))
        return not waits and opened is not None and report.opened > opened

    def _heed(self, report: NodeReport, seconds: float) -> None:
        """Take note of what concerns every phase: how far sinks are, and what waits."""
        memory = self.memory
        if report.opened == memory.opened:
            done = min(report.published.values(), default=memory.step)
            memory.outputs = {s: o for s, o in memory.outputs.items() if s > done}
        offer = stepping.offer_of(memory)
        if offer is None or not offer.rows:
            memory.first_at = None
        elif memory.first_at is None:
            memory.first_at = seconds

    def _told_in_phase(self, report: NodeReport, seconds: float) -> list[Effect]:
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
                effects = loading.load_on_report(memory, report, seconds)
                if effects:
                    return effects
        # Before a rewind, what fails is what it leaves behind.
        left = memory.rewind is not None and memory.stopping is None
        if report.opened == memory.opened and not left and not isinstance(memory.phase, Ended):
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
                    return []  # it was for what is being left
                memory.again = (*memory.again, order)
                memory.again_at = seconds + memory.settings.deadlines.again
                return []
            case Take() | Fetch():
                if failure.code != UNREACHABLE:
                    return closing.fail_pipeline(memory, failure, seconds)
                memory.again_at = seconds + memory.settings.deadlines.again
                if isinstance(memory.phase, Stepping):
                    memory.phase = replace(memory.phase, fetching=False)
                return []
            case WriteCheckpoint():
                return checkpointing.give_up(memory, failure, seconds)
            case Trim() | WritePublished():
                return []
            case Lead() | ReadJournal():
                return closing.end(memory, failure)
            case _:
                return closing.fail_pipeline(memory, failure, seconds)

    def _advance(self, now: Moment) -> list[Effect]:
        """What follows from where things are: a checkpoint that is due, the next step."""
        memory, seconds = self.memory, now.seconds
        effects: list[Effect] = []
        if memory.opened is not None and checkpointing.is_due(memory, seconds):
            effects += checkpointing.begin(memory, seconds)
        if isinstance(memory.phase, Idle):
            lost, memory.lost = memory.lost, None
            if lost is not None and lost.code in recovering.LOST:
                effects += recovering.lost_state(memory, lost, seconds)
            else:
                effects += lifecycle.on_idle(memory, seconds)
        elif memory.stopping is not None and memory.stopping.at_once:
            effects += deadlines.stop_at_once(memory, seconds)
        return effects

    def _note(self, now: Moment, event: Event, before: str, effects: list[Effect]) -> None:
        if isinstance(event, TimePassed | NodeReported) and not effects:
            return
        after = type(self.memory.phase).__name__
        named = ", ".join(_named(effect) for effect in effects)
        self._story.append(
            f"{now.seconds:.3f} {type(event).__name__}: {before} -> {after} [{named}]"
        )


def _named(effect: Effect) -> str:
    if isinstance(effect, Give):
        order = effect.order
        step = order.plan.step if isinstance(order, StepOrder) else getattr(order, "step", "")
        return f"{type(order).__name__} {step}".strip()
    return type(effect).__name__
