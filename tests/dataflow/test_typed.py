"""What a valid dataflow is known to be: schemas, keys, regions, state."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from anabranch.dataflow.aggregates.value import AggregateCall
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.types.schema import parse_schema
from anabranch.dataflow.types.typed import Typed, TypedAggregate
from anabranch.dataflow.validate import validate
from tests.dataflow.fakes import FakeAnalyzer, add, sink, source

ANALYZER = FakeAnalyzer(
    {
        "date(at)": pa.field("", pa.date32()),
        "amount * 2": pa.field("", pa.float64()),
        "1": pa.field("", pa.int32(), nullable=False),
    },
    frozenset({"amount > 0"}),
)


def two_regions() -> Dataflow:
    flow = Dataflow("shop")
    source_ = source("customer string not null, amount double, at timestamp")
    orders = flow.source("orders", source_)  # 0
    paid = orders.where("amount > 0")  # 1
    running = (
        paid.key_distribute("by-customer", "customer", day="date(at)")  # 2, 3
        .select("amount")  # 4
        .with_columns(AMOUNT="amount * 2", one="1")  # 5
        .stateful_map("running", add, state="total double, n int", output="customer string")  # 6
    )
    totals = (
        running.key_by("customer")  # 7
        .where("amount > 0")  # 8
        .distribute_by_key("again")  # 9
        .aggregate("totals", n="count(*)", last="max(customer)")  # 10
    )
    totals.local().sink("out", sink())  # 11, 12
    paid.sink("paid", sink())  # 13
    return flow


@pytest.fixture
def typed() -> Typed:
    return validate(two_regions().graph(), ANALYZER)


def test_schemas_flow_from_sources_to_sinks(typed: Typed) -> None:
    orders = "customer string not null, amount double, at timestamp"
    changed = "AMOUNT double, one int not null"
    totals = "customer string, n bigint not null, last string"
    expected = [orders] * 4 + ["amount double", changed] + ["customer string"] * 4
    expected += [totals] * 3 + [orders]
    assert [typed.schema(id) for id in range(14)] == [parse_schema(text) for text in expected]


def test_the_key_travels_beside_the_row_to_the_end_of_its_region(typed: Typed) -> None:
    first = parse_schema("customer string not null, day date")
    second = parse_schema("customer string")
    expected = [None] * 3 + [first] * 6 + [second] * 2 + [None] * 3
    assert [typed.key(id) for id in range(14)] == expected


def test_a_key_waits_from_key_by_to_its_distribution(typed: Typed) -> None:
    waiting = {id: key.schema() for id in range(14) if (key := typed.nodes[id].next_key)}
    assert waiting == {
        2: parse_schema("customer string not null, day date"),
        7: parse_schema("customer string"),
        8: parse_schema("customer string"),
    }


def test_a_region_is_named_by_the_distribution_that_opened_it(typed: Typed) -> None:
    expected = [None] * 3 + [3] * 6 + [9] * 2 + [None] * 3
    assert [typed.region(id) for id in range(14)] == expected


def test_state_and_aggregates_belong_to_their_operators_alone(typed: Typed) -> None:
    values = {id: typed.nodes[id].value for id in range(14) if typed.nodes[id].value is not None}
    assert values == {6: parse_schema("total double, n int")}
    aggregates = {id: typed.nodes[id].aggregates for id in range(14) if typed.nodes[id].aggregates}
    assert aggregates == {
        10: (
            TypedAggregate(
                "n", AggregateCall("count"), (), pa.field("n", pa.int64(), nullable=False)
            ),
            TypedAggregate(
                "last",
                AggregateCall("max", ("customer",)),
                (pa.string(),),
                pa.field("last", pa.string()),
            ),
        )
    }


def test_any_value_is_a_state_without_schema() -> None:
    flow = Dataflow("shop")
    stream = flow.source("orders", source()).key_distribute("by", "customer")
    stream.stateful_map("running", add, output="customer string").sink("out", sink())
    assert validate(flow.graph()).nodes[3].value is None


def test_names_are_written_as_the_user_last_wrote_them() -> None:
    flow = Dataflow("shop")
    stream = flow.source("orders", source("Customer string, Amount double"))
    stream.select("CUSTOMER", "amount as Paid").key_distribute("by", "customer").aggregate(
        "totals", total="sum(PAID)"
    ).sink("out", sink())
    for analyzer in (None, FakeAnalyzer()):
        typed = validate(flow.graph(), analyzer)
        assert typed.schema(1).names == ["CUSTOMER", "Paid"]
        assert typed.schema(4) == parse_schema("customer string, total double")


def test_unknown_types_are_not_made_up() -> None:
    flow = Dataflow("shop")
    stream = flow.source("orders", source())
    stream.select("customer", "f(amount) as x").key_distribute("by", "customer").aggregate(
        "totals", n="count(x)", total="sum(x)"
    ).sink("out", sink())
    typed = validate(flow.graph())
    assert typed.schema(0) == parse_schema("customer string, amount double, at timestamp")
    assert typed.key(4) == parse_schema("customer string")
    count, total = typed.nodes[4].aggregates
    assert count.field == pa.field("n", pa.int64(), nullable=False)
    assert total.field is None
    for id in (1, 4, 5):
        with pytest.raises(ValueError, match=f"the types at node {id} are unknown"):
            typed.schema(id)


def test_a_typed_dataflow_survives_pickling(typed: Typed) -> None:
    again = pickle.loads(pickle.dumps(typed))
    assert [again.schema(id) for id in range(14)] == [typed.schema(id) for id in range(14)]
    assert again.graph == typed.graph
