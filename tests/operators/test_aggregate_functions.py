"""Every aggregate function over random steps, filters, splittings and arrivals, against Python."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.rules import RULES, result_type
from anabranch.operators.aggregate import Aggregate, AggregateColumn, Argument, depends_on_order
from tests.operators.aggregate_cases import CASES, Case, Kinds, Row
from tests.operators.keyed_rows import DictState, key_tuples, make_rows

KEYS = pa.schema([("k", pa.string())])
Cell = tuple[str | None, Row, bool]
"""A key, the arguments, and whether the filter takes the row."""


def operator(case: Case, kinds: Kinds, *, filtered: bool) -> Aggregate:
    """The operator as lowering makes it, with columns a0, a1, … travelling to it."""
    aggregate = parse_aggregate(case.text)
    travelling = travelling_kinds(case, kinds, filtered=filtered)
    arguments = tuple(Argument(f"a{i}", kind, "") for i, kind in enumerate(travelling))
    result = result_type(aggregate, kinds)
    assert result is not None
    column = AggregateColumn(
        "r", aggregate.function, arguments, aggregate.parameters, result, aggregate.label
    )
    return Aggregate("totals", (column,), pa.schema([*KEYS, pa.field("r", result)]))


def travelling_kinds(case: Case, kinds: Kinds, *, filtered: bool) -> Kinds:
    carried = case.carried(kinds)
    if filtered and (case.with_flag or not kinds):
        return (*carried, pa.bool_())
    return carried


def table(case: Case, kinds: Kinds, cells: Sequence[Cell], *, filtered: bool) -> pa.Table:
    """What travels, as Catalyst makes it: NULL where the filter says no."""
    carried = travelling_kinds(case, kinds, filtered=filtered)
    rows: list[Row] = []
    for _, arguments, kept in cells:
        travelled = case.travel(arguments) if kept else (None,) * len(case.carried(kinds))
        if filtered and case.with_flag:
            travelled = (*travelled, kept)
        elif filtered and not kinds:
            travelled = (True if kept else None,)
        rows.append(travelled)
    columns = {
        f"a{i}": pa.array([row[i] for row in rows], type=kind) for i, kind in enumerate(carried)
    }
    return pa.table(columns or {"_": pa.nulls(len(cells))})


def same(found: Any, wanted: Any, *, close: bool) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        pairs = zip(found, wanted, strict=False)
        return len(found) == len(wanted) and all(same(f, w, close=close) for f, w in pairs)
    if isinstance(found, float) and isinstance(wanted, float):
        if close:
            return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-6)
        return repr(found) == repr(wanted)
    return bool(found == wanted) and type(found) is type(wanted)


@st.composite
def stories(draw: st.DrawFn, case: Case) -> tuple[Kinds, list[list[Cell]], bool]:
    """Argument types, steps of rows, and whether there is a filter."""
    kinds = tuple(draw(st.sampled_from(list(choices))) for choices in case.kinds)
    filtered = draw(st.booleans())
    cell = st.tuples(
        st.sampled_from([None, "a", "b", "c"]),
        st.tuples(*(st.none() | c[k] for c, k in zip(case.kinds, kinds, strict=True))),
        st.booleans() if filtered else st.just(True),
    )
    steps = draw(st.lists(st.lists(cell, min_size=1, max_size=10), min_size=1, max_size=3))
    return kinds, steps, filtered


EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@EVERY
@settings(max_examples=10)
@given(data=st.data())
def test_r9_every_step_gives_what_sql_gives_on_any_number_of_workers(
    case: Case, data: st.DataObject
) -> None:
    check_a_story(case, data)


@pytest.mark.soak
@EVERY
@settings(max_examples=300)
@given(data=st.data())
def test_r9_over_many_stories(case: Case, data: st.DataObject) -> None:
    check_a_story(case, data)


def check_a_story(case: Case, data: st.DataObject) -> None:
    """Run some steps on several workers and on one, and compare both with the oracle."""
    kinds, steps, filtered = data.draw(stories(case))
    aggregate = operator(case, kinds, filtered=filtered)
    assert depends_on_order(aggregate.columns[0]) or not case.ordered
    workers = data.draw(st.sampled_from([1, 2, 5]))
    states = [DictState(aggregate.state) for _ in range(workers)]
    alone = DictState(aggregate.state)
    seen: dict[Any, list[Row]] = {}
    for step in steps:
        for key, arguments, kept in step:
            seen.setdefault(key, [])
            if kept:
                seen[key].append(arguments)
        arrival = data.draw(st.permutations(range(len(step))))
        found: dict[Any, Any] = {}
        for worker, state in enumerate(states):
            mine = [p for p in arrival if zlib.crc32(repr(step[p][0]).encode()) % workers == worker]
            found |= ran(case, aggregate, state, step, mine, filtered=filtered, kinds=kinds)
        in_order = list(range(len(step)))
        whole = ran(case, aggregate, alone, step, in_order, filtered=filtered, kinds=kinds)
        assert {key: repr(value) for key, value in found.items()} == {
            key: repr(value) for key, value in whole.items()
        }
        for key, value in whole.items():
            wanted = case.oracle(seen[key], aggregate.columns[0].kind)
            assert same(value, wanted, close=case.close), (key, value, wanted)


def ran(
    case: Case,
    aggregate: Aggregate,
    state: DictState,
    step: list[Cell],
    places: list[int],
    *,
    filtered: bool,
    kinds: Kinds,
) -> dict[Any, Any]:
    """What the operator gives for the rows at these places, by key; the state is written."""
    if not places:
        return {}
    cells = [step[place] for place in places]
    values = table(case, kinds, cells, filtered=filtered)
    needs_order = depends_on_order(aggregate.columns[0])
    rows = make_rows(
        [(key,) for key, _, _ in cells], KEYS, values, order=places if needs_order else None
    )
    output, changes = aggregate.run(rows, state)
    state.write(changes)
    assert output.values.schema == aggregate.output
    keys = [key for (key,) in key_tuples(output.values.select(["k"]))]
    return dict(zip(keys, output.values.column("r").to_pylist(), strict=True))


def test_every_function_has_a_case() -> None:
    assert {parse_aggregate(case.text).function for case in CASES} == set(RULES)
