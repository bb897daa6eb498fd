"""``stateful_batches``: tables in, tables out, against plain Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dataflow.types.schema import parse_schema
from anabranch.errors import AnabranchError, OutputMismatch, UserFunctionFailed
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.rows import Rows
from anabranch.operators.stateful_batches import StatefulBatches
from tests.operators.kept_states import Kept
from tests.operators.keyed_rows import make_rows

KEY = pa.schema([("who", pa.string())])


def rows_of(pairs: list[tuple[str, int]]) -> Rows:
    values = pa.table({"n": pa.array([n for _, n in pairs], type=pa.int64())})
    return make_rows([(who,) for who, _ in pairs], KEY, values, order=range(len(pairs)))


def operator(function: Any, ttl_ns: int | None = None) -> StatefulBatches:
    state, output = parse_schema("total bigint"), parse_schema("who string, total bigint")
    return StatefulBatches("sums", function, state, output, ttl_ns)


def sums(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Totals per key; a key whose total is a multiple of seven is forgotten."""
    added = rows.group_by("_key").aggregate([("n", "sum")]).sort_by("_key")
    total = pc.add(pc.fill_null(state.column("total"), 0), added.column("n_sum"))
    output = pa.table({"who": state.column("who"), "total": total, "_key": state.column("_key")})
    sevens = pa.array([value % 7 == 0 for value in total.to_pylist()])
    return output, pa.table({"total": total, "_forget": sevens})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), min_size=1, max_size=12),
        max_size=6,
    )
)
def test_state_goes_from_step_to_step(steps: list[list[tuple[str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check_steps(steps, Kept(operator(sums), KEY, Path(directory)))


def check_steps(steps: list[list[tuple[str, int]]], kept: Kept) -> None:
    model: dict[str, int] = {}
    for pairs in steps:
        output = kept.step(rows_of(pairs))
        for who, n in pairs:
            model[who] = model.get(who, 0) + n
        wanted = {who: model[who] for who, _ in pairs}
        assert dict(zip(*output.values.to_pydict().values(), strict=True)) == wanted
        for who in [who for who, total in wanted.items() if total % 7 == 0]:
            del model[who]
    assert {row["k_who"]: row["v_total"] for row in kept.scan("sums")} == model
    assert sum(kept.live["sums"]) == len(model)


def test_output_by_row_has_the_order_of_the_row(tmp_path: Path) -> None:
    def running(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, None]:
        who = state.column("who").take(rows.column("_key"))
        return pa.table({"who": who, "total": rows.column("n")}), None

    kept = Kept(operator(running), KEY, tmp_path)
    output = kept.step(rows_of([("b", 3), ("a", 1), ("b", 2)]))
    assert output.order is not None
    order = output.order.columns[2].tolist()
    found = zip(order, *output.values.to_pydict().values(), strict=True)
    assert sorted(found) == [(0, "b", 3), (1, "a", 1), (2, "b", 2)]
    assert kept.scan("sums") == []


def test_time_to_live(tmp_path: Path) -> None:
    kept = Kept(operator(sums, ttl_ns=100), KEY, tmp_path)
    kept.step(rows_of([("a", 1), ("b", 2)]))
    kept.now_ns += 60
    assert kept.step(rows_of([("a", 1)])).values.column("total").to_pylist() == [2]
    kept.now_ns += 60
    output = kept.step(rows_of([("a", 1), ("b", 1)]))
    assert dict(zip(*output.values.to_pydict().values(), strict=True)) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (7, "returned 7"),
        ((7, None), "returned 7 instead of a table"),
        ((pa.table({"who": ["a"], "total": [1]}), None), "returned 1 rows for 2"),
        ((pa.table({"who": ["a", "b"]}), None), "returned no column total"),
        ((None, pa.table({"total": [1]})), "returned 1 states for 2 keys"),
        ((None, pa.table({"total": [1, 2], "_key": [0, 0]})), "two states for one key"),
        ((None, pa.table({"total": [1], "_key": [5]})), "a value of _key that it was not given"),
        ((None, pa.table({"total": ["x", "y"]})), "returned values that do not fit"),
    ],
)
def test_what_does_not_fit_is_said(result: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(OutputMismatch) as error:
        Kept(operator(lambda rows, state: result), KEY, tmp_path).step(
            rows_of([("a", 1), ("b", 2)])
        )
    assert text in str(error.value)
    assert "operator sums" in str(error.value)


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    def breaks(rows: pa.Table, state: pa.Table) -> Any:
        raise KeyError("nothing")

    with pytest.raises(AnabranchError) as error:
        Kept(operator(breaks), KEY, tmp_path).step(rows_of([("a", 1)]))
    assert type(error.value) is UserFunctionFailed
    assert "raised KeyError" in str(error.value)


def touchy(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Raises for a 5 and gives what does not fit for a 6; of the others, their sums."""
    amounts = rows.column("n").to_pylist()
    if 5 in amounts:
        raise ValueError("not five")
    output, kept = sums(rows, state)
    return output, kept.slice(1) if 6 in amounts else kept


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), min_size=1, max_size=12),
        max_size=4,
    )
)
def test_keys_that_cannot_be_taken_are_dead_letters_and_stay_as_they_were(
    steps: list[list[tuple[str, int]]],
) -> None:
    model: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        kept = Kept(operator(touchy), KEY, Path(directory))
        for pairs in steps:
            dead: list[RowFailure] = []
            output = kept.step(rows_of(pairs), dead)
            guilty = {who for who, n in pairs if n in (5, 6)}
            found = sorted((failure.key.who, failure.row.n) for failure in dead)
            assert found == sorted(pair for pair in pairs if pair[0] in guilty)
            for failure in dead:
                raised = any(who == failure.key.who and n == 5 for who, n in pairs)
                assert failure.error.startswith("ValueError" if raised else "OutputMismatch")
            good = [pair for pair in pairs if pair[0] not in guilty]
            for who, n in good:
                model[who] = model.get(who, 0) + n
            wanted = {who: model[who] for who, _ in good}
            assert dict(zip(*output.values.to_pydict().values(), strict=True)) == wanted
            for who in [who for who, total in wanted.items() if total % 7 == 0]:
                del model[who]
        assert {row["k_who"]: row["v_total"] for row in kept.scan("sums")} == model
