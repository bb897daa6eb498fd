"""The bare machine and single sources that are paused and started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.coordinator.effects import Answer, Effect, EndPipeline, Give, ReplaceNode, Take
from anabranch.coordinator.events import Asked, BranchMade, EffectFailed, NodeLost, TimePassed
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    Operation,
    PausePipeline,
    PauseSource,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
)
from anabranch.coordinator.phases import Idle, Stepping
from anabranch.coordinator.status_view import phase_of, pipeline_status
from anabranch.node.node_machine import Duties
from anabranch.protocol.node import (
    Closed,
    Failure,
    NodeReport,
    Open,
    OpenOrder,
    PausedSources,
    Running,
    SourcesOrder,
)
from anabranch.protocol.status import Phase
from tests.coordinator.bench import (
    FACTS,
    Bench,
    checkpoint,
    journal,
    kinds,
    order_of,
    orders_of,
    plan,
)

TWO = msgspec.structs.replace(FACTS, sources=("orders", "returns"))
NOTHING = PausedSources()
GONE = Failure("node.unreachable", "gone")


@dataclass
class Sources(Bench):
    """A bench with two sources; the node goes by ``heard``, as far as it has heard of a pause."""

    heard: PausedSources = NOTHING

    def telling(self, state: Closed | Open | Running, **said: Any) -> NodeReport:
        return super().telling(state, **{"info": TWO, "paused": self.heard, **said})

    def ask(self, number: int, operation: Operation) -> list[Effect]:
        return self.send(Asked(number, operation))

    def pause(self, *names: str) -> SourcesOrder:
        """Pause sources, and let the node hear of it."""
        orders = [order_of(self.ask(0, PauseSource(name)), SourcesOrder) for name in names]
        newest: SourcesOrder = orders[-1]
        self.heard = newest.paused
        return newest

    @property
    def paused(self) -> list[str]:
        """The sources that the status calls paused."""
        shown = pipeline_status(self.machine.memory, self.seconds).sources
        return [each.source for each in shown if each.paused]


def opened(**at: Any) -> Sources:
    bench = Sources()
    bench.open(journal(7, **at))
    return bench


def test_a_source_is_paused_and_started_at_once() -> None:
    bench = opened()
    effects = bench.ask(1, PauseSource("returns"))
    assert effects == [Give(order_of(effects, SourcesOrder)), Answer(1, step=7)]
    paused = order_of(effects, SourcesOrder).paused
    assert paused.names == ("returns",)
    assert bench.paused == ["returns"]
    bench.heard = paused
    effects = bench.ask(2, StartSource("returns"))
    started = order_of(effects, SourcesOrder).paused
    assert (effects[-1], started.names) == (Answer(2, step=7), ())
    assert started.number > paused.number
    assert bench.paused == []


def test_what_is_so_already_is_answered_and_changes_nothing() -> None:
    bench = opened()
    assert bench.ask(1, StartSource("orders")) == [Answer(1, step=7)]
    bench.pause("orders")
    known = bench.machine.memory.sources.paused
    assert bench.ask(2, PauseSource("orders")) == [Answer(2, step=7)]
    assert bench.machine.memory.sources.paused == known


def test_an_order_names_all_that_are_paused() -> None:
    bench = opened()
    assert bench.pause("returns", "orders").paused.names == ("orders", "returns")
    left = order_of(bench.ask(2, StartSource("orders")), SourcesOrder)
    assert left.paused.names == ("returns",)


@pytest.mark.parametrize("asked", [PauseSource("order"), StartSource("order"), PauseSource("")])
def test_a_source_that_is_not_there_is_refused_with_those_that_are(
    asked: PauseSource | StartSource,
) -> None:
    bench = opened()
    assert bench.ask(1, asked) == [
        Answer(
            1,
            Failure(
                "operation.refused",
                f"There is no source {asked.source!r}",
                do="Sources: 'orders', 'returns'.",
            ),
        )
    ]
    assert bench.machine.memory.sources.paused == NOTHING


def test_before_a_node_was_met_nobody_knows_the_sources() -> None:
    bench = Sources()
    bench.begin(journal(7))
    (answer,) = bench.ask(1, PauseSource("orders"))
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert answer.failure.code == "operation.refused"
    assert "not known before the node has started" in answer.failure.what


def test_a_pipeline_that_is_shut_down_or_over_refuses() -> None:
    bench = opened(plan=plan(8), checkpoints=(checkpoint(7),))
    bench.ask(1, ShutDownPipeline())
    texts = []
    requests: list[Operation] = [PauseSource("orders"), StartSource("orders")]
    for number, request in enumerate(requests, start=2):
        (answer,) = bench.ask(number, request)
        assert isinstance(answer, Answer)
        assert answer.failure is not None
        texts.append(answer.failure.what)
    assert texts == ["The pipeline is being shut down"] * 2
    bench.send(NodeLost(GONE))
    for _ in range(4):
        bench.boot, bench.version = bench.boot + "+", 0
        bench.report(Closed())
        bench.send(NodeLost(GONE))
    (answer,) = bench.ask(9, PauseSource("orders"))
    assert isinstance(answer, Answer)
    assert answer.failure is not None
    assert answer.failure.what == "The pipeline has failed"


def test_it_is_answered_in_a_stuck_step_and_in_a_pause_of_the_whole() -> None:
    bench = opened(plan=plan(8))
    bench.report(Running(8, 0), published={"out": 7})
    assert isinstance(bench.machine.memory.phase, Stepping)
    assert kinds(bench.ask(1, PauseSource("orders"))) == ["SourcesOrder", "Answer"]
    assert isinstance(bench.machine.memory.phase, Stepping)
    bench.ask(2, PausePipeline())
    assert kinds(bench.ask(3, StartSource("orders"))) == ["SourcesOrder", "Answer"]
    assert phase_of(bench.machine.memory) is Phase.PAUSING


def test_a_start_of_the_whole_does_not_start_a_source() -> None:
    bench = opened()
    bench.pause("orders")
    bench.ask(2, PausePipeline())
    bench.ask(3, StartPipeline())
    assert bench.paused == ["orders"]
    assert phase_of(bench.machine.memory) is Phase.RUNNING


def test_steps_go_on_with_what_others_offer() -> None:
    bench = opened()
    bench.pause("returns")
    assert bench.report(Open(7), offer=bench.offer(8), published={"out": 7}) == [Take(8)]


def test_an_order_that_was_lost_is_given_again_until_the_node_has_heard() -> None:
    bench = opened()
    order = order_of(bench.ask(1, PauseSource("orders")), SourcesOrder)
    assert bench.report(Open(7), published={"out": 7}) == []
    for seconds in (1.0, 2.0):
        bench.seconds = seconds
        assert bench.report(Open(7), published={"out": 7}) == [Give(order)]
        assert bench.report(Open(7), published={"out": 7}) == []
    bench.heard = order.paused
    bench.seconds = 3.0
    assert bench.report(Open(7), published={"out": 7}) == []


def test_an_order_that_did_not_arrive_is_repeated_only_while_it_is_the_newest() -> None:
    bench = opened()
    first = order_of(bench.ask(1, PauseSource("orders")), SourcesOrder)
    bench.send(EffectFailed(Give(first), GONE))
    bench.seconds = 0.5
    assert bench.send(TimePassed()) == [Give(first)]
    bench.send(EffectFailed(Give(first), GONE))
    second = order_of(bench.ask(2, StartSource("orders")), SourcesOrder)
    bench.send(EffectFailed(Give(second), GONE))
    bench.seconds = 1.0
    assert orders_of(bench.send(TimePassed())) == [second]


def test_a_node_that_is_lost_is_replaced_by_one_that_opens_with_it() -> None:
    bench = opened()
    order = bench.pause("orders")
    bench.send(NodeLost(GONE))
    assert kinds(bench.ask(2, PauseSource("returns"))) == ["Answer"]
    bench.boot, bench.version, bench.heard = "b2", 0, NOTHING
    opening = order_of(bench.report(Closed()), OpenOrder)
    assert opening.paused.names == ("orders", "returns")
    assert opening.paused.number > order.paused.number
    bench.opened, bench.heard = opening.number, opening.paused
    bench.seconds = 9.0
    assert bench.report(Open(7), published={"out": 7}) == []
    assert bench.paused == ["orders", "returns"]


def test_what_is_asked_while_state_opens_reaches_the_node_also_if_the_order_is_lost() -> None:
    bench = Sources()
    bench.begin(journal(7))
    opening = order_of(bench.report(Closed()), OpenOrder)
    assert opening.paused == NOTHING
    order = order_of(bench.ask(1, PauseSource("orders")), SourcesOrder)
    bench.send(EffectFailed(Give(opening), GONE))
    bench.seconds = 2.0
    assert bench.send(TimePassed()) == [Give(opening)]
    bench.opened = opening.number
    bench.report(Open(7), published={"out": 7})
    assert bench.report(Open(7), published={"out": 7}) == [Give(order)]


def test_a_coordinator_that_comes_back_takes_over_what_the_node_goes_by() -> None:
    before = opened()
    before.pause("orders")
    bench = Sources(heard=before.heard, opened=before.opened)
    bench.begin(journal(7), leader=2)
    bench.report(Open(7), published={"out": 7})
    assert isinstance(bench.machine.memory.phase, Idle)
    assert bench.paused == ["orders"]
    started = order_of(bench.ask(1, StartSource("orders")), SourcesOrder)
    assert started.paused.names == ()
    assert started.paused.number > before.heard.number


def test_what_was_paused_before_us_does_not_undo_what_was_asked_of_us() -> None:
    before = opened()
    before.pause("orders", "returns")
    before.ask(1, StartSource("returns"))
    bench = Sources()
    bench.begin(journal(7), leader=2)
    bench.opened = order_of(bench.report(Closed()), OpenOrder).number
    bench.report(Open(7), published={"out": 7})
    bench.pause("returns")
    # The node that the former coordinator had answers once more.
    bench.boot, bench.heard = "b0", before.machine.memory.sources.paused
    opening = order_of(bench.report(Open(6), published={"out": 6}), OpenOrder)
    assert opening.paused.names == ("returns",)


def test_a_coordinator_that_comes_back_and_opens_anew_keeps_it() -> None:
    before = opened()
    before.pause("orders")
    bench = Sources(heard=before.heard, opened=before.opened)
    bench.begin(journal(8))
    opening = order_of(bench.report(Open(7), published={"out": 7}), OpenOrder)
    assert opening.paused == before.heard


def test_a_node_with_another_dataflow_is_replaced_and_what_was_paused_stays_so() -> None:
    before = opened()
    before.pause("orders")
    bench = Sources(heard=before.heard, opened=before.opened, options={"code": "c2"})
    bench.begin(journal(7))
    assert isinstance(bench.report(Open(7))[0], ReplaceNode)
    bench.boot, bench.version, bench.heard, bench.opened = "b2", 0, NOTHING, 0
    other = msgspec.structs.replace(TWO, code="c2")
    opening = order_of(bench.report(Closed(), info=other), OpenOrder)
    assert opening.paused == before.heard


def test_a_rewind_keeps_it() -> None:
    bench = opened(checkpoints=(checkpoint(5),))
    order = bench.pause("orders")
    bench.ask(1, LoadCheckpoint(5))
    bench.verified(5, asked=1)
    rewound = journal(5, branch=1, checkpoints=(checkpoint(5),), rewound=True)
    opening = order_of(bench.send(BranchMade(rewound)), OpenOrder)
    assert (opening.step, opening.paused) == (5, order.paused)
    assert bench.paused == ["orders"]


def test_a_node_that_is_closing_gets_no_more_of_it() -> None:
    bench = opened(checkpoints=(checkpoint(7),))
    bench.ask(1, PauseSource("orders"))
    bench.ask(2, ShutDownPipeline())
    bench.seconds = 5.0
    assert SourcesOrder not in map(type, orders_of(bench.report(Open(7), published={"out": 7})))
    assert isinstance(bench.report(Closed(), published={"out": 7})[-1], EndPipeline)


@given(st.data())
def test_whatever_is_lost_late_or_doubled_the_node_ends_where_users_want_it(
    data: st.DataObject,
) -> None:
    bench, duties = opened(), Duties()
    wanted: set[str] = set()
    sent: list[SourcesOrder] = []

    def heard(effects: list[Effect]) -> None:
        sent.extend(order for order in orders_of(effects) if isinstance(order, SourcesOrder))

    for number in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(TWO.sources))
        pauses = data.draw(st.booleans())
        (wanted.add if pauses else wanted.discard)(name)
        heard(bench.ask(number, PauseSource(name) if pauses else StartSource(name)))
        for order in data.draw(st.lists(st.sampled_from(sent), max_size=3)) if sent else ():
            duties.pause_sources(order.paused)
        bench.seconds += data.draw(st.sampled_from([0.0, 0.5, 2.0]))
        bench.heard = duties.paused
        heard(bench.report(Open(7), published={"out": 7}))
        assert set(bench.paused) == wanted
    bench.seconds += 2.0
    # What was on its way comes last; then one order arrives that the node is given again.
    for order in data.draw(st.permutations(sent)):
        if order.paused != bench.machine.memory.sources.paused:
            duties.pause_sources(order.paused)
    bench.heard = duties.paused
    for order in orders_of(bench.report(Open(7), published={"out": 7})):
        duties.pause_sources(order.paused)
    assert set(duties.paused.names) == wanted


def test_without_a_pause_nothing_of_it_is_said() -> None:
    bench = opened()
    bench.seconds = 5.0
    assert bench.report(Open(7), published={"out": 7}) == []
    effects = bench.step(8)
    assert SourcesOrder not in map(type, orders_of(effects))
    assert bench.machine.memory.sources.paused == NOTHING
