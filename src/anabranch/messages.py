"""Everything that travels between tasks beside the data: read this and you know the protocol.

Messages to a worker come in one *control row* per worker and step, before its data. Answers go the
same way as the data, downstream, as *report rows*: the full report to one task of the next level,
the number of the attempt to all of them, so that everyone can say which attempt it has used.

What the methods of a user's ``Process`` are given of a message is here too: ``ArrivingState``,
``KeyRegister``, ``NewShares``, ``LeavingState``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import msgspec

from anabranch.records.bins import BinSet
from anabranch.records.home_use import HomeUse
from anabranch.records.profiles import ProfileKind, TaskProfile
from anabranch.records.run_list import RunList
from anabranch.records.staged_file import StagedFile


class Load(msgspec.Struct, frozen=True, tag="load"):
    """State arrives: the runs of an operator's bins, and how many live keys each bin has."""

    operator: str
    runs: RunList
    live: tuple[int, ...]


class Acquire(msgspec.Struct, frozen=True, tag="acquire"):
    """Bins arrive: this worker has their state, as of the step before, ahead of its first row (R2).

    An operator that keeps state outside its handles takes it with ``take_state`` of the
    ``ArrivingState`` that stands for this message in a task.
    """

    region: str
    generation: int
    bins: BinSet


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """These bins are being copied by their next owner: they are not merged meanwhile."""

    region: str
    generation: int
    bins: BinSet


class Interrogate(msgspec.Struct, frozen=True, tag="interrogate"):
    """The question which keys, bytes, rows and seconds this worker has in each bin.

    Operators answer with ``add_keys`` of the ``KeyRegister`` that stands for it in a task.
    """

    region: str
    generation: int


class ScaleUp(msgspec.Struct, frozen=True, tag="scale_up"):
    """The region's bins are shared anew, among as many workers or more; these can stay."""

    region: str
    generation: int
    can_stay: BinSet


class ScaleDown(msgspec.Struct, frozen=True, tag="scale_down"):
    """The region's bins are shared anew, among fewer workers; these can stay."""

    region: str
    generation: int
    can_stay: BinSet


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Bins leave: after the data of this step, their state is another worker's.

    Operators give what they keep outside their handles with ``add_state`` of the ``LeavingState``
    that stands for it in a task.
    """

    region: str
    generation: int
    bins: BinSet


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    """Bins will arrive: their files, as of the step before, are copied to this worker's home.

    It comes in every step until they are acquired, so that only the last step is left to copy.
    ``allowance`` is how many bytes of large values the step may copy, None without a bound.
    """

    region: str
    generation: int
    bins: BinSet
    allowance: int | None = None


class Question(msgspec.Struct, frozen=True, tag="question"):
    """A question of a committed part: every worker that gets it answers with the same ``body``.

    So the part knows who has seen it.
    """

    part: str
    body: bytes = b""


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """The end of a step's data."""

    step: int


class End(msgspec.Struct, frozen=True, tag="end"):
    """The input has ended, and everything before this operator has: its keys get their end."""

    operator: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """A worker has no bins any more: this step is its last."""

    worker: int


Message: TypeAlias = (
    Load
    | Acquire
    | Hold
    | End
    | Interrogate
    | ScaleUp
    | ScaleDown
    | Collect
    | Prefetch
    | Question
    | Barrier
    | Shutdown
)

BEFORE_DATA = (Load, Acquire, Hold)
"""What an operator sees before the first row of a step (R2)."""

AFTER_DATA = (End, Interrogate, ScaleUp, ScaleDown, Collect, Prefetch, Question, Barrier, Shutdown)
"""What it sees after the last, in this order."""

_ORDER: dict[type, int] = {kind: place for place, kind in enumerate((*BEFORE_DATA, *AFTER_DATA))}


