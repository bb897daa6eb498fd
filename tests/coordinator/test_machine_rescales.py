"""Rescaling and what may come between: commits that fail, restarts, other numbers of workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.effects import Answer, Effect, WriteCommit, WritePlan
from anabranch.coordinator.events import (
    Asked,
    BranchMade,
    CommitWritten,
    EffectFailed,
    InputTaken,
    NodeLost,
    PlanWritten,
    ResultFetched,
)
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    PausePipeline,
    RescalePipeline,
    StartPipeline,
)
from anabranch.coordinator.parts.rescale import RESCALE
from anabranch.coordinator.parts.sources import positions_of
from anabranch.coordinator.phases import Planning
from anabranch.coordinator.rescaling import forecast_of
from anabranch.coordinator.settings import Settings
from anabranch.errors import OperationRefused
from anabranch.messages import Shutdown
from anabranch.protocol import rescale_requests as requests
from anabranch.protocol.node import Closed, Done, Failure, Open, OpenOrder, Output, Running
from anabranch.protocol.rescale_requests import RescaleRequest, Scale
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment
from anabranch.records.plan import Plan
from anabranch.rescale.controller import Rescale
from anabranch.rescale.moves import Move
from anabranch.rescale.phases import Interrogating, Moving
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.rescale.step_moves import PART, RescaleReport
from tests.coordinator.bench import (
    FACTS,
    Bench,
    checkpoint,
    commit,
    journal,
    order_of,
    plan,
    positions,
    read,
    result,
    staged,
)
from tests.coordinator.parts_kit import moves_in, parts_with

AT_ONCE = RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, prefetch=False, answer_steps=0)


def answers(effects: list[Effect]) -> dict[int, Failure | None]:
    return {each.number: each.failure for each in effects if isinstance(each, Answer)}


def asked_while_a_step_runs(settings: Settings | None = None) -> tuple[Bench, Commit]:
    """A bench that is about to write the commit of step 8, which takes note of request 1."""
    bench = Bench(settings or Settings())
    bench.open(journal(7, plan=plan(8, started_with=2), commit=commit(7, workers=2)))
    bench.send(Asked(1, RescalePipeline(Scale(4))))
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written,) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    return bench, written.commit


def test_who_waits_for_a_commit_that_cannot_be_written_is_answered() -> None:
    bench, made = asked_while_a_step_runs()
    failure = Failure("store.disk_full", "No space left")
    effects = bench.send(EffectFailed(WriteCommit(0, made), failure))
    effects += bench.report(Closed())
    assert answers(effects) == {1: failure}


def test_a_commit_of_somebody_else_does_not_answer_who_asked_here() -> None:
    bench, made = asked_while_a_step_runs()
    theirs = msgspec.structs.replace(made, parts=parts_with(positions_of(made)))
    found = answers(bench.send(CommitWritten(theirs, ours=False)))
    assert found[1] is not None
    assert found[1].code == "operation.refused"
    assert bench.machine.memory.rescale == Rescale()


@pytest.mark.parametrize("lost", [True, False])
def test_who_waits_for_a_commit_goes_on_waiting_when_the_node_is_another_one(lost: bool) -> None:
    """Whether the commit was written is not known then: the step is run again, and answers."""
    bench, _ = asked_while_a_step_runs()
    if lost:
        bench.send(NodeLost(Failure("node.lost", "gone")))
    bench.boot, bench.version = "b2", 0
    effects = bench.report(Closed())
    bench.opened = order_of(effects, OpenOrder).number
    effects = bench.report(Open(7), published={"out": 7})
    assert not answers(effects)
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written,) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    assert answers(bench.send(CommitWritten(written.commit, ours=True))) == {1: None}


def next_plan(bench: Bench, number: int, rows: int = 1) -> Plan:
    """The plan of a step with so many rows as input."""
    report = {"published": {"out": number - 1}}
    bench.report(Open(number - 1), offer=bench.offer(number, rows), **report)
    (written,) = bench.send(InputTaken(number, read(number) if rows else ()))
    assert isinstance(written, WritePlan)
    return written.plan


def run(bench: Bench, planned: Plan, **changes: Any) -> Commit:
    """Run a plan, and commit it."""
    number, report = planned.step, {"published": {"out": planned.step - 1}}
    if isinstance(bench.machine.memory.phase, Planning):
        bench.send(PlanWritten(planned))
    bench.report(Open(number), done=Done(number, planned.revision), **report)
    (written,) = bench.send(ResultFetched(result(number, planned.revision, **changes)))
    assert isinstance(written, WriteCommit)
    bench.send(CommitWritten(written.commit, ours=True))
    return written.commit


def test_a_request_is_durable_with_the_plan_that_was_made_from_it() -> None:
    """Whoever comes back goes on from the plan's value: it is newer than the commit's."""
    first = Bench(Settings(rescale=AT_ONCE))
    first.open(journal(7, commit=commit(7, workers=2)))
    first.send(Asked(1, RescalePipeline(Scale(1))))
    planned = next_plan(first, 8, rows=0)
    assert moves_in(planned).collect

    second = Bench(Settings(rescale=AT_ONCE))
    second.begin(journal(7, commit=commit(7, workers=2), plan=planned))
    kept = second.machine.memory.rescale
    assert isinstance(kept.phase, Interrogating)
    assert kept.phase.request == Scale(1)
    second.opened = order_of(second.report(Closed()), OpenOrder).number
    second.report(Open(7), published={"out": 7})
    second.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written,) = second.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    assert RESCALE.of(written.commit).number == 1
    assert [m.end for m in RESCALE.of(written.commit).handing] == [
        m.end for m in moves_in(planned).collect
    ]


def report(**said: Any) -> dict[str, msgspec.Raw]:
    return {PART: msgspec.Raw(msgspec.json.encode(RescaleReport(**said)))}


@pytest.mark.parametrize(("cost", "pace"), [(0.0, 1.25), (9.0, 0.75)])
def test_what_moving_cost_a_step_sets_the_pace_of_the_next(cost: float, pace: float) -> None:
    copying = Settings(rescale=RescaleSettings(answer_steps=0), isolate_workers=True)
    bench = Bench(copying)
    bench.open(journal(7, commit=commit(7, workers=2)))
    bench.send(Asked(1, RescalePipeline(Scale(4))))
    made = run(bench, next_plan(bench, 8), parts=report(moving_seconds=cost))
    phase = RESCALE.of(made).phase
    assert isinstance(phase, Moving)
    assert phase.migration.pace == pace


def test_a_start_with_fewer_workers_tells_those_that_have_no_bins_any_more() -> None:
    bench = Bench(Settings(workers=1, rescale=AT_ONCE))
    bench.open(journal(7, commit=commit(7, workers=2)))
    planned = next_plan(bench, 8)
    assert planned.placement == (Assignment("by-name", 2, (0, 0, 0, 0)),)
    assert moves_in(planned).shutdown == (1,)
    assert Shutdown(1) in moves_in(planned).messages("by-name", 1)
    made = run(bench, planned)
    assert made.workers == 1
    assert RESCALE.of(made).workers == (0,)
    assert RESCALE.of(made).history[-1].outcome == "reopened"


def test_a_plan_for_another_number_of_workers_is_not_taken_over() -> None:
    """Somebody was started with one worker, planned and died: two are wanted, as before."""
    theirs = plan(8, 1, placement=(Assignment("by-name", 2, (0, 0, 0, 0)),), started_with=1)
    bench = Bench(Settings(workers=2))
    bench.begin(journal(7, commit=commit(7, workers=2), plan=theirs))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    (written,) = bench.report(Open(7), published={"out": 7})
    assert isinstance(written, WritePlan)
    assert written.plan.placement == (Assignment("by-name", 3, (0, 0, 1, 1)),)
    assert (written.plan.revision, written.plan.started_with) == (2, 2)
    assert written.plan.inputs == read(8)


def test_a_step_that_has_run_for_another_number_of_workers_counts() -> None:
    """Bins are shared anew after it."""
    one = (Assignment("by-name", 2, (0, 0, 0, 0)),)
    theirs = plan(8, 1, placement=one, started_with=1)
    bench = Bench(Settings(workers=2, rescale=AT_ONCE))
    bench.begin(journal(7, commit=commit(7, workers=2), plan=theirs))
    bench.opened = 5
    bench.report(Open(8), opened=5, done=Done(8, 1), published={"out": 7})
    (written, *_) = bench.send(ResultFetched(result(8, 1)))
    assert isinstance(written, WriteCommit)
    assert (written.commit.workers, written.commit.placement) == (1, one)
    bench.send(CommitWritten(written.commit, ours=True))
    planned = next_plan(bench, 9)
    assert len(set(planned.placement[0].workers)) == 2
    assert planned.started_with == 2


HANDED = Rescale(number=1, turn=1, handing=(Move("by-name", 1, 0, 1),), workers=(0, 1))
"""Bin 1 was collected from worker 0, and is to be worker 1's."""


