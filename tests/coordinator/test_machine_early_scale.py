"""A scale before the first commit, and starts that name no number of workers."""

from __future__ import annotations

import pytest

from anabranch.coordinator.effects import Answer, Effect, Take, WriteCommit, WritePlan
from anabranch.coordinator.events import (
    Asked,
    Begun,
    BranchMade,
    CommitWritten,
    IdentityWritten,
    InputTaken,
    JournalRead,
    Led,
    NodeLost,
    PlanWritten,
    ResultFetched,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    PausePipeline,
    RescalePipeline,
    ShutDownPipeline,
)
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.phases import Planning
from anabranch.coordinator.rescaling import forecast_of
from anabranch.coordinator.settings import Settings
from anabranch.coordinator.status_view import pipeline_status
from anabranch.errors import OperationRefused
from anabranch.protocol.node import Closed, Done, Failure, Open, OpenOrder, StepOrder
from anabranch.protocol.rescale_requests import Rebalance, Scale
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.rescale.controller import Rescale
from anabranch.rescale.phases import Interrogating
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.coordinator.bench import (
    IDENTITY,
    PLACED,
    Bench,
    checkpoint,
    commit,
    journal,
    order_of,
    plan,
    read,
    result,
)

AT_ONCE = RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, prefetch=False, answer_steps=0)
FOUR = RescalePipeline(Scale(4))


def answers(effects: list[Effect]) -> dict[int, Failure | None]:
    return {each.number: each.failure for each in effects if isinstance(each, Answer)}


def planned(bench: Bench, number: int) -> Plan:
    """The plan of a step whose input was just asked for."""
    (written,) = bench.send(InputTaken(number, read(number)))
    assert isinstance(written, WritePlan)
    return written.plan


def committed(bench: Bench, made: Plan) -> tuple[Commit, list[Effect]]:
    """Run a plan; the commit, and what follows it."""
    number = made.step
    if isinstance(bench.machine.memory.phase, Planning):
        bench.send(PlanWritten(made))
    bench.report(Open(number), done=Done(number, made.revision), published={"out": number - 1})
    (written,) = bench.send(ResultFetched(result(number, made.revision)))
    assert isinstance(written, WriteCommit)
    return written.commit, bench.send(CommitWritten(written.commit, ours=True))


def open_new(bench: Bench) -> list[Effect]:
    """Open a new directory, up to the report of the node that it is open."""
    bench.report(Closed())
    order = order_of(bench.send(IdentityWritten(IDENTITY)), OpenOrder)
    bench.opened = order.number
    return bench.report(Open(0), published={"out": 0})


def asked_at_once(bench: Bench) -> list[Effect]:
    bench.open(JournalView())
    return bench.send(Asked(1, FOUR))


def asked_before_leading(bench: Bench) -> list[Effect]:
    bench.send(Begun())
    assert bench.send(Asked(1, FOUR)) == []
    bench.send(Led(1))
    bench.send(JournalRead(JournalView()))
    return open_new(bench)


def asked_while_the_node_starts(bench: Bench) -> list[Effect]:
    bench.begin(JournalView())
    assert bench.send(Asked(1, FOUR)) == []
    return open_new(bench)


def asked_while_the_node_is_lost(bench: Bench) -> list[Effect]:
    bench.begin(JournalView())
    bench.send(NodeLost(Failure("node.unreachable", "gone")))
    assert bench.send(Asked(1, FOUR)) == []
    return open_new(bench)


@pytest.mark.parametrize(
    "ask",
    [
        asked_at_once,
        asked_before_leading,
        asked_while_the_node_starts,
        asked_while_the_node_is_lost,
    ],
)
def test_a_scale_before_the_first_commit_is_taken_and_applied(ask: object) -> None:
    bench = Bench(Settings(rescale=AT_ONCE))
    assert callable(ask)
    assert ask(bench) == [Take(1)], "it is a reason for a step, also without input"
    first = planned(bench, 1)
    assert first.placement == PLACED
    made, effects = committed(bench, first)
    assert answers(effects) == {1: None}
    assert RESCALE.of(made).number == 1
    while effects and effects[-1] == Take(made.step + 1):
        made, effects = committed(bench, planned(bench, made.step + 1))
    assert len(set(made.placement[0].workers)) == 4
    assert RESCALE.of(made).history[-1].outcome == "settled"
    assert bench.machine.memory.workers == 2, "the number of the start is another thing"


