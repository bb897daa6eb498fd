"""Scripts of steps played by windowed operators, and what must hold for each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.operators.rows import Rows
from anabranch.operators.state_shape import StateShape
from anabranch.operators.timed import TimedOperator
from anabranch.runs.compaction import LIMITS, CompactionLimits
from anabranch.runs.due import NEVER
from tests.operators.timed_harness import TimedHarness
from tests.operators.window_model import (
    KEYS,
    ModelWindow,
    Step,
    Windows,
    model_of,
    rows_of,
    with_empty_steps,
)

TIME = pa.timestamp("us", tz="UTC")
WORKERS = st.sampled_from([1, 2, 5])
RESTLESS = CompactionLimits(young_bytes=0, fan_out=2, run_limit=2, small_rows=0)
COMPACTIONS = st.sampled_from([LIMITS, RESTLESS])
Row = tuple[Any, ...]


class ShapedOperator(TimedOperator, Protocol):
    """An operator over event time that says which states it keeps."""

    @property
    def shapes(self) -> tuple[StateShape, ...]: ...


@dataclass
class Played:
    """What came out of a script: for each step, the output in its order and the late rows."""

    output: list[list[Row]] = field(default_factory=list)
    late: list[list[int]] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return list(chain(*self.output))

    @property
    def all_late(self) -> list[int]:
        return list(chain(*self.late))


def play(
    operator: ShapedOperator,
    steps: Sequence[Step],
    *,
    workers: int = 1,
    shuffle: int | None = None,
    limits: CompactionLimits = LIMITS,
) -> Played:
    """Play a script; the rows of a step arrive in their order, or in a random one."""
    generator = None if shuffle is None else np.random.default_rng(shuffle)
    played = Played()
    with tempfile.TemporaryDirectory() as directory:
        harness = TimedHarness(
            operator, operator.shapes, KEYS, Path(directory), workers=workers, limits=limits
        )
        for step in steps:
            count = len(step.fired) + len(step.data)
            arrival = None if generator is None else generator.permutation(count).tolist()
            result = harness.step(rows_of(step, arrival), step.until)
            played.output.append(output_tuples(result.output))
            played.late.append(late_numbers(result.late))
        for shape in operator.shapes:
            assert harness.scan(shape.name) == [], "at the end of time nothing is left"
        assert (harness.holds == NEVER).all()
    return played


def check_closed_windows(
    operator: ShapedOperator,
    windows: Windows,
    steps: Sequence[Step],
    expected: Callable[[ModelWindow], Iterable[Row]],
    **options: Any,
) -> None:
    """Each window comes out once, when it closes, and only rows without a window are late."""
    played = play(operator, steps, **options)
    model = model_of(windows)
    for step, output, late in zip(steps, played.output, played.late, strict=True):
        wanted = model.step(step)
        assert by_repr(output) == by_repr(chain(*map(expected, wanted.closed)))
        assert late == sorted(event.number for event in wanted.late)


def check_placement(operator: ShapedOperator, steps: Sequence[Step], data: st.DataObject) -> None:
    """R9: neither the workers nor the arrival nor the compaction change anything."""
    other = play(
        operator,
        steps,
        workers=data.draw(st.sampled_from([2, 5])),
        shuffle=data.draw(st.integers(0, 99)),
        limits=data.draw(COMPACTIONS),
    )
    assert play(operator, steps) == other


def check_empty_steps(operator: ShapedOperator, steps: Sequence[Step], data: st.DataObject) -> None:
    """Steps without rows in between change nothing but the step in which a result appears."""
    where = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    plain, more = play(operator, steps), play(operator, with_empty_steps(steps, where))
    assert plain.rows == more.rows
    assert plain.all_late == more.all_late


def output_tuples(rows: Rows | None) -> list[Row]:
    """Output rows in their order, with times as numbers; the time of each row comes last."""
    if rows is None:
        return []
    places = None if rows.order is None else rows.order.permutation()
    places = np.arange(len(rows)) if places is None else places
    table = rows.values.take(pa.array(places))
    columns = [
        (c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist()
        for c in table.columns
    ]
    assert rows.times is not None
    columns.append(rows.times[places].tolist())
    return [
        tuple(tuple(value) if isinstance(value, list) else value for value in row)
        for row in zip(*columns, strict=True)
    ]


def late_numbers(rows: Rows | None) -> list[int]:
    return [] if rows is None else sorted(rows.values.column("number").to_pylist())


def by_repr(rows: Iterable[Any]) -> list[Any]:
    """Rows in an order that NULL does not disturb."""
    return sorted(rows, key=repr)
