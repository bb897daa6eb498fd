"""Everything that travels between tasks beside the data: read this and you know the protocol.

Messages to a worker come in one *control row* per worker and step, before its data. Answers go the
same way as the data, downstream, as *report rows*: the full report to one task of the next level,
the number of the attempt to all of them, so that everyone can say which attempt it has used.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from anabranch.sinks.port import StagedFile
from anabranch.state.bins import BinSet
from anabranch.state.run_list import RunList


class Load(msgspec.Struct, frozen=True, tag="load"):
    """State arrives: the runs of an operator's bins, and how many live keys each bin has."""

    operator: str
    runs: RunList
    live: tuple[int, ...]


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """The end of a step's data."""

    step: int


class End(msgspec.Struct, frozen=True, tag="end"):
    """The input has ended, and everything before this operator has: its keys get their end."""

    operator: str


Message: TypeAlias = Load | End | Barrier


class Control(msgspec.Struct, frozen=True, tag="control"):
    """A worker's messages for one step.

    ``level`` and ``partition`` say which task it is for; a task passes on what is for a deeper
    level.
    """

    level: int
    partition: int
    group: str
    worker: int
    owned: BinSet
    messages: tuple[Message, ...]


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


class Report(msgspec.Struct, frozen=True, tag="report"):
    """A task's answer: what it wrote, what it counted, and whose work it has used."""

    attempt: Attempt
    consumed: tuple[Attempt, ...]
    states: tuple[StateReport, ...]
    staged: tuple[StagedFile, ...]
    tallies: tuple[Tally, ...]
    seconds: dict[str, float]


Note: TypeAlias = Control | Attempt | Report
"""What a row that is not data holds."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Note).decode