def planned_with(workers: int, made: Commit, asked: RescaleRequest | None = None) -> Plan:
    """The plan after a commit, of a run that was started with so many workers and died."""
    bench = Bench(Settings(workers=workers, rescale=AT_ONCE))
    bench.open(journal(made.step, commit=made))
    if asked is not None:
        bench.send(Asked(1, RescalePipeline(asked)))
    planned = next_plan(bench, made.step + 1)
    assert planned.started_with == workers
    return planned


def reopened(bench: Bench) -> Plan:
    """The plan that is written when a new node has opened the last commit."""
    bench.boot += "+"
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    (written,) = bench.report(Open(7), published={"out": 7})
    assert isinstance(written, WritePlan)
    return written.plan


def test_bins_in_hand_over_outlive_a_start_with_another_number_of_workers() -> None:
    """Somebody was started with four workers, planned and died: bin 1 is still to be acquired."""
    made = commit(7, workers=2, parts=parts_with(positions(7), HANDED))
    bench = Bench(Settings(workers=2, rescale=AT_ONCE))
    bench.begin(journal(7, commit=made, plan=planned_with(4, made)))
    planned = reopened(bench)
    assert planned.placement[0].workers == (0, 1, 1, 1)
    assert moves_in(planned).acquire == HANDED.handing


