"""The protocol between tasks: everything that travels beside the data.

A worker gets its messages in one *control row* per step, before its data. Answers travel downstream
with the data, as *report rows*: the full report goes to one task of the next level, the attempt
number to all of them, so that each can say which attempt it used.

The views that the methods of a user's ``Process`` get of messages are here too: ``ArrivingState``,
``KeyRegister``, ``NewShares``, ``LeavingState``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import msgspec

from anabranch.records.bin_set import BinSet
from anabranch.records.home_use import HomeUse
from anabranch.records.profiles import ProfileKind, TaskProfile
from anabranch.records.run_list import RunList
from anabranch.records.staged_file import StagedFile
from anabranch.records.times import END_OF_TIME


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Load state: the runs of an operator's bins, and the number of live keys per bin."""

    operator: str
    runs: RunList
    live: tuple[int, ...]


class BinsMessage(msgspec.Struct, frozen=True):
    """A message about bins of a region; ``generation`` is that of their assignment."""

    region: str
    generation: int
    bins: BinSet


class Acquire(BinsMessage, frozen=True, tag="acquire"):
    """Take over bins: this worker has their state of the step before ahead of its first row (R2).

    An operator with state outside its handles takes it with ``ArrivingState.take_state``.
    """


class Hold(BinsMessage, frozen=True, tag="hold"):
    """Do not compact these bins: their next owner is copying them."""


class Advance(msgspec.Struct, frozen=True, tag="advance"):
    """The frontier of an operator: no row earlier than ``until`` is expected any more.

    ``since`` was its frontier in the step before. What falls due in between is due in this step,
    before its data. At the end of time, the operator's input has ended.
    """

    operator: str
    since: int
    until: int

    @property
    def ends(self) -> bool:
        """Whether the operator's input has ended since the step before."""
        return self.since < END_OF_TIME <= self.until


class Interrogate(msgspec.Struct, frozen=True, tag="interrogate"):
    """Report the keys, bytes, rows and seconds of each bin.

    Operators answer with ``KeyRegister.add_keys``.
    """

    region: str
    generation: int


class ScaleUp(msgspec.Struct, frozen=True, tag="scale_up"):
    """Announce a reassignment of the region's bins to as many workers or more; these can stay."""

    region: str
    generation: int
    can_stay: BinSet


class ScaleDown(msgspec.Struct, frozen=True, tag="scale_down"):
    """Announce a reassignment of the region's bins to fewer workers; these can stay."""

    region: str
    generation: int
    can_stay: BinSet


class Collect(BinsMessage, frozen=True, tag="collect"):
    """Hand over bins: after the data of this step, another worker owns their state.

    Operators with state outside their handles hand it over with ``LeavingState.add_state``.
    """


class Prefetch(BinsMessage, frozen=True, tag="prefetch"):
    """Copy the files of bins that will arrive, as of the step before, to this worker's home.

    It is sent in every step until they are acquired, so that only the last step is left to copy.
    ``allowance`` is how many bytes of large values the step may copy; None is unlimited.
    """

    allowance: int | None = None


class Question(msgspec.Struct, frozen=True, tag="question"):
    """A committed part asks which workers it reaches: each answers with the same ``body``."""

    part: str
    body: bytes = b""


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """The end of a step's data."""

    step: int


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """A worker has no bins left: this step is its last."""

    worker: int


Message: TypeAlias = (
    Load
    | Acquire
    | Hold
    | Advance
    | Interrogate
    | ScaleUp
    | ScaleDown
    | Collect
    | Prefetch
    | Question
    | Barrier
    | Shutdown
)

BEFORE_DATA = (Load, Acquire, Hold, Advance)
"""The messages before the first row of a step (R2)."""

AFTER_DATA = (Interrogate, ScaleUp, ScaleDown, Collect, Prefetch, Question, Barrier, Shutdown)
"""The messages after the last row, in this order."""

_ORDER: dict[type, int] = {kind: place for place, kind in enumerate((*BEFORE_DATA, *AFTER_DATA))}


