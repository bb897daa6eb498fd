"""What is approximate stays within its error, what is exact is stable, odd numbers are SQL's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.operators.aggregates.estimate import register_codes
from anabranch.operators.aggregates.lists import FlatLists
from anabranch.operators.order.sort_columns import codes
from anabranch.operators.rows import Rows
from tests.operators.keyed_rows import DictState, make_rows
from tests.operators.test_aggregate import Sum, operator, run_once

KEY = pa.schema([("k", pa.int64())])


def stepped(sums: list[Sum], keys: Any, columns: list[Any], steps: int) -> tuple[Rows, DictState]:
    """The last output and the state after feeding columns a0, a1, … in so many steps."""
    aggregate = operator(KEY, sums)
    state = DictState(aggregate.state)
    output: Rows | None = None
    for places in np.array_split(np.arange(len(keys)), steps):
        arrays = {
            f"a{i}": pa.array(column[places], type=sum_.kind)
            for i, (column, sum_) in enumerate(zip(columns, sums, strict=True))
        }
        rows = make_rows(
            [(int(k),) for k in keys[places]], KEY, pa.table(arrays), order=places.tolist()
        )
        output, changes = aggregate.run(rows, state)
        state.write(changes)
    assert output is not None
    return output, state


SHARES = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0]


@pytest.mark.parametrize("accuracy", [20, 100, 1000])
@pytest.mark.parametrize("shape", ["uniform", "rising", "falling", "skewed", "few", "one gap"])
def test_quantiles_are_within_the_rank_error_and_summaries_stay_short(
    shape: str, accuracy: int
) -> None:
    rows, generator = 20_000, np.random.default_rng(5)
    values = {
        "uniform": generator.integers(0, 10**9, rows),
        "rising": np.arange(rows),
        "falling": np.arange(rows)[::-1],
        "skewed": (np.exp(generator.normal(0, 3, rows)) * 1000).astype(np.int64),
        "few": generator.integers(0, 7, rows),
        "one gap": np.concatenate(
            (generator.choice([0, 10**9], rows // 2), generator.integers(1, 10**9, rows // 2))
        ),
    }[shape]
    text = f"approx_percentile(x, array({', '.join(map(str, SHARES))}), {accuracy})"
    output, state = stepped(
        [Sum(text, pa.int64())], np.zeros(rows, dtype=np.int64), [values], steps=40
    )
    ordered = np.sort(values)
    for share, value in zip(SHARES, output.values.column(1)[0].as_py(), strict=True):
        low = np.searchsorted(ordered, value, side="left") + 1
        high = np.searchsorted(ordered, value, side="right")
        rank = max(math.ceil(share * rows), 1)
        assert low - rows / accuracy <= rank <= high + rows / accuracy, share
    (kept,) = state.kept.values()
    assert len(kept[0]) <= max(6 * accuracy, 1500) < rows / 2
    assert sum(kept[1]) == rows
    assert (kept[0][0], kept[0][-1]) == (ordered[0], ordered[-1])


def test_summaries_of_many_keys_are_thinned_out_each_by_itself() -> None:
    generator = np.random.default_rng(8)
    keys = generator.choice([1, 2, 3], size=6000, p=[0.9, 0.09, 0.01])
    values = generator.normal(size=6000)
    sums = [Sum("approx_percentile(x, 0.5, 50)", pa.float64())]
    output, state = stepped(sums, keys, [values], steps=10)
    shown = dict(zip(*(c.to_pylist() for c in output.values.columns), strict=True))
    for key in (1, 2, 3):
        mine = np.sort(values[keys == key])
        assert abs(np.searchsorted(mine, shown[key]) - len(mine) / 2) <= len(mine) / 50 + 1
        assert len(state.kept[(key,)][0]) < max(300, len(mine) / 2)


@pytest.mark.parametrize("error", [0.1, 0.05, 0.01])
@pytest.mark.parametrize("number", [1, 10, 300, 5_000, 100_000])
def test_estimates_are_within_a_few_times_their_standard_error(number: int, error: float) -> None:
    generator = np.random.default_rng(number)
    hashes = generator.integers(-(2**63), 2**63 - 1, number, dtype=np.int64)
    again = np.concatenate((hashes, hashes[: number // 2]))
    text = f"approx_count_distinct(x, {error})"
    sums = [Sum(text, pa.int64())]
    output, state = stepped(
        sums, np.zeros(len(again), dtype=np.int64), [again], steps=min(3, number)
    )
    found = output.values.column(1)[0].as_py()
    assert abs(found - number) <= 4 * error * number + 0.5
    (kept,) = state.kept.values()
    registers = 2 ** math.ceil(2 * math.log2(1.106 / error))
    assert len(kept[0]) <= min(number, registers)


def test_no_value_is_estimated_as_none_and_a_flood_does_not_overflow() -> None:
    assert run_once(
        [Sum("approx_count_distinct(x)", pa.int64())],
        pa.table({"a0": pa.array([None], pa.int64())}),
    ) == [0]
    # Every register at its greatest: hashes whose rest is nothing but zeros.
    full = np.arange(512, dtype=np.uint64) << np.uint64(55)
    values = pa.table({"a0": pa.array(full.view(np.int64))})
    (found,) = run_once([Sum("approx_count_distinct(x)", pa.int64())], values)
    assert found > 10**15


@given(st.integers(0, 2**64 - 1), st.integers(4, 18))
def test_a_register_holds_the_zeros_before_the_first_one(number: int, bits: int) -> None:
    text = format(number, "064b")
    rest = text[bits:]
    zeros = len(rest) - len(rest.lstrip("0")) + 1
    (code,) = register_codes(np.array([number], dtype=np.uint64), bits).tolist()
    assert divmod(code, 64) == (int(text[:bits], 2), zeros)


def test_variances_do_not_lose_the_digits_that_sums_of_squares_lose() -> None:
    values = pa.table({f"a{i}": [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16] for i in range(2)})
    sums = [Sum("var_samp(x)", pa.float64()), Sum("var_pop(x)", pa.float64())]
    assert run_once(sums, values) == [30.0, 22.5]
    squares = sum(x * x for x in values.column(0).to_pylist())
    naive = squares / 4 - (sum(values.column(0).to_pylist()) / 4) ** 2
    assert naive != 22.5


def test_many_steps_of_moments_are_as_good_as_one() -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(1e8, 1.0, 3000)
    names = ("var_pop", "skewness", "kurtosis")
    sums = [Sum(f"{name}(x)", pa.float64()) for name in names]
    keys = np.zeros(3000, dtype=np.int64)
    one, _ = stepped(sums, keys, [values] * 3, steps=1)
    many, _ = stepped(sums, keys, [values] * 3, steps=300)
    for place in (1, 2, 3):
        found = [output.values.column(place)[0].as_py() for output in (one, many)]
        assert math.isclose(*found, rel_tol=1e-6, abs_tol=1e-6)
    exact = values - values.mean()
    assert math.isclose(one.values.column(1)[0].as_py(), (exact**2).mean(), rel_tol=1e-7)


ODD: list[tuple[str, list[float | None], Any]] = [
    ("var_pop", [1.0, math.nan], math.nan),
    ("var_pop", [math.inf], math.nan),
    ("var_pop", [5.5], 0.0),
    ("var_samp", [5.5], None),
    ("var_samp", [None], None),
    ("stddev_samp", [0.1, 0.1, 0.1], 0.0),
    ("skewness", [0.1, 0.1, 0.1], None),
    ("kurtosis", [0.1], None),
    ("sum", [-0.0, None], 0.0),
    ("max", [math.nan, math.inf], math.nan),
    ("min", [math.nan, 0.0, -0.0], -0.0),
    ("mode", [math.nan, math.nan, 1.0], math.nan),
    ("median", [math.inf, -math.inf], math.nan),
    ("median", [math.inf, math.inf], math.inf),
    ("median", [math.nan, 1.0, 2.0], 2.0),
    ("collect_set", [0.0, -0.0, math.nan, math.nan, None], [0.0, math.nan]),
    ("collect_list", [None, -0.0], [-0.0]),
    ("collect_list", [None], []),
    ("count_distinct", [0.0, -0.0, math.nan, None], 2),
    ("sum_distinct", [0.5, 0.5, None], 0.5),
    ("avg_distinct", [None], None),
]


@pytest.mark.parametrize(("function", "values", "wanted"), ODD)
def test_odd_numbers_are_taken_as_sql_takes_them(
    function: str, values: list[float | None], wanted: Any
) -> None:
    name, _, distinct = function.partition("_distinct" if "distinct" in function else "?")
    text = f"{name}(distinct x)" if function.endswith("_distinct") else f"{function}(x)"
    assert distinct == ""
    table = pa.table({"a0": pa.array(values, pa.float64())})
    (found,) = run_once([Sum(text, pa.float64())], table)
    assert repr(found) == repr(wanted)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.list_(pa.list_(pa.string())), pa.struct([("x", pa.float64())])],
    ids=str,
)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_codes_compare_as_nested_values_do(kind: pa.DataType, data: st.DataObject) -> None:
    inner: dict[str, st.SearchStrategy[Any]] = {
        "list<item: int8>": st.lists(st.none() | st.integers(-2, 2), max_size=3),
        "list<item: list<item: string>>": st.lists(
            st.none() | st.lists(st.none() | st.sampled_from(["", "a", "b"]), max_size=2),
            max_size=2,
        ),
        "struct<x: double>": st.fixed_dictionaries(
            {"x": st.none() | st.sampled_from([0.0, 1.5, -1.0])}
        ),
    }

    def comparable(value: Any) -> Any:
        if value is None:
            return ()
        if isinstance(value, dict):
            value = list(value.values())
        return ([comparable(part) for part in value],) if isinstance(value, list) else (value,)

    values = data.draw(st.lists(inner[str(kind)], min_size=1, max_size=8))
    found = codes(pa.array(values, kind)).tolist()
    for one, left in zip(found, values, strict=True):
        for other, right in zip(found, values, strict=True):
            assert (one < other) == (comparable(left) < comparable(right))
            assert (one == other) == (comparable(left) == comparable(right))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.struct([("x", pa.float64())]), [{"x": 0.0}, {"x": -0.0}, {"x": None}, {"x": None}]),
        (pa.list_(pa.float32()), [[-0.0, None], None, [0.0, None], []]),
        (
            pa.list_(pa.struct([("x", pa.float64())])),
            [[{"x": -0.0}, None], [{"x": 0.0}, None], [None], [None]],
        ),
    ],
    ids=str,
)
def test_zeros_inside_of_values_are_one_zero(kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"a0": pa.array(values, kind)})
    (found,) = run_once([Sum("collect_set(x)", kind)], table)
    assert len(found) == 2
    assert "-0.0" not in repr(found)


def test_lists_of_owners_without_values_are_empty() -> None:
    flat = FlatLists((pa.array([7, 8]),), np.array([1, 1]))
    assert flat.lists(4, "here")[0].to_pylist() == [[], [7, 8], [], []]
