"""Joins and dedup in steps, on one worker or several, with states in real files."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from hypothesis import settings

from anabranch.dataflow.joins import Origin
from anabranch.operators.joins.columns import JoinColumns
from anabranch.operators.joins.latest import LatestJoin
from anabranch.operators.order.fired_order import FIRED
from anabranch.operators.order.row_order import Int64s, RowOrder
from anabranch.operators.rows import Rows, concat_batches
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import FrontierMove, TimedEntries, TimedResult
from anabranch.records.bins import BinSet, Hashes, Mask, bin_of
from anabranch.records.run_list import RunList
from anabranch.records.times import EARLIEST, END_OF_TIME
from anabranch.runs.due import NEVER
from anabranch.runs.entries import Entries
from anabranch.runs.region_state import RegionState
from anabranch.runs.rows import LookupResult
from tests.operators.keyed_rows import hash_of
from tests.runs.kind_store import plain_create

BINS = 8
SPREAD = 5
"""So few hashes that keys collide."""
DISORDER = 12
KEY = pa.schema([("k", pa.string())])
INPUT = pa.schema(
    [("side", pa.int8()), ("l_a", pa.int64()), ("l_x", pa.string()), ("r_b", pa.int64())]
)
OUTPUT = pa.schema([("k", pa.string()), ("a", pa.int64()), ("x", pa.string()), ("b", pa.int64())])
COLUMNS = JoinColumns(
    pa.schema([("a", pa.int64()), ("x", pa.string())]),
    pa.schema([("b", pa.int64())]),
    OUTPUT,
    (Origin("key", 0), Origin("left", 0), Origin("left", 1), Origin("right", 0)),
)

few_examples = settings(max_examples=6, deadline=None)
"""Each writes files in all steps of several runs."""


class Event(NamedTuple):
    """A row of a side; its number is its order and its content."""

    side: int
    key: str | None
    time: int
    number: int


@dataclass(frozen=True)
class Step:
    """A frontier, the rows that notifications upstream made, and the rows that were read."""

    until: int
    fired: Sequence[Event] = ()
    data: Sequence[Event] = ()


class Made(NamedTuple):
    """An output row: the numbers of its rows, other columns, its time, whether it was fired."""

    step: int
    key: str | None
    left: int | None
    right: int | None
    more: tuple[Any, ...]
    time: int
    fired: bool


class Operator(Protocol):
    """What the harness needs of an operator."""

    @property
    def shapes(self) -> tuple[StateShape, ...]: ...

    @property
    def lag_us(self) -> int: ...

    def holds(self, state: str, dues: Int64s, frontier: int) -> Int64s: ...

    def step(
        self, rows: Rows | None, frontier: FrontierMove, states: Mapping[str, TimedEntries]
    ) -> TimedResult: ...


class View:
    """A state in a step."""

    now_ns = 0

    def __init__(self, state: RegionState, frontier: int, step: int) -> None:
        self.state, self.frontier, self.step = state, frontier, step

    def lookup(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Mask, pa.RecordBatch]:
        return self.state.lookup(hashes, keys, self.frontier)

    def find(self, hashes: Hashes, keys: pa.RecordBatch) -> LookupResult:
        return self.state.find(hashes, keys, self.frontier)

    def entries(self, hashes: Hashes, keys: pa.RecordBatch) -> Entries:
        return self.state.entries(hashes, keys, self.frontier)

    def find_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> LookupResult:
        assert np.all(hashes[1:] >= hashes[:-1])
        return self.state.find(hashes, keys, frontier)

    def entries_at(self, hashes: Hashes, keys: pa.RecordBatch, frontier: int) -> Entries:
        return self.state.entries(hashes, keys, frontier)

    def due(self, since: int, until: int) -> Any:
        return self.state.due(since, until, most=3)


@dataclass
class Worker:
    """An operator with the states of some bins."""

    operator: Operator
    owned: BinSet
    root: Path
    runs: dict[str, RunList] = field(default_factory=dict)
    live: dict[str, Int64s] = field(default_factory=dict)
    hold: Int64s = field(default_factory=lambda: np.full(BINS, NEVER, dtype=np.int64))

    @classmethod
    def alone(cls, operator: Operator, root: Path) -> Worker:
        """One that has all bins."""
        return cls(operator, BinSet.every(BINS), root)

    def take(self, number: int, step: Step, since: int) -> TimedResult:
        """Run a step with its own rows."""
        return self.step(number, rows_of(step, self.owned), FrontierMove(since, step.until))

    def state(self, shape: StateShape) -> RegionState:
        runs = self.runs.get(shape.name, ())
        live = self.live.get(shape.name, np.zeros(BINS, dtype=np.int64))
        return RegionState(shape.name, shape.layout(KEY), runs, self.root, BINS, self.owned, live)

    def step(self, number: int, rows: Rows | None, move: FrontierMove) -> TimedResult:
        views = self.views(number, move.until)
        states = {name: view.state for name, view in views.items()}
        result = self.operator.step(rows, move, views)
        assert set(result.changes) <= set(states)
        self._check_times(rows, result.output, move)
        for shape in self.operator.shapes:
            change = result.changes.get(shape.name)
            written = states[shape.name].write(
                None if change is None else change.changed,
                f"{shape.name}-{number}",
                found=None if change is None else change.found,
                now_ns=move.until,
                create=plain_create,
            )
            if written is not None:
                self.runs[shape.name], self.live[shape.name] = written.runs, written.live
            self._check_live(shape)
        self._new_holds(move.until)
        return result

    def views(self, number: int, frontier: int) -> dict[str, View]:
        """The states as a step sees them."""
        shapes = self.operator.shapes
        return {shape.name: View(self.state(shape), frontier, number) for shape in shapes}

    def _check_live(self, shape: StateShape) -> None:
        """The number of live rows is that of the newest rows in the files, also expired ones."""
        found = self.state(shape).scan(EARLIEST).column("hash").to_numpy()
        live = self.live.get(shape.name, np.zeros(BINS, dtype=np.int64))
        assert np.bincount(bin_of(found, BINS), minlength=BINS).tolist() == live.tolist()

    def _check_times(self, rows: Rows | None, output: Rows | None, move: FrontierMove) -> None:
        """No output is earlier than its frontier allows, and holds have announced it."""
        if output is None:
            return
        assert len(output)
        assert output.times is not None
        assert output.hashes is not None
        times = output.times + self.operator.lag_us
        fired = np.zeros(len(output), np.bool_) if output.fired is None else output.fired
        # For the latest join no row is late: it gives what comes, like a map.
        if not isinstance(self.operator, LatestJoin):
            assert (times[~fired] >= move.until).all()
        assert (times[fired] >= move.since).all()
        if rows is None or rows.fired is None or not rows.fired.any():
            assert (self.hold[bin_of(output.hashes[fired], BINS)] <= times[fired]).all()

    def _new_holds(self, until: int) -> None:
        self.hold = np.full(BINS, NEVER, dtype=np.int64)
        for shape in self.operator.shapes:
            if shape.dues:
                dues = self.state(shape).next_due(until)
                some = dues < NEVER
                times = self.operator.holds(shape.name, dues[some], until)
                self.hold[some] = np.minimum(self.hold[some], times)
        assert (self.hold >= until).all()

    def held(self, frontier: int) -> int:
        """How many entries are left."""
        return sum(self.state(s).scan(frontier).num_rows for s in self.operator.shapes if s.expires)


@dataclass
class Outcome:
    """What a run gave: the output in its order, the late rows, the number of entries left."""

    made: list[Made]
    late: list[tuple[int, int]]
    left: int


def run(
    operator: Operator,
    steps: Sequence[Step],
    workers: int = 1,
    read: Callable[[int, Rows], list[Made]] | None = None,
) -> Outcome:
    """Run all steps, each bin on one of the workers; ``read`` takes the output apart."""
    with tempfile.TemporaryDirectory() as root:
        staff = [
            Worker(
                operator,
                BinSet.of(b for b in range(BINS) if b % workers == number),
                Path(root) / str(number),
            )
            for number in range(workers)
        ]
        made: list[Made] = []
        late: list[tuple[int, int]] = []
        since = EARLIEST
        for number, step in enumerate(steps, start=1):
            parts = []
            for worker in staff:
                result = worker.take(number, step, since)
                parts += [] if result.output is None else [result.output]
                late += [] if result.late is None else late_of(number, result.late)
            made += [] if not parts else (read or made_of)(number, concat_batches(parts))
            since = step.until
        return Outcome(made, sorted(late), sum(worker.held(since) for worker in staff))


def rows_of(step: Step, owned: BinSet) -> Rows | None:
    """The rows of a worker in a step, backwards, as a shuffle might bring them."""
    events = [*step.fired, *step.data]
    hashes = np.array([hash_of((e.key,), SPREAD) for e in events], dtype=np.uint64)
    mine = [i for i, number in enumerate(bin_of(hashes, BINS).tolist()) if number in owned][::-1]
    if not mine:
        return None
    chosen = [events[i] for i in mine]
    fired = np.array([i < len(step.fired) for i in mine], dtype=np.bool_)
    times = np.array([e.time for e in chosen], dtype=np.int64)
    numbers = np.array([e.number for e in chosen], dtype=np.int64)
    return Rows(
        pa.table(
            [
                [e.side for e in chosen],
                [None if e.side else e.number for e in chosen],
                [None if e.side else f"x{e.number}" for e in chosen],
                [e.number if e.side else None for e in chosen],
            ],
            schema=INPUT,
        ),
        hashes[mine],
        pa.table([[e.key for e in chosen]], schema=KEY),
        RowOrder(
            (
                np.where(fired, FIRED, 0),
                np.where(fired, times, numbers),
                np.where(fired, hashes[mine].view(np.int64), 0),
                np.where(fired, -numbers, 0),
            )
        ),
        times,
        fired if len(step.fired) else None,
    )


def late_of(number: int, rows: Rows) -> list[tuple[int, int]]:
    """The numbers of late rows, with their step."""
    left, right = (rows.values.column(name).to_pylist() for name in ("l_a", "r_b"))
    return [(number, b if a is None else a) for a, b in zip(left, right, strict=True)]


def in_order(rows: Rows) -> Rows:
    """Rows in their order, which must be told by their order alone."""
    assert rows.order is not None
    told = list(zip(*(column.tolist() for column in rows.order.columns), strict=True))
    assert len(set(told)) == len(told), "two rows have one order"
    return rows.take(np.lexsort(rows.order.columns[::-1]))


def made_of(number: int, rows: Rows) -> list[Made]:
    """The output of a join in its order."""
    rows = in_order(rows)
    assert rows.times is not None
    assert rows.keys is not None
    found = rows.values.to_pylist()
    assert [row["k"] for row in found] == rows.keys.column(0).to_pylist()
    assert [row["x"] for row in found] == [row["a"] and f"x{row['a']}" for row in found]
    fired = [False] * len(rows) if rows.fired is None else rows.fired.tolist()
    return [
        Made(
            number,
            row["k"],
            row["a"],
            row["b"],
            tuple(value for name, value in row.items() if name not in OUTPUT.names),
            time,
            is_fired,
        )
        for row, time, is_fired in zip(found, rows.times.tolist(), fired, strict=True)
    ]


def alone(step: int, row: Event, *more: object, time: int | None = None, fired: bool) -> Made:
    """The output of a row that has no partner."""
    left, right = (None, row.number) if row.side else (row.number, None)
    return Made(step, row.key, left, right, more, row.time if time is None else time, fired)


def contents(made: Sequence[Made]) -> list[str]:
    """Output without when and how it came, sorted."""
    return sorted(repr((row.key, row.left, row.right, row.more, row.time)) for row in made)


def draw_events(seed: int, count: int = 40, unique: int = 1) -> list[Event]:
    """Rows of two sources whose times go on, out of order by at most ``DISORDER``.

    With ``unique`` at least ``count``, no two rows have one time, and all times are so much larger.
    """
    chance = random.Random(seed)
    keys = [None, "a", "b", "c", "d"]
    return [
        Event(
            chance.randint(0, 1),
            chance.choice(keys),
            (number - chance.randint(0, DISORDER)) * unique + number % unique,
            number,
        )
        for number in range(1, count + 1)
    ]


def cut(events: Sequence[Event], seed: int, lateness: int, *, fired: bool = False) -> list[Step]:
    """Cut rows into steps. A frontier follows the latest time of the steps before, and ends.

    With ``fired``, there are also rows as notifications upstream make them: between the frontier
    of the step before and that of their own.
    """
    chance = random.Random(seed)
    steps: list[Step] = []
    left, latest, since = list(events), EARLIEST, EARLIEST
    while left:
        size = chance.randint(0, 12)
        data, left = left[:size], left[size:]
        until = max(since, latest - lateness)
        made: list[Event] = []
        if fired and EARLIEST < since < until:
            made = [
                e._replace(time=chance.randint(since, until - 1), number=-e.number - 1)
                for e in data
                if chance.random() < 0.3
            ]
        steps.append(Step(until, made, data))
        latest, since = max([latest, *(e.time for e in data)]), until
    return [*steps, Step(max(since, latest - lateness)), Step(END_OF_TIME)]


def with_empty_steps(steps: Sequence[Step], seed: int) -> tuple[list[Step], list[int]]:
    """The same with empty steps: fired rows come in these. Also the number that each step had."""
    chance = random.Random(seed)
    found: list[Step] = []
    numbers: list[int] = []
    for number, step in enumerate(steps, start=1):
        if chance.random() < 0.5:
            found += [Step(step.until, step.fired), Step(step.until, (), step.data)]
            numbers += [number, number]
            continue
        found.append(step)
        numbers.append(number)
        if chance.random() < 0.3:
            found.append(Step(step.until))
            numbers.append(number)
    return found, numbers


def accepted(steps: Sequence[Step]) -> list[tuple[int, Event, bool]]:
    """The rows that are not late, with their step, and whether they were fired."""
    return [
        (number, event, is_fired)
        for number, step in enumerate(steps, start=1)
        for is_fired, events in ((True, step.fired), (False, step.data))
        for event in events
        if is_fired or event.time >= step.until
    ]


def taken(steps: Sequence[Step]) -> Iterator[tuple[int, Event, bool]]:
    """The same in the order in which an operator takes them."""
    for number, step in enumerate(steps, start=1):
        for event in sorted(step.fired, key=lambda e: (e.time, -e.number)):
            yield number, event, True
        for event in step.data:
            if event.time >= step.until:
                yield number, event, False


def late_rows(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The rows that come too late, with their step."""
    return sorted(
        (number, event.number)
        for number, step in enumerate(steps, start=1)
        for event in step.data
        if event.time < step.until
    )


def first_step(steps: Sequence[Step], due: int) -> int:
    """The step in which something falls due."""
    return next(number for number, step in enumerate(steps, start=1) if step.until >= due)
