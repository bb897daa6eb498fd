"""Windows in plain Python, a row and a window at a time; and random steps of rows for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.operators.windows.panes import Panes
from anabranch.operators.windows.sessions import SessionGap
from anabranch.records.times import EARLIEST, END_OF_TIME, TOO_FAR
from tests.operators.keyed_rows import make_rows

KEYS = pa.schema([("k", pa.string())])
VALUES = pa.schema([("v", pa.int64()), ("number", pa.int64())])
Windows = Panes | SessionGap


class Event(NamedTuple):
    """A row: its number is its place in the order of all rows."""

    key: str | None
    time: int
    value: int | None
    number: int


@dataclass(frozen=True)
class Step:
    """The frontier of a step, the rows that notifications upstream made, and its own rows."""

    until: int
    fired: tuple[Event, ...] = ()
    data: tuple[Event, ...] = ()


class ModelWindow(NamedTuple):
    """A window with its rows, in the order in which functions see them."""

    key: str | None
    start: int
    end: int
    rows: tuple[Event, ...]


@dataclass
class ModelStep:
    """What a step makes: closed windows, those that it changed in both halves, and late rows."""

    closed: list[ModelWindow] = field(default_factory=list)
    changed_by_fired: list[ModelWindow] = field(default_factory=list)
    changed: list[ModelWindow] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)


class PaneModel:
    """Tumbling and sliding windows."""

    def __init__(self, panes: Panes) -> None:
        self.panes = panes
        self.frontier = EARLIEST
        self.kept: list[tuple[Event, list[int]]] = []

    def ends(self, time: int) -> list[int]:
        """The ends of the windows that hold a time, by trying those around it."""
        length, every, offset = self.panes.length, self.panes.every, self.panes.offset
        nearest = (time - offset) // every
        starts = (offset + every * n for n in range(nearest - length - 1, nearest + 2))
        return [start + length for start in starts if start <= time < start + length]

    def step(self, step: Step) -> ModelStep:
        made, since = ModelStep(), self.frontier
        made.changed_by_fired = self._add(step.fired, since, made)
        open_ = {(event.key, end) for event, ends in self.kept for end in ends}
        made.closed = [self._window(*each) for each in open_ if since < each[1] <= step.until]
        made.changed = self._add(step.data, step.until, made)
        self.frontier = step.until
        return made

    def _add(self, events: Sequence[Event], frontier: int, made: ModelStep) -> list[ModelWindow]:
        changed = set()
        for event in events:
            ends = [end for end in self.ends(event.time) if end > frontier]
            if ends and event.time != TOO_FAR:
                self.kept.append((event, ends))
                changed |= {(event.key, end) for end in ends}
            else:
                made.late.append(event)
        return [self._window(*each) for each in changed]

    def _window(self, key: str | None, end: int) -> ModelWindow:
        unit = np.gcd(self.panes.length, self.panes.every)
        inside = [event for event, ends in self.kept if event.key == key and end in ends]
        # Panes follow each other in time; within one, rows are as they came.
        inside.sort(key=lambda event: (event.time - self.panes.offset) // unit)
        return ModelWindow(key, end - self.panes.length, end, tuple(inside))


class SessionModel:
    """Sessions; when some merge, the rows of the earlier session come first."""

    def __init__(self, windows: SessionGap) -> None:
        self.gap = windows.gap
        self.frontier = EARLIEST
        self.open: list[ModelWindow] = []

    def step(self, step: Step) -> ModelStep:
        made = ModelStep()
        self._add(step.fired, self.frontier, made)
        made.closed = [session for session in self.open if session.end <= step.until]
        self.open = [session for session in self.open if session.end > step.until]
        self._add(step.data, step.until, made)
        self.frontier = step.until
        return made

    def _add(self, events: Sequence[Event], frontier: int, made: ModelStep) -> None:
        made.late += [event for event in events if event.time == TOO_FAR]
        events = [event for event in events if event.time != TOO_FAR]
        groups = [[session] for session in self.open]
        groups += [[ModelWindow(e.key, e.time, e.time + self.gap, (e,))] for e in events]
        while (pair := self._overlapping(groups)) is not None:
            first, second = pair
            groups[first] += groups.pop(second)
        known, self.open = self.open, []
        for group in groups:
            start, end = min(s.start for s in group), max(s.end for s in group)
            before = sorted((s for s in group if s in known), key=lambda s: s.start)
            new = [e for s in group if s not in known for e in s.rows]
            new.sort(key=lambda event: event.number)
            rows = (*(event for session in before for event in session.rows), *new)
            if end <= frontier:
                made.late += rows
            else:
                self.open.append(ModelWindow(group[0].key, start, end, rows))

    @staticmethod
    def _overlapping(groups: list[list[ModelWindow]]) -> tuple[int, int] | None:
        for first, ours in enumerate(groups):
            for second in range(first + 1, len(groups)):
                if any(
                    a.key == b.key and a.start < b.end and b.start < a.end
                    for a in ours
                    for b in groups[second]
                ):
                    return first, second
        return None


def model_of(windows: Windows) -> PaneModel | SessionModel:
    return SessionModel(windows) if isinstance(windows, SessionGap) else PaneModel(windows)


@st.composite
def some_panes(draw: st.DrawFn) -> Panes:
    every = draw(st.sampled_from([1, 3, 4, 6]))
    length = draw(st.sampled_from([every, every, every * 2, every * 3, every + 1, every + 5]))
    return Panes(length, every, draw(st.sampled_from([0, 0, 1, -2])))


some_sessions = st.integers(1, 9).map(SessionGap)


@st.composite
def scripts(draw: st.DrawFn, *, most: int = 6, fired: bool = True) -> list[Step]:
    """Steps with late and early rows; the last closes everything that is open."""
    count = draw(st.integers(1, most))
    moves = draw(st.lists(st.integers(0, 14), min_size=count, max_size=count))
    frontiers = [EARLIEST] * draw(st.integers(0, 1))
    frontiers += (np.cumsum(moves) - 5).tolist()
    steps, number, since = [], 0, EARLIEST
    for until in frontiers:
        parts = []
        for least in (max(since, -10), max(until, 0) - 12):
            cells = draw(st.lists(cells_from(least), max_size=5))
            parts.append(tuple(Event(k, t, v, number + i) for i, (k, t, v) in enumerate(cells)))
            number += len(cells)
        fired_part, data = parts if fired else ((), parts[1])
        data = tuple(e._replace(time=TOO_FAR) if e.value == 7 else e for e in data)
        steps.append(Step(until, fired_part, data))
        since = until
    return [*steps, Step(END_OF_TIME)]


def cells_from(least: int) -> st.SearchStrategy[tuple[str | None, int, int | None]]:
    return st.tuples(
        st.sampled_from([None, "a", "b", "c"]),
        st.integers(least, least + 25),
        st.none() | st.integers(-3, 7),
    )


@st.composite
def in_time(draw: st.DrawFn) -> list[Step]:
    """Steps in which no row is late: the frontier stays behind all rows that are to come."""
    cells = draw(st.lists(cells_from(0), min_size=1, max_size=25))
    events = [Event(k, t, v, i) for i, (k, t, v) in enumerate(cells)]
    return cut(events, draw(cuts(len(events))))


def cuts(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, count), max_size=6).map(sorted)


def cut(events: Sequence[Event], places: Sequence[int]) -> list[Step]:
    """The same rows in other steps; each frontier is the largest that makes no row late."""
    steps: list[Step] = []
    for first, last in zip([0, *places], [*places, len(events)], strict=True):
        until = min((event.time for event in events[first:]), default=EARLIEST)
        until = max([until, *(step.until for step in steps)])
        steps.append(Step(until, (), tuple(events[first:last])))
    return [*steps, Step(END_OF_TIME)]


def with_empty_steps(steps: Sequence[Step], where: Sequence[bool]) -> list[Step]:
    """The same frontiers and rows, with steps in between that have no rows of their own.

    Such a step comes before another and takes its frontier, and so the fired rows.
    """
    found: list[Step] = []
    for step, before in zip(steps, where, strict=True):
        if before:
            found += [Step(step.until, step.fired), Step(step.until)]
        found.append(replace(step, fired=()) if before else step)
    return found


FIRED = -1


def rows_of(
    step: Step, arrival: Sequence[int] | None = None, *, spread: int = 3, ordered: bool = True
) -> Rows | None:
    """The rows of a step as a task gets them, in any order of arrival."""
    events = [*step.fired, *step.data]
    if not events:
        return None
    rows = make_rows(
        [(event.key,) for event in events],
        KEYS,
        pa.table(
            {
                "v": pa.array([event.value for event in events], pa.int64()),
                "number": pa.array([event.number for event in events], pa.int64()),
            }
        ),
        spread=spread,
    )
    fired = np.arange(len(events)) < len(step.fired)
    numbers = np.array([event.number for event in events], dtype=np.int64)
    times = np.array([event.time for event in events], dtype=np.int64)
    order = RowOrder((np.where(fired, FIRED, 0), numbers, numbers))
    rows = replace(
        rows,
        order=order if ordered else None,
        times=times,
        fired=fired if len(step.fired) else None,
    )
    return rows if arrival is None else rows.take(np.array(arrival, dtype=np.int64))
