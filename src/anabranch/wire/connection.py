"""One end of a connection: bytes in, events out; frames in, bytes out. No sockets, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anabranch.errors import ConnectorError, OutOfTurn, WireError
from anabranch.wire.codec import LIMIT, FrameReader, MessageRun, Received
from anabranch.wire.frames import (
    NEVER,
    AckFrame,
    EndOfStreamFrame,
    Frame,
    MessageFrame,
    NotifyAckFrame,
    NotifyFrame,
    OkFrame,
    RestartFrame,
    encode_frame,
)
from anabranch.wire.states import SESSION, STREAM, SessionState, Side, StreamEvent, StreamState


class Connection:
    """The protocol as one end sees it.

    ``receive`` takes bytes of the other end, ``events`` gives what they say, ``send`` gives the
    bytes of a frame. Both directions go through the same tables: an end cannot send what it would
    refuse. After an error the session has ended: send an ``ErrorFrame`` if it was the other end's,
    and close.

    >>> connector, gateway = Connection(Side.CONNECTOR), Connection(Side.GATEWAY)
    >>> from anabranch.wire.frames import HelloFrame
    >>> gateway.receive(connector.send(HelloFrame(b"0.0.1", b"", b"tail", b"1")))
    >>> [event.program for event in gateway.events()]
    [b'tail']
    >>> connector.receive(gateway.send(OkFrame(credits=3)))
    >>> list(connector.events()), connector.state.value, connector.credits
    ([OkFrame(credits=3)], 'streaming', 3)
    """

    def __init__(self, side: Side, *, limit: int = LIMIT) -> None:
        """``limit`` is the longest frame that is taken."""
        self.side = side
        self.state = SessionState.CONNECTED
        self.credits = 0
        self._granted = 0
        self._reader = FrameReader(limit)
        self._streams: dict[int, StreamState] = {}
        self._open: set[int] = set()
        self._repeated: Counter[int] = Counter()

    def stream(self, stream: int) -> StreamState:
        """Where a stream is in this session."""
        return self._streams.get(stream, StreamState.START)

    def receive(self, data: bytes) -> None:
        """Take bytes of the other end."""
        self._reader.feed(data)

    def events(self) -> Iterator[Received]:
        """What the other end has said. Raises ``ConnectorError`` after the last good frame.

        Messages that follow each other come as one ``MessageRun``.
        """
        try:
            for received in self._reader.frames():
                if self.state is SessionState.ENDED:
                    return  # What comes after an error or a restart is discarded.
                self._pass(received, self.side.other)
                yield received
        except ConnectorError:
            self.state = SessionState.ENDED
            raise

    def send(self, frame: Frame) -> bytes:
        """The bytes of a frame; ``OutOfTurn`` if it may not be sent now."""
        self._pass(frame, self.side)
        return encode_frame(frame)

    def _pass(self, frame: Received, sender: Side) -> None:
        kind = MessageFrame if isinstance(frame, MessageRun) else type(frame)
        following = SESSION[self.state].get((sender, kind))
        if following is None:
            raise OutOfTurn(
                f"a {sender.value} sent {_name(kind)} to a session that is {self.state.value}"
            )
        match frame:
            case MessageRun():
                self._messages(set(frame.streams), max(frame.ids), len(frame))
            case MessageFrame():
                self._messages({frame.stream}, frame.id, 1)
            case NotifyFrame():
                self._notify(frame.stream)
            case NotifyAckFrame():
                self._answer(frame.stream, success=frame.success)
            case EndOfStreamFrame():
                self._advance(frame.stream, StreamEvent.END)
            case OkFrame() | AckFrame():
                self.credits += frame.credits
                self._granted = self._granted or frame.credits
            case RestartFrame():
                for stream in list(self._streams):
                    self._advance(stream, StreamEvent.RESTART)
            case _:
                pass
        self.state = following

    def _messages(self, streams: set[int], highest: int, count: int) -> None:
        if not streams <= self._open:
            for stream in sorted(streams - self._open):
                self._advance(stream, StreamEvent.MESSAGE)
        if highest == NEVER:
            raise WireError(f"a message has the id {NEVER}, which stands for no message")
        self._spend(count)

    def _notify(self, stream: int) -> None:
        self._spend(1)
        if self.stream(stream) in (StreamState.NOTIFY_SENT, StreamState.OPEN):
            self._repeated[stream] += 1
        self._advance(stream, StreamEvent.NOTIFY)

    def _answer(self, stream: int, *, success: bool) -> None:
        """A refusal answers a repeated NOTIFY first: the other one is still to be answered."""
        if not success and self._repeated[stream]:
            self._repeated[stream] -= 1
            self._advance(stream, StreamEvent.REPEATED)
        else:
            self._advance(stream, StreamEvent.ACCEPTED if success else StreamEvent.REFUSED)

    def _advance(self, stream: int, event: StreamEvent) -> None:
        before = self.stream(stream)
        after = STREAM[before].get(event)
        if after is None:
            raise OutOfTurn(f"{event.value} came for stream {stream}, which is at {before.value}")
        self._streams[stream] = after
        if after is StreamState.OPEN:
            self._open.add(stream)
        else:
            self._open.discard(stream)

    def _spend(self, count: int) -> None:
        """Credits may run a little below zero: shipped connectors drift. Far below is refused."""
        left = self.credits - count
        if left < -self._granted:
            raise OutOfTurn(
                f"a connector is {-left} messages beyond its credits",
                do="Wait for an ACK that gives credits.",
            )
        self.credits = left


def _name(kind: type[Frame]) -> str:
    return kind.__name__.removesuffix("Frame").upper()
