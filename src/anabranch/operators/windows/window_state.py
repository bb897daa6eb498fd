"""The state of windowed operators: a row for each pane or session of a key."""

from __future__ import annotations

import pyarrow as pa

from anabranch.operators.order.row_order import Int64s
from anabranch.operators.state_shape import StateShape
from anabranch.operators.windows.contents import TIME_TYPE
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap


def window_shape(
    name: str, kind: str, windows: Panes | SessionGap, values: pa.Schema
) -> StateShape:
    """The shape of a state with a row for each pane or session, which fall due by event time.

    The windows are part of its kind: those of other windows cannot be continued.
    """
    subkeys = pa.schema([pa.field(start_name(windows), TIME_TYPE)])
    text = f"{kind} over {windows_text(windows)}"
    return StateShape(name, text, values, subkeys, expires=True, clock="event", dues=True)


def start_name(windows: Panes | SessionGap) -> str:
    """The name of the sub-key: a pane of a sliding window is not a window by itself."""
    sliding = isinstance(windows, Panes) and windows.every < windows.length
    return "pane_start" if sliding else "window_start"


def windows_text(windows: Panes | SessionGap) -> str:
    """The windows as part of a state's kind, in microseconds.

    >>> windows_text(Panes(length=10, every=10, offset=2)), windows_text(SessionGap(5))
    ('tumbling(10, offset=2)', 'session(5)')
    >>> windows_text(Panes(length=10, every=4))
    'sliding(10, every=4)'
    """
    if isinstance(windows, SessionGap):
        return f"session({windows.gap})"
    if windows.every < windows.length:
        return f"sliding({windows.length}, every={windows.every})"
    return f"tumbling({windows.length}, offset={windows.offset})"


def window_holds(windows: Panes | SessionGap, dues: Int64s, frontier: int) -> Int64s:
    """The time of the next output of windows, by when their state falls due; never too late."""
    ends = dues if isinstance(windows, SessionGap) else windows.earliest_end(dues, frontier)
    return ends - 1