def in_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a step in the only order; those of one kind stay in theirs.

    >>> [type(each).__name__ for each in in_order([Shutdown(3), Barrier(7), Interrogate("r", 1)])]
    ['Interrogate', 'Barrier', 'Shutdown']
    """
    return tuple(sorted(messages, key=lambda message: _ORDER[type(message)]))


class KeyRegister(Protocol):
    """``Interrogate``, as an operator sees it: where it registers the keys that it has state of."""

    def add_keys(self, keys: Iterable[Any]) -> None:
        """Register keys; a key that is registered again counts once."""
        ...


class NewShares(Protocol):
    """``ScaleUp`` or ``ScaleDown``, as an operator sees it: the bins are going to be shared anew.

    ``fewer``: among fewer workers than now.
    """

    @property
    def fewer(self) -> bool:
        """Whether there are going to be fewer workers."""
        ...

    def can_stay(self, key: object) -> bool:
        """Whether a key of this step stays where it is; ``KeyError`` for another key."""
        ...


class LeavingState(Protocol):
    """``Collect``, as an operator sees it: keys that are another worker's after this step."""

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys that leave and have something saved."""
        ...

    def add_state(self, key: object, state: bytes) -> None:
        """What to hand over of a key, in place of what was saved; the last word counts."""
        ...


class ArrivingState(Protocol):
    """``Acquire``, as an operator sees it: keys that were another worker's before this step."""

    def take_state(self) -> dict[Any, bytes] | None:
        """What was saved of each key that has come; None when it was taken, or nothing came.

        What is taken is the taker's to apply: ``load`` is not called for these keys in this step.
        """
        ...


FileTags: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""By a source's number: how its rows name their files."""


class Control(msgspec.Struct, frozen=True, tag="control"):
    """A worker's messages for one step, and which step it is.

    ``level`` and ``partition`` say which task it is for; a task passes on what is for a deeper
    level. ``tags`` numbers the files of each source, as their rows name them, in planned order; a
    task that gets no rows of files has none. ``next_partitions`` is the number of partitions behind
    the exchange that follows, None where rows stay in their partition. ``profile`` is how the task
    is to be looked at, None for not at all.
    """

    level: int
    partition: int
    group: str
    worker: int
    owned: BinSet
    messages: tuple[Message, ...]
    clock_ns: int = 0
    step: int = 0
    revision: int = 0
    tags: FileTags = ()
    next_partitions: int | None = None
    profile: ProfileKind | None = None


class Attempt(msgspec.Struct, frozen=True, tag="attempt"):
    """Which execution of a task some rows are from: its place, and 128 random bits."""

    level: int
    group: str
    worker: int
    attempt: str


class StateReport(msgspec.Struct, frozen=True):
    """What a task did to one operator's state: the new run list of the bins it owns."""

    operator: str
    owned: BinSet
    runs: RunList
    live: tuple[int, ...]
    rows_merged: int


class Tally(msgspec.Struct, frozen=True):
    """How many rows passed a place (an edge or a sink), and their hash, by bin.

    Places without a key have one entry, bin 0.
    """

    place: str
    bins: tuple[int, ...]
    rows: tuple[int, ...]
    hashes: tuple[int, ...]


class Passed(msgspec.Struct, frozen=True):
    """How a message of a rescale has passed a task: by which operators, and who handled it.

    ``keys`` is how many keys were registered, collected or taken.
    """

    message: str
    region: str | None
    operators: tuple[str, ...]
    handled: tuple[str, ...]
    keys: int


class Registered(msgspec.Struct, frozen=True):
    """How many keys of each bin an operator has registered when it was interrogated."""

    region: str
    operator: str
    bins: tuple[int, ...]
    keys: tuple[int, ...]


class PartitionRead(msgspec.Struct, frozen=True):
    """What a read task has read of one partition of a source: rows, and where it began."""

    source: str
    partition: int
    rows: int
    start: int | None = None


class BinCopied(msgspec.Struct, frozen=True):
    """All that a bin had at the step before is in the home of the task's worker."""

    region: str
    bin: int
    bytes: int
    seconds: float


class PartAnswer(msgspec.Struct, frozen=True):
    """A worker's answer to a ``Question`` of a committed part."""

    part: str
    region: str
    worker: int
    body: bytes


class Report(msgspec.Struct, frozen=True, tag="report"):
    """A task's answer: what it wrote, what it counted, and whose work it has used.

    ``passed`` and ``registered`` are there while a rescale is under way, ``read`` is a read task's,
    ``profile`` is there if it was requested, ``answers`` are those to questions of parts.
    """

    attempt: Attempt
    consumed: tuple[Attempt, ...]
    states: tuple[StateReport, ...]
    staged: tuple[StagedFile, ...]
    tallies: tuple[Tally, ...]
    seconds: dict[str, float]
    passed: tuple[Passed, ...] = ()
    registered: tuple[Registered, ...] = ()
    read: tuple[PartitionRead, ...] = ()
    homes: HomeUse = HomeUse()
    copied: tuple[BinCopied, ...] = ()
    profile: TaskProfile | None = None
    answers: tuple[PartAnswer, ...] = ()


Note: TypeAlias = Control | Attempt | Report
"""What a row that is not data holds."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Note).decode

decode_message = msgspec.json.Decoder(Message).decode
"""A message that stands in a plan."""
