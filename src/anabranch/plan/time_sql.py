"""The SQL of event time: what the time of a row is, and the latest one of many.

SQL alone can neither watch rows go by nor read the clock of a step that is not planned yet. So a
query is *cut* where it needs one of them: the part before is a table of its own, to which Spark
adds what SQL cannot say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.dataflow.sql.sql_text import quote, sql_literal
from anabranch.plan.boundary import CLOCK, SOURCE_SHIFT, TIME, TO, order_names
from anabranch.plan.physical import Edge, SeenBy, TimeAssignment
from anabranch.plan.timed_paths import MOST_PARTITIONS
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR

NO_TIME = "anabranch: a row has no event time"
"""Begins the message of an error that Spark raises for such a row."""


class Latest(msgspec.Struct, frozen=True):
    """SQL for the latest time of an input, or of one of its partitions, as an aggregate."""

    input: str
    partition: int | None
    sql: str


class Cut(msgspec.Struct, frozen=True):
    """A part of a query that is a table: a view of this name over this text.

    ``clock``: it also has the column ``CLOCK``. ``latest`` is computed while its rows pass.
    """

    view: str
    text: str
    clock: bool = False
    latest: tuple[Latest, ...] = ()


class CutQuery(msgspec.Struct, frozen=True):
    """A query, and the cuts that it reads from, in their order."""

    text: str
    cuts: tuple[Cut, ...] = ()


class Cuts:
    """The cuts of a query under construction."""

    def __init__(self, partitions: dict[str, int]) -> None:
        """``partitions`` is the number of partitions of sources, as far as it is known."""
        self._partitions = partitions
        self._seen: set[tuple[int, ...]] = set()
        self.made: list[Cut] = []

    def with_clock(self, edge: Edge, assignment: TimeAssignment, rows: str) -> str:
        """The rows with the step's clock."""
        return self._cut(edge, assignment, rows, clock=True)

    def watched(self, edge: Edge, assignment: TimeAssignment, rows: str, *, guarded: bool) -> str:
        """The rows, whose times are watched unless another edge has the same rows here."""
        place = edge.chain.index(assignment)
        way = (edge.producer, *(node.id for node in edge.chain[: place + 1]))
        if assignment.seen_by is SeenBy.READER or way in self._seen:
            return rows
        self._seen.add(way)
        return self._cut(edge, assignment, rows, latest=self._latest(edge, assignment, guarded))

    def _cut(
        self,
        edge: Edge,
        assignment: TimeAssignment,
        rows: str,
        *,
        clock: bool = False,
        latest: tuple[Latest, ...] = (),
    ) -> str:
        kind = "clock" if clock else "times"
        view = f"_ab_{kind}_{edge.consumer}_{edge.id}_{assignment.id}"
        self.made.append(Cut(view, f"select * from {rows}", clock, latest))
        return view

    def _latest(self, edge: Edge, assignment: TimeAssignment, guarded: bool) -> tuple[Latest, ...]:
        conditions = [f"{TIME} < {END_OF_TIME}"]
        if guarded:
            conditions.append(f"{TO} = {edge.id}")
        count = self._partitions.get(assignment.source, 1)
        if assignment.seen_by is not SeenBy.PARTITION or count > MOST_PARTITIONS:
            return (Latest(assignment.input, None, _latest_text(conditions)),)
        return tuple(
            Latest(
                assignment.input,
                number,
                _latest_text([*conditions, f"({partition_text()}) = {number}"]),
            )
            for number in range(count)
        )


def partition_text() -> str:
    """SQL for the partition of a row that Python read, from its order."""
    return f"{order_names(0)[0]} & {(1 << SOURCE_SHIFT) - 1}"


def time_text(assignment: TimeAssignment, columns: Sequence[str]) -> str:
    """SQL for the time of a row with these columns."""
    node = assignment.node
    if node.column is None:
        return CLOCK
    column = TIME if assignment.told else quote(node.column)
    time = TIME if assignment.told else f"unix_micros(cast({column} as timestamp))"
    bound = f"{END_OF_TIME - 1}"
    if node.ahead_us is not None:
        bound = f"least({CLOCK} + {node.ahead_us}, {bound})"
    kept = f"case when {time} > {bound} then {TOO_FAR} else greatest({time}, {EARLIEST}) end"
    if node.on_error != "fail":
        return kept
    return f"case when {column} is null then {_complaint(assignment, columns)} else {kept} end"


def _complaint(assignment: TimeAssignment, columns: Sequence[str]) -> str:
    """SQL that fails for a row, with its source and all its values."""
    head = f"{NO_TIME}: source {assignment.source!r}, column {assignment.node.column!r}: "
    values = ", ".join(f"{sql_literal(name)}, {quote(name)}" for name in columns)
    row = f"to_json(named_struct({values}))"
    return f"cast(raise_error(concat({sql_literal(head)}, {row})) as bigint)"


def _latest_text(conditions: Sequence[str]) -> str:
    return f"max(case when {' and '.join(conditions)} then {TIME} end)"
