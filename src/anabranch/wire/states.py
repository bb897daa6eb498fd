"""What may follow what: two tables, one for a session and one for each stream in it.

Both ends run the same tables: who sends is part of the key, so neither table knows which side it is
on. A session goes from the first byte to the end of the connection. A stream begins in ``START`` in
every session, whatever it was in an earlier one.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from anabranch.wire.frames import (
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
)


class Side(Enum):
    """The two ends of a connection."""

    CONNECTOR = "connector"
    GATEWAY = "gateway"

    @property
    def other(self) -> Side:
        """The other end."""
        return Side.GATEWAY if self is Side.CONNECTOR else Side.CONNECTOR


class SessionState(Enum):
    """Where a session is."""

    CONNECTED = "connected"
    HANDSHAKE = "handshake"
    STREAMING = "streaming"
    ENDED = "ended"


class StreamState(Enum):
    """Where a stream is in a session."""

    START = "start"
    NOTIFY_SENT = "notify sent"
    OPEN = "open"
    CLOSED = "closed"
    TERMINATED = "terminated"


Sent: TypeAlias = tuple[Side, type[Frame]]

_ERRORS: dict[Sent, SessionState] = {(side, ErrorFrame): SessionState.ENDED for side in Side}

SESSION: dict[SessionState, dict[Sent, SessionState]] = {
    SessionState.CONNECTED: {(Side.CONNECTOR, HelloFrame): SessionState.HANDSHAKE, **_ERRORS},
    SessionState.HANDSHAKE: {
        (Side.GATEWAY, OkFrame): SessionState.STREAMING,
        (Side.GATEWAY, RestartFrame): SessionState.ENDED,
        **_ERRORS,
    },
    SessionState.STREAMING: {
        (Side.CONNECTOR, NotifyFrame): SessionState.STREAMING,
        (Side.CONNECTOR, MessageFrame): SessionState.STREAMING,
        (Side.CONNECTOR, EndOfStreamFrame): SessionState.STREAMING,
        (Side.GATEWAY, NotifyAckFrame): SessionState.STREAMING,
        (Side.GATEWAY, AckFrame): SessionState.STREAMING,
        (Side.GATEWAY, RestartFrame): SessionState.ENDED,
        **_ERRORS,
    },
    SessionState.ENDED: {},
}
"""From a state, by who sends what, to the next state. What is not here is out of turn."""


class StreamEvent(Enum):
    """What happens to a stream. ``REPEATED`` is a refusal of a stream that was asked for twice."""

    NOTIFY = "NOTIFY"
    ACCEPTED = "NOTIFY_ACK 1"
    REFUSED = "NOTIFY_ACK 0"
    REPEATED = "NOTIFY_ACK 0 to a second NOTIFY"
    MESSAGE = "MESSAGE"
    END = "EOS_MESSAGE"
    RESTART = "RESTART"


STREAM: dict[StreamState, dict[StreamEvent, StreamState]] = {
    StreamState.START: {
        StreamEvent.NOTIFY: StreamState.NOTIFY_SENT,
        StreamEvent.RESTART: StreamState.TERMINATED,
    },
    StreamState.NOTIFY_SENT: {
        StreamEvent.ACCEPTED: StreamState.OPEN,
        StreamEvent.REFUSED: StreamState.CLOSED,
        StreamEvent.NOTIFY: StreamState.NOTIFY_SENT,
        StreamEvent.REPEATED: StreamState.NOTIFY_SENT,
        StreamEvent.RESTART: StreamState.TERMINATED,
    },
    StreamState.OPEN: {
        StreamEvent.MESSAGE: StreamState.OPEN,
        StreamEvent.NOTIFY: StreamState.OPEN,
        StreamEvent.REPEATED: StreamState.OPEN,
        StreamEvent.END: StreamState.CLOSED,
        StreamEvent.RESTART: StreamState.TERMINATED,
    },
    StreamState.CLOSED: {
        StreamEvent.NOTIFY: StreamState.NOTIFY_SENT,
        StreamEvent.REPEATED: StreamState.CLOSED,
        StreamEvent.RESTART: StreamState.TERMINATED,
    },
    StreamState.TERMINATED: {},
}
"""From a state, by what happens, to the next state. What is not here is out of turn."""
