"""Random lives of capabilities, against a model that recomputes everything from a plain list."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from anabranch.errors import CapabilityReleased, EarlierTime, OtherOutput
from anabranch.progress import (
    Account,
    Antichain,
    Capability,
    CapabilityRef,
    Delay,
    InputPort,
    MutableAntichain,
    OutputPort,
    Topology,
    Tracker,
)

TIMES = st.integers(0, 12)


@dataclass(frozen=True)
class Pair:
    """A partially ordered time: one pair is at or before another if both of its parts are."""

    left: int
    right: int

    def __le__(self, other: Pair) -> bool:
        return self.left <= other.left and self.right <= other.right


PAIRS = st.builds(Pair, st.integers(0, 4), st.integers(0, 4))


def least(times: list[Pair]) -> set[Pair]:
    return {t for t in times if not any(o <= t and o != t for o in times)}


@given(st.lists(PAIRS))
def test_an_antichain_keeps_the_least_times(times: list[Pair]) -> None:
    frontier = Antichain(times)
    assert set(frontier) == least(times)
    for probe in (Pair(a, b) for a in range(5) for b in range(5)):
        assert frontier.less_equal(probe) == any(t <= probe for t in times)
        assert frontier.less_than(probe) == any(t <= probe and t != probe for t in times)


@given(st.lists(st.lists(st.tuples(PAIRS, st.integers(-2, 2)))))
def test_a_mutable_antichain_is_the_least_of_what_is_counted(
    batches: list[list[tuple[Pair, int]]],
) -> None:
    held: MutableAntichain[Pair] = MutableAntichain()
    counts: dict[Pair, int] = {}
    shown: dict[Pair, int] = {}
    for batch in batches:
        for time, change in batch:
            counts[time] = counts.get(time, 0) + change
        for time, change in held.update(batch):
            shown[time] = shown.get(time, 0) + change
        expected = least([time for time, count in counts.items() if count > 0])
        assert set(held.frontier()) == expected
        # The changes that it told add up to the frontier.
        assert {time for time, count in shown.items() if count} == expected
        assert set(shown.values()) <= {0, 1}


class Lives(RuleBasedStateMachine):
    """Mint, clone, delay, downgrade, release, join and leave, over a chain with a delay and a join.

    ``left`` and ``right`` feed ``join``, ``right`` by way of ``lag``, which holds back by 3; then
    comes ``sink``. The model is the list of what is held; the frontier of an input is the least of
    it, as the one path from each port changes it.
    """

    PATHS = {  # noqa: RUF012 - read only
        InputPort("lag", 0): {"right": 0},
        InputPort("join", 0): {"left": 0},
        InputPort("join", 1): {"right": -3, "lag": 0},
        InputPort("sink", 0): {"left": 0, "right": -3, "lag": 0, "join": 0},
    }

    def __init__(self) -> None:
        super().__init__()
        graph = Topology()
        for name in ("left", "right"):
            graph.add_operator(name, inputs=0, outputs=1)
        graph.add_operator("lag", inputs=1, outputs=1, connections=[[Delay(-3)]])
        graph.add_operator("join", inputs=2, outputs=1)
        graph.add_operator("sink", inputs=1, outputs=0)
        for name, port in (
            ("right", InputPort("lag", 0)),
            ("left", InputPort("join", 0)),
            ("lag", InputPort("join", 1)),
            ("join", InputPort("sink", 0)),
        ):
            graph.add_edge(OutputPort(name), port)
        self.tracker: Tracker[int] = Tracker(graph)
        # Each worker has accounts of its own, as a process would.
        self.workers: list[dict[str, Account[int]]] = []
        self.held: list[tuple[int, str, Capability[int]]] = []
        self.join_in()

    def join_in(self) -> None:
        names = ("left", "right", "lag", "join")
        self.workers.append({name: Account(OutputPort(name)) for name in names})

    @rule()
    def a_worker_joins_and_holds_nothing(self) -> None:
        self.join_in()

    @rule(data=st.data())
    def a_worker_leaves_and_hands_over(self, data: st.DataObject) -> None:
        if len(self.workers) == 1:
            return
        leaver = data.draw(st.integers(1, len(self.workers) - 1))
        for worker, name, capability in [h for h in self.held if h[0] == leaver]:
            heir = Capability.mint(self.workers[0][name], capability.time)
            capability.release()
            self.held.remove((worker, name, capability))
            self.held.append((0, name, heir))

    @rule(data=st.data(), name=st.sampled_from(["left", "right", "lag", "join"]), time=TIMES)
    def mint(self, data: st.DataObject, name: str, time: int) -> None:
        worker = data.draw(st.integers(0, len(self.workers) - 1))
        self.held.append((worker, name, Capability.mint(self.workers[worker][name], time)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), time=TIMES)
    def delay(self, data: st.DataObject, time: int) -> None:
        worker, name, capability = data.draw(st.sampled_from(self.held))
        if time < capability.time:
            assert capability.try_delayed(time) is None
            with pytest.raises(EarlierTime, match=rf"{capability.time} does not allow {time}\b"):
                capability.delayed(time)
        else:
            self.held.append((worker, name, capability.delayed(time)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        worker, name, capability = data.draw(st.sampled_from(self.held))
        self.held.append((worker, name, capability.clone()))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), time=TIMES)
    def downgrade(self, data: st.DataObject, time: int) -> None:
        _, _, capability = data.draw(st.sampled_from(self.held))
        before = capability.time
        assert capability.downgrade(time) == (time > before)
        assert capability.time == max(before, time)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.held))
        entry[2].release()
        entry[2].release()
        self.held.remove(entry)
        with pytest.raises(CapabilityReleased):
            entry[2].clone()

    @invariant()
    def frontiers_are_the_least_of_what_is_held(self) -> None:
        for accounts in self.workers:
            for name, account in accounts.items():
                for time, change in account.changes.drain():
                    self.tracker.update(OutputPort(name), time, change)
        self.tracker.propagate()
        for port, paths in self.PATHS.items():
            times = [c.time + paths[name] for _, name, c in self.held if name in paths]
            assert list(self.tracker.frontier(port)) == ([min(times)] if times else [])
            back = {(h.port, h.time) for h in self.tracker.holding_back(port)}
            assert back == {
                (OutputPort(name), c.time)
                for _, name, c in self.held
                if name in paths and c.time + paths[name] == min(times)
            }
        counted = sorted((h.port.operator, h.time) for h in self.tracker.held())
        assert counted == sorted({(name, c.time) for _, name, c in self.held})
        live = {id(c) for accounts in self.workers for a in accounts.values() for c in a.holders()}
        assert live == {id(c) for _, _, c in self.held}


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=50, stateful_step_count=20)


def test_received_rows_allow_their_time_at_outputs_that_they_get_to() -> None:
    accounts: list[Account[int]] = [Account(OutputPort("both", index)) for index in range(2)]
    received = CapabilityRef(7, accounts, [Delay(2), None])
    assert received.retain_for_output(0).time == 9
    assert received.delayed_for_output(12, 0).time == 12
    with pytest.raises(EarlierTime):
        received.delayed_for_output(8, 0)
    for output in (1, 2, -1):
        with pytest.raises(OtherOutput):
            received.retain_for_output(output)
    received.expire()
    with pytest.raises(CapabilityReleased):
        received.delayed_for_output(12, 0)
    # What was retained counts on.
    assert list(accounts[0].changes) == [(9, 1), (12, 1)]


def test_several_paths_give_the_least_delays() -> None:
    graph = Topology()
    graph.add_operator("source", inputs=0, outputs=1)
    graph.add_operator("fork", inputs=1, outputs=2, connections=[[Delay(5), Delay(2)]])
    graph.add_operator("sink", inputs=2, outputs=0)
    graph.add_edge(OutputPort("source"), InputPort("fork"))
    graph.add_edge(OutputPort("fork", 0), InputPort("sink", 0))
    graph.add_edge(OutputPort("fork", 1), InputPort("sink", 0))
    graph.add_edge(OutputPort("fork", 0), InputPort("sink", 1))
    reach = graph.reach()[OutputPort("source")]
    assert reach[InputPort("sink", 0)] == Antichain([Delay(2)])
    assert reach[InputPort("sink", 1)] == Antichain([Delay(5)])
