"""The frames of the connector protocol, as values and as bytes.

A frame is ``u32 length`` of what follows, ``u8 type``, body. Integers are big endian. ``short`` is
``u16 length`` and that many bytes. Ids and points of reference are unsigned.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from anabranch.errors import WireError

VERSION = "0.0.1"
NEVER = 2**64 - 1
"""As a point of reference: nothing of the stream was ever processed. No message has this id."""

_LENGTH = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_ID = struct.Struct(">Q")
_TIME = struct.Struct(">q")
_COUNT = struct.Struct(">I")
_POINT = struct.Struct(">QQ")
LONGEST_SHORT = 2**16 - 1


@dataclass(frozen=True, slots=True)
class HelloFrame:
    """The connector introduces itself."""

    type: ClassVar[int] = 0
    version: bytes
    cookie: bytes
    program: bytes
    instance: bytes


@dataclass(frozen=True, slots=True)
class OkFrame:
    """The gateway accepts the connector and gives it credits."""

    type: ClassVar[int] = 1
    credits: int


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """Something is wrong with what the other side sent. It ends the connection."""

    type: ClassVar[int] = 2
    reason: bytes


@dataclass(frozen=True, slots=True)
class NotifyFrame:
    """The connector wants to send a stream. ``point`` is where it would go on, 0 for none."""

    type: ClassVar[int] = 3
    stream: int
    name: bytes
    point: int = 0


@dataclass(frozen=True, slots=True)
class NotifyAckFrame:
    """The gateway takes a stream, or not. The connector resumes after ``point``."""

    type: ClassVar[int] = 4
    success: bool
    stream: int
    point: int


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """One message of a stream."""

    type: ClassVar[int] = 5
    stream: int
    id: int
    event_time: int
    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class AckFrame:
    """What is durable of streams, and new credits."""

    type: ClassVar[int] = 6
    credits: int
    points: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RestartFrame:
    """The connector is to connect again: to an address, or to the same one if that is empty."""

    type: ClassVar[int] = 7
    address: bytes = b""


@dataclass(frozen=True, slots=True)
class EndOfStreamFrame:
    """The connector has sent all of a stream. Some name the last message, some do not."""

    type: ClassVar[int] = 8
    stream: int
    id: int | None = None


Frame: TypeAlias = (
    HelloFrame
    | OkFrame
    | ErrorFrame
    | NotifyFrame
    | NotifyAckFrame
    | MessageFrame
    | AckFrame
    | RestartFrame
    | EndOfStreamFrame
)


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a frame, its length included.

    >>> encode_frame(OkFrame(credits=10)).hex()
    '00000005010000000a'
    """
    body = _body(frame)
    return _LENGTH.pack(len(body) + 1) + bytes([frame.type]) + body


def _body(frame: Frame) -> bytes:
    match frame:
        case HelloFrame():
            parts = (frame.version, frame.cookie, frame.program, frame.instance)
            return b"".join(map(_short, parts))
        case OkFrame():
            return _COUNT.pack(frame.credits)
        case ErrorFrame():
            return _short(frame.reason[:LONGEST_SHORT])
        case NotifyFrame():
            return _ID.pack(frame.stream) + _short(frame.name) + _ID.pack(frame.point)
        case NotifyAckFrame():
            return bytes([frame.success]) + _POINT.pack(frame.stream, frame.point)
        case MessageFrame():
            head = _POINT.pack(frame.stream, frame.id) + _TIME.pack(frame.event_time)
            return head + _short(frame.key) + frame.payload
        case AckFrame():
            points = b"".join(_POINT.pack(*point) for point in frame.points)
            return _COUNT.pack(frame.credits) + _COUNT.pack(len(frame.points)) + points
        case RestartFrame():
            return _COUNT.pack(len(frame.address)) + frame.address
        case EndOfStreamFrame():
            last = b"" if frame.id is None else _ID.pack(frame.id)
            return _ID.pack(frame.stream) + last


def _short(text: bytes) -> bytes:
    if len(text) > LONGEST_SHORT:
        raise WireError(
            f"a text of {len(text)} bytes does not fit into a frame",
            do=f"At most {LONGEST_SHORT} bytes are possible.",
        )
    return _SHORT.pack(len(text)) + text


def decode_frame(kind: int, body: bytes) -> Frame:
    """The frame of a type and a body; ``WireError`` if there is none.

    >>> decode_frame(8, bytes(8))
    EndOfStreamFrame(stream=0, id=None)
    >>> decode_frame(9, b"")
    Traceback (most recent call last):
    anabranch.errors.WireError: [connector.wire] a frame has the unknown type 9...
    """
    decode = _DECODERS.get(kind)
    if decode is None:
        raise WireError(f"a frame has the unknown type {kind}")
    fields = _Fields(body)
    frame = decode(fields)
    if fields.left:
        raise WireError(f"{fields.left} bytes are left over at the end of {_name(frame)}")
    return frame


class _Fields:
    """Takes the fields of a body one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._body) - self._place

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise WireError(f"a frame ends {size - self.left} bytes too early")
        self._place += size
        return self._body[self._place - size : self._place]

    def number(self, form: struct.Struct) -> int:
        [value] = form.unpack(self.take(form.size))
        return int(value)

    def short(self) -> bytes:
        return self.take(self.number(_SHORT))

    def rest(self) -> bytes:
        return self.take(self.left)


def _hello(body: _Fields) -> Frame:
    return HelloFrame(body.short(), body.short(), body.short(), body.short())


def _notify_ack(body: _Fields) -> Frame:
    [success] = body.take(1)
    if success > 1:
        raise WireError(f"a frame says {success} where it must say 0 or 1")
    return NotifyAckFrame(bool(success), body.number(_ID), body.number(_ID))


def _message(body: _Fields) -> Frame:
    stream, number = body.number(_ID), body.number(_ID)
    return MessageFrame(stream, number, body.number(_TIME), body.short(), body.rest())


def _ack(body: _Fields) -> Frame:
    given, count = body.number(_COUNT), body.number(_COUNT)
    # The count is checked against what is there before anything is made of that size.
    points = _POINT.iter_unpack(body.take(count * _POINT.size))
    return AckFrame(given, tuple((stream, point) for stream, point in points))


def _restart(body: _Fields) -> Frame:
    return RestartFrame(body.take(body.number(_COUNT)) if body.left else b"")


def _end_of_stream(body: _Fields) -> Frame:
    return EndOfStreamFrame(body.number(_ID), body.number(_ID) if body.left else None)


_DECODERS: dict[int, Callable[[_Fields], Frame]] = {
    HelloFrame.type: _hello,
    OkFrame.type: lambda body: OkFrame(body.number(_COUNT)),
    ErrorFrame.type: lambda body: ErrorFrame(body.short()),
    NotifyFrame.type: lambda body: NotifyFrame(body.number(_ID), body.short(), body.number(_ID)),
    NotifyAckFrame.type: _notify_ack,
    MessageFrame.type: _message,
    AckFrame.type: _ack,
    RestartFrame.type: _restart,
    EndOfStreamFrame.type: _end_of_stream,
}


def _name(frame: Frame) -> str:
    return type(frame).__name__.removesuffix("Frame").upper()
