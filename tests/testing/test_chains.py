"""Chains between tasks without Spark: what is run gives what Spark gives, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow
from anabranch.sinks.memory import MemorySink
from anabranch.sources.files import FileSource
from anabranch.sources.generator import GeneratorSource
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task.program import Program
from anabranch.testing import MemoryPlane, Outcome, Scenario, Simulation
from anabranch.testing.plane.plain_columns import typed_without_spark
from anabranch.testing.scenario import Row
from tests.dataflow.fakes import FakeAnalyzer

SCHEMA = "customer string, amount bigint, paid boolean"
ORDERS: list[Row] = [("ann", 3, True), ("bob", 5, False), (None, 8, None), ("ann", None, True)]

Build = Callable[[Dataflow, Stream], object]


def made(build: Build) -> dict[str, list[Row]]:
    """The rows of each sink behind ``build``, which is given the orders."""
    found: dict[str, list[Row]] = {}

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("chains")
        build(flow, flow.source("orders", ScriptedSource(SCHEMA, [ORDERS[:2], ORDERS[2:], EOF])))
        return flow

    def keep(result: Outcome) -> None:
        for sink, steps in result.output.items():
            found[sink] = [row for rows in steps.values() for row in rows]

    with Simulation(Scenario(make, keep)) as simulation:
        simulation.run(0)
    return found


def rows_of(build: Callable[[Stream], Stream]) -> list[Row]:
    found = made(lambda flow, orders: build(orders).sink("rows", MemorySink()))["rows"]
    return sorted(found, key=repr)


def chosen(*rows: Row) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("expressions", "place"),
    [
        (("amount", "customer"), lambda row: (row[1], row[0])),
        (("Amount as n", "`customer`"), lambda row: (row[1], row[0])),
        (("*", "amount as again"), lambda row: (*row, row[1])),
        (("customer", "'it' as tag", "-7 as n"), lambda row: (row[0], "it", -7)),
        (("true as sure", "3000000000 as far"), lambda row: (True, 3_000_000_000)),
    ],
)
def test_select(expressions: tuple[str, ...], place: Callable[[Row], Row]) -> None:
    assert rows_of(lambda orders: orders.select(*expressions)) == chosen(*map(place, ORDERS))


def test_with_columns_copies_replaces_and_adds_constants_over_the_columns_before() -> None:
    found = rows_of(
        lambda orders: orders.with_columns(amount="paid", paid="customer", kind="'order'", n="1")
    )
    assert found == chosen(*((who, paid, who, "order", 1) for who, _, paid in ORDERS))


@pytest.mark.parametrize(
    ("swapped", "place"),
    [
        ({"amount": "paid", "paid": "amount"}, lambda row: (row[0], row[2], row[1])),
        ({"Customer": "AMOUNT", "amount": "`customer`"}, lambda row: (row[1], row[0], row[2])),
        (
            {"paid": "customer", "customer": "amount", "amount": "paid"},
            lambda r: (r[1], r[2], r[0]),
        ),
    ],
)
def test_with_columns_replaces_columns_by_each_other_all_at_once(
    swapped: dict[str, str], place: Callable[[Row], Row]
) -> None:
    def through(orders: Stream) -> Stream:
        again = orders.key_distribute("by-amount", k="amount").map_batches(
            "same", lambda table: table, output=SCHEMA
        )
        return again.with_columns(**swapped)

    wanted = chosen(*map(place, ORDERS))
    assert rows_of(lambda orders: orders.with_columns(**swapped)) == wanted
    assert rows_of(through) == wanted


def test_a_key_of_swapped_columns_is_the_new_one() -> None:
    found = made(
        lambda flow, orders: (
            orders.select("amount as x", "4 as y")
            .with_columns(x="y", y="x")
            .key_distribute("by-x", "x")
            .aggregate("most", n="max(y)")
            .sink("rows", MemorySink())
        )
    )
    assert found["rows"] == [(4, 5), (4, 8)]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("amount > 3", lambda who, amount, paid: amount is not None and amount > 3),
        ("5 >= amount", lambda who, amount, paid: amount is not None and amount <= 5),
        ("amount <> 3", lambda who, amount, paid: amount is not None and amount != 3),
        ("customer = 'ann'", lambda who, amount, paid: who == "ann"),
        ("customer < 'b'", lambda who, amount, paid: who == "ann"),
        ("customer is null", lambda who, amount, paid: who is None),
        ("CUSTOMER IS NOT NULL and amount < 4", lambda who, amount, paid: (who, amount)[1] == 3),
        ("paid", lambda who, amount, paid: paid is True),
        ("not paid", lambda who, amount, paid: paid is False),
        ("paid = false or amount is null", lambda who, amount, paid: paid is False or not amount),
        ("not (paid and amount > 1)", lambda who, amount, paid: paid is False),
        ("paid or amount > 6", lambda who, amount, paid: paid is True or amount == 8),
        ("amount = amount", lambda who, amount, paid: amount is not None),
        ("true", lambda who, amount, paid: True),
    ],
)
def test_where_knows_three_truth_values(condition: str, holds: Callable[..., bool]) -> None:
    found = rows_of(lambda orders: orders.where(condition))
    assert found == chosen(*(row for row in ORDERS if holds(*row)))


def test_split_gives_each_row_to_its_first_output_and_no_row_to_two() -> None:
    def build(flow: Dataflow, orders: Stream) -> None:
        parts = orders.split(large="amount > 4", paid="paid", rest="amount is not null")
        for name, part in parts.items():
            part.sink(name, MemorySink())

    found = made(build)
    assert chosen(*found["large"]) == chosen(("bob", 5, False), (None, 8, None))
    assert chosen(*found["paid"]) == chosen(("ann", 3, True), ("ann", None, True))
    assert found["rest"] == []


def test_operators_of_a_chain_run_in_their_order() -> None:
    found = rows_of(
        lambda orders: (
            orders.where("paid")
            .select("amount as n", "customer as who")
            .with_columns(n="who", m="n")
            .where("m = 3")
            .select("m", "n")
        )
    )
    assert found == [(3, "ann")]


def test_a_key_is_that_of_the_columns_where_it_is_computed() -> None:
    """The key of renamed columns; it stays when its column is replaced or dropped."""

    def count(key: Any, row: Any, n: int | None) -> Any:
        return (key.who, row.customer, (n or 0) + 1), (n or 0) + 1

    found = rows_of(
        lambda orders: (
            orders.where("customer is not null")
            .select("customer as who", "amount")
            .key_by("amount")
            .key_by("who")
            .select("'nobody' as customer")
            .distribute_by_key("by-who")
            .stateful_map("count", count, state="n int", output="who string, said string, n int")
        )
    )
    assert found == chosen(("ann", "nobody", 1), ("ann", "nobody", 2), ("bob", "nobody", 1))


def test_a_key_may_be_a_constant() -> None:
    found = made(
        lambda flow, orders: (
            orders.key_distribute("all", whole="'all'")
            .aggregate("sums", n="count(*)", most="max(amount)")
            .sink("rows", MemorySink())
        )
    )
    assert sorted(found["rows"]) == [("all", 2, 5), ("all", 4, 8)]


CITIES = [[("ann", "Rome")], [("bob", "Oslo")]]


def united(flow: Dataflow, orders: Stream) -> Stream:
    cities = flow.source("cities", ScriptedSource("customer string, city string", [*CITIES, EOF]))
    return flow.union("input", order=orders.key_by("customer"), city=cities.key_by("customer"))


def test_a_tagged_union_of_two_sources_has_null_for_what_an_input_lacks() -> None:
    found = made(lambda flow, orders: united(flow, orders).sink("rows", MemorySink()))
    rows: list[Row] = [("order", *row, None) for row in ORDERS]
    rows += [("city", who, None, None, city) for page in CITIES for who, city in page]
    assert chosen(*found["rows"]) == chosen(*rows)


def test_two_sources_meet_at_their_key_in_the_order_of_the_dataflow() -> None:
    def told(key: Any, row: Any, seen: str | None) -> Any:
        seen = f"{seen or ''}{row.input[0]}"
        return (key.customer, seen), seen

    found = made(
        lambda flow, orders: (
            united(flow, orders)
            .distribute_by_key("by-customer")
            .stateful_map("told", told, state="seen string", output="customer string, seen string")
            .sink("rows", MemorySink())
        )
    )
    assert chosen(*found["rows"]) == chosen(
        ("ann", "o"), ("ann", "oc"), ("ann", "oco"), ("bob", "o"), ("bob", "oc"), (None, "o")
    )


def test_a_plain_union_puts_split_streams_together_again() -> None:
    def build(flow: Dataflow, orders: Stream) -> None:
        parts = orders.split(paid="paid", rest="true")
        again = (
            parts["paid"]
            .select("amount", "customer")
            .union(parts["rest"].select("customer", "amount"))
        )
        again.sink("rows", MemorySink())
        again.key_distribute("by-customer", "customer").aggregate("sums", n="count(*)").sink(
            "counts", MemorySink()
        )

    found = made(build)
    assert chosen(*found["rows"]) == chosen(*((amount, who) for who, amount, _ in ORDERS))
    assert max(found["counts"], key=lambda row: row[1]) == ("ann", 2)


def test_a_source_with_several_partitions_is_read_whole() -> None:
    def make(directory: Path) -> Dataflow:
        flow = Dataflow("numbers")
        numbers = GeneratorSource(
            lambda partition, start, end: {"n": [3 * i + partition for i in range(start, end)]},
            "n bigint",
            partitions=3,
            rows_per_step=4,
            rows=10,
        )
        flow.source("numbers", numbers).where("n <> 4").sink("rows", MemorySink())
        return flow

    def check(result: Outcome) -> None:
        found = sorted(n for rows in result.output["rows"].values() for (n,) in rows)
        assert found == [0, 1, 2, 3, 5, 6, 7, 8, 9]

    with Simulation(Scenario(make, check)) as simulation:
        simulation.run(1)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("build", "operator", "text"),
    [
        (lambda o: o.select("amount * 2 as n"), "select", "amount * 2"),
        (lambda o: o.select("'a'"), "select", "'a'"),
        (lambda o: o.select("1.5 as n"), "select", "1.5"),
        (lambda o: o.select("null as n"), "select", "null"),
        (lambda o: o.select("'it''s' as n"), "select", "'it''s'"),
        (lambda o: o.select("9999999999999999999 as n"), "select", "9999999999999999999"),
        (lambda o: o.with_columns(n="upper(customer)"), "with_columns", "upper(customer)"),
        (lambda o: o.where("amount + 1 > 3"), "where", "amount + 1 > 3"),
        (lambda o: o.where("amount between 1 and 3"), "where", "amount between 1 and 3"),
        (lambda o: o.where("customer > 3"), "where", "customer > 3"),
        (lambda o: o.where("amount"), "where", "amount"),
        (lambda o: o.where("1 = 1"), "where", "1 = 1"),
        (lambda o: o.where("paid and"), "where", "paid and"),
        (lambda o: o.where("(paid"), "where", "(paid"),
        (lambda o: o.where("amount = 1 = paid"), "where", "amount = 1 = paid"),
        (lambda o: o.where("paid < true"), "where", "paid < true"),
        (lambda o: o.split(one="amount % 2 = 1")["one"], "split", "amount % 2 = 1"),
        (
            lambda o: o.key_distribute("r", k="amount % 2").aggregate("n", n="count(*)"),
            'key of distribution "r"',
            "amount % 2",
        ),
        (
            lambda o: o.key_distribute("r", "customer").aggregate("n", n="sum(amount + 1)"),
            'aggregate "n"',
            "amount + 1",
        ),
        (lambda o: o.transform("t", lambda frame: frame), 'transform "t"', "Spark"),
    ],
)
def test_other_sql_is_refused_by_operator_and_text(
    build: Callable[[Stream], Stream], operator: str, text: str
) -> None:
    def make(directory: Path) -> Dataflow:
        flow = Dataflow("refused")
        build(flow.source("orders", ScriptedSource(SCHEMA, [ORDERS, EOF]))).sink(
            "rows", MemorySink()
        )
        return flow

    with pytest.raises(InvalidDataflow) as refusal:
        Simulation(Scenario(make, lambda result: None))
    (problem,) = refusal.value.problems
    assert problem.operator.startswith(operator)
    assert text in str(problem)
    assert "without Spark" in str(problem) or "needs Spark" in str(problem)


@pytest.mark.parametrize(
    "source",
    [
        FileSource("in", "csv", "n bigint", watch=False),
        FileSource("in", "json", "n bigint", {"multiLine": True}, watch=False),
    ],
)
def test_files_that_only_spark_reads_are_refused_by_name(
    source: FileSource, tmp_path: Path
) -> None:
    flow = Dataflow("refused")
    flow.source("orders", source).sink("rows", MemorySink())
    with pytest.raises(InvalidDataflow, match='source "orders": it needs Spark') as refusal:
        MemoryPlane(Program(typed_without_spark(flow), 4), tmp_path)
    assert "FileSource of json or parquet without options" in str(refusal.value)


def test_parquet_files_are_read_in_the_order_of_their_rows() -> None:
    def make(directory: Path) -> Dataflow:
        inputs = directory.with_name("input")
        inputs.mkdir()
        for number in range(3):
            rows = pa.table({"n": [10 * number + place for place in range(4)]})
            pq.write_table(rows, inputs / f"{number}.parquet")
        flow = Dataflow("parquet")
        numbers = flow.source("numbers", FileSource(inputs, "parquet", "n bigint", watch=False))
        numbers.key_distribute("one", k="'k'").stateful_map(
            "last",
            lambda key, row, last: ((last, row.n), row.n),
            state="n bigint",
            output="a bigint, b bigint",
        ).sink("rows", MemorySink())
        return flow

    def check(result: Outcome) -> None:
        every = [10 * number + place for number in range(3) for place in range(4)]
        rows = [row for step in result.output["rows"].values() for row in step]
        assert sorted(rows, key=lambda row: row[1]) == list(
            zip([None, *every], every, strict=False)
        )

    with Simulation(Scenario(make, check)) as simulation:
        simulation.run(0)


def test_a_plane_refuses_what_another_analyzer_has_let_through(tmp_path: Path) -> None:
    flow = Dataflow("typed")
    orders = flow.source("orders", ScriptedSource(SCHEMA, [ORDERS, EOF]))
    orders.where("amount > 1 + 1").select("amount * 2 as twice").sink("rows", MemorySink())
    analyzer = FakeAnalyzer(
        {"amount * 2": pa.field("n", pa.int64())}, frozenset({"amount > 1 + 1"})
    )
    program = Program(validate(flow.graph(), analyzer), 4)
    with pytest.raises(InvalidDataflow) as refusal:
        MemoryPlane(program, tmp_path)
    assert [problem.operator.split("(")[0] for problem in refusal.value.problems] == [
        "where",
        "select",
    ]
    assert '"amount * 2' in str(refusal.value)
    assert '"amount > 1 + 1"' in str(refusal.value)
