"""Going back to a checkpoint: what is looked at before the branch is left, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.coordinator.effects import Answer, EndPipeline, Give, MakeBranch, Take, WritePlan
from anabranch.coordinator.events import (
    Asked,
    BranchMade,
    EffectFailed,
    InputTaken,
    NodeLost,
    TimePassed,
)
from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.operations import LoadCheckpoint, ShutDownPipeline, TakeCheckpoint
from anabranch.coordinator.parts.sources import positions_of
from anabranch.coordinator.phases import Idle
from anabranch.protocol.node import (
    Checked,
    CheckOrder,
    Closed,
    CloseOrder,
    Done,
    Failure,
    Open,
    OpenOrder,
    Output,
    Running,
    SinkInfo,
    StepFailure,
    StepOrder,
)
from tests.coordinator.bench import (
    FACTS,
    Bench,
    checkpoint,
    commit,
    journal,
    kinds,
    order_of,
    orders_of,
    plan,
    read,
    staged,
)

DAMAGED = Failure("store.corrupt_run", "A file is not the one that was committed", "runs/7", "Copy")
GONE = Failure("node.unreachable", "gone")
FAILED = StepFailure(8, 0, Failure("source.file_gone", "A planned file is gone"))
CLOSED = Closed()


def asked_to_load(bench: Bench) -> CheckOrder:
    """A pipeline at step 7 that keeps 3 and 5 is to go back to 5."""
    bench.open(journal(7, checkpoints=(checkpoint(3), checkpoint(5))))
    order: CheckOrder = order_of(bench.send(Asked(1, LoadCheckpoint(5))), CheckOrder)
    return order


def test_load_reads_the_files_makes_a_branch_and_opens_the_checkpoint() -> None:
    bench = Bench()
    order = asked_to_load(bench)
    assert (order.step, order.states, order.whole) == (5, checkpoint(5).states, True)
    assert bench.verified(5, asked=1) == [MakeBranch(checkpoint(5))]
    branched = journal(5, branch=1, checkpoints=(checkpoint(5),))
    effects = bench.send(BranchMade(branched))
    assert effects[0] == Answer(1, step=5)
    opened = order_of(effects, OpenOrder)
    assert (opened.step, opened.rewound, opened.positions) == (5, 5, positions_of(commit(5)))
    bench.opened = opened.number
    bench.report(Open(5), published={"out": 5})
    bench.report(Open(5), offer=bench.offer(6), published={"out": 5})
    (written,) = bench.send(InputTaken(6, read(6)))
    assert isinstance(written, WritePlan)
    assert (written.branch, written.plan.step) == (1, 6)


def test_a_damaged_checkpoint_is_not_loaded_and_the_pipeline_goes_on() -> None:
    bench = Bench()
    asked_to_load(bench)
    (answer,) = bench.verified(5, asked=1, failure=DAMAGED)
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.where) == (DAMAGED.code, "runs/7")
    assert "Checkpoint 5 cannot be loaded" in answer.failure.what
    assert "load another checkpoint (3)" in (answer.failure.do or "")
    assert "CommitOrder" in kinds(bench.step(8))


def test_a_damaged_checkpoint_that_the_start_wanted_starts_nothing() -> None:
    bench = Bench(options={"rewind": LoadCheckpoint(5)})
    order_of(bench.open(journal(7, checkpoints=(checkpoint(5),))), CheckOrder)
    effects = bench.verified(5, asked=0, failure=DAMAGED)
    assert orders_of(effects) == [CloseOrder(exit=True)]
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert end.failure.code == DAMAGED.code


def test_no_step_and_no_checkpoint_begins_while_files_are_read() -> None:
    bench = Bench()
    asked_to_load(bench)
    bench.send(Asked(2, TakeCheckpoint()))
    half = Checked(5, 3, 2, asked=1)
    said = {"published": {"out": 7}, "offer": bench.offer(8)}
    assert bench.report(Open(7), checked=half, **said) == []
    assert isinstance(bench.machine.memory.phase, Idle)


def test_no_checkpoint_begins_while_the_branch_is_left() -> None:
    bench = Bench()
    asked_to_load(bench)
    bench.send(Asked(2, TakeCheckpoint()))
    assert bench.verified(5, asked=1) == [MakeBranch(checkpoint(5))]
    bench.seconds = 400.0
    assert bench.report(Open(7), published={"out": 7}) == []
    effects = bench.send(BranchMade(journal(5, branch=1, checkpoints=(checkpoint(5),))))
    assert Answer(2, step=5) in effects
    assert order_of(effects, OpenOrder).step == 5


def test_what_was_read_for_another_purpose_does_not_count() -> None:
    bench = Bench()
    asked_to_load(bench)
    for checked in (Checked(5, 3, 3), Checked(5, 3, 3, asked=9), Checked(3, 3, 3, asked=1)):
        assert bench.report(Open(7), checked=checked, published={"out": 7}) == []


def test_files_are_read_anew_by_the_next_node() -> None:
    bench = Bench()
    order = asked_to_load(bench)
    bench.send(NodeLost(GONE))
    bench.boot, bench.version = "b2", 0
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    assert order in orders_of(bench.report(Open(7), published={"out": 7}))
    assert bench.verified(5, asked=1) == [MakeBranch(checkpoint(5))]


def test_an_order_to_read_that_did_not_arrive_is_given_again_while_it_is_wanted() -> None:
    bench = Bench()
    order = asked_to_load(bench)
    bench.send(EffectFailed(Give(order), GONE))
    bench.seconds = 1.0
    assert orders_of(bench.send(TimePassed())) == [order]
    bench.send(EffectFailed(Give(order), GONE))
    bench.verified(5, asked=1, failure=DAMAGED)
    bench.seconds = 2.0
    assert orders_of(bench.send(TimePassed())) == []


def test_reading_that_does_not_come_on_is_given_up_and_reading_that_does_is_not() -> None:
    bench = Bench()
    asked_to_load(bench)
    for done, bench.seconds in ((0, 400.0), (1, 500.0), (2, 1000.0)):
        said = {"checked": Checked(5, 3, done, asked=1), "published": {"out": 7}}
        assert bench.report(Open(7), **said) == []
        assert bench.send(TimePassed()) == []
    for bench.seconds in (1300.0, 1599.0):
        assert bench.report(Open(7), checked=Checked(5, 3, 2, asked=1), published={"out": 7}) == []
    assert bench.machine.wakes_at() == 1600.0
    bench.seconds = 1600.0
    answer, begun = bench.send(TimePassed())
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert answer.failure.code == "coordinator.deadline"
    assert order_of([begun], CheckOrder).step == 7, "the checkpoint whose time is over"


def test_a_shutdown_does_not_wait_for_files_that_are_read() -> None:
    bench = Bench()
    asked_to_load(bench)
    assert order_of(bench.send(Asked(2, ShutDownPipeline())), CheckOrder).asked is None
    assert bench.verified(5, asked=1) == []


def test_load_is_refused_where_a_sink_cannot_take_back() -> None:
    bench = Bench()
    sinks = (SinkInfo("out", "parquet", True), SinkInfo("called", "parquet", False))
    info = msgspec.structs.replace(FACTS, sinks=sinks)
    bench.begin(journal(7, checkpoints=(checkpoint(5),)))
    bench.opened = order_of(bench.report(Closed(), info=info), OpenOrder).number
    bench.report(Open(7), info=info)
    (answer,) = bench.send(Asked(1, LoadCheckpoint(5)))
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert "'called'" in answer.failure.what
    assert kinds(bench.send(Asked(2, LoadCheckpoint(5, accept_duplicates=True)))) == ["CheckOrder"]


def test_a_rewind_that_cannot_be_had_starts_nothing() -> None:
    bench = Bench(options={"rewind": LoadCheckpoint(4)})
    effects = bench.open(journal(7, checkpoints=(checkpoint(5),)))
    assert orders_of(effects) == [CloseOrder(exit=True)]
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert "Kept checkpoints: 5" in (end.failure.do or "")


def rewinding(at: JournalView, state: Closed | Open | Running = CLOSED, **said: Any) -> Bench:
    """A pipeline that is started to go back to 5; the order that comes first is to open."""
    bench = Bench(options={"rewind": LoadCheckpoint(5)})
    bench.begin(at)
    bench.opened = order_of(bench.report(state, **said), OpenOrder).number
    return bench


def test_a_rewind_at_the_start_comes_before_the_plan_that_was_left() -> None:
    """Its input may be gone for good: it would fail at every start."""
    left = journal(7, plan=plan(8), checkpoints=(checkpoint(5),))
    bench = rewinding(left)
    effects = bench.report(Open(7), published={"out": 7})
    assert kinds(effects) == ["CheckOrder"]
    assert order_of(effects, CheckOrder).step == 5
    assert bench.verified(5, asked=0) == [MakeBranch(checkpoint(5))]
    branched = journal(5, branch=1, checkpoints=(checkpoint(5),))
    opened = order_of(bench.send(BranchMade(branched)), OpenOrder)
    assert (opened.step, opened.rewound, opened.pending) == (5, 5, ())
    bench.opened = opened.number
    assert bench.report(Open(5), offer=bench.offer(6), published={"out": 5}) == [Take(6)]


def test_a_rewind_at_the_start_gives_no_step_to_a_node_that_stands_there() -> None:
    bench = Bench(options={"rewind": LoadCheckpoint(5)})
    bench.begin(journal(7, plan=plan(8), checkpoints=(checkpoint(5),)))
    bench.opened = 5
    effects = bench.report(Open(7), published={"out": 7}, failed_step=FAILED)
    assert order_of(effects, CheckOrder).step == 5
    assert StepOrder not in map(type, orders_of(effects))


@pytest.mark.parametrize(
    ("state", "said"),
    [(Running(8, 0), {}), (Open(8), {"done": Done(8, 0)})],
    ids=["runs", "has run"],
)
def test_a_rewind_at_the_start_gives_up_the_step_that_the_node_runs(
    state: Open | Running, said: dict[str, Any]
) -> None:
    bench = rewinding(journal(7, plan=plan(8), checkpoints=(checkpoint(5),)), state, **said)
    assert kinds(bench.report(Open(7), published={"out": 7})) == ["CheckOrder"]


def test_a_rewind_that_is_refused_leaves_the_plan_that_was_left_for_the_next_start() -> None:
    bench = rewinding(journal(7, plan=plan(8), checkpoints=(checkpoint(3),)))
    assert kinds(bench.report(Open(7), published={"out": 7})) == ["CloseOrder"]
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert "Step 5 is not kept" in end.failure.what


def test_before_a_rewind_at_the_start_nothing_is_replayed() -> None:
    """Lost state is left behind too: what a replay needs may be gone like the state itself."""
    kept = (checkpoint(3), checkpoint(5), checkpoint(6))
    bench = rewinding(journal(7, plan=plan(8), checkpoints=kept, replayable=8))
    order = order_of(bench.report(Closed(), failed_open=DAMAGED), OpenOrder)
    assert (order.step, order.whole) == (5, True)
    bench.opened = order.number
    effects = bench.report(Open(5), published={"out": 7})
    assert kinds(effects) == ["CheckOrder"]
    assert bench.verified(5, asked=0) == [MakeBranch(checkpoint(5))]


def test_a_damaged_checkpoint_that_lost_state_is_to_go_back_to_is_named() -> None:
    kept = (checkpoint(3), checkpoint(5))
    bench = rewinding(journal(7, checkpoints=kept, replayable=8))
    bench.opened = order_of(bench.report(Closed(), failed_open=DAMAGED), OpenOrder).number
    order = order_of(bench.report(Closed(), failed_open=DAMAGED), OpenOrder)
    assert order.step == 3, "a state to stand on while the files are looked at"
    bench.opened = order.number
    assert kinds(bench.report(Open(3), published={"out": 7})) == ["CheckOrder"]
    bench.verified(5, asked=0, failure=DAMAGED)
    end = bench.report(Closed())[-1]
    assert isinstance(end, EndPipeline)
    assert end.failure is not None
    assert "Checkpoint 5 cannot be loaded" in end.failure.what
    assert "load another checkpoint (3)" in (end.failure.do or "")


@pytest.mark.parametrize("which", ["source_failure", "sink_failure"])
def test_what_fails_in_the_branch_that_is_left_does_not_keep_a_start_from_going_back(
    which: str,
) -> None:
    bench = rewinding(journal(7, checkpoints=(checkpoint(5),)))
    failing: dict[str, Any] = {which: GONE, "published": {"out": 7}}
    assert kinds(bench.report(Open(7), **failing)) == ["CheckOrder"]
    assert bench.report(Open(7), **failing) == []
    assert bench.report(Open(7), **failing, checked=Checked(5, 3, 3, asked=0)) == [
        MakeBranch(checkpoint(5))
    ]
    branched = journal(5, branch=1, checkpoints=(checkpoint(5),))
    bench.opened = order_of(bench.send(BranchMade(branched)), OpenOrder).number
    bench.report(Open(5), published={"out": 5})
    assert kinds(bench.report(Open(5), **failing)) == ["CloseOrder"], "there it counts"


def test_a_sink_that_fails_ends_a_shutdown_also_where_the_start_was_to_go_back() -> None:
    kept, outputs = (checkpoint(5), checkpoint(7)), (Output(7, staged(7)),)
    bench = rewinding(journal(7, checkpoints=kept, outputs=outputs, published={"out": 6}))
    bench.report(Open(7), published={"out": 6})
    assert bench.send(Asked(1, ShutDownPipeline())) == []
    failing: dict[str, Any] = {"sink_failure": GONE, "published": {"out": 6}}
    assert kinds(bench.report(Open(7), **failing)) == ["CloseOrder"]
