"""Segments: what is left of the steps whose entries were removed, in one small summary."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Segment(msgspec.Struct, frozen=True):
    """All steps of a branch below a floor, as far as they were committed there.

    ``rows`` is by sink. None where there is nothing to say: no step, or none that could be read.
    """

    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    first_clock_ns: int | None = None
    last_clock_ns: int | None = None
    rows: dict[str, int] = {}


class _Staged(msgspec.Struct):
    sink: str
    rows: int


class _Committed(msgspec.Struct):
    """Of a commit, what a segment remembers."""

    clock_ns: int
    staged: tuple[_Staged, ...] = ()


_committed = msgspec.json.Decoder(_Committed).decode
decode_segment = msgspec.json.Decoder(Segment).decode
encode_segment = msgspec.json.Encoder().encode


def fold(segment: Segment, commits: Iterable[tuple[int, bytes | None]]) -> Segment:
    """The segment with the steps above its own, each with its commit's body, oldest first.

    A body that is damaged (None) or says nothing is a step all the same.

    >>> fold(Segment(), [(1, b'{"clock_ns":7,"staged":[{"sink":"out","rows":2}]}'), (2, None)])
    Segment(steps=2, first_step=1, last_step=2, first_clock_ns=7, last_clock_ns=7, rows={'out': 2})
    """
    steps, rows = segment.steps, dict(segment.rows)
    first, last = segment.first_step, segment.last_step
    begun, ended = segment.first_clock_ns, segment.last_clock_ns
    for step, body in commits:
        steps += 1
        first, last = step if first is None else first, step
        try:
            commit = _committed(body or b"")
        except msgspec.DecodeError:
            continue
        begun, ended = commit.clock_ns if begun is None else begun, commit.clock_ns
        for staged in commit.staged:
            rows[staged.sink] = rows.get(staged.sink, 0) + staged.rows
    return Segment(steps, first, last, begun, ended, rows)
