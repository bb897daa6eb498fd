"""``stateful_map``: calls in order, state by key, and what is said of a function that errs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import AnabranchError, OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import state_codec
from anabranch.operators.order.row_order import RowOrder
from anabranch.operators.rows import Rows
from anabranch.operators.stateful_map import StatefulMap
from tests.operators.columns import KEYS
from tests.operators.keyed_rows import DictState, key_tuples, make_rows

KEY = pa.schema([("customer", pa.string())])


def operator(
    function: Any, *, state: str | None = "total bigint", output: str = "n bigint"
) -> StatefulMap:
    codec = state_codec(None if state is None else parse_schema(state))
    return StatefulMap("running", function, codec, parse_schema(output))


def rows_of(pairs: list[tuple[Any, Any]], order: list[int] | None = None, **more: Any) -> Rows:
    values = pa.table({"amount": pa.array([pair[1] for pair in pairs], type=pa.int64())})
    keys = [(pair[0],) for pair in pairs]
    return make_rows(keys, KEY, values, order=order or list(range(len(pairs))), **more)


def in_order(output: Rows) -> list[tuple[Any, ...]]:
    """The rows as their order has them; they come key by key."""
    assert output.order is not None
    places = output.order.permutation()
    values = output.values if places is None else output.values.take(pa.array(places))
    return [tuple(row.values()) for row in values.to_pylist()]


def run(function: Any, pairs: list[tuple[Any, Any]], **more: Any) -> tuple[list[Any], DictState]:
    """The output rows and the state of one step."""
    operated = operator(function, **more)
    state = DictState(operated.codec.schema)
    output, changes = operated.run(rows_of(pairs), state)
    state.write(changes)
    return in_order(output), state


def add(key: Any, row: Any, total: Any) -> Any:
    total = (total or 0) + row.amount
    return (total,), total


def test_state_goes_from_row_to_row_and_from_step_to_step() -> None:
    operated = operator(add)
    state = DictState(operated.codec.schema)
    for pairs, wanted in (
        ([("a", 1), ("b", 10), ("a", 2)], [(1,), (10,), (3,)]),
        ([("a", 4), ("c", 5)], [(7,), (5,)]),
    ):
        output, changes = operated.run(rows_of(pairs), state)
        state.write(changes)
        assert in_order(output) == wanted
    assert state.kept == {("a",): (7,), ("b",): (10,), ("c",): (5,)}


def test_output_is_nothing_a_row_or_a_list_of_rows() -> None:
    def several(key: Any, row: Any, state: Any) -> Any:
        outputs = {0: None, 1: (1,), 2: [(20,), (21,)], 3: []}
        return outputs[row.amount], 1

    assert run(several, [("a", 2), ("b", 0), ("a", 1), ("c", 3), ("a", 2)])[0] == [
        (20,),
        (21,),
        (1,),
        (20,),
        (21,),
    ]


def test_an_emitted_row_stays_as_it_was_when_it_was_emitted() -> None:
    def emits_its_state(key: Any, row: Any, seen: Any) -> Any:
        seen = seen or []
        seen.append((row.amount,))
        return seen, seen

    assert run(emits_its_state, [("a", 1), ("a", 2)], state=None)[0] == [(1,), (1,), (2,)]

    def emits_a_list(key: Any, row: Any, seen: Any) -> Any:
        seen = seen or []
        seen.append(row.amount)
        return (seen,), seen

    found, _ = run(emits_a_list, [("a", 1), ("a", 2)], state=None, output="seen array<bigint>")
    assert found == [([1],), ([1, 2],)]


def test_an_output_row_has_its_callers_key_and_order_with_a_digit() -> None:
    def twice(key: Any, row: Any, state: Any) -> Any:
        return [(row.amount,), (-row.amount,)], 1

    rows = rows_of([("a", 1), ("b", 2)], order=[8, 3])
    output, _ = operator(twice).run(rows, DictState(pa.schema([("total", pa.int64())])))
    assert output.keys is not None
    assert output.order is not None
    assert output.hashes is not None
    assert rows.hashes is not None
    digits = [tuple(column.tolist()) for column in output.order.columns[2:]]
    assert in_order(output) == [(2,), (-2,), (1,), (-1,)]
    named = list(
        zip(output.keys.column(0).to_pylist(), output.hashes.tolist(), *digits, strict=True)
    )
    of_a, of_b = rows.hashes.tolist()
    assert sorted(named) == [
        ("a", of_a, 8, 0),
        ("a", of_a, 8, 1),
        ("b", of_b, 3, 0),
        ("b", of_b, 3, 1),
    ]


def test_none_forgets_a_key() -> None:
    def until_zero(key: Any, row: Any, total: Any) -> Any:
        total = (total or 0) + row.amount
        return (total,), total or None

    operated = operator(until_zero)
    state = DictState(operated.codec.schema)
    first, changes = operated.run(rows_of([("a", 2), ("b", 3), ("c", 1), ("c", -1)]), state)
    state.write(changes)
    assert state.kept == {("a",): (2,), ("b",): (3,)}
    second, changes = operated.run(rows_of([("a", -2), ("a", 5), ("b", -3)]), state)
    assert changes.changed.tombstone.tolist().count(True) == 1
    state.write(changes)
    assert state.kept == {("a",): (5,)}
    assert in_order(first) == [(2,), (3,), (1,), (0,)]
    assert in_order(second) == [(0,), (5,), (0,)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-9, 9)), max_size=20),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 2, 1 << 32]),
)
def test_r7_calls_come_in_the_order_of_the_rows_whatever_the_shuffle_did(
    pairs: list[tuple[Any, int]], random: Any, spread: int
) -> None:
    def remember(key: Any, row: Any, seen: Any) -> Any:
        seen = [*(seen or []), row.amount]
        return (",".join(map(str, seen)),), seen

    order = list(range(len(pairs)))
    random.shuffle(order)
    operated = operator(remember, state=None, output="seen string")
    state = DictState(operated.codec.schema)
    output, changes = operated.run(
        rows_of([pairs[place] for place in order], order=order, spread=spread), state
    )
    model: dict[Any, list[int]] = {}
    wanted = []
    for customer, amount in pairs:
        model.setdefault(customer, []).append(amount)
        wanted.append((",".join(map(str, model[customer])),))
    assert in_order(output) == wanted
    state.write(changes)
    assert set(state.kept) == {(customer,) for customer in model}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(KEYS)), st.data())
def test_every_type_of_key_is_given_to_the_function_as_it_is(
    kind: pa.DataType, data: st.DataObject
) -> None:
    schema = pa.schema([("k", kind)])
    keys = data.draw(st.lists(st.tuples(st.none() | KEYS[kind]), min_size=1, max_size=6))
    seen: dict[int, Any] = {}

    def count(key: Any, row: Any, times: Any) -> Any:
        seen[row.place] = key.k
        return None, (times or 0) + 1

    operated = operator(count)
    state = DictState(operated.codec.schema)
    table = pa.table({"place": range(len(keys))})
    rows = make_rows(keys, schema, table, spread=2, order=range(len(keys)))
    _, changes = operated.run(rows, state)
    state.write(changes)
    assert [seen[place] for place in range(len(keys))] == [key[0] for key in keys]
    assert rows.keys is not None
    counted: dict[Any, int] = {}
    for key in key_tuples(rows.keys):
        counted[key] = counted.get(key, 0) + 1
    assert state.kept == {key: (times,) for key, times in counted.items()}


def test_state_of_several_columns_has_names_within_a_step_as_after_it() -> None:
    def extend(key: Any, row: Any, kept: Any) -> Any:
        low = row.amount if kept is None else min(kept.low, row.amount)
        high = row.amount if kept is None else max(kept.high, row.amount)
        return None, (low, high)

    operated = operator(extend, state="low bigint, high bigint")
    state = DictState(operated.codec.schema)
    rows = rows_of([("a", 5), ("a", 1), ("b", 2), ("a", 9)])
    assert rows.keys is not None
    keys = pa.concat_tables([rows.keys.slice(0, 2), rows.keys.slice(2)])
    values = pa.concat_tables([rows.values.slice(0, 1), rows.values.slice(1)])
    chunked = Rows(values, rows.hashes, keys, rows.order)
    _, changes = operated.run(chunked, state)
    state.write(changes)
    assert state.kept == {("a",): (1, 9), ("b",): (2, 2)}
    _, changes = operated.run(rows_of([("b", 7), ("b", 8)]), state)
    state.write(changes)
    assert state.kept == {("a",): (1, 9), ("b",): (2, 8)}


@pytest.mark.parametrize("bad", [(1,), (1, 2, 3), 7, "xy"], ids=str)
def test_state_with_too_few_or_too_many_columns_is_refused(bad: Any) -> None:
    found = failure(lambda key, row, state: (None, bad), [("a", 1)] * 2, state="a int, b int")
    assert type(found) is OutputMismatch
    assert "does not fit the state schema (a int, b int)" in str(found)


def test_columns_whose_names_are_no_python_names_are_reached_by_their_place() -> None:
    def read(key: Any, row: Any, state: Any) -> Any:
        return (row[0] + row.column_0 + row.column_1 + row.fine,), 1

    values = pa.table([[1], [10], [100]], names=["class", "a b", "fine"])
    rows = make_rows([("a",)], KEY, values, order=[0])
    output, _ = operator(read).run(rows, DictState(pa.schema([("total", pa.int64())])))
    assert output.values.column(0).to_pylist() == [112]


def test_no_rows_give_no_output_and_no_change() -> None:
    output, changes = operator(add).run(rows_of([]), DictState(pa.schema([("total", pa.int64())])))
    assert len(output) == len(changes.changed) == 0
    assert output.values.schema == pa.schema([("n", pa.int64())])
    assert isinstance(output.order, RowOrder)
    assert len(output.order.columns) == 4


@pytest.mark.parametrize("calls", [1, 2, 3, 7, 100])
def test_calls_made_in_parts_are_the_calls_made_at_once(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(key: Any, row: Any, total: Any) -> Any:
        total = (total or 0) + row.amount
        return [(total,)] * (row.amount % 3), total if total % 5 else None

    pairs = [("abcdef"[i * i % 6], i) for i in range(40)]
    wanted, kept = run(several, pairs)
    monkeypatch.setattr("anabranch.operators.stateful_map.CALLS", calls)
    found, state = run(several, pairs)
    assert found == wanted
    assert state.kept == kept.kept


# ---------------------------------------------------------------------- a function that errs


def failure(function: Any, pairs: list[tuple[Any, Any]], **more: Any) -> AnabranchError:
    with pytest.raises(AnabranchError) as got:
        run(function, pairs, **more)
    copy = pickle.loads(pickle.dumps(got.value))
    assert str(copy) == str(got.value)
    return got.value


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, ZeroDivisionError])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_function_that_raises_is_named_with_operator_key_row_and_line(
    error: type[Exception], place: int
) -> None:
    def breaks(key: Any, row: Any, state: Any) -> Any:
        if row.amount == place + 1:
            raise error("no such luck")
        return None, 1

    found = failure(breaks, [("a", 1), ("b", 2), ("a", 3)])
    text = str(found)
    customer, amount = [("a", 1), ("b", 2), ("a", 3)][place]
    line = breaks.__code__.co_firstlineno + 2
    assert type(found) is UserFunctionFailed
    assert text.startswith("[step.user_function] ")
    assert f"breaks ({__file__}:{breaks.__code__.co_firstlineno})" in text
    assert f"raised {error.__name__}: " in text
    assert "operator running" in text
    assert f"Key(customer='{customer}')" in text
    assert f"Row(amount={amount})" in text
    assert f'line {line} of {__file__}: raise error("no such luck")' in text
    assert "run the pipeline again" in text


def test_a_function_that_returned_lists_before_it_raised_is_not_blamed_for_them() -> None:
    def breaks(key: Any, row: Any, state: Any) -> Any:
        if row.amount == 2:
            raise ValueError("at last")
        return [None, 1]

    assert type(failure(breaks, [("a", 1), ("a", 2)])) is UserFunctionFailed


def test_a_function_that_is_not_written_in_python_can_fail_too() -> None:
    found = failure(pow, [("a", 1)])
    assert type(found) is UserFunctionFailed
    assert "pow raised TypeError" in str(found)


@pytest.mark.parametrize("result", [None, 7, (1,), (1, 2, 3), "abc"])
def test_what_is_not_a_pair_is_shown(result: Any) -> None:
    def wrong(key: Any, row: Any, state: Any) -> Any:
        return result if row.amount == 2 else (None, 1)

    found = failure(wrong, [("a", 1), ("b", 2)])
    assert type(found) is OutputMismatch
    assert f"returned {result!r} instead of (output, new state)" in str(found)
    assert "operator running, Key(customer='b'), Row(amount=2)" in str(found)
    assert "Return a pair" in str(found)


@pytest.mark.parametrize(
    "bad", [("x",), (1, 2), (), "x", 5, {"n": 1}, (1.5,), (2**63,), [(1,), ("x",)]], ids=str
)
def test_output_that_does_not_fit_is_shown_with_its_key_and_the_schema(bad: Any) -> None:
    def wrong(key: Any, row: Any, state: Any) -> Any:
        return (bad if row.amount == 2 else (row.amount,)), 1

    found = failure(wrong, [("a", 1), ("b", 2), ("c", 3)])
    shown = bad[1] if isinstance(bad, list) else bad
    assert type(found) is OutputMismatch
    assert f"emitted {shown!r}, which does not fit the output schema (n bigint)" in str(found)
    assert "operator running, Key(customer='b')" in str(found)


def test_null_output_does_not_fit_a_column_that_may_not_be_null() -> None:
    found = failure(lambda key, row, state: ((None,), 1), [("a", 1)], output="n bigint not null")
    assert type(found) is OutputMismatch
    assert "column n may not be NULL" in str(found)


@pytest.mark.parametrize("bad", ["x", 1.5, 2**63, (1,), [1]], ids=str)
def test_state_that_does_not_fit_is_shown_with_its_key_and_the_schema(bad: Any) -> None:
    def wrong(key: Any, row: Any, state: Any) -> Any:
        return None, (bad if row.amount == 2 else None)

    found = failure(wrong, [("a", 1), ("b", 2), ("c", 3)])
    assert type(found) is OutputMismatch
    assert f"returned the state {bad!r}, which does not fit the state schema (total bigint)" in str(
        found
    )
    assert "operator running, Key(customer='b')" in str(found)


def test_state_that_no_one_can_encode_is_shown_with_its_key() -> None:
    found = failure(lambda key, row, state: (None, object()), [("a", 1)], state=None)
    assert type(found) is OutputMismatch
    assert "returned the state <object object at" in str(found)
    assert "which msgspec cannot encode" in str(found)
    assert "Key(customer='a')" in str(found)


def test_an_error_does_not_grow_with_the_data() -> None:
    def wrong(key: Any, row: Any, state: Any) -> Any:
        raise ValueError("no")

    rows = make_rows([("k" * 5000,)], KEY, pa.table({"text": ["x" * 100_000]}), order=[0])
    with pytest.raises(UserFunctionFailed) as got:
        operator(wrong).run(rows, DictState(pa.schema([("total", pa.int64())])))
    assert len(str(got.value)) < 2000


def test_unhashed_rows_are_not_taken() -> None:
    rows = Rows(pa.table({"amount": [1]}), order=RowOrder((np.zeros(1, dtype=np.int64),) * 3))
    with pytest.raises(AssertionError):
        operator(add).run(rows, DictState(pa.schema([("total", pa.int64())])))