def test_a_scale_of_a_region_that_does_not_exist_is_refused_once_the_node_says_so() -> None:
    bench = Bench()
    bench.begin(JournalView())
    assert bench.send(Asked(1, RescalePipeline(Scale(regions=(("no-such", 4),))))) == []
    found = answers(bench.report(Closed()))[1]
    assert found is not None
    assert "there is no region 'no-such'" in found.what
    assert bench.machine.memory.rescale == Rescale()


def test_of_two_early_requests_the_second_replaces_the_first() -> None:
    bench = Bench()
    bench.begin(JournalView())
    bench.send(Asked(1, FOUR))
    bench.send(Asked(2, RescalePipeline(Scale(3))))
    open_new(bench)
    made, effects = committed(bench, planned(bench, 1))
    assert answers(effects) == {1: None, 2: None}
    phase = RESCALE.of(made).phase
    assert isinstance(phase, Interrogating)
    assert phase.request == Scale(3)


def test_an_early_request_is_judged_by_the_journal_of_a_pipeline_that_ran_before() -> None:
    bench = Bench()
    bench.send(Begun())
    assert bench.send(Asked(1, RescalePipeline(Rebalance()))) == []
    bench.send(Led(1))
    bench.send(JournalRead(journal(7)))
    assert isinstance(bench.machine.memory.rescale.phase, Interrogating)


def test_an_early_request_waits_for_a_rewind_at_the_start() -> None:
    kept = checkpoint(5)
    bench = Bench(options={"rewind": LoadCheckpoint(5)})
    bench.begin(journal(7, checkpoints=(kept,)))
    assert bench.send(Asked(1, FOUR)) == []
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.report(Open(7), published={"out": 7})
    bench.verified(5, asked=0)
    assert answers(bench.send(BranchMade(journal(5, branch=1, checkpoints=(kept,))))) == {0: None}
    assert isinstance(bench.machine.memory.rescale.phase, Interrogating)


@pytest.mark.parametrize("end", [PausePipeline(), ShutDownPipeline(at_once=True)])
def test_an_early_request_that_no_step_can_include_is_answered(end: object) -> None:
    bench = Bench()
    bench.begin(JournalView())
    bench.send(Asked(1, FOUR))
    effects = bench.send(Asked(2, end))  # type: ignore[arg-type]
    if isinstance(end, PausePipeline):
        effects = open_new(bench)
    found = answers(effects)[1]
    assert found is not None
    assert found.code == "operation.refused"
    assert bench.machine.memory.rescale == Rescale()


def test_a_rescale_before_the_first_commit_can_be_foreseen_and_seen() -> None:
    bench = Bench(Settings(rescale=AT_ONCE))
    bench.begin(JournalView())
    with pytest.raises(OperationRefused, match="The node is still starting"):
        forecast_of(bench.machine.memory, Scale(4))
    open_new(bench)
    assert forecast_of(bench.machine.memory, Scale(4)).workers == (0, 1, 2, 3)
    bench.send(Asked(1, FOUR))
    shown = pipeline_status(bench.machine.memory, 0.0).rescale
    assert shown is not None
    assert (shown.request, shown.phase) == (Scale(4), "interrogating")


SCALED = (Assignment("by-name", 4, (0, 1, 2, 3)),)


def test_a_start_without_a_number_keeps_the_workers_that_the_pipeline_had() -> None:
    bench = Bench()
    made = commit(7, workers=3, placement=SCALED)
    bench.open(journal(7, commit=made))
    bench.report(Open(7), offer=bench.offer(8), published={"out": 7})
    following = planned(bench, 8)
    assert (following.placement, following.started_with) == (SCALED, 3)
    assert following.unkeyed_workers == 4


@pytest.mark.parametrize("step", [0, 7])
def test_a_start_without_a_number_goes_on_with_a_plan_for_another_one(step: int) -> None:
    """Somebody named five workers, planned and died; nobody has named a number since."""
    five = (Assignment("by-name", 2 if step else 1, (0, 1, 2, 3)),)
    theirs = plan(step + 1, 1, placement=five, started_with=5)
    bench = Bench()
    bench.begin(journal(step, plan=theirs))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    effects = bench.report(Open(step), published={"out": step})
    bench.opened = bench.machine.memory.node.opened or 0
    made, _ = committed(bench, order_of(effects, StepOrder).plan)
    assert (made.workers, made.placement) == (5, five)


def test_a_new_pipeline_has_two_workers_if_nobody_says_how_many() -> None:
    bench = Bench()
    bench.open(JournalView())
    bench.report(Open(0), offer=bench.offer(1), published={"out": 0})
    first = planned(bench, 1)
    assert (first.started_with, first.placement) == (2, PLACED)
    assert pipeline_status(bench.machine.memory, 0.0).workers == 2