def test_bins_in_hand_over_outlive_a_node_that_runs_a_step_for_others() -> None:
    """The step for four workers was waited for, and its node was lost."""
    made = commit(7, workers=2, parts=parts_with(positions(7), HANDED))
    bench = Bench(Settings(workers=2, rescale=AT_ONCE))
    bench.begin(journal(7, commit=made, plan=planned_with(4, made)))
    bench.opened = 5
    bench.report(Running(8, 0), published={"out": 7})
    planned = reopened(bench)
    assert planned.placement[0].workers == (0, 1, 1, 1)
    assert moves_in(planned).acquire == HANDED.handing


def test_bins_are_shared_anew_when_a_node_that_ran_a_step_for_others_is_lost() -> None:
    made = commit(7, workers=2, parts=parts_with(positions(7), HANDED))
    bench = Bench(Settings(workers=3, rescale=AT_ONCE))
    bench.begin(journal(7, commit=made, plan=planned_with(4, made)))
    bench.opened = 5
    bench.report(Running(8, 0), published={"out": 7})
    planned = reopened(bench)
    assert planned.placement[0].workers == (0, 0, 1, 2)
    assert planned.started_with == 3


def test_a_plan_for_others_with_the_same_owners_is_planned_again() -> None:
    """Ten workers own four bins as four do; what the commit says of the number must be true."""
    made = commit(7, workers=2)
    bench = Bench(Settings(workers=4, rescale=AT_ONCE))
    bench.begin(journal(7, commit=made, plan=planned_with(10, made)))
    planned = reopened(bench)
    assert planned.placement[0].workers == (0, 1, 2, 3)
    assert (planned.revision, planned.started_with) == (1, 4)


def test_a_request_after_a_start_with_other_workers_is_durable_with_its_plan() -> None:
    made = commit(7, workers=2)
    theirs = planned_with(4, made, asked=Scale(3))
    bench = Bench(Settings(workers=4, rescale=AT_ONCE))
    bench.open(journal(7, commit=made, plan=theirs))
    kept = bench.machine.memory.rescale
    assert isinstance(kept.phase, Interrogating)
    assert kept.phase.request == Scale(3)
    value = msgspec.json.decode(theirs.parts[PART].value, type=Rescale)
    assert RESCALE.of(run(bench, theirs)).number == value.number


def test_requests_are_judged_by_where_the_bins_are_after_a_start_with_other_workers() -> None:
    bench = Bench(Settings(workers=4, rescale=AT_ONCE))
    bench.open(journal(7, commit=commit(7, workers=2)))
    assert answers(bench.send(Asked(1, RescalePipeline(Scale(remove=(3,)))))) == {}
    phase = bench.machine.memory.rescale.phase
    assert isinstance(phase, Interrogating)
    assert phase.origin[0].workers == (0, 1, 2, 3)


def test_who_asks_while_a_step_for_others_runs_is_told_that_it_was_not_heard() -> None:
    """Bins are shared anew after it, from what its commit says."""
    made = commit(7, workers=2)
    bench = Bench(Settings(workers=2, rescale=AT_ONCE))
    bench.begin(journal(7, commit=made, plan=planned_with(4, made)))
    bench.opened = 5
    bench.report(Running(8, 0), published={"out": 7})
    bench.send(Asked(1, RescalePipeline(Scale(1))))
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written, *_) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    assert not isinstance(RESCALE.of(written.commit).phase, Interrogating)
    bench.send(Asked(2, RescalePipeline(Scale(1))))
    found = answers(bench.send(CommitWritten(written.commit, ours=True)))
    assert {number: each and each.code for number, each in found.items()} == {
        1: "operation.refused",
        2: "operation.refused",
    }


