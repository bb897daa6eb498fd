"""One step of any windowed operator."""

from __future__ import annotations

from anabranch.operators.rows import Rows
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.operators.windows.contents import Contents
from anabranch.operators.windows.pane_step import PaneStep
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.session_step import SessionStep
from anabranch.operators.windows.sessions import SessionGap


def window_step(
    operator: str,
    windows: Panes | SessionGap,
    contents: Contents,
    keys: list[str],
    rows: Rows | None,
    frontier: FrontierMove,
    state: TimedEntries,
    *,
    emits_changes: bool = False,
) -> TimedResult:
    """Process a step: fired rows, closing windows, then the other rows.

    ``keys`` are the names of the key columns. A window is output once, when it closes; or, with
    ``emits_changes``, whenever a step changes it and not when it closes.
    """
    if isinstance(windows, SessionGap):
        return SessionStep(operator, windows, contents, keys, state, frontier).run(rows)
    return PaneStep(operator, windows, contents, keys, emits_changes, state, frontier).run(rows)