def in_order(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages of a step in protocol order; messages of one kind keep their order.

    >>> [type(each).__name__ for each in in_order([Shutdown(3), Barrier(7), Interrogate("r", 1)])]
    ['Interrogate', 'Barrier', 'Shutdown']
    """
    return tuple(sorted(messages, key=lambda message: _ORDER[type(message)]))


class KeyRegister(Protocol):
    """``Interrogate``, as an operator sees it: where it registers the keys that it has state of."""

    def add_keys(self, keys: Iterable[Any]) -> None:
        """Register keys; a key that is registered again counts once."""


class NewShares(Protocol):
    """``ScaleUp`` or ``ScaleDown``, as an operator sees it: the bins are going to be shared anew.

    ``fewer``: among fewer workers than now.
    """

    @property
    def fewer(self) -> bool:
        """Whether there are going to be fewer workers."""

    def can_stay(self, key: object) -> bool:
        """Whether a key of this step stays where it is; ``KeyError`` for another key."""


class LeavingState(Protocol):
    """``Collect``, as an operator sees it: keys that are another worker's after this step."""

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys that leave and have something saved."""

    def add_state(self, key: object, state: bytes) -> None:
        """What to hand over of a key, in place of what was saved; the last word counts."""


class ArrivingState(Protocol):
    """``Acquire``, as an operator sees it: keys that were another worker's before this step."""

    def take_state(self) -> dict[Any, bytes] | None:
        """What was saved of each key that has come; None when it was taken, or nothing came.

        What is taken is the taker's to apply: ``load`` is not called for these keys in this step.
        """


FileTags: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""By source number: the tags by which rows name their files."""


class Control(msgspec.Struct, frozen=True, tag="control"):
    """The control row: a worker's messages for one step.

    ``level`` and ``partition`` address a task; tasks pass on rows for deeper levels. ``tags`` lists
    the files of each source by the tags in their rows, in planned order; it is empty for tasks that
    get no rows of files. ``next_partitions`` is the number of partitions after the next exchange,
    None if rows stay in their partition. ``profile`` is how to profile the task, None for not.
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
    """The execution of a task that rows come from: its place, and 128 random bits."""

    level: int
    group: str
    worker: int
    attempt: str


class StateReport(msgspec.Struct, frozen=True):
    """A task's changes to one operator's state: the new run list of the bins it owns."""

    operator: str
    owned: BinSet
    runs: RunList
    live: tuple[int, ...]
    rows_merged: int


class Tally(msgspec.Struct, frozen=True):
    """The number of rows that passed a place (an edge or a sink), and their hash, by bin.

    Places without a key have one entry, bin 0.
    """

    place: str
    bins: tuple[int, ...]
    rows: tuple[int, ...]
    hashes: tuple[int, ...]


class Passed(msgspec.Struct, frozen=True):
    """A rescale message that passed through a task: its operators, and those that handled it.

    ``keys`` is the number of keys registered, collected or taken.
    """

    message: str
    region: str | None
    operators: tuple[str, ...]
    handled: tuple[str, ...]
    keys: int


class Registered(msgspec.Struct, frozen=True):
    """The number of keys per bin that an operator registered when it was interrogated."""

    region: str
    operator: str
    bins: tuple[int, ...]
    keys: tuple[int, ...]


class PartitionRead(msgspec.Struct, frozen=True):
    """What a read task read from one partition of a source: row count and start position."""

    source: str
    partition: int
    rows: int
    start: int | None = None


class ReadTime(msgspec.Struct, frozen=True):
    """The latest event time that a step read of a timed input; of a partition if that is known."""

    input: str
    partition: int | None
    latest: int


class PendingTimes(msgspec.Struct, frozen=True):
    """The earliest time of output that each bin of an operator has pending after a step.

    A task names those of its bins that have something pending; the others have nothing.
    """

    operator: str
    bins: tuple[int, ...]
    times: tuple[int, ...]


class LateRows(msgspec.Struct, frozen=True):
    """How many rows came too late for an operator."""

    operator: str
    rows: int


class OverdueTimers(msgspec.Struct, frozen=True):
    """How many timers of an operator were due already when they were set."""

    operator: str
    timers: int


class BinCopied(msgspec.Struct, frozen=True):
    """A bin is fully copied to the home of the task's worker, as of the step before."""

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
    """The report row: what a task wrote and counted, and the attempts it consumed.

    ``passed`` and ``registered`` are set during a rescale, ``read`` by read tasks, ``profile`` if
    one was requested, ``answers`` by the questions of parts. ``times`` are those of read rows,
    ``pending`` is in event time, ``wakes`` is by the step's clock, in microseconds.
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
    times: tuple[ReadTime, ...] = ()
    pending: tuple[PendingTimes, ...] = ()
    wakes: tuple[PendingTimes, ...] = ()
    late: tuple[LateRows, ...] = ()
    overdue: tuple[OverdueTimers, ...] = ()


Note: TypeAlias = Control | Attempt | Report
"""The content of a row that is not data."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Note).decode

decode_message = msgspec.json.Decoder(Message).decode
"""Decode a message from a plan."""
