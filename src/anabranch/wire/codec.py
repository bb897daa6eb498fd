"""Bytes in, frames out: cut a stream of bytes into frames without copying messages twice.

Most frames are messages, so those that follow each other come as one ``MessageRun``: the bytes as
they arrived, with an index of where each frame begins, of its stream and of its id. Nothing else is
made per message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from anabranch.errors import ConnectorError, FrameTooLarge, WireError
from anabranch.wire.frames import Frame, MessageFrame, decode_frame

LIMIT = 4 << 20
"""The longest frame, in bytes, unless told otherwise."""

_HEAD = struct.Struct(">IB")
_MESSAGE_HEAD = struct.Struct(">IBQQqH")
"""Length, type, stream, id, event time, length of the key."""

_SHORTEST_MESSAGE = _MESSAGE_HEAD.size - 4
"""What the length of a message says at least."""


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Messages that came one after the other: their bytes, and an index of them.

    ``offsets`` says where each frame begins in ``data``, with its length; one more entry says where
    the last one ends.
    """

    data: bytes
    offsets: tuple[int, ...]
    streams: tuple[int, ...]
    ids: tuple[int, ...]

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.ids)

    def __iter__(self) -> Iterator[MessageFrame]:
        """The messages as frames, for those who want them one by one."""
        for start, end in pairwise(self.offsets):
            frame = decode_frame(MessageFrame.type, self.data[start + 5 : end])
            assert isinstance(frame, MessageFrame)
            yield frame


Received: TypeAlias = Frame | MessageRun


class FrameReader:
    """Cuts bytes into frames as they come, in pieces of any size.

    A frame above the limit is refused from its length alone, before any of it is kept. After an
    error nothing more is read.

    >>> from anabranch.wire.frames import OkFrame, encode_frame
    >>> reader = FrameReader()
    >>> reader.feed(encode_frame(OkFrame(7))[:3])
    >>> list(reader.frames())
    []
    >>> reader.feed(encode_frame(OkFrame(7))[3:])
    >>> list(reader.frames())
    [OkFrame(credits=7)]
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """``limit`` is the longest frame: what its length says."""
        self._limit = limit
        self._buffer = bytearray()
        self._failed: ConnectorError | None = None

    @property
    def buffered(self) -> int:
        """The bytes kept for a frame that is not complete: at most the limit and a head."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes. Call ``frames`` before more of them than a frame's limit are fed."""
        if self._failed is None:
            self._buffer += data

    def frames(self) -> Iterator[Received]:
        """The complete frames, in order. Raises ``ConnectorError`` after the last good one."""
        while self._failed is None:
            try:
                found, size = self._next()
            except ConnectorError as error:
                self._failed = error
                self._buffer.clear()
                break
            if found is None:
                return
            del self._buffer[:size]
            yield found
        if self._failed is not None:
            raise self._failed

    def _next(self) -> tuple[Received | None, int]:
        size = self._size_at(0)
        if size is None or size > len(self._buffer):
            return None, 0
        if self._buffer[4] == MessageFrame.type:
            run = self._run()
            return run, run.offsets[-1]
        return decode_frame(self._buffer[4], bytes(self._buffer[5:size])), size

    def _size_at(self, place: int) -> int | None:
        """The size of the frame that begins at a place; None if its length is not there yet."""
        head = self._buffer[place : place + 4]
        if len(head) < 4:
            return None
        length = int.from_bytes(head, "big")
        if length > self._limit:
            raise FrameTooLarge(
                f"a frame of {length} bytes is longer than the limit of {self._limit}",
                do="Send smaller messages, or raise the limit at the gateway.",
            )
        if length == 0:
            raise WireError("a frame has no type")
        return length + 4

    def _run(self) -> MessageRun:
        """The complete messages at the beginning of the buffer; the first is known to be one."""
        buffer, unpack = self._buffer, _MESSAGE_HEAD.unpack_from
        end, limit, longest = len(buffer), self._limit, _MESSAGE_HEAD.size
        place, offsets, streams, ids = 0, [], [], []
        while end - place >= longest:
            length, kind, stream, number, _, key = unpack(buffer, place)
            if kind != MessageFrame.type or place + 4 + length > end:
                break
            if length > limit or key > length - _SHORTEST_MESSAGE:
                break
            offsets.append(place)
            streams.append(stream)
            ids.append(number)
            place += 4 + length
        if not offsets:
            raise WireError("a message ends before its key does")
        offsets.append(place)
        with memoryview(buffer) as view:
            data = bytes(view[:place])
        return MessageRun(data, tuple(offsets), tuple(streams), tuple(ids))
