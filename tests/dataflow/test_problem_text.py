"""The text that a user with several mistakes reads."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.errors import BuildError, InvalidDataflow
from tests.dataflow.fakes import FakeAnalyzer, sink, source


def two(key: Any, row: Any) -> Any: ...


TWO: Any = two


def flawed() -> Dataflow:
    flow = Dataflow("shop")
    orders = flow.source("orders", source())
    paid = orders.where("amout > 0").select("customer", "amount", "At")
    paid.key_distribute("by-amount", "amount").aggregate(
        "totals",
        n="count(*)",
        share="sum(amount) / count(*)",
        middle="histogram_numeric(amount, 5)",
    ).sink("out", sink())
    paid.stateful_map("running", TWO, state="total doubl", output="who string").sink("out", sink())
    paid.key_by("custmer").where("x")
    return flow


SNAPSHOT = f"""\
[dataflow.invalid] Dataflow "shop" has 11 problems:
  where("amout > 0") after source "orders": "amout > 0" cannot be used: \
no such condition: amout > 0. Correct the expression; the columns are: customer, amount, at.
  key of distribution "by-amount": key "amount" has type double, which cannot be a key. \
Floats are not exactly equal: use e.g. cast(amount as decimal(18,2)).
  aggregate "totals": column "share": "sum(amount) / count(*)" is not one aggregate function. \
Give each function its own column and combine them in a later select; \
only "filter (where …)" may follow a call, as in count(*) filter (where paid).
  aggregate "totals": column "middle": aggregate function "histogram_numeric" in \
"histogram_numeric(amount, 5)" is not supported. \
Use approx_percentile(x, percentage) or percentile(x, percentage).
  stateful_map "running": it keeps state, but its rows are not distributed by key. \
Call .key_distribute("name", "column") before it.
  stateful_map "running": function two ({__file__}:{two.__code__.co_firstlineno}) \
cannot be called with 3 positional arguments. \
Let it take key, row and state: def function(key, row, state): … return output, new_state.
  stateful_map "running": state: the schema cannot be read: column "total" has type "doubl", \
which is not supported (character 7 of "total doubl"). Use one of: boolean, tinyint, smallint, \
int, bigint, float, double, string, binary, date, timestamp, timestamp_ntz, void, decimal(p,s), \
array<…>, map<…,…>, struct<…>.
  sink "out": its name is taken by sink "out". Give it another name.
  key_by("custmer") after source "orders": there is no column "custmer". \
Did you mean "customer"?
  where("x") after source "orders": its rows go nowhere. \
Add .sink("name", …) to the stream, or drop it.
  where("x") after source "orders": there is no column "x". \
The columns are: customer, amount, At."""


@pytest.fixture
def error() -> InvalidDataflow:
    with pytest.raises(InvalidDataflow) as caught:
        validate(flawed().graph(), FakeAnalyzer())
    return caught.value


def test_the_text_lists_all_problems_in_the_order_of_the_graph(error: InvalidDataflow) -> None:
    assert str(error) == SNAPSHOT


def test_the_problems_are_at_hand_too(error: InvalidDataflow) -> None:
    assert isinstance(error, BuildError)
    assert error.name == "shop"
    assert len(error.problems) == 11
    assert error.problems[-2].operator == 'where("x") after source "orders"'
    assert error.problems[-2].what == "its rows go nowhere"
    assert error.problems[-2].do == 'Add .sink("name", …) to the stream, or drop it.'


def test_the_error_survives_pickling(error: InvalidDataflow) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.problems == error.problems


def test_one_problem_is_not_many() -> None:
    flow = Dataflow("shop")
    flow.source("orders", source()).where("x").sink("out", sink())
    with pytest.raises(InvalidDataflow, match='Dataflow "shop" has 1 problem:'):
        validate(flow.graph())


def test_long_and_ragged_texts_become_one_short_line() -> None:
    class Verbose(FakeAnalyzer):
        def condition(self, schema: Any, text: str) -> str:
            return "much\n\tado " * 200

    flow = Dataflow("shop")
    flow.source("orders", source()).where("a\n  > 0").sink("out", sink())
    with pytest.raises(InvalidDataflow) as caught:
        validate(flow.graph(), Verbose())
    (problem,) = caught.value.problems
    assert problem.operator == 'where("a > 0") after source "orders"'
    assert problem.what.startswith('"a > 0" cannot be used: much ado much ado')
    assert problem.what.endswith("…")
    assert len(problem.what) == 400
