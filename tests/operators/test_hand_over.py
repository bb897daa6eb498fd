"""The literal messages: what operators answer, and what they are given."""

from __future__ import annotations

from itertools import permutations

import pytest

from anabranch import messages
from anabranch.messages import (
    AFTER_DATA,
    BEFORE_DATA,
    Acquire,
    Barrier,
    Collect,
    Control,
    End,
    Hold,
    Interrogate,
    Load,
    Message,
    Prefetch,
    Question,
    ScaleDown,
    ScaleUp,
    Shutdown,
    in_order,
)
from anabranch.operators.control.hand_over import Acquisition, Collection, Interrogation
from anabranch.records.bins import BinSet

BINS = BinSet.of([1, 2])
COLLECT = Collect("by-name", 3, BINS)
ACQUIRE = Acquire("by-name", 4, BINS)


def test_add_keys_unites_what_operators_hold() -> None:
    asked = Interrogation(Interrogate("by-name", 3))
    asked.add_keys("count", ["ada", "bob"])
    asked.add_keys("total", ["bob", "cyd"])
    assert asked.keys == {"ada", "bob", "cyd"}
    assert asked.keys_of("count") == {"ada", "bob"}
    assert asked.keys_of("nobody") == frozenset()


def test_add_keys_may_be_called_again_for_new_keys() -> None:
    asked = Interrogation(Interrogate("by-name", 3))
    asked.add_keys("source", ["ada"])
    asked.add_keys("source", ["ada", "bob"])
    asked.add_keys("source", [])
    assert asked.keys_of("source") == {"ada", "bob"}


def test_an_operator_with_two_inputs_leaves_its_newest_state() -> None:
    collected = Collection(COLLECT, instances=2)
    collected.add_state("join", "ada", b"left only")
    collected.count()
    assert not collected.is_complete
    collected.add_state("join", "ada", b"both")
    collected.add_state("count", "ada", b"7")
    collected.count()
    assert collected.states() == {"join": {"ada": b"both"}, "count": {"ada": b"7"}}


def test_a_collection_is_refused_until_all_instances_are_counted() -> None:
    collected = Collection(COLLECT, instances=2)
    collected.count()
    with pytest.raises(ValueError, match="1 instances have not passed"):
        collected.states()


def test_nothing_is_added_after_everything_was_collected() -> None:
    collected = Collection(COLLECT, instances=1)
    collected.count()
    with pytest.raises(ValueError, match="after the collection was complete"):
        collected.add_state("count", "ada", b"8")
    with pytest.raises(ValueError, match="have passed already"):
        collected.count()
    with pytest.raises(ValueError, match="at least once"):
        Collection(COLLECT, instances=0)


def test_the_first_take_gets_the_state_and_later_ones_nothing() -> None:
    given = {"count": {"ada": b"7"}, "join": {"ada": b"both"}}
    arrived = Acquisition(ACQUIRE, given)  # type: ignore[arg-type]
    assert arrived.take_state("count") == {"ada": b"7"}
    assert arrived.take_state("count") is None
    assert arrived.take_state("stateless") is None
    assert arrived.left == ("join",)
    assert given["count"] == {"ada": b"7"}, "what was given is not changed"


def test_messages_come_in_the_only_order() -> None:
    every: tuple[Message, ...] = (
        Load("count", (), ()),
        ACQUIRE,
        Hold("by-name", 3, BINS),
        End("count"),
        Interrogate("by-name", 3),
        ScaleUp("by-name", 3, BINS),
        ScaleDown("by-name", 3, BINS),
        COLLECT,
        Prefetch("by-name", 3, BINS, 100),
        Question("counter", b"7"),
        Barrier(9),
        Shutdown(1),
    )
    assert tuple(type(each) for each in every) == BEFORE_DATA + AFTER_DATA
    for some in permutations(every, 3):
        assert in_order(some) == tuple(each for each in every if each in some)


def test_messages_survive_a_control_row() -> None:
    sent = (ACQUIRE, Interrogate("r", 1), ScaleUp("r", 1, BINS), ScaleDown("r", 1, BINS), COLLECT)
    control = Control(0, 0, "r", 1, BINS, (*sent, Barrier(1), Shutdown(1)))
    assert messages.decode(messages.encode(control)) == control


def test_what_has_come_is_looked_up_once_and_taken_once() -> None:
    acquired = Acquisition(ACQUIRE, {})
    assert not acquired.is_known("count")
    acquired.put("count", {"ada": b"7"})
    acquired.put("total", {})
    assert (acquired.is_known("count"), acquired.is_known("total")) == (True, True)
    assert acquired.left == ("count",)
    assert acquired.take_state("count") == {"ada": b"7"}
    assert acquired.take_state("count") is None
    assert acquired.take_state("total") is None
    assert acquired.is_known("count")
