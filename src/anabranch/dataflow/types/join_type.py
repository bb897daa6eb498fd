"""Typing of joins: the union of their sides, their key, and their output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from anabranch.dataflow.findings import Finding
from anabranch.dataflow.graph import (
    AnyJoinNode,
    AsOfJoinNode,
    Graph,
    JoinNode,
    LatestJoinNode,
    UnionNode,
)
from anabranch.dataflow.joins import OUTER_SIDES, SIDE, JoinSide, Origin, side_state, waiting_state
from anabranch.dataflow.types.event_times import untimed_finding
from anabranch.dataflow.types.row_type import UNKNOWN_ROW, Column, RowType
from anabranch.dataflow.types.schema import to_ddl
from anabranch.dataflow.types.typed import TypedNode
from anabranch.dataflow.validation import Validation
from anabranch.dataflow.windows import WINDOW_END, WINDOW_START, SessionWindow

LONGEST_US = 1 << 60
"""Times plus and minus a longer duration might not fit into 64 bits."""

_KINDS = 'within=("-1 minute", "1 hour"), window=ab.tumbling("1 day") or ttl="1 day"'
_RENAME = "Rename or drop it with .select on one side, before the join."


class JoinedColumn(msgspec.Struct, frozen=True):
    """A column of a join's output, and where it comes from."""

    column: Column
    origin: Origin


class JoinedRow(msgspec.Struct, frozen=True):
    """What a join keeps of each side, beside the key, and what it gives."""

    left: tuple[Column, ...]
    right: tuple[Column, ...]
    output: tuple[JoinedColumn, ...]


def join_of(graph: Graph, sides: UnionNode) -> AnyJoinNode:
    """The join whose sides a union brings together."""
    (distribution,) = graph.consumers(sides.id)
    (join,) = (n for n in graph.consumers(distribution.id) if isinstance(n, AnyJoinNode))
    return join


def sides_of(graph: Graph, join: AnyJoinNode) -> tuple[int, int]:
    """The nodes of both sides of a join."""
    left, right = graph.node(graph.node(join.inputs[0]).inputs[0]).inputs
    return left, right


def type_sides(walk: Validation, node: UnionNode) -> TypedNode:
    """Type the union of a join's sides; problems are those of the join."""
    sides = [walk.typed[id] for id in node.inputs]
    columns = [Column(SIDE, pa.field(SIDE, pa.int8(), nullable=False))]
    for side, typed in zip(JoinSide, sides, strict=True):
        columns += [_prefixed(side, column) for column in typed.row.columns]
    row = RowType(tuple(columns), open=any(typed.row.open for typed in sides))
    timed = [typed.timed for typed in sides]
    walk.report(join_of(walk.graph, node), [*_key_findings(sides), _time_finding(timed)])
    return TypedNode(
        node,
        row,
        # A missing key was reported: distributing by it is no second problem.
        next_key=_common_key(sides, tuple(JoinSide)),
        ordered=all(typed.ordered for typed in sides),
        timed=any(timed),
    )


def type_join(walk: Validation, node: AnyJoinNode, after: TypedNode) -> TypedNode:
    """Type a join: its output, and what cannot be joined like that."""
    left, right = (walk.typed[id] for id in sides_of(walk.graph, node))
    if not isinstance(node, LatestJoinNode):
        walk.report(node, [untimed_finding(walk, node)])
    walk.report(node, _form_findings(node))
    joined = joined_row(node, left, right)
    columns: list[Column] = []
    for each in joined.output:
        if RowType(tuple(columns)).find(each.column.name) is None:
            columns.append(each.column)
        else:
            what = f'there would be two columns "{each.column.name}"'
            walk.report(node, [Finding(what, _RENAME)])
    is_open = left.row.open or right.row.open
    return replace(after, row=RowType(tuple(columns), open=is_open))


def joined_row(node: AnyJoinNode, left: TypedNode, right: TypedNode) -> JoinedRow:
    """The columns of a join: the left's with the key, the right's without it, the window's.

    The key has the names of the left one. Key columns that the left rows do not have come first.
    Columns of the window are left out if a side has such columns.
    """
    left_key, right_key = left.next_key or UNKNOWN_ROW, right.next_key or UNKNOWN_ROW
    kept = [
        tuple(c for c in typed.row.columns if key.find(c.name) is None)
        for typed, key in ((left, left_key), (right, right_key))
    ]
    outer = OUTER_SIDES[node.how]
    key = _common_key([left, right], outer or (JoinSide.LEFT,))
    made = list(_left_columns(left.row, key, nullable=JoinSide.RIGHT in outer))
    made += [
        JoinedColumn(_nullable(column, JoinSide.LEFT in outer), Origin("right", place))
        for place, column in enumerate(kept[1])
    ]
    if isinstance(node, JoinNode) and node.window is not None:
        given = RowType((*left.row.columns, *right.row.columns))
        made += [
            JoinedColumn(Column(name, pa.field(name, _TIMESTAMP)), Origin("window", place))
            for place, name in enumerate((WINDOW_START, WINDOW_END))
            if given.find(name) is None
        ]
    return JoinedRow(kept[0], kept[1], tuple(made))


