"""Two ends joined by a link of bytes: they agree, and refuse what is out of turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConnectorError, OutOfTurn, WireError
from anabranch.wire.connection import Connection
from anabranch.wire.frames import (
    NEVER,
    AckFrame,
    EndOfStreamFrame,
    ErrorFrame,
    Frame,
    HelloFrame,
    MessageFrame,
    NotifyAckFrame,
    NotifyFrame,
    OkFrame,
    RestartFrame,
    encode_frame,
)
from anabranch.wire.states import SESSION, STREAM, SessionState, Side, StreamState

HELLO = HelloFrame(b"0.0.1", b"", b"tail", b"1")


class Pair:
    """A connector and a gateway; what one sends, the other receives at once."""

    def __init__(self, granted: int = 10) -> None:
        self.connector, self.gateway = Connection(Side.CONNECTOR), Connection(Side.GATEWAY)
        self.say(HELLO)
        self.say(OkFrame(granted))

    def say(self, *frames: Frame) -> list[object]:
        """Send frames, each from the end whose it is."""
        heard: list[object] = []
        for frame in frames:
            mine = isinstance(frame, HelloFrame | NotifyFrame | MessageFrame | EndOfStreamFrame)
            ends = (self.connector, self.gateway) if mine else (self.gateway, self.connector)
            ends[1].receive(ends[0].send(frame))
            heard += ends[1].events()
        return heard

    def stream(self, stream: int) -> StreamState:
        """Both ends agree on where it is."""
        assert self.connector.stream(stream) == self.gateway.stream(stream)
        assert self.connector.state == self.gateway.state
        assert self.connector.credits == self.gateway.credits
        return self.gateway.stream(stream)


def message(stream: int = 1, id: int = 1) -> MessageFrame:
    return MessageFrame(stream, id, 0, b"", b"x")


def test_a_stream_is_notified_sent_ended_and_notified_again() -> None:
    pair = Pair()
    pair.say(NotifyFrame(1, b"one"))
    assert pair.stream(1) is StreamState.NOTIFY_SENT
    pair.say(NotifyAckFrame(True, 1, NEVER), message(1, 1), message(1, 2))
    assert pair.stream(1) is StreamState.OPEN
    pair.say(EndOfStreamFrame(1))
    assert pair.stream(1) is StreamState.CLOSED
    pair.say(AckFrame(3, ((1, 2),)), NotifyFrame(1, b"one", 2), NotifyAckFrame(False, 1, 2))
    assert pair.stream(1) is StreamState.CLOSED
    assert pair.gateway.credits == 10 - 4 + 3


def test_a_second_notify_is_refused_and_does_not_close_the_stream() -> None:
    pair = Pair()
    pair.say(NotifyFrame(1, b"one"), NotifyFrame(1, b"one"), NotifyAckFrame(False, 1, 0))
    assert pair.stream(1) is StreamState.NOTIFY_SENT
    pair.say(NotifyAckFrame(True, 1, 0), NotifyFrame(1, b"one"), NotifyAckFrame(False, 1, 0))
    assert pair.stream(1) is StreamState.OPEN
    pair.say(message())


def test_a_restart_ends_the_session_and_all_streams() -> None:
    pair = Pair()
    pair.say(NotifyFrame(1, b"one"), NotifyAckFrame(True, 1, 0), RestartFrame(b"host:1"))
    assert pair.stream(1) is StreamState.TERMINATED
    assert pair.gateway.state is SessionState.ENDED
    with pytest.raises(OutOfTurn, match="session that is ended"):
        pair.connector.send(message())
    # What was under way is discarded.
    pair.gateway.receive(encode_frame(message()))
    assert list(pair.gateway.events()) == []


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([message()], "MESSAGE came for stream 1, which is at start"),
        ([NotifyFrame(1, b""), message()], "which is at notify sent"),
        ([EndOfStreamFrame(1)], "EOS_MESSAGE came for stream 1, which is at start"),
        ([HELLO], "a connector sent HELLO to a session that is streaming"),
        ([OkFrame(1)], "a connector sent OK"),
        ([AckFrame(1)], "a connector sent ACK"),
        ([NotifyAckFrame(True, 1, 0)], "a connector sent NOTIFYACK"),
    ],
    ids=["message", "early", "end", "hello", "ok", "ack", "notify ack"],
)
def test_what_a_connector_may_not_send_is_refused(frames: list[Frame], text: str) -> None:
    pair = Pair()
    pair.gateway.receive(b"".join(map(encode_frame, frames)))
    with pytest.raises(OutOfTurn, match=text):
        list(pair.gateway.events())
    assert pair.gateway.state is SessionState.ENDED


def test_no_message_has_the_id_that_stands_for_none() -> None:
    pair = Pair()
    pair.say(NotifyFrame(1, b""), NotifyAckFrame(True, 1, 0))
    pair.gateway.receive(encode_frame(message(id=NEVER)))
    with pytest.raises(WireError, match="stands for no message"):
        list(pair.gateway.events())


def test_a_connector_may_overdraw_its_credits_by_what_it_was_granted() -> None:
    pair = Pair(granted=3)
    pair.say(NotifyFrame(1, b""), NotifyAckFrame(True, 1, 0), *[message(id=i) for i in range(5)])
    assert pair.gateway.credits == -3
    pair.gateway.receive(encode_frame(message(id=6)))
    with pytest.raises(OutOfTurn, match="4 messages beyond its credits"):
        list(pair.gateway.events())


def test_an_error_ends_the_session_from_anywhere() -> None:
    for side in Side:
        fresh = Connection(side)
        fresh.receive(encode_frame(ErrorFrame(b"no")))
        assert list(fresh.events()) == [ErrorFrame(b"no")]
        assert fresh.state is SessionState.ENDED


def test_the_tables_have_every_state_and_lead_nowhere_else() -> None:
    assert set(SESSION) == set(SessionState)
    assert set(STREAM) == set(StreamState)
    assert {after for row in SESSION.values() for after in row.values()} <= set(SESSION)
    assert SESSION[SessionState.ENDED] == {}
    assert STREAM[StreamState.TERMINATED] == {}


CONNECTORS = st.one_of(
    st.builds(NotifyFrame, st.integers(1, 2), st.just(b"")),
    st.builds(message, st.integers(1, 2), st.integers(0, 9)),
    st.builds(EndOfStreamFrame, st.integers(1, 2)),
)
GATEWAYS = st.one_of(
    st.builds(NotifyAckFrame, st.booleans(), st.integers(1, 2), st.integers(0, 9)),
    st.builds(AckFrame, st.integers(0, 3)),
    st.just(RestartFrame()),
)


@given(st.lists(CONNECTORS | GATEWAYS, max_size=30))
def test_both_ends_agree_on_what_is_in_turn(frames: list[Frame]) -> None:
    """What an end may send the other takes, and both are then in the same state."""
    pair = Pair(granted=4)
    for frame in frames:
        try:
            pair.say(frame)
        except ConnectorError:
            return
        pair.stream(1)
        pair.stream(2)
