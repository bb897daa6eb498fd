"""Merging states of parts of the rows gives the state of all rows, for every function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.operators.aggregates.port import Function, FunctionSpec, Segments, Shape
from anabranch.operators.aggregates.registry import FUNCTIONS, make
from tests.operators.aggregate_cases import CASES, Case, Row
from tests.operators.test_aggregate_functions import EVERY, operator, same, stories, table

WHERE = "operator totals"


def state_of(function: Function, values: pa.Table, owners: list[int], keys: int) -> list[pa.Array]:
    """The state of each key from these rows alone; NULL for a key without rows."""
    owner = np.array(owners, dtype=np.int64)
    order = np.argsort(owner, kind="stable")
    present, starts = np.unique(owner[order], return_index=True)
    if not len(present):
        return [pa.nulls(keys, kind) for _, kind in function.fields()]
    wanted = [f"a{i}" for i in range(len(function.spec.kinds))]
    columns = tuple(
        values.column(name).combine_chunks().take(pa.array(order)).cast(kind)
        for name, kind in zip(wanted, function.spec.kinds, strict=True)
    )
    reduced = function.reduce(Segments(Shape(starts, len(order)), columns, WHERE))
    place = np.zeros(keys, dtype=np.int64)
    place[present] = np.arange(len(present))
    absent = ~np.isin(np.arange(keys), present)
    return [column.take(pa.array(place, mask=absent)) for column in reduced]


def merged(function: Function, states: list[list[pa.Array]], data: st.DataObject) -> list[pa.Array]:
    """All states merged, neighbour with neighbour, in any nesting."""
    while len(states) > 1:
        place = data.draw(st.integers(0, len(states) - 2))
        both = function.merge(states[place], states[place + 1], WHERE)
        states = [*states[:place], list(both), *states[place + 2 :]]
    return states[0]


@EVERY
@settings(max_examples=6)
@given(data=st.data())
def test_merged_parts_give_what_all_rows_give(case: Case, data: st.DataObject) -> None:
    check_parts(case, data)


@pytest.mark.soak
@EVERY
@settings(max_examples=400)
@given(data=st.data())
def test_merged_parts_of_many_stories(case: Case, data: st.DataObject) -> None:
    check_parts(case, data)


def check_parts(case: Case, data: st.DataObject) -> None:
    kinds, parts, filtered = data.draw(stories(case))
    parts += data.draw(st.lists(st.sampled_from(parts), max_size=2))
    aggregate = operator(case, kinds, filtered=filtered)
    function, result = aggregate.columns[0].make_function(), aggregate.columns[0].kind
    names = sorted({key for part in parts for key, _, _ in part}, key=repr)
    seen: dict[Any, list[Row]] = {key: [] for key in names}
    for key, arguments, kept in (cell for part in parts for cell in part):
        if kept:
            seen[key].append(arguments)
    states = [
        state_of(
            function,
            table(case, kinds, part, filtered=filtered),
            [names.index(key) for key, _, _ in part],
            len(names),
        )
        for part in parts
    ]
    state = merged(function, states, data)
    assert [column.type for column in state] == [kind for _, kind in function.fields()]
    found = function.result(state, WHERE).cast(result).to_pylist()
    for key, value in zip(names, found, strict=True):
        wanted = case.oracle(seen[key], result)
        assert same(value, wanted, close=case.close), (key, value, wanted)


def test_every_function_is_among_the_cases() -> None:
    assert {parse_aggregate(case.text).function for case in CASES} == set(FUNCTIONS)


@EVERY
@settings(max_examples=3)
@given(data=st.data())
def test_an_empty_state_changes_nothing_on_either_side(case: Case, data: st.DataObject) -> None:
    kinds, (cells, *_), filtered = data.draw(stories(case))
    function = operator(case, kinds, filtered=filtered).columns[0].make_function()
    names = sorted({key for key, _, _ in cells}, key=repr)
    rows = table(case, kinds, cells, filtered=filtered)
    state = state_of(function, rows, [names.index(key) for key, _, _ in cells], len(names))
    nothing = [pa.nulls(len(names), kind) for _, kind in function.fields()]
    wanted = repr(function.result(state, WHERE).to_pylist())
    for pair in ((state, nothing), (nothing, state)):
        assert repr(function.result(function.merge(*pair, WHERE), WHERE).to_pylist()) == wanted


SHARES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)


def sketch(accuracy: int) -> Function:
    parameters = (SHARES, float(accuracy))
    result = pa.list_(pa.int64())
    return make(FunctionSpec("approx_percentile", (pa.int64(),), result, parameters))


@pytest.mark.parametrize("accuracy", [20, 500])
@pytest.mark.parametrize("shape", ["uniform", "rising", "apart", "few"])
@pytest.mark.parametrize("nesting", ["one after the other", "in pairs"])
def test_merged_quantiles_stay_within_the_rank_error_and_short(
    nesting: str, shape: str, accuracy: int
) -> None:
    rows, parts, generator = 16_000, 16, np.random.default_rng(7)
    values = {
        "uniform": generator.integers(0, 10**9, rows),
        "rising": np.arange(rows),
        "apart": np.concatenate([generator.integers(0, 100, rows // 2) + p * 50 for p in (0, 9)]),
        "few": generator.integers(0, 7, rows),
    }[shape]
    function = sketch(accuracy)
    states = [
        state_of(function, pa.table({"a0": part}), [0] * len(part), 1)
        for part in np.array_split(values, parts)
    ]
    while len(states) > 1:
        if nesting == "in pairs":
            pairs = zip(states[::2], states[1::2], strict=True)
            states = [function.merge(one, two, WHERE) for one, two in pairs]
        else:
            states = [function.merge(states[0], states[1], WHERE), *states[2:]]
    (state,) = states
    ordered = np.sort(values)
    for share, value in zip(SHARES, function.result(state, WHERE)[0].as_py(), strict=True):
        low = np.searchsorted(ordered, value, side="left") + 1
        high = np.searchsorted(ordered, value, side="right")
        rank = max(math.ceil(share * rows), 1)
        assert low - rows / accuracy <= rank <= high + rows / accuracy, share
    kept, gaps, _ = (column[0].as_py() for column in state)
    assert sum(gaps) == rows
    assert (kept[0], kept[-1]) == (ordered[0], ordered[-1])
    assert len(kept) <= max(6 * accuracy, 1500)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), min_size=2, max_size=5))
def test_merged_registers_are_those_of_all_values(parts: list[list[int]]) -> None:
    function = make(FunctionSpec("approx_count_distinct", (pa.int64(),), pa.int64(), (0.05,)))
    column = pa.array([value for part in parts for value in part], type=pa.int64())
    whole = state_of(function, pa.table({"a0": column}), [0] * len(column), 1)
    state = [pa.nulls(1, kind) for _, kind in function.fields()]
    for part in parts:
        rows = pa.table({"a0": pa.array(part, type=pa.int64())})
        state = function.merge(state, state_of(function, rows, [0] * len(part), 1), WHERE)
    assert (state[0][0].as_py() or []) == (whole[0][0].as_py() or [])
