"""The control messages: their order, and that they survive a control row."""

from __future__ import annotations

from itertools import permutations

from anabranch import messages
from anabranch.messages import (
    AFTER_DATA,
    BEFORE_DATA,
    Acquire,
    Advance,
    Barrier,
    Collect,
    Control,
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
from anabranch.records.bins import BinSet

BINS = BinSet.of([1, 2])
COLLECT = Collect("by-name", 3, BINS)
ACQUIRE = Acquire("by-name", 4, BINS)


def test_messages_come_in_the_only_order() -> None:
    every: tuple[Message, ...] = (
        Load("count", (), ()),
        ACQUIRE,
        Hold("by-name", 3, BINS),
        Advance("count", 1, 2),
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
