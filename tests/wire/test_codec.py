"""Any bytes give frames, a wait for more, or a wire error, however they are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ConnectorError, FrameTooLarge, WireError
from anabranch.wire.codec import FrameReader, MessageRun, Received
from anabranch.wire.frames import (
    NEVER,
    VERSION,
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
    decode_frame,
    encode_frame,
)

IDS = st.integers(0, NEVER)
SHORTS = st.binary(max_size=40)
COUNTS = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
MESSAGES = st.builds(MessageFrame, IDS, IDS, TIMES, SHORTS, st.binary(max_size=60))
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(HelloFrame, SHORTS, SHORTS, SHORTS, SHORTS),
    st.builds(OkFrame, COUNTS),
    st.builds(ErrorFrame, SHORTS),
    st.builds(NotifyFrame, IDS, SHORTS, IDS),
    st.builds(NotifyAckFrame, st.booleans(), IDS, IDS),
    MESSAGES,
    st.builds(AckFrame, COUNTS, st.lists(st.tuples(IDS, IDS), max_size=5).map(tuple)),
    st.builds(RestartFrame, SHORTS),
    st.builds(EndOfStreamFrame, IDS, st.none() | IDS),
)


def one_by_one(found: list[Received]) -> list[Frame]:
    """The frames, those of runs too."""
    return [f for each in found for f in (each if isinstance(each, MessageRun) else [each])]


def read(pieces: list[bytes], limit: int = 1 << 20) -> tuple[list[Frame], str | None]:
    """The frames of bytes that come in pieces, and what went wrong at last."""
    reader, found = FrameReader(limit), []
    for piece in pieces:
        reader.feed(piece)
        try:
            for received in reader.frames():
                found.append(received)
        except ConnectorError as error:
            return one_by_one(found), str(error)
    return one_by_one(found), None


@given(FRAMES)
def test_a_frame_comes_back_from_its_bytes(frame: Frame) -> None:
    data = encode_frame(frame)
    assert struct.unpack(">I", data[:4])[0] == len(data) - 4
    assert decode_frame(data[4], data[5:]) == frame


def test_the_bytes_are_those_of_the_protocol() -> None:
    """Written out by hand from the tables of the protocol."""
    hello = HelloFrame(VERSION.encode(), b"ck", b"prog", b"i1")
    assert encode_frame(hello) == (b"\0\0\0\x16\0\0\x050.0.1\0\x02ck\0\x04prog\0\x02i1")
    message = MessageFrame(2**63, 1, -1, b"k", b"xyz")
    assert encode_frame(message) == (
        b"\0\0\0\x1f\x05"
        b"\x80\0\0\0\0\0\0\0"
        b"\0\0\0\0\0\0\0\x01"
        b"\xff\xff\xff\xff\xff\xff\xff\xff"
        b"\0\x01k"
        b"xyz"
    )
    assert encode_frame(AckFrame(3, ((1, 2),))) == (
        b"\0\0\0\x19\x06\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02"
    )


def test_a_restart_may_have_no_body_and_the_end_of_a_stream_two_forms() -> None:
    assert decode_frame(7, b"") == decode_frame(7, bytes(4)) == RestartFrame()
    assert decode_frame(8, bytes(8)) == EndOfStreamFrame(0)
    assert decode_frame(8, bytes(15) + b"\x09") == EndOfStreamFrame(0, 9)


@given(st.lists(FRAMES | MESSAGES, max_size=12), st.data())
def test_one_byte_at_a_time_gives_the_same_as_all_at_once(
    frames: list[Frame], data: st.DataObject
) -> None:
    whole = b"".join(map(encode_frame, frames))
    assert read([whole]) == (frames, None)
    assert read([whole[i : i + 1] for i in range(len(whole))]) == (frames, None)
    cut = data.draw(st.integers(0, len(whole)))
    assert read([whole[:cut], whole[cut:]]) == (frames, None)


@given(st.lists(MESSAGES, min_size=1, max_size=20))
def test_messages_in_a_row_come_as_one_run_with_their_index(messages: list[MessageFrame]) -> None:
    whole = b"".join(map(encode_frame, messages))
    reader = FrameReader()
    reader.feed(whole)
    [run] = reader.frames()
    assert isinstance(run, MessageRun)
    assert run.data == whole
    assert run.ids == tuple(m.id for m in messages)
    assert run.streams == tuple(m.stream for m in messages)
    assert len(run) == len(messages)
    assert list(run) == messages
    assert reader.buffered == 0


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(["flip", "cut", "add"]), st.integers(0, 255)),
    max_size=6,
)


def mutated(whole: bytes, mutations: list[tuple[int, str, int]]) -> bytes:
    found = bytearray(whole)
    for place, how, value in mutations:
        at = place % (len(found) + 1)
        if how == "add":
            found.insert(at, value)
        elif at < len(found):
            if how == "flip":
                found[at] ^= value
            else:
                del found[at]
    return bytes(found)


@settings(max_examples=400)
@given(st.lists(FRAMES, max_size=6), MUTATIONS)
def test_any_bytes_give_frames_a_wait_for_more_or_a_wire_error(
    frames: list[Frame], mutations: list[tuple[int, str, int]]
) -> None:
    whole = mutated(b"".join(map(encode_frame, frames)), mutations)
    at_once = read([whole], limit=4096)
    assert read([whole[i : i + 1] for i in range(len(whole))], limit=4096) == at_once


@given(st.binary(max_size=300))
def test_so_do_bytes_that_were_never_frames(data: bytes) -> None:
    at_once = read([data], limit=64)
    assert read([data[i : i + 1] for i in range(len(data))], limit=64) == at_once


def test_a_frame_above_the_limit_is_refused_from_its_length_alone() -> None:
    reader = FrameReader(limit=100)
    reader.feed(struct.pack(">I", 101))
    with pytest.raises(FrameTooLarge, match="101 bytes"):
        list(reader.frames())
    reader.feed(bytes(1000))
    assert reader.buffered == 0
    with pytest.raises(FrameTooLarge):
        list(reader.frames())


def test_good_frames_before_a_bad_one_count() -> None:
    good = encode_frame(MessageFrame(1, 1, 0, b"", b"x"))
    for bad in (
        encode_frame(OkFrame(1))[:4] + b"\x63" + bytes(4),
        b"\0\0\0\0",
        good[:29] + b"\xff\xff",
    ):
        found, error = read([good + good + bad + bytes(40)])
        assert len(found) == 2
        assert error is not None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (1, bytes(5)),
        (4, b"\x02" + bytes(16)),
        (6, bytes(4) + b"\xff\xff\xff\xff"),
        (7, b"\xff\xff\xff\xff"),
        (8, bytes(12)),
        (5, bytes(24) + b"\0\x05abc"),
        (9, b""),
    ],
    ids=["left over", "no bool", "count", "length", "half an id", "key", "type"],
)
def test_bodies_that_do_not_fit_are_refused(kind: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_frame(kind, body)
    reader = FrameReader()
    reader.feed(struct.pack(">IB", len(body) + 1, kind) + body)
    with pytest.raises(WireError):
        list(reader.frames())