_TIMESTAMP = pa.timestamp("us", "UTC")


def join_states(node: AnyJoinNode) -> Sequence[str]:
    """The names of the states that a join keeps beside one of its own name."""
    if isinstance(node, LatestJoinNode):
        return ()
    waiting = OUTER_SIDES[node.how] if isinstance(node, JoinNode) else ()
    return (
        *(side_state(node.name, side) for side in JoinSide),
        *(waiting_state(node.name, side) for side in waiting),
    )


def _common_key(sides: Sequence[TypedNode], given_by: Sequence[JoinSide]) -> RowType:
    """The key under the left's names; it may be NULL if that of a side that gives it may be."""
    keys = [side.next_key for side in sides]
    left = keys[0]
    if left is None:
        return UNKNOWN_ROW
    sources = [keys[side] or UNKNOWN_ROW for side in given_by]
    columns = []
    for place, column in enumerate(left.columns):
        same = [key.columns[place].field for key in sources if place < len(key.columns)]
        may_be_null = any(field is None or field.nullable for field in same)
        field = None if column.field is None else column.field.with_nullable(may_be_null)
        columns.append(Column(column.name, field))
    return RowType(tuple(columns), open=left.open)


def _left_columns(row: RowType, key: RowType, *, nullable: bool) -> Iterator[JoinedColumn]:
    """The left rows' columns with the key among them, each once."""
    places = {column.name.lower(): place for place, column in enumerate(key.columns)}
    for column in key.columns:
        if row.find(column.name) is None:
            yield JoinedColumn(column, Origin("key", places[column.name.lower()]))
    kept = 0
    for column in row.columns:
        place = places.get(column.name.lower())
        if place is not None:
            yield JoinedColumn(key.columns[place], Origin("key", place))
        else:
            yield JoinedColumn(_nullable(column, nullable), Origin("left", kept))
            kept += 1


def _prefixed(side: JoinSide, column: Column) -> Column:
    name = side.prefix + column.name
    if column.field is None:
        return Column(name, None)
    return Column(name, column.field.with_name(name).with_nullable(True))


def _nullable(column: Column, nullable: bool) -> Column:
    if column.field is None or not nullable:
        return column
    return Column(column.name, column.field.with_nullable(True))


def _key_findings(sides: Sequence[TypedNode]) -> list[Finding]:
    missing = [
        Finding(
            f"its {side.title} side has no key",
            f'Call .key_by("column") on the {side.title} side, right before the join.',
        )
        for side, typed in zip(JoinSide, sides, strict=True)
        if typed.next_key is None
    ]
    if missing:
        return missing
    left, right = (None if side.next_key is None else side.next_key.schema() for side in sides)
    if left is None or right is None or left.types == right.types:
        return []
    what = f"its sides have different keys: {to_ddl(left)} and {to_ddl(right)}"
    return [Finding(what, "Give both the same types, in the same order: cast them at key_by.")]


def _time_finding(timed: Sequence[bool]) -> Finding | None:
    if all(timed) or not any(timed):
        return None
    with_times, without = (JoinSide(timed.index(each)).title for each in (True, False))
    return Finding(
        f"its {without} side has no event times, but the {with_times} one has them",
        f"Call .assign_timestamps on the {without} side too.",
    )


def _form_findings(node: AnyJoinNode) -> list[Finding]:
    if isinstance(node, LatestJoinNode):
        return []
    if isinstance(node, AsOfJoinNode):
        return length_findings(node.tolerance_us or 0)
    forms = {"within": node.within_us, "window": node.window, "ttl": node.ttl_us}
    given = [name for name, form in forms.items() if form is not None]
    if not given:
        what = "nothing says which rows meet, so its state would only grow"
        return [Finding(what, f"Give it one of {_KINDS}.")]
    if len(given) > 1:
        return [Finding(f"it has {' and '.join(given)}", "Keep one of them.")]
    findings = length_findings(*(node.within_us or (node.ttl_us or 0,)))
    if node.ttl_us is not None and node.how != "inner":
        what = f"a {node.how} join with a ttl does not know when a row stays alone"
        findings.append(Finding(what, 'Use within=("-1 day", "1 day") in place of ttl="1 day".'))
    if node.within_us is not None and node.within_us[0] > node.within_us[1]:
        what = "the lower bound of within is above the upper one"
        findings.append(Finding(what, "Swap them: within=(lower, upper)."))
    if isinstance(node.window, SessionWindow):
        what = "the rows of two streams have no sessions in common"
        findings.append(Finding(what, "Use ab.tumbling(…), ab.sliding(…) or within=…."))
    return findings


def length_findings(*durations: int) -> list[Finding]:
    """Refuse durations in microseconds that cannot be added to times."""
    if all(abs(duration) <= LONGEST_US for duration in durations):
        return []
    return [Finding("a duration is over 36,000 years", "Shorten it.")]
