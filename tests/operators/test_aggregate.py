"""``aggregate`` over random steps, against plain Python over all rows so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.aggregates.parse import parse_aggregate
from anabranch.dataflow.aggregates.rules import result_type
from anabranch.errors import Overflow
from anabranch.operators.aggregate import Aggregate, AggregateColumn, Argument, depends_on_order
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList, replace
from anabranch.runs.region_state import RegionState
from tests.operators.aggregate_cases import NUMBERS, VALUES, greatness, mean, total
from tests.operators.columns import KEYS, STRUCT, told_apart
from tests.operators.kept_states import Kept, View
from tests.operators.keyed_rows import DictState, key_tuples, make_rows

FUNCTIONS = ["count", "sum", "min", "max", "avg"]


class Sum(NamedTuple):
    """One aggregate of the operator under test, over column ``a<place>``."""

    text: str
    kind: pa.DataType | None


def operator(keys: pa.Schema, sums: Sequence[Sum]) -> Aggregate:
    columns = []
    for place, (text, kind) in enumerate(sums):
        aggregate = parse_aggregate(text)
        kinds = () if kind is None else (kind,)
        arguments = tuple(Argument(f"a{place}", part, "x") for part in kinds)
        result = result_type(aggregate, kinds)
        assert result is not None
        columns.append(
            AggregateColumn(
                f"r{place}", aggregate.function, arguments, aggregate.parameters, result, text
            )
        )
    output = pa.schema([*keys, *(pa.field(column.name, column.kind) for column in columns)])
    return Aggregate("totals", tuple(columns), output)


def model(column: AggregateColumn, values: list[Any]) -> Any:
    """The aggregate of these values, as SQL defines it."""
    some = [value for value in values if value is not None]
    if not column.arguments:
        return len(values)
    if column.function == "count":
        return len(some)
    if not some:
        return None
    defined = {
        "sum": lambda: total(some, column.kind),
        "min": lambda: min(some, key=greatness),
        "max": lambda: max(some, key=greatness),
        "avg": lambda: mean(some, column.kind),
    }
    return defined[column.function]()


@st.composite
def aggregates(draw: st.DrawFn) -> list[Sum]:
    sums = [Sum("count(*)", None)] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        function = draw(st.sampled_from(FUNCTIONS))
        kinds = NUMBERS if function in ("sum", "avg") else VALUES
        sums.append(Sum(f"{function}(x)", draw(st.sampled_from(list(kinds)))))
    return sums


def value_strategy(sum_: Sum) -> st.SearchStrategy[Any]:
    assert sum_.kind is not None
    kinds = NUMBERS if sum_.text.startswith(("sum", "avg")) else VALUES
    return st.none() | kinds[sum_.kind]


@st.composite
def stories(draw: st.DrawFn) -> tuple[pa.Schema, list[Sum], list[list[tuple[Any, Any]]], int]:
    """Key types, aggregates, and steps of (key, arguments); the last number forces collisions."""
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    schema = pa.schema([pa.field(f"k{i}", kind) for i, kind in enumerate(kinds)])
    few = [draw(st.lists(st.none() | KEYS[kind], min_size=1, max_size=3)) for kind in kinds]
    sums = draw(aggregates())
    cells = st.tuples(
        st.tuples(*map(st.sampled_from, few)),
        st.tuples(*(value_strategy(s) if s.kind is not None else st.none() for s in sums)),
    )
    steps = draw(st.lists(st.lists(cells, max_size=8), min_size=1, max_size=3))
    return schema, sums, steps, draw(st.sampled_from([1, 2, 1 << 32]))


def argument_table(sums: Sequence[Sum], cells: Sequence[Any], cut: int = 0) -> pa.Table:
    """The arguments as they arrive, in two chunks; a dummy where there are none."""
    columns = {
        f"a{place}": pa.chunked_array(
            [[c[place] for c in cells[:cut]], [c[place] for c in cells[cut:]]], type=sum_.kind
        )
        for place, sum_ in enumerate(sums)
        if sum_.kind is not None
    }
    return pa.table(columns or {"_": pa.nulls(len(cells))})


@settings(max_examples=150, deadline=None)
@given(stories(), st.data())
def test_every_step_gives_what_sql_gives_over_all_rows_so_far(
    story: tuple[pa.Schema, list[Sum], list[list[tuple[Any, Any]]], int], data: st.DataObject
) -> None:
    schema, sums, steps, spread = story
    aggregate = operator(schema, sums)
    state = DictState(aggregate.state)
    seen: dict[Any, list[Any]] = {}
    for step in steps:
        if not step:
            continue
        keys, cells = [cell[0] for cell in step], [cell[1] for cell in step]
        values = argument_table(sums, cells, data.draw(st.integers(0, len(cells))))
        rows = make_rows(keys, schema, values, spread=spread)
        output, changes = aggregate.run(rows, state)
        state.write(changes)
        assert rows.keys is not None
        frozen = key_tuples(rows.keys)
        for key, cell in zip(frozen, cells, strict=True):
            seen.setdefault(key, []).append(cell)
        assert output.values.schema == aggregate.output
        found = key_tuples(output.values.select(range(len(schema))))
        assert sorted(map(repr, found)) == sorted(map(repr, set(frozen)))
        for place, column in enumerate(aggregate.columns):
            shown = output.values.column(len(schema) + place).to_pylist()
            wanted = [model(column, [cell[place] for cell in seen[key]]) for key in found]
            assert told_apart(shown) == told_apart(wanted), column


def test_an_output_row_has_the_key_the_hash_and_the_smallest_order_of_its_group() -> None:
    schema = pa.schema([("k", pa.string())])
    aggregate = operator(schema, [Sum("count(*)", None)])
    keys = [("b",), ("a",), ("b",), ("a",)]
    rows = make_rows(keys, schema, pa.table({"_": pa.nulls(4)}), order=[9, 4, 2, 7])
    output, changes = aggregate.run(rows, DictState(aggregate.state))
    assert output.keys is not None
    assert output.hashes is not None
    assert output.order is not None
    smallest = dict(
        zip(output.keys.column(0).to_pylist(), output.order.columns[2].tolist(), strict=True)
    )
    assert smallest == {"a": 4, "b": 2}
    assert output.keys.column(0).equals(output.values.column(0))
    assert output.hashes.tolist() == changes.changed.hashes.tolist()


def test_without_an_order_there_is_none_after_it() -> None:
    schema = pa.schema([("k", pa.string())])
    aggregate = operator(schema, [Sum("count(*)", None)])
    rows = make_rows([("a",)], schema, pa.table({"_": pa.nulls(1)}))
    assert aggregate.run(rows, DictState(aggregate.state))[0].order is None


DOUBLES = [Sum("sum(x)", pa.float64()), Sum("avg(x)", pa.float32())]


def floating_rows(seed: int) -> tuple[pa.Schema, list[tuple[int]], pa.Table]:
    generator = np.random.default_rng(seed)
    schema = pa.schema([("k", pa.int64())])
    keys = [(int(key),) for key in generator.integers(0, 5, size=400)]
    doubles = generator.normal(scale=10.0 ** generator.integers(-9, 9, size=400))
    return schema, keys, pa.table({"a0": doubles, "a1": doubles.astype(np.float32)})


def bits(output: Rows) -> dict[Any, list[bytes]]:
    keys = output.values.column(0).to_pylist()
    numbers = [output.values.column(i).to_numpy() for i in (1, 2)]
    return {key: [n[i].tobytes() for n in numbers] for i, key in enumerate(keys)}


@pytest.mark.parametrize("seed", range(3))
def test_r9_floating_sums_are_the_same_however_rows_arrive_and_keys_are_spread(seed: int) -> None:
    schema, keys, values = floating_rows(seed)
    aggregate = operator(schema, DOUBLES)
    whole = make_rows(keys, schema, values, order=range(400))
    wanted = bits(aggregate.run(whole, DictState(aggregate.state))[0])
    generator = np.random.default_rng(seed + 100)
    for workers in (1, 2, 3):
        found: dict[Any, list[bytes]] = {}
        for worker in range(workers):
            # Rows come in another order and in other chunks; a worker sees its own keys only.
            mine = [p for p in generator.permutation(400) if keys[p][0] % workers == worker]
            cut = int(generator.integers(0, len(mine)))
            pieces = [values.take(mine[:cut]), values.take(mine[cut:])]
            table = pa.concat_tables(pieces)
            rows = make_rows([keys[p] for p in mine], schema, table, order=mine)
            found |= bits(aggregate.run(rows, DictState(aggregate.state))[0])
        assert found == wanted


def test_the_test_above_would_notice_sums_in_the_order_of_arrival() -> None:
    schema, keys, values = floating_rows(0)
    aggregate = operator(schema, DOUBLES)

    def run(places: Sequence[int]) -> dict[Any, list[bytes]]:
        rows = make_rows([keys[p] for p in places], schema, values.take(pa.array(places)))
        return bits(aggregate.run(rows, DictState(aggregate.state))[0])

    assert run(range(400)) != run(range(399, -1, -1))


@pytest.mark.parametrize("function", ["min", "max"])
def test_r9_zeros_and_nans_have_one_least_and_one_greatest_in_any_order(function: str) -> None:
    schema = pa.schema([("k", pa.int8())])
    aggregate = operator(schema, [Sum(f"{function}(x)", pa.float64())])
    found = set()
    for values in ([0.0, -0.0, 0.0], [-0.0, 0.0, 0.0], [0.0, 0.0, -0.0]):
        rows = make_rows([(1,)] * 3, schema, pa.table({"a0": values}))
        output, _ = aggregate.run(rows, DictState(aggregate.state))
        found.add(repr(output.values.column(1).to_pylist()))
    assert found == {"[-0.0]" if function == "min" else "[0.0]"}


@pytest.mark.parametrize(
    ("text", "kind", "ordered"),
    [
        ("sum(x)", pa.float64(), True),
        ("avg(x)", pa.float32(), True),
        ("min(x)", pa.float64(), False),
        ("count(x)", pa.float64(), False),
        ("sum(x)", pa.int64(), False),
        ("avg(x)", pa.int64(), False),
        ("avg(x)", pa.decimal128(10, 2), False),
        ("count(*)", None, False),
        ("var_pop(x)", pa.float64(), True),
        ("first(x)", pa.int64(), True),
        ("collect_list(x)", pa.int64(), True),
        ("listagg(x)", pa.string(), True),
        ("collect_set(x)", pa.float64(), False),
        ("sum(distinct x)", pa.float64(), False),
        ("mode(x)", pa.string(), False),
        ("percentile(x, 0.1)", pa.float64(), False),
        ("approx_percentile(x, 0.1)", pa.float64(), False),
        ("bit_xor(x)", pa.int64(), False),
    ],
)
def test_only_floating_sums_and_picked_or_listed_rows_depend_on_the_order(
    text: str, kind: pa.DataType | None, ordered: bool
) -> None:
    aggregate = operator(pa.schema([("k", pa.int8())]), [Sum(text, kind)])
    assert depends_on_order(aggregate.columns[0]) is ordered


def run_once(sums: Sequence[Sum], values: pa.Table, state: DictState | None = None) -> list[Any]:
    schema = pa.schema([("k", pa.int8())])
    aggregate = operator(schema, sums)
    rows = make_rows([(1,)] * values.num_rows, schema, values)
    kept = state or DictState(aggregate.state)
    output, changes = aggregate.run(rows, kept)
    kept.write(changes)
    return [column[0].as_py() for column in output.values.columns[1:]]


def test_a_mean_of_large_integers_does_not_overflow() -> None:
    largest = 2**63 - 1
    values = pa.table({"a0": pa.array([largest, largest, largest, None])})
    assert run_once([Sum("avg(x)", pa.int64())], values) == [float(largest)]


def test_large_integers_of_both_signs_have_their_exact_mean() -> None:
    values = pa.table({"a0": pa.array([2**62 + 1, -(2**62), 2**53 + 1, -(2**53)])})
    assert run_once([Sum("avg(x)", pa.int64())], values) == [0.5]


@pytest.mark.parametrize(
    ("text", "kind", "values", "said"),
    [
        ("sum(x)", pa.int64(), [2**63 - 1, 1], "a sum is out of range for bigint"),
        ("sum(x)", pa.decimal128(38, 0), [Decimal(10**38 - 1)] * 2, "decimal(38,0)"),
        ("avg(x)", pa.decimal128(38, 10), [Decimal(10**27)], "a mean is out of range for decimal"),
    ],
)
def test_overflow_names_the_operator_and_the_column(
    text: str, kind: pa.DataType, values: list[Any], said: str
) -> None:
    with pytest.raises(Overflow) as got:
        run_once([Sum(text, kind)], pa.table({"a0": pa.array(values, type=kind)}))
    assert said in str(got.value)
    assert got.value.where == "operator totals, column r0"


def test_overflow_of_the_running_sum_is_found_in_the_step_it_happens() -> None:
    sums = [Sum("sum(x)", pa.int64())]
    state = DictState(operator(pa.schema([("k", pa.int8())]), sums).state)
    almost = pa.table({"a0": pa.array([2**63 - 2])})
    assert run_once(sums, almost, state) == [2**63 - 2]
    with pytest.raises(Overflow):
        run_once(sums, pa.table({"a0": pa.array([2])}), state)
    assert run_once(sums, pa.table({"a0": pa.array([1])}), state) == [2**63 - 1]


def test_real_state_gives_the_same_as_a_dictionary(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int32())])
    sums = [
        Sum("count(*)", None),
        Sum("sum(x)", pa.decimal128(38, 2)),
        Sum("avg(x)", pa.int64()),
        Sum("max(x)", pa.bool_()),
        Sum("min(x)", pa.string()),
        Sum("collect_list(x)", STRUCT),
        Sum("percentile(x, 0.5)", pa.float64()),
        Sum("first(x)", pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ]
    aggregate = operator(schema, sums)
    layout = Layout(schema, aggregate.state)
    model_state = DictState(aggregate.state)
    runs: RunList = ()
    live = np.zeros(4, dtype=np.int64)
    generator = np.random.default_rng(3)
    for step in range(6):
        names = [None, "a", "b", "c"]
        keys = [(names[i], int(i) % 2) for i in generator.integers(0, 4, size=20)]
        cells = [
            (
                *(None, Decimal(int(n)), int(n), bool(n % 2), str(n) if n % 3 else None),
                *({"a": int(n), "b": None}, float(n), [int(n)]),
            )
            for n in generator.integers(-50, 50, size=20)
        ]
        rows = make_rows(keys, schema, argument_table(sums, cells, 7), spread=3)
        state = RegionState("totals", layout, runs, tmp_path, 4, BinSet.every(4), live)
        output, changes = aggregate.run(rows, View(state, 0, step))
        wanted, model_changes = aggregate.run(rows, model_state)
        model_state.write(model_changes)
        assert output.values.equals(wanted.values)
        change = state.write(changes.changed, f"run/totals/{step}.arrow", found=changes.found)
        assert change is not None
        runs, live = replace(runs, BinSet.every(4), change.runs), change.live
    assert int(live.sum()) == len(model_state.kept)


def test_a_batch_without_rows_changes_nothing() -> None:
    schema = pa.schema([("k", pa.int8())])
    aggregate = operator(schema, [Sum("sum(x)", pa.int64()), Sum("min(x)", pa.string())])
    nothing = pa.table({"a0": pa.array([], pa.int64()), "a1": pa.array([], pa.string())})
    rows = make_rows([], schema, nothing, order=[])
    output, changes = aggregate.run(rows, DictState(aggregate.state))
    assert len(output) == len(changes.changed) == 0
    assert isinstance(output.order, RowOrder)


def test_time_to_live_begins_anew_and_counts_from_the_last_row(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string())])
    plain = operator(schema, [Sum("sum(x)", pa.int64())])
    kept = Kept(Aggregate(plain.name, plain.columns, plain.output, ttl_ns=100), schema, tmp_path)

    def step(*pairs: tuple[str, int], after: int) -> dict[Any, Any]:
        kept.now_ns += after
        values = pa.table({"a0": pa.array([n for _, n in pairs], pa.int64())})
        output = kept.step(make_rows([(k,) for k, _ in pairs], schema, values))
        return dict(zip(*output.values.to_pydict().values(), strict=True))

    assert step(("a", 1), ("b", 2), after=0) == {"a": 1, "b": 2}
    assert step(("a", 1), after=60) == {"a": 2}
    assert step(("a", 1), ("b", 1), after=60) == {"a": 3, "b": 1}
    kept.now_ns += 99
    assert len(kept.scan(plain.name)) == 2
    kept.now_ns += 1
    assert kept.scan(plain.name) == []
    assert step(("a", 7), after=0) == {"a": 7}


def test_a_row_has_the_latest_time_of_its_group_and_is_fired_if_all_are() -> None:
    keys = pa.schema([("k", pa.string())])
    names = ["b", "a", "b", "a", "c"]
    rows = make_rows([(name,) for name in names], keys, pa.table({"_": pa.nulls(5)}))
    times = np.array([3, 20, 9, 10, 7], dtype=np.int64)
    fired = np.array([True, True, False, True, False])
    counted = operator(keys, [Sum("count(*)", None)])
    made, _ = counted.run(
        dataclasses.replace(rows, times=times, fired=fired), DictState(counted.state)
    )
    assert made.times is not None
    assert made.fired is not None
    found = zip(made.values.column("k").to_pylist(), made.times, made.fired, strict=True)
    assert {name: (int(at), bool(mark)) for name, at, mark in found} == {
        "a": (20, True),
        "b": (9, False),
        "c": (7, False),
    }
    plain, _ = counted.run(rows, DictState(counted.state))
    assert (plain.times, plain.fired) == (None, None)
