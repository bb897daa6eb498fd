"""Results in the wrong order or of the wrong shape: the message, and that its remedy works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import AnabranchError, OutputMismatch, UserFunctionFailed
from anabranch.operators.codec import state_codec
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.rows import Rows
from anabranch.operators.stateful_batches import StatefulBatches
from anabranch.operators.stateful_map import StatefulMap
from tests.operators.kept_states import Kept
from tests.operators.keyed_rows import DictState, make_rows
from tests.operators.test_process import operator as process_operator
from tests.operators.test_process import rows_of as process_rows

KEY = pa.schema([("customer", pa.string())])
OUTPUT = "customer string, total double"
ONE = [("ann", 1.0)]
SEVERAL = [("ann", 1.0), ("ann", 2.0), ("bob", 3.0)]


def rows_of(pairs: list[tuple[str, float]]) -> Rows:
    values = pa.table({"amount": pa.array([amount for _, amount in pairs], type=pa.float64())})
    return make_rows([(who,) for who, _ in pairs], KEY, values, order=range(len(pairs)))


def operator(function: Any, state: str | None = "total double") -> StatefulMap:
    codec = state_codec(None if state is None else parse_schema(state))
    return StatefulMap("totals", function, codec, parse_schema(OUTPUT))


def run(
    function: Any, pairs: list[tuple[str, float]], state: str | None = "total double"
) -> list[tuple[Any, ...]]:
    operated = operator(function, state)
    output, _ = operated.run(rows_of(pairs), DictState(operated.codec.schema))
    return [tuple(row.values()) for row in output.values.to_pylist()]


def failure(function: Any, pairs: list[tuple[str, float]], state: str | None) -> AnabranchError:
    with pytest.raises(AnabranchError) as error:
        run(function, pairs, state)
    return error.value


def swapped(key: Any, row: Any, total: Any) -> Any:
    total = (total or 0.0) + row.amount
    return total, (key.customer, total)


def in_order(key: Any, row: Any, total: Any) -> Any:
    state, output = swapped(key, row, total)
    return output, state


@pytest.mark.parametrize("state", ["total double", None], ids=["typed", "any state"])
@pytest.mark.parametrize("pairs", [ONE, SEVERAL], ids=["one row", "several of a key"])
def test_a_state_before_the_output_is_told_and_swapping_them_works(
    pairs: list[tuple[str, float]], state: str | None
) -> None:
    found = failure(swapped, pairs, state)
    text, line = str(found), swapped.__code__.co_firstlineno
    assert type(found) is OutputMismatch
    assert f"swapped ({__file__}:{line}) returned (1.0, ('ann', 1.0))" in text
    assert "the new state first, then the output" in text
    assert "operator totals, Key(customer='ann')" in text
    assert "Swap them: return (output, new state), here (('ann', 1.0), 1.0)." in text
    assert len(run(in_order, pairs, state)) == len(pairs)


def test_a_list_of_rows_in_the_place_of_the_state_is_told_too() -> None:
    def several(key: Any, row: Any, total: Any) -> Any:
        return row.amount, [(key.customer, row.amount), (key.customer, 0.0)]

    text = str(failure(several, ONE, "total double"))
    assert "here ([('ann', 1.0), ('ann', 0.0)], 1.0)" in text


def test_a_function_that_fails_by_itself_is_not_taken_for_a_swap() -> None:
    def breaks(key: Any, row: Any, total: Any) -> Any:
        if total is not None:
            raise ValueError("the second time")
        return (key.customer, row.amount), row.amount

    assert type(failure(breaks, SEVERAL, "total double")) is UserFunctionFailed


def test_a_row_without_its_tuple_is_not_taken_for_a_swap_and_the_remedy_works() -> None:
    found = failure(lambda key, row, state: (row.amount, None), ONE, "total double")
    text = str(found)
    assert (
        "emitted 1.0, which does not fit the output schema (customer string, total double)" in text
    )
    assert "a row must be a tuple" in text
    assert "Return (output, new state): a row is a tuple with one value for each of" in text
    fixed = run(lambda key, row, state: ((key.customer, row.amount), None), ONE)
    assert fixed == ONE


def test_rows_in_a_tuple_are_told_and_a_list_of_them_works() -> None:
    def paired(key: Any, row: Any, state: Any) -> Any:
        return ((key.customer, 1.0), (key.customer, 2.0)), 0.0

    assert "several rows are a list, not a tuple" in str(failure(paired, ONE, "n double"))
    assert len(run(lambda *given: (list(paired(*given)[0]), 0.0), ONE)) == 2


def test_rows_that_a_process_returns_in_a_tuple_are_told_too(tmp_path: Path) -> None:
    class Paired(ab.Process):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            return (("a", 1), ("b", 2))

    with pytest.raises(OutputMismatch, match="several rows are a list, not a tuple"):
        Kept(process_operator(Paired), pa.schema([("who", pa.string())]), tmp_path).step(
            process_rows([("a", "", 1)])
        )


def test_a_dead_letter_says_what_a_row_must_be() -> None:
    dead: list[RowFailure] = []
    operated = operator(swapped)
    operated.run(rows_of(ONE), DictState(operated.codec.schema), dead)
    assert [failed.error for failed in dead] == [
        "TypeError: a row must be a tuple: object of type 'float' has no len()"
    ]


def tables(swap: bool) -> Any:
    def sums(rows: pa.Table, state: pa.Table) -> Any:
        output = pa.table({"customer": ["ann", "bob"], "total": [1.0, 2.0]})
        new_state = pa.table({"sum": [1.0, 2.0]})
        return (new_state, output) if swap else (output, new_state)

    return sums


def batches(function: Any) -> int:
    state = parse_schema("sum double")
    operated = StatefulBatches("sums", function, state, parse_schema(OUTPUT), None)
    output, _ = operated.run(rows_of([("ann", 1.0), ("bob", 2.0)]), DictState(state))
    return len(output)


def test_swapped_tables_are_told_and_swapping_them_works() -> None:
    function = tables(swap=True)
    with pytest.raises(OutputMismatch) as error:
        batches(function)
    text = str(error.value)
    assert f"({__file__}:{function.__code__.co_firstlineno})" in text
    assert "returned the new state first, then the output (operator sums)" in text
    assert "Return them swapped; output= says (customer string, total double), state= (sum" in text
    assert batches(tables(swap=False)) == 2
