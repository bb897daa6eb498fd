"""Streams whose rows are grouped by key and window."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from anabranch.dataflow import graph as nodes
from anabranch.dataflow.order_by import OrderBy, order_columns
from anabranch.dataflow.stream import GraphBuilder, Stream, named_texts, require_text
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
