"""The machine after a node or a coordinator has died in the middle of an operation."""

from __future__ import annotations

from anabranch.coordinator.effects import Give
from anabranch.coordinator.events import (
    Asked,
    BranchMade,
    EffectFailed,
    NodeLost,
    StepRead,
    TimePassed,
)
from anabranch.coordinator.operations import LoadCheckpoint, TakeCheckpoint
from anabranch.protocol.node import (
    Checked,
    CheckOrder,
    Closed,
    CommitOrder,
    Failure,
    Open,
    OpenOrder,
    Running,
    StepFailure,
    StepOrder,
)
from tests.coordinator.bench import Bench, checkpoint, commit, journal, order_of, orders_of, plan


def test_sinks_take_back_also_when_whoever_rewound_has_died() -> None:
    bench = Bench()
    bench.begin(journal(5, branch=1, checkpoints=(checkpoint(5),), rewound=True))
    # The node stands at that step, but perhaps in the branch that was left.
    order = order_of(bench.report(Open(5)), OpenOrder)
    assert (order.step, order.rewound) == (5, 5)
    bench.opened = order.number
    bench.report(Open(5), published={"out": 5})
    bench.step(6)
    bench.boot = "b2"
    order = order_of(bench.report(Closed()), OpenOrder)
    assert (order.step, order.rewound) == (6, None)


def test_a_check_is_ordered_again_from_a_node_that_has_opened_anew() -> None:
    bench = Bench()
    bench.open(journal(7))
    check = order_of(bench.send(Asked(1, TakeCheckpoint())), CheckOrder)
    bench.send(NodeLost(Failure("node.unreachable", "gone")))
    bench.boot, bench.version = "b2", 0
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    assert check in orders_of(bench.report(Open(7), published={"out": 7}))


def test_a_rewind_that_waits_for_a_checkpoint_does_not_let_the_machine_spin() -> None:
    bench = Bench()
    bench.open(journal(7, checkpoints=(checkpoint(5),)))
    bench.send(Asked(1, TakeCheckpoint()))
    bench.send(Asked(2, LoadCheckpoint(5)))
    assert not bench.report(Open(7), offer=bench.offer(8), published={"out": 7})
    bench.seconds = 10.0
    wakes = bench.machine.wakes_at()
    assert wakes is not None
    assert wakes > bench.seconds


def test_a_checkpoint_whose_time_comes_in_a_replay_does_not_let_the_machine_spin() -> None:
    bench = Bench()
    bench.begin(journal(7, checkpoints=(checkpoint(5),), replayable=6))
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    lost = Failure("store.corrupt_run", "A file is damaged")
    bench.opened = order_of(bench.report(Closed(), failed_open=lost), OpenOrder).number
    bench.report(Open(5))
    bench.seconds = 400.0
    bench.send(StepRead(plan(6), commit(6)))
    bench.report(Running(6, 0))
    wakes = bench.machine.wakes_at()
    assert wakes is not None
    assert wakes > bench.seconds


def test_an_order_that_did_not_arrive_before_a_rewind_is_not_repeated_after_it() -> None:
    bench = Bench()
    bench.open(journal(7, checkpoints=(checkpoint(5),)))
    bench.report(Open(7), offer=bench.offer(8), published={"out": 7})
    committed = order_of(bench.step(8), CommitOrder)
    bench.send(Asked(1, LoadCheckpoint(5)))
    bench.verified(5, asked=1)
    rewound = journal(5, branch=1, checkpoints=(checkpoint(5),), rewound=True)
    bench.opened = order_of(bench.send(BranchMade(rewound)), OpenOrder).number
    bench.send(EffectFailed(Give(committed), Failure("node.unreachable", "lost")))
    bench.seconds = 1.0
    assert orders_of(bench.send(TimePassed())) == []
    bench.report(Open(5), published={"out": 5})
    bench.seconds = 2.0
    assert committed not in orders_of(bench.send(TimePassed()))


def test_a_step_that_a_former_coordinator_has_cancelled_runs_again() -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    bench.report(Running(8, 0))
    cancelled = StepFailure(8, 0, Failure("step.cancelled", "Step 8 was cancelled"))
    order = order_of(bench.report(Open(7), failed_step=cancelled), OpenOrder)
    assert order.step == 7
    bench.opened = order.number
    again = bench.report(Open(7), published={"out": 7})
    assert order_of(again, StepOrder).plan == plan(8)


def test_an_order_that_was_on_its_way_to_open_is_noticed_when_it_arrives() -> None:
    bench = Bench()
    bench.begin(journal(7, plan=plan(8)))
    first = order_of(bench.report(Closed()), OpenOrder)
    bench.send(NodeLost(Failure("node.unreachable", "gone")))
    # What the old process has said last comes late, and another order is on its way.
    second = order_of(bench.report(Closed()), OpenOrder)
    assert second.number > first.number
    bench.boot, bench.opened = "b2", first.number
    order = order_of(bench.report(Open(7), published={"out": 7}), StepOrder)
    assert order.opened == first.number
    bench.opened = second.number
    order = order_of(bench.report(Open(7), published={"out": 7}), StepOrder)
    assert (order.plan, order.opened) == (plan(8), second.number)


def test_state_that_a_check_finds_damaged_is_computed_again() -> None:
    bench = Bench()
    bench.open(journal(7, checkpoints=(checkpoint(5),)))
    bench.send(Asked(1, TakeCheckpoint()))
    missing = Failure("store.missing_run", "a run is not there")
    effects = bench.report(Open(7), checked=Checked(7, 3, 1, missing), published={"out": 7})
    order = order_of(effects, OpenOrder)
    assert (order.step, order.whole) == (5, True)