def test_who_asks_before_a_rewind_is_told_that_it_was_not_heard() -> None:
    kept = checkpoint(5)
    bench = Bench(Settings(rescale=AT_ONCE))
    bench.open(journal(7, commit=commit(7), plan=plan(8), checkpoints=(kept,)))
    bench.send(Asked(1, LoadCheckpoint(5)))
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    bench.send(ResultFetched(result(8)))
    bench.send(Asked(2, RescalePipeline(Scale(1))))
    bench.send(CommitWritten(commit(8), ours=True))
    bench.verified(5, asked=1)
    found = answers(bench.send(BranchMade(journal(5, branch=1, checkpoints=(kept,)))))
    assert found[1] is None
    assert found[2] is not None
    assert found[2].code == "operation.refused"
    assert bench.machine.memory.rescale == Rescale()


ASKED: dict[str, RescaleRequest] = {
    "scale": Scale(4),
    "rebalance": requests.Rebalance(),
    "pause": requests.PauseRescale(),
    "resume": requests.ResumeRescale(),
    "cancel": requests.CancelRescale(),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_who_asks_while_the_pipeline_is_paused_is_told_to_start_it(asked: RescaleRequest) -> None:
    """An answer comes with a commit, and there is none in a pause."""
    bench = Bench()
    bench.open(journal(7))
    bench.send(Asked(1, PausePipeline()))
    found = answers(bench.send(Asked(2, RescalePipeline(asked))))[2]
    assert found is not None
    assert (found.code, found.what) == ("operation.refused", "The pipeline is paused")
    assert found.do == "Start it first."
    assert bench.machine.memory.rescale == Rescale()


def test_a_step_that_is_finished_for_a_pause_answers_who_has_asked_before() -> None:
    bench, made = asked_while_a_step_runs()
    assert answers(bench.send(Asked(2, PausePipeline()))) == {2: None}
    assert answers(bench.send(CommitWritten(made, ours=True))) == {1: None}
    assert bench.machine.memory.rescale == RESCALE.of(made)
    assert isinstance(RESCALE.of(made).phase, Interrogating)


def test_who_has_asked_too_late_for_the_step_before_a_pause_is_told_so() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8), commit=commit(7, workers=2)))
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written,) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    assert bench.send(Asked(1, RescalePipeline(Scale(4)))) == []
    assert answers(bench.send(Asked(2, PausePipeline()))) == {2: None}
    found = answers(bench.send(CommitWritten(written.commit, ours=True)))[1]
    assert found is not None
    assert (found.code, found.what) == (
        "operation.refused",
        "The pipeline was paused before a step could include this request",
    )
    # Nothing is left of it: it would be done behind the back of who was refused.
    assert bench.machine.memory.rescale == Rescale()
    bench.send(Asked(3, StartPipeline()))
    assert next_plan(bench, 9).placement == commit(7).placement


def test_a_refused_request_leaves_bins_shared_by_a_start_with_other_workers() -> None:
    """Nor is that undone which no commit has yet, and nobody has asked for."""
    bench = Bench(Settings(workers=4, max_unpublished_steps=1))
    outputs = (Output(7, staged(7)),)
    bench.open(journal(7, commit=commit(7, workers=2), outputs=outputs, published={"out": 6}))
    before = bench.machine.memory.rescale
    bench.report(Open(7), published={"out": 6})
    assert bench.send(Asked(1, RescalePipeline(Scale(1)))) == [], "the sink holds up the next step"
    found = answers(bench.send(Asked(2, PausePipeline())))
    assert found[2] is None
    assert found[1] is not None
    assert bench.machine.memory.rescale == before
    bench.send(Asked(3, StartPipeline()))
    assert next_plan(bench, 8).placement[0].workers == (0, 1, 2, 3)


@pytest.mark.parametrize("asked", [Scale(4), Scale(remove=(0,)), requests.Rebalance()])
def test_where_no_region_has_bins_there_is_nothing_to_scale(asked: RescaleRequest) -> None:
    bench = Bench()
    info = msgspec.structs.replace(FACTS, regions=())
    bench.begin(journal(7, commit=commit(7, placement=())))
    bench.opened = order_of(bench.report(Closed(), info=info), OpenOrder).number
    bench.report(Open(7), info=info)
    found = answers(bench.send(Asked(1, RescalePipeline(asked))))[1]
    assert found is not None
    assert found.code == "operation.refused"
    assert found.what == "No region of the dataflow has bins: there is nothing to scale"
    assert isinstance(asked, Scale | requests.Rebalance)
    with pytest.raises(OperationRefused, match="nothing to scale"):
        forecast_of(bench.machine.memory, asked)
