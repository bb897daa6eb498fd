"""What coordinators do: handle an event, perform an effect, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.coordinator.effects import (
    Announce,
    Answer,
    Effect,
    EndPipeline,
    Fetch,
    FindNode,
    Give,
    JournalEffect,
    Lead,
    MakeBranch,
    ReplaceNode,
    Take,
    WriteCommit,
    WritePlan,
)
from anabranch.coordinator.events import (
    Asked,
    BranchMade,
    CheckpointWritten,
    CommitWritten,
    EffectFailed,
    Event,
    JournalRead,
    Led,
    PlanWritten,
    RepairWritten,
)
from anabranch.coordinator.operations import REWIND
from anabranch.coordinator.phases import Ended
from anabranch.errors import AnabranchError, CorruptRun
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Failure
from anabranch.testing.cluster.faults import CALM
from anabranch.testing.cluster.freezing import Freezable
from anabranch.testing.cluster.processes import CoordinatorProcess
from anabranch.testing.cluster.rule_broken import Broken

if TYPE_CHECKING:
    from anabranch.testing.cluster.cluster import SimulatedCluster

CALM_FAILURES = 3
"""So often a pipeline may fail from what went wrong before, once nothing does any more."""

_LOCAL = (Give, Take, Fetch, FindNode, ReplaceNode, Announce, Answer, EndPipeline)
"""Effects that only put something into a queue of their own process.

Nobody else can tell whether something happened before or after such an effect, nor whether the
process was killed before it: they are performed together with what led to them.
"""


class Coordination:
    """Lets coordinators think, and watches what they write."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        """No coordinator is there yet."""
        self._cluster = cluster

    def think(self, each: CoordinatorProcess) -> None:
        """Handle an event or perform an effect, and what follows from it in this process alone."""
        self._cluster.note(each.name, _next_of(each))
        if each.stopped is not None:
            effect, work = each.stopped
            each.stopped = None
            self._go_on(each, effect, work)
        elif each.effects:
            outcome = self._perform(each, each.effects.popleft())
            if outcome is not None:
                each.outcomes.append(outcome)
        else:
            event = each.outcomes.popleft() if each.outcomes else each.inbox.popleft()
            each.effects.extend(each.machine.handle(self._cluster.clock.moment(), event))
            each.wakes = each.machine.wakes_at()
        while each.effects and isinstance(each.effects[0], _LOCAL) and each.stopped is None:
            self._perform(each, each.effects.popleft())
        if each.ended and not each.effects:
            self._over(each)

    def _over(self, each: CoordinatorProcess) -> None:
        cluster, phase = self._cluster, each.machine.memory.phase
        assert isinstance(phase, Ended)
        if each.waiting - {e.number for e in each.inbox if isinstance(e, Asked)}:
            raise Broken(f"R8: {each.name} ended without an answer to {each.waiting}")
        cluster.note(each.name, f"ended: {phase.failure}")
        each.leadership.release()
        cluster.coordinators.remove(each)
        stopping = each.machine.memory.stop.request
        if phase.failure is not None:
            self._follow_advice(phase.failure)
        if phase.failure is None and self._let_go(each):
            cluster.rules.closed()
        if phase.failure is None and stopping is None:
            cluster.complete = True
        elif phase.failure is not None and cluster.weather is CALM:
            # Any number of coordinators may have been frozen, to find that another one leads.
            cluster.failures += phase.failure.code not in ("coordinator.fenced", "directory.in_use")
            if cluster.failures > CALM_FAILURES:
                raise Broken(f"the pipeline fails although nothing is wrong: {phase.failure}")

    def _follow_advice(self, failure: Failure) -> None:
        """Restore a file whose bytes have changed from a copy, as the error says.

        A checkpoint looks at the sizes of its files only, so every one that is kept may name it.
        """
        cluster = self._cluster
        for name, data in cluster.copies.items():
            if failure.code == CorruptRun.code and (failure.where or "").endswith(name):
                (cluster.store / name).write_bytes(data)

    def _let_go(self, each: CoordinatorProcess) -> bool:
        """Whether sources were let go of in order, and nobody has led since: others went on."""
        memory = each.machine.memory
        at_once = memory.stop.request is not None and memory.stop.request.at_once
        return not at_once and memory.leader == self._cluster.rules.leader

    def _perform(self, each: CoordinatorProcess, effect: Effect) -> Event | None:
        match effect:
            case Give() | Take() | Fetch():
                each.calls.append(effect)
            case FindNode() | ReplaceNode():
                each.finding.append(effect)
            case Announce():
                pass
            case Answer(number):
                if number != REWIND and number not in each.waiting:
                    raise Broken(f"R8: {each.name} answers request {number} twice")
                each.waiting.discard(number)
            case EndPipeline():
                each.ended = True
            case Lead(take_over):
                return self._lead(each, effect, take_over)
            case _:
                return self._record(each, effect)
        return None

    def _record(self, each: CoordinatorProcess, effect: JournalEffect) -> Event | None:
        """Perform an effect on the journal, in the middle of which the process may freeze."""
        if each.freezes is None:
            outcome = each.records.perform(effect)
            self._watch(each, effect, outcome)
            return outcome
        work = Freezable(lambda: each.records.perform(effect))
        self._cluster.disk.freeze_at(each.name, each.freezes, work.freeze)
        each.freezes = None
        self._go_on(each, effect, work)
        return None

    def _go_on(
        self, each: CoordinatorProcess, effect: Effect, work: Freezable[Event | None]
    ) -> None:
        cluster = self._cluster
        if not work.resume():
            cluster.note(each.name, "is frozen")
            each.stopped, each.frozen = (effect, work), True
            cluster.start_coordinator(take_over=True)
            return
        cluster.disk.freeze_not(each.name)
        outcome = work.result()
        self._watch(each, effect, outcome)
        if outcome is not None:
            each.outcomes.append(outcome)

    def _lead(self, each: CoordinatorProcess, effect: Lead, take_over: bool) -> Event:
        try:
            leader = each.leadership.lead(take_over, "host", 1, self._cluster.clock.wall_ns)
        except AnabranchError as error:
            return EffectFailed(effect, failure_of(error))
        self._cluster.rules.led(leader)
        return Led(leader, each.leadership.members)

    def _watch(self, each: CoordinatorProcess, effect: Effect, outcome: Event | None) -> None:
        rules = self._cluster.rules
        match effect, outcome:
            case WritePlan(branch), PlanWritten(plan):
                rules.planned(branch, plan)
            case WriteCommit(branch), CommitWritten(commit, ours):
                rules.committed(each.leader, branch, commit, ours=ours)
            case _, CheckpointWritten(checkpoint):
                rules.kept(checkpoint)
            case _, RepairWritten(repair) if each.leader == rules.leader:
                rules.repaired(repair)
            case MakeBranch(), BranchMade(journal) if each.leader == rules.leader:
                rules.branched(journal)
            case _, JournalRead(journal) if each.leader == rules.leader:
                # Whoever was frozen meanwhile is told what is long over.
                rules.found(journal)


def _next_of(each: CoordinatorProcess) -> str:
    if each.stopped is not None:
        return f"goes on with {type(each.stopped[0]).__name__}"
    if each.effects:
        return type(each.effects[0]).__name__
    event = each.outcomes[0] if each.outcomes else each.inbox[0]
    return f"handles {type(event).__name__}"
