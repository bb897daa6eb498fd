"""The bare machine, event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.effects import (
    Answer,
    EndPipeline,
    Fetch,
    FindNode,
    ReadStep,
    ReplaceNode,
    Take,
    Trim,
    WriteCheckpoint,
    WriteCommit,
    WriteIdentity,
    WritePlan,
    WritePublished,
    WriteRepair,
)
from anabranch.coordinator.events import (
    Asked,
    CheckpointWritten,
    CommitWritten,
    EffectFailed,
    IdentityWritten,
    InputTaken,
    JournalTrimmed,
    LeaderFenced,
    NodeLost,
    NodeReported,
    PlanWritten,
    RepairWritten,
    ResultFetched,
    StepRead,
    TimePassed,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.machine import UnexpectedOutcome
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    RescalePipeline,
    ShutDownPipeline,
    StartPipeline,
    TakeCheckpoint,
)
from anabranch.coordinator.parts.sources import positions_of
from anabranch.coordinator.phases import Ended, Idle, Taking
from anabranch.coordinator.plans import sweep_order
from anabranch.coordinator.settings import Deadlines, Settings
from anabranch.coordinator.status_view import phase_of, pipeline_status
from anabranch.protocol import rescale_requests
from anabranch.protocol.node import (
    CancelOrder,
    Checked,
    CheckOrder,
    Closed,
    CloseOrder,
    CommitOrder,
    Done,
    Failure,
    Open,
    OpenOrder,
    Output,
    Running,
    SinkRetry,
    StepFailure,
    StepOrder,
    SweepOrder,
)
from anabranch.protocol.rescale_requests import Scale
from anabranch.protocol.status import Phase
from anabranch.records.commit import Repair
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.coordinator.bench import (
    FACTS,
    IDENTITY,
    Bench,
    checkpoint,
    commit,
    counts,
    journal,
    kinds,
    order_of,
    orders_of,
    plan,
    read,
    result,
    staged,
    state,
)

LOST = Failure("store.missing_run", "A run is gone", "run/total/1.arrow")
UNREACHABLE = Failure("node.unreachable", "No answer")


# ---------------------------------------------------------------------------------- start-up


def test_a_new_directory_gets_an_identity_and_is_created() -> None:
    bench = Bench()
    assert bench.begin(JournalView()) == [FindNode()]
    assert bench.report(Closed()) == [WriteIdentity("orders", 4)]
    order = order_of(bench.send(IdentityWritten(IDENTITY)), OpenOrder)
    assert (order.step, order.states, order.pipeline) == (0, None, "pipeline-1")
    bench.opened = order.number
    bench.report(Open(0))
    assert isinstance(bench.machine.memory.phase, Idle)


NOT_OURS = {
    "another dataflow": (
        {"dataflow": "other"},
        "directory.other_dataflow",
        "The directory holds the dataflow 'other', not 'orders'",
        "Nothing was changed. Run the dataflow that the directory belongs to",
    ),
    "other bins": (
        {"bins": 16},
        "directory.changed_dataflow",
        "The directory was made with 16 bins per region, not 4",
        "Nothing was changed. Run with bins=16",
    ),
}


@pytest.mark.parametrize("known", [True, False], ids=["known", "written by another meanwhile"])
@pytest.mark.parametrize(("theirs", "code", "what", "do"), NOT_OURS.values(), ids=NOT_OURS)
def test_a_directory_that_is_not_ours_is_refused_and_named(
    known: bool, theirs: dict[str, Any], code: str, what: str, do: str
) -> None:
    bench = Bench(options={"directory": "pipelines/orders"})
    identity = msgspec.structs.replace(IDENTITY, **theirs)
    bench.begin(journal(3, identity=identity) if known else JournalView())
    effects = bench.report(Closed())
    if not known:
        assert effects == [WriteIdentity("orders", 4)]
        effects = bench.send(IdentityWritten(identity))
    assert not [order for order in orders_of(effects) if isinstance(order, OpenOrder)]
    (end,) = [e for e in bench.report(Closed()) if isinstance(e, EndPipeline)]
    assert end.failure is not None
    assert (end.failure.code, end.failure.what) == (code, what)
    assert end.failure.where == "pipelines/orders"
    assert end.failure.do is not None
    assert end.failure.do.startswith(do)


def test_state_is_opened_where_the_journal_stands() -> None:
    bench = Bench()
    bench.begin(journal(7))
    order = order_of(bench.report(Closed()), OpenOrder)
    assert (order.step, order.states, order.positions) == (7, state(7), positions_of(commit(7)))
    assert not order.whole


def test_a_node_that_stands_where_the_journal_does_goes_on() -> None:
    bench = Bench()
    bench.begin(journal(7, outputs=(Output(7, staged(7)),), published={"out": 6}))
    bench.opened = 5
    effects = bench.report(Open(7), published={"out": 6})
    assert [(o.step, o.output.step) for o in orders_of(effects)] == [(7, 7)]
    assert isinstance(bench.machine.memory.phase, Idle)
    assert bench.report(Open(7), offer=bench.offer(8), published={"out": 6}) == [Take(8)]


def test_a_step_that_runs_is_waited_for_and_not_run_twice() -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    bench.opened = 5
    effects = bench.report(Running(8, 0))
    assert StepOrder not in map(type, orders_of(effects))
    assert bench.report(Open(8), done=Done(8, 0)) == [Fetch(8, 0)]
    (written,) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)


def test_a_finished_step_is_adopted() -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    bench.opened = 5
    bench.report(Open(8), done=Done(8, 0))
    assert bench.report(Open(8), done=Done(8, 0)) == [Fetch(8, 0)]


@pytest.mark.parametrize(
    "state", [Open(6), Open(9), Running(9, 0), Running(8, 1), Closed()], ids=repr
)
def test_a_node_that_stands_elsewhere_opens_again(state: Open | Running | Closed) -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    assert order_of(bench.report(state), OpenOrder).step == 7


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (Open(7), {"committed": 7, "stands": "another"}),
        (Open(7), {"committed": 6, "done": Done(7, 0), "reached": "another"}),
        (Open(7), {"committed": 7, "branch": 1}),
        (Running(8, 0), {"committed": 7, "stands": "another"}),
        (Running(8, 0), {"committed": 7, "branch": 1}),
        (Open(8), {"committed": 7, "done": Done(8, 0), "stands": "another"}),
    ],
)
def test_a_node_that_one_who_was_replaced_has_led_elsewhere_opens_again(
    state: Open | Running, said: dict[str, Any]
) -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    order = order_of(bench.report(state, **said), OpenOrder)
    assert (order.step, order.branch) == (7, 0)


def test_a_node_in_the_middle_of_a_replay_opens_again() -> None:
    bench = Bench()
    bench.begin(journal(7))
    assert order_of(bench.report(Open(7), replaying=True), OpenOrder).step == 7


def test_a_node_with_other_code_is_replaced_and_the_plan_revised() -> None:
    bench = Bench(options={"code": "c2"})
    bench.begin(journal(7, plan=plan(8)))
    (replaced,) = bench.report(Running(8, 0))
    assert isinstance(replaced, ReplaceNode)
    bench.boot, info = "b2", msgspec.structs.replace(FACTS, code="c2")
    bench.opened = order_of(bench.report(Closed(), info=info), OpenOrder).number
    (written,) = bench.report(Open(7), info=info)
    assert isinstance(written, WritePlan)
    assert (written.plan.revision, written.plan.code) == (1, "c2")
    assert written.plan.inputs == read(8)


def test_another_number_of_workers_makes_a_revision_with_the_same_input() -> None:
    bench = Bench(Settings(workers=4))
    bench.begin(journal(7, plan=plan(8)))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    (written,) = bench.report(Open(7))
    assert isinstance(written, WritePlan)
    assert written.plan.placement[0].workers == (0, 1, 2, 3)
    assert (written.plan.revision, written.plan.inputs, written.plan.clock_ns) == (1, read(8), 8000)


# ------------------------------------------------------------------------------------- steps


def test_a_step_from_its_offer_to_its_commit() -> None:
    bench = Bench()
    bench.open(journal(0, identity=None))
    assert bench.report(Open(0), offer=bench.offer(1)) == [Take(1)]
    bench.seconds = 5.0
    (written,) = bench.send(InputTaken(1, read(1)))
    assert isinstance(written, WritePlan)
    assert (written.plan.step, written.plan.clock_ns) == (1, 5_000_000_000)
    assert order_of(bench.send(PlanWritten(written.plan)), StepOrder).plan == written.plan
    assert bench.report(Running(1, 0)) == []
    assert bench.report(Open(1), done=Done(1, 0)) == [Fetch(1, 0)]
    (made,) = bench.send(ResultFetched(result(1)))
    assert isinstance(made, WriteCommit)
    assert (made.commit.states, positions_of(made.commit)) == (state(1), positions_of(commit(1)))
    effects = bench.send(CommitWritten(made.commit, ours=True))
    assert order_of(effects, CommitOrder).output == Output(1, staged(1))
    assert bench.machine.memory.outputs.keys() == {1}
    bench.report(Open(1), published={"out": 1})
    assert not bench.machine.memory.outputs


def test_the_clock_never_goes_back() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8))
    (written,) = bench.send(InputTaken(8, read(8)))
    assert isinstance(written, WritePlan)
    assert written.plan.clock_ns == commit(7).clock_ns


def test_a_plan_of_somebody_else_is_run_instead() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8))
    bench.send(InputTaken(8, read(8)))
    theirs = plan(8, clock_ns=99_000)
    assert order_of(bench.send(PlanWritten(theirs)), StepOrder).plan == theirs


def test_a_commit_of_another_attempt_is_adopted_and_opened() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8))
    bench.send(InputTaken(8, read(8)))
    bench.send(PlanWritten(plan(8)))
    bench.report(Open(8), done=Done(8, 0))
    bench.send(ResultFetched(result(8)))
    effects = bench.send(CommitWritten(commit(8, states=state(80)), ours=False))
    order = order_of(effects, OpenOrder)
    assert (order.step, order.states) == (8, state(80))


def test_late_doubled_and_old_tellings_change_nothing() -> None:
    bench = Bench()
    bench.open(journal(7))
    old = bench.telling(Open(7), offer=bench.offer(8, 3))
    bench.step(8)
    before = bench.machine.memory.phase
    assert bench.send(NodeReported(old)) == []
    assert bench.send(ResultFetched(result(8))) == []
    assert bench.send(InputTaken(8, read(8))) == []
    assert bench.machine.memory.phase == before


def test_an_outcome_that_nobody_waits_for_raises_with_its_story() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.step(8)
    with pytest.raises(UnexpectedOutcome, match="CommitWritten in Idle") as caught:
        bench.send(CommitWritten(commit(8), ours=True))
    (entry,) = [each for each in caught.value.entries if each.event == "CommitWritten"]
    (cause,) = [each for each in caught.value.entries if each.number == entry.cause]
    assert (cause.event, cause.effects) == ("ResultFetched", ("WriteCommit",))


def test_outcomes_that_come_late_are_taken_for_that() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.step(8)
    bench.send(NodeLost(Failure("node.unreachable", "gone")))
    assert bench.send(CommitWritten(commit(8), ours=True)) == []


def test_rows_wait_for_company_or_for_their_timer() -> None:
    bench = Bench(Settings(min_rows=100, max_delay_seconds=2.0))
    bench.open(journal(7))
    assert bench.report(Open(7), offer=bench.offer(8, 5)) == []
    assert bench.machine.wakes_at() == 2.0
    bench.seconds = 1.9
    assert bench.send(TimePassed()) == []
    bench.seconds = 2.0
    assert bench.send(TimePassed()) == [Take(8)]


def test_enough_rows_do_not_wait() -> None:
    bench = Bench(Settings(min_rows=100, max_delay_seconds=2.0))
    bench.open(journal(7))
    assert bench.report(Open(7), offer=bench.offer(8, 100)) == [Take(8)]


def test_a_tick_takes_a_step_without_input() -> None:
    bench = Bench(Settings(tick_seconds=10.0))
    bench.open(journal(7))
    bench.seconds = 10.0
    assert bench.send(TimePassed()) == [Take(8)]


def test_too_much_unpublished_output_stops_the_steps_and_names_the_sink() -> None:
    bench = Bench(Settings(max_unpublished_steps=2))
    bench.open(journal(7))
    bench.step(8)
    stuck = {"published": {"out": 7}}
    bench.report(Open(8), offer=bench.offer(9), **stuck)
    bench.send(InputTaken(9, read(9)))
    bench.send(PlanWritten(plan(9, clock_ns=9000)))
    bench.report(Open(9), done=Done(9, 0), **stuck)
    bench.send(ResultFetched(result(9)))
    bench.send(CommitWritten(commit(9), ours=True))
    assert bench.report(Open(9), offer=bench.offer(10), **stuck) == []
    assert "'out'" in (pipeline_status(bench.machine.memory, 0.0).waiting_for or "")
    going = bench.report(Open(9), offer=bench.offer(10), published={"out": 8})
    assert going == [Take(10)]


def test_the_sink_that_fails_is_named_with_its_error_and_not_one_that_is_as_far() -> None:
    bench = Bench(Settings(max_unpublished_steps=1))
    bench.open(journal(7))
    bench.seconds = 20.0
    bench.step(8)
    retry = SinkRetry(Failure("sink.publish_failed", "The database is away"), 3, 12.0, 4.0)
    behind = {"published": {"a": 7, "b": 7, "out": 8}, "sink_retries": {"b": retry}}
    assert bench.report(Open(8), offer=bench.offer(9), **behind) == [], "no step is planned"
    bench.seconds += 1.5
    status = pipeline_status(bench.machine.memory, bench.seconds)
    assert status.phase is Phase.RUNNING
    assert status.waiting_for is not None
    assert "sink 'b' has published up to step 7" in status.waiting_for
    assert "failed 3 times in 12 seconds: [sink.publish_failed] The database" in status.waiting_for
    told = {sink.sink: sink.retry for sink in status.sinks}
    assert told == {
        "a": None,
        "out": None,
        "b": msgspec.structs.replace(retry, seconds=13.5, next_seconds=2.5),
    }
    back = bench.report(Open(8), offer=bench.offer(9), published={"a": 8, "b": 8, "out": 8})
    assert back == [Take(9)]


def test_a_node_whose_jvm_died_is_replaced_and_the_status_says_why() -> None:
    bench = Bench()
    bench.open(journal(7))
    died = Failure("node.jvm_died", "Spark's Java virtual machine has ended: killed by SIGKILL")
    bench.report(Open(7), offer=bench.offer(8))
    # A call that reaches the node before its loss is known fails nobody.
    assert bench.send(EffectFailed(Take(8), died)) == []
    assert bench.send(NodeLost(died)) == [FindNode()]
    status = pipeline_status(bench.machine.memory, bench.seconds)
    assert status.node_lost == died
    assert status.waiting_for is not None
    assert "[node.jvm_died] Spark's Java virtual machine has ended" in status.waiting_for


# ------------------------------------------------------------------------ failures and lost state


def test_a_step_that_fails_ends_the_pipeline_with_its_reason() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    failure = Failure("step.user_function", "ValueError", "operator 'total'")
    effects = bench.report(Open(7), failed_step=StepFailure(8, 0, failure))
    assert orders_of(effects) == [CloseOrder(exit=True)]
    assert bench.report(Closed()) == [WritePublished(0, 7), EndPipeline(failure)]
    assert phase_of(bench.machine.memory) is Phase.FAILED


def test_lost_state_sends_all_back_to_a_checkpoint_and_replays() -> None:
    kept = (checkpoint(3), checkpoint(5))
    bench = Bench()
    bench.begin(journal(7, plan=plan(8), checkpoints=kept, replayable=4))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    order = order_of(bench.report(Closed(), failed_open=LOST), OpenOrder)
    assert (order.step, order.states, order.whole) == (5, state(5), True)
    # That one is damaged too: the next older one is used.
    bench.opened = order.number
    order = order_of(bench.report(Closed(), failed_open=LOST), OpenOrder)
    assert order.step == 3
    assert order.positions == positions_of(commit(7))
    bench.opened = order.number
    effects = bench.report(Open(3))
    for step in (4, 5, 6, 7):
        assert effects[-1] == ReadStep(0, step)
        ordered = order_of(bench.send(StepRead(plan(step), commit(step))), StepOrder)
        assert ordered.plan.inputs == read(step)
        bench.report(Open(step), done=Done(step, 0))
        effects = bench.send(ResultFetched(result(step, states=state(step + 100))))
        assert order_of(effects, CommitOrder).replayed
    (repair,) = [e for e in effects if isinstance(e, WriteRepair)]
    assert (repair.repair.step, repair.repair.from_step) == (7, 3)
    assert repair.repair.states == state(107)
    effects = bench.send(RepairWritten(repair.repair))
    assert order_of(effects, StepOrder).plan == plan(8)
    assert bench.machine.memory.journal.states == state(107)


def test_lost_state_during_a_step_sends_back_too() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8), checkpoints=(checkpoint(5),), replayable=6))
    effects = bench.report(Open(7), failed_step=StepFailure(8, 0, LOST))
    order = order_of(effects, OpenOrder)
    assert (order.step, order.whole) == (5, True)


def test_without_checkpoints_everything_is_replayed_from_the_beginning() -> None:
    bench = Bench()
    bench.open(journal(2, plan=plan(3)))
    effects = bench.report(Open(2), failed_step=StepFailure(3, 0, LOST))
    order = order_of(effects, OpenOrder)
    assert (order.step, order.states) == (0, None)


def test_without_anything_to_replay_from_it_fails_and_says_so() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8), replayable=6))
    bench.report(Open(7), failed_step=StepFailure(8, 0, LOST))
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert "No checkpoint is left" in (end.failure.do or "")


@pytest.mark.parametrize("accepted", [False, True])
def test_a_replay_that_differs_stops_unless_it_is_accepted(accepted: bool) -> None:
    bench = Bench(Settings(accept_divergence=accepted))
    bench.begin(journal(7, checkpoints=(checkpoint(6),), replayable=7))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.opened = order_of(bench.report(Closed(), failed_open=LOST), OpenOrder).number
    bench.report(Open(6))
    bench.send(StepRead(plan(7), commit(7)))
    bench.report(Open(7), done=Done(7, 0))
    effects = bench.send(ResultFetched(result(7, counts=counts(8))))
    if accepted:
        (repair,) = [e.repair for e in effects if isinstance(e, WriteRepair)]
        assert repair.diverged == ("step 7: sink out, bin 0",)
    else:
        end = bench.report(Closed())[-1]
        assert isinstance(end, EndPipeline)
        assert end.failure is not None
        assert end.failure.code == "step.diverged"
        assert "sink out, bin 0" in end.failure.what


def test_a_fenced_coordinator_ends_without_touching_the_node() -> None:
    bench = Bench()
    bench.open(journal(7))
    failure = Failure("coordinator.fenced", "Another one leads")
    assert bench.send(LeaderFenced(failure)) == [EndPipeline(failure)]
    assert bench.report(Open(7), offer=bench.offer(8)) == []


def test_an_order_that_did_not_arrive_is_given_again() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.report(Open(7), offer=bench.offer(8))
    bench.send(InputTaken(8, read(8)))
    (given,) = bench.send(PlanWritten(plan(8)))
    assert bench.send(EffectFailed(given, UNREACHABLE)) == []
    bench.seconds = bench.machine.wakes_at() or 0.0
    assert bench.send(TimePassed()) == [given]


def test_an_order_that_left_no_trace_is_given_again_with_the_commit_before_it() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    bench.seconds = 10.0
    effects = bench.report(Open(7))
    assert [type(order) for order in orders_of(effects)] == [CommitOrder, StepOrder]
    assert bench.report(Open(7)) == []


def test_a_silent_node_is_replaced() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.seconds = 30.0
    (replaced,) = bench.send(TimePassed())
    assert isinstance(replaced, ReplaceNode)
    bench.boot = "b2"
    assert order_of(bench.report(Closed()), OpenOrder).step == 7


def test_a_lost_node_is_started_again_a_few_times_only() -> None:
    bench = Bench(Settings(node_restarts=2))
    bench.open(journal(7))
    gone = Failure("node.unreachable", "The process has ended")
    for number in range(2):
        assert bench.send(NodeLost(gone)) == [FindNode()]
        bench.boot = f"again-{number}"
        bench.report(Closed())
    assert bench.send(NodeLost(gone)) == [EndPipeline(gone)]


def test_a_commit_makes_up_for_lost_nodes() -> None:
    bench = Bench(Settings(node_restarts=1))
    bench.open(journal(7))
    gone = Failure("node.unreachable", "The process has ended")
    for step in (8, 9, 10):
        assert bench.send(NodeLost(gone)) == [FindNode()]
        bench.boot = f"again-{step}"
        bench.opened = order_of(bench.report(Closed()), OpenOrder).number
        bench.report(Open(step - 1))
        bench.step(step)
    assert bench.machine.memory.step == 10


def test_a_node_that_tells_why_it_cannot_start_is_not_started_again() -> None:
    bench = Bench()
    bench.begin(journal(7))
    failure = Failure("dataflow.invalid", "Two operators have one name")
    assert bench.send(NodeLost(failure)) == [EndPipeline(failure)]


def test_a_step_beyond_its_deadline_is_cancelled_then_the_node_replaced() -> None:
    bench = Bench(Settings(deadlines=Deadlines(step=60.0, cancel=5.0)))
    bench.open(journal(7, plan=plan(8)))
    for bench.seconds in (20.0, 40.0, 59.0):
        assert bench.report(Running(8, 0)) == []
    bench.seconds = 60.0
    assert orders_of(bench.send(TimePassed())) == [CancelOrder(8)]
    bench.seconds = 65.0
    (replaced,) = bench.send(TimePassed())
    assert isinstance(replaced, ReplaceNode)


def test_a_cancelled_step_fails_with_its_deadline() -> None:
    bench = Bench(Settings(deadlines=Deadlines(step=60.0)))
    bench.open(journal(7, plan=plan(8)))
    bench.seconds = 29.0
    bench.report(Running(8, 0))
    bench.seconds = 58.0
    bench.report(Running(8, 0))
    bench.seconds = 60.0
    bench.send(TimePassed())
    cancelled = Failure("step.cancelled", "Cancelled")
    bench.report(Open(7), failed_step=StepFailure(8, 0, cancelled))
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert end.failure.code == "step.timeout"


# --------------------------------------------------------------------------------- operations


def test_pause_answers_at_once_and_the_step_is_finished() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    assert bench.send(Asked(1, PausePipeline())) == [Answer(1, step=7)]
    assert phase_of(bench.machine.memory) is Phase.PAUSING
    bench.report(Open(8), done=Done(8, 0))
    bench.send(ResultFetched(result(8)))
    bench.send(CommitWritten(commit(8), ours=True))
    assert bench.report(Open(8), offer=bench.offer(9), published={"out": 8}) == []
    assert phase_of(bench.machine.memory) is Phase.PAUSED
    assert bench.send(Asked(2, StartPipeline())) == [Answer(2, step=8), Take(9)]


def test_a_checkpoint_is_checked_written_and_older_ones_are_dropped() -> None:
    bench = Bench(Settings(keep_checkpoints=2))
    kept = (checkpoint(3), checkpoint(5))
    bench.open(journal(7, checkpoints=kept, replayable=4))
    (check,) = orders_of(bench.send(Asked(1, TakeCheckpoint())))
    assert (check.step, check.states) == (7, state(7))
    assert bench.report(Open(7), checked=Checked(7, 4, 2)) == []
    assert pipeline_status(bench.machine.memory, 0.0).checkpoint is not None
    (written,) = bench.report(Open(7), checked=Checked(7, 4, 4))
    assert isinstance(written, WriteCheckpoint)
    effects = bench.send(CheckpointWritten(written.checkpoint))
    assert effects[0] == Answer(1, step=7)
    # The files of the checkpoint that goes stay until it is gone from the journal.
    assert effects[1:] == [Trim(0, 0, (5, 7))]
    swept = order_of(bench.send(JournalTrimmed((5, 7))), SweepOrder)
    assert swept.states == (state(7), state(5), state(7))


def test_a_checkpoint_that_could_not_be_trimmed_keeps_its_files_until_it_is() -> None:
    bench = Bench(Settings(keep_checkpoints=2))
    bench.open(journal(7, checkpoints=(checkpoint(3), checkpoint(5)), replayable=4))
    bench.send(Asked(1, TakeCheckpoint()))
    bench.report(Open(7), checked=Checked(7, 4, 4))
    bench.send(CheckpointWritten(checkpoint(7)))
    full = Failure("store.disk_full", "Cannot create: No space left on device")
    assert bench.send(EffectFailed(Trim(0, 0, (5, 7)), full)) == []
    swept = sweep_order(bench.machine.memory)
    assert swept is not None
    assert state(3) in swept.states
    # One that was asked for before another one was let go says nothing of that.
    assert bench.send(JournalTrimmed((3, 5, 7))) == []
    order = order_of(bench.send(JournalTrimmed((5, 7))), SweepOrder)
    assert state(3) not in order.states


def test_a_checkpoint_that_is_being_made_keeps_its_files_while_steps_go_on() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.send(Asked(1, TakeCheckpoint()))
    bench.step(8)
    swept = sweep_order(bench.machine.memory)
    assert swept is not None
    assert swept.states == (state(8), state(7))


def test_staged_output_stays_until_a_commit_says_that_it_is_published() -> None:
    """Whoever comes after a crash goes by the last commit, and publishes again what it lacks."""
    bench = Bench()
    bench.open(journal(7))
    bench.step(8)
    bench.report(Open(8), published={"out": 8})
    assert not bench.machine.memory.outputs
    swept = sweep_order(bench.machine.memory)
    assert swept is not None
    assert [output.step for output in swept.outputs] == [8]
    bench.step(9)
    swept = sweep_order(bench.machine.memory)
    assert swept is not None
    assert [output.step for output in swept.outputs] == [9]


def test_a_checkpoint_that_cannot_be_made_is_reported_and_steps_go_on() -> None:
    bench = Bench()
    bench.open(journal(7))
    bench.send(Asked(1, TakeCheckpoint()))
    failure = Failure("store.unavailable", "the disk does not answer")
    (answer,) = bench.report(Open(7), checked=Checked(7, 4, 1, failure))
    assert answer == Answer(1, failure)
    assert bench.report(Open(7), offer=bench.offer(8)) == [Take(8)]


def test_a_checkpoint_that_cannot_be_made_says_why_and_is_tried_again_after_a_while() -> None:
    bench = Bench(Settings(checkpoint_steps=2, checkpoint_seconds=1000.0))
    bench.open(journal(7, checkpoints=(checkpoint(7),), replayable=8))
    bench.step(8)
    failure = Failure("store.disk_full", "No space left on device")
    tried = []
    effects = bench.step(9)
    for bench.seconds in range(1, 601):
        if "CheckOrder" in kinds(effects):
            tried.append(bench.seconds)
            bench.report(Open(9), checked=Checked(9, 1, 1))
            assert bench.send(EffectFailed(WriteCheckpoint(checkpoint(9)), failure)) == []
            shown = pipeline_status(bench.machine.memory, bench.seconds).checkpoint
            assert shown is not None
            assert shown.waiting_for == "another try: No space left on device"
        effects = bench.report(Open(9), published={"out": 9})
    assert 10 < len(tried) < 20, "soon, then once a minute"
    assert tried == sorted(set(tried))
    assert kinds(bench.send(Asked(1, TakeCheckpoint()))) == ["CheckOrder"], "asked for, at once"
    bench.report(Open(9), checked=Checked(9, 1, 1))
    bench.send(CheckpointWritten(checkpoint(9)))
    assert pipeline_status(bench.machine.memory, bench.seconds).checkpoint is None
    bench.step(10)
    assert order_of(bench.step(11), CheckOrder).step == 11, "as if nothing had been"


def test_checkpoints_come_by_steps_and_by_time() -> None:
    bench = Bench(Settings(checkpoint_steps=2, checkpoint_seconds=100.0))
    bench.open(journal(7, checkpoints=(checkpoint(7),), replayable=8))
    assert CheckOrder not in map(type, orders_of(bench.step(8)))
    assert order_of(bench.step(9), CheckOrder).step == 9
    assert kinds(bench.report(Open(9), checked=Checked(9, 1, 1))) == ["WriteCheckpoint"]
    bench.send(CheckpointWritten(checkpoint(9)))
    bench.step(10)
    bench.seconds = 25.0
    for bench.seconds in (25.0, 50.0, 75.0, 99.0):
        assert bench.report(Open(10), published={"out": 10}) == []
    bench.seconds = 100.0
    assert order_of(bench.send(TimePassed()), CheckOrder).step == 10


def test_a_checkpoint_before_the_first_commit_is_refused() -> None:
    bench = Bench()
    bench.open(journal(0, identity=None))
    (answer,) = bench.send(Asked(1, TakeCheckpoint()))
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert answer.failure.code == "operation.refused"


def test_shutdown_keeps_a_checkpoint_publishes_and_ends() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    assert bench.send(Asked(1, ShutDownPipeline())) == []
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    bench.send(ResultFetched(result(8)))
    effects = bench.send(CommitWritten(commit(8), ours=True))
    assert order_of(effects, CheckOrder).step == 8
    bench.report(Open(8), checked=Checked(8, 1, 1), published={"out": 7})
    bench.send(CheckpointWritten(checkpoint(8)))
    assert phase_of(bench.machine.memory) is Phase.STOPPING
    closing = bench.report(Open(8), published={"out": 8})
    assert kinds(closing) == ["SweepOrder", "CloseOrder"]
    assert bench.report(Closed()) == [WritePublished(0, 8), Answer(1, None, 8), EndPipeline(None)]
    assert phase_of(bench.machine.memory) is Phase.STOPPED


def test_shutdown_at_once_cancels_the_step() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    assert bench.send(Asked(1, ShutDownPipeline())) == []
    assert orders_of(bench.send(Asked(2, ShutDownPipeline(at_once=True)))) == [CancelOrder(8)]
    failed = StepFailure(8, 0, Failure("step.cancelled", "Cancelled"))
    assert orders_of(bench.report(Open(7), failed_step=failed))[-1] == CloseOrder(exit=True)
    effects = bench.report(Closed())
    assert [e.number for e in effects if isinstance(e, Answer)] == [1, 2]
    assert effects[-1] == EndPipeline(None)


def test_what_comes_after_a_shutdown_is_refused() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8), checkpoints=(checkpoint(7),)))
    bench.send(Asked(1, ShutDownPipeline()))
    requests: list[Operation] = [
        PausePipeline(),
        StartPipeline(),
        TakeCheckpoint(),
        LoadCheckpoint(7),
    ]
    for number, request in enumerate(requests, start=2):
        (answer,) = bench.send(Asked(number, request))
        assert isinstance(answer, Answer)
        assert answer.failure is not None
        assert "shut down" in answer.failure.what


def test_the_end_answers_everybody() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8)))
    bench.send(Asked(1, TakeCheckpoint()))
    bench.send(Asked(2, ShutDownPipeline()))
    failure = Failure("step.user_function", "ValueError")
    bench.report(Open(7), failed_step=StepFailure(8, 0, failure))
    effects = bench.report(Closed())
    assert {e.number: e.failure for e in effects if isinstance(e, Answer)} == {
        1: failure,
        2: failure,
    }
    assert isinstance(bench.machine.memory.phase, Ended)
    (late,) = bench.send(Asked(3, StartPipeline()))
    assert isinstance(late, Answer)
    assert late.failure is not None


def test_a_repair_number_grows() -> None:
    bench = Bench()
    bench.begin(journal(7, checkpoints=(checkpoint(6),), replayable=7, repairs=2))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.opened = order_of(bench.report(Closed(), failed_open=LOST), OpenOrder).number
    bench.report(Open(6))
    bench.send(StepRead(plan(7), commit(7)))
    bench.report(Open(7), done=Done(7, 0))
    effects = bench.send(ResultFetched(result(7)))
    (repair,) = [e.repair for e in effects if isinstance(e, WriteRepair)]
    assert repair == Repair(7, 3, 6, state(7))


def test_a_checkpoint_of_the_last_commit_itself_needs_no_replay() -> None:
    bench = Bench()
    kept = msgspec.structs.replace(
        journal(7), checkpoints=(checkpoint(7),), replayable=8, states=state(70)
    )
    bench.begin(kept)
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    order = order_of(bench.report(Closed(), failed_open=LOST), OpenOrder)
    assert (order.step, order.states) == (7, state(7))
    bench.opened = order.number
    bench.report(Open(7))
    assert isinstance(bench.machine.memory.phase, Idle)
    assert bench.machine.memory.journal.states == state(7)


# -------------------------------------------------------------------------------- rescaling


def test_a_request_is_answered_by_the_commit_that_contains_it() -> None:
    bench = Bench()
    bench.open(journal(7, plan=plan(8), commit=commit(7, workers=2)))
    assert bench.send(Asked(1, RescalePipeline(Scale(4)))) == []
    bench.report(Open(8), done=Done(8, 0), published={"out": 7})
    (written,) = bench.send(ResultFetched(result(8)))
    assert isinstance(written, WriteCommit)
    # This one comes too late for the commit: the next one answers it.
    assert bench.send(Asked(2, RescalePipeline(rescale_requests.PauseRescale()))) == []
    effects = bench.send(CommitWritten(written.commit, ours=True))
    assert [e.number for e in effects if isinstance(e, Answer)] == [1]
    assert type(bench.machine.memory.rescale.phase).__name__ == "Paused"


def test_bins_move_by_collect_and_acquire_and_steps_need_no_input() -> None:
    settings = Settings(rescale=RescaleSettings(policy=MovePolicy.ALL_AT_ONCE, prefetch=False))
    bench = Bench(settings)
    bench.open(journal(7, commit=commit(7, workers=2)))
    bench.send(Asked(1, RescalePipeline(Scale(1))))
    placements = []
    for number in range(8, 13):
        report = {"published": {"out": number - 1}}
        effects = bench.report(Open(number - 1), offer=bench.offer(number, 0), **report)
        if not effects and not isinstance(bench.machine.memory.phase, Taking):
            break
        (written,) = bench.send(InputTaken(number, ()))
        assert isinstance(written, WritePlan)
        placements.append(written.plan.placement[0].workers)
        bench.send(PlanWritten(written.plan))
        bench.report(Open(number), done=Done(number, 0), **report)
        (made,) = bench.send(ResultFetched(result(number)))
        assert isinstance(made, WriteCommit)
        # What a step without input does happens at the clock of the one before.
        assert made.commit.clock_ns == commit(7).clock_ns
        bench.send(CommitWritten(made.commit, ours=True))
    assert placements[0] == (0, 0, 1, 1)
    assert len(set(placements[-1])) == 1
    assert bench.machine.memory.rescale.history[-1].outcome == "settled"
