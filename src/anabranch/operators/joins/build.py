"""Joins from their nodes in a dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from anabranch.dataflow.graph import AnyJoinNode, AsOfJoinNode, JoinNode, LatestJoinNode
from anabranch.dataflow.types.join_type import joined_row, sides_of
from anabranch.dataflow.types.row_type import Column
from anabranch.dataflow.types.typed import Typed
from anabranch.operators.joins.as_of import AsOfJoin
from anabranch.operators.joins.columns import JoinColumns
from anabranch.operators.joins.interval import IntervalJoin
from anabranch.operators.joins.latest import LatestJoin
from anabranch.operators.joins.windowed import WindowJoin
from anabranch.operators.windows.build import window_form
from anabranch.operators.windows.panes import Panes

AnyJoin: TypeAlias = IntervalJoin | WindowJoin | AsOfJoin | LatestJoin


def build_join(typed: Typed, node: AnyJoinNode) -> AnyJoin:
    """The operator of a join."""
    columns = join_columns(typed, node)
    match node:
        case AsOfJoinNode():
            return AsOfJoin(node.name, columns, node.tolerance_us, node.how)
        case LatestJoinNode():
            return LatestJoin(node.name, columns, node.how)
        case JoinNode(within_us=(lower, upper)):
            return IntervalJoin(node.name, columns, lower, upper, node.how)
        case JoinNode(ttl_us=int(ttl)):
            # Rows that are held for so long meet those that are no further away.
            return IntervalJoin(node.name, columns, -ttl, ttl, node.how)
        case _:
            assert node.window is not None
            windows = window_form(node.window)
            assert isinstance(windows, Panes)
            return WindowJoin(node.name, columns, windows, node.how)


def join_columns(typed: Typed, node: AnyJoinNode) -> JoinColumns:
    """The columns of a join of a valid dataflow."""
    left, right = (typed.nodes[id] for id in sides_of(typed.graph, node))
    row = joined_row(node, left, right)
    return JoinColumns(
        _schema(row.left),
        _schema(row.right),
        typed.schema(node.id),
        tuple(each.origin for each in row.output),
    )


def _schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns as state has them, and rows of the other side too: nullable."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])
