"""Streams whose rows are grouped by key and window."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.order_by import By, OrderBy, order_columns
from anabranch.dataflow.stream import (
    GraphBuilder,
    Stream,
    named_texts,
    require_operator,
    require_text,
    top_columns,
)
from anabranch.dataflow.windows import SessionWindow, SlidingWindow, TumblingWindow, Window

Emit: TypeAlias = Literal["final", "changes"]


class WindowedStream:
    """The rows of a stream by key and window. Follow it with what to do with each window."""

    __slots__ = ("_id", "_recorder", "_window")

    def __init__(self, recorder: GraphBuilder, id: int, window: Window) -> None:
        """Wrap a recorded node. Users get one from ``Stream.window``."""
        if not isinstance(window, TumblingWindow | SlidingWindow | SessionWindow):
            raise TypeError(
                f"window takes ab.tumbling(…), ab.sliding(…) or ab.session(…), not {window!r}"
            )
        self._recorder = recorder
        self._id = id
        self._window = window

    def aggregate(
        self, name: str, /, *, emit: Emit = "final", order_by: OrderBy = None, **columns: str
    ) -> Stream:
        """Aggregate each window of each key, e.g. ``n="count(*)", top="max(price)"``.

        With ``emit="final"`` a window is output once, when it closes; with ``"changes"``, its new
        values whenever a step changes it. A row has the key's columns, ``window_start``,
        ``window_end`` and the values. Rows that come too late are in ``.late``.
        """
        require_text("aggregate", "a name", name)
        if emit not in get_args(Emit):
            raise ValueError(f'aggregate: emit is "final" or "changes", not {emit!r}')
        pairs = named_texts("aggregate", columns)
        by = order_columns("aggregate", order_by)
        added = self._recorder.add(
            nodes.AggregateNode, (self._id,), name, pairs, None, by, self._window, emit
        )
        return Stream(self._recorder, added)

    def top(self, name: str, count: int, *, by: By, ties: bool = False) -> Stream:
        """The first ``count`` rows of each window of each key, e.g. ``by="price desc, id"``.

        They are output when the window closes, in order: the columns of the rows, ``window_start``
        and ``window_end`` unless the rows have such columns, and ``rank``. NULL comes last, and of
        equal rows the first to come is the first. With ``ties``, all rows that equal the last one
        are among them, and equal rows have one rank. Rows that come too late are in ``.late``.
        """
        columns = top_columns(name, count, by)
        added = self._recorder.add(
            nodes.TopNode, (self._id,), name, count, columns, bool(ties), None, self._window
        )
        return Stream(self._recorder, added)

    def apply(self, name: str, function: nodes.BatchFunction, *, output: str) -> Stream:
        """Call ``function(table)`` with the rows of closed windows; its results are the rows.

        The Arrow table has the key's columns, ``window_start``, ``window_end``, the columns of the
        rows, and ``_window``, the number of the window in this table. It has all rows of each of
        its windows, as they came, and as many windows as suit. The function returns a table with
        the columns of ``output``: one row per window, or any rows, each with the ``_window`` that
        it is of. What it gives for a window must not depend on the others in the table. Rows that
        come too late are in ``.late``.
        """
        require_operator("apply", name, function, output, "fail")
        added = self._recorder.add(
            nodes.ApplyNode, (self._id,), name, function, output, self._window
        )
        return Stream(self._recorder, added)
