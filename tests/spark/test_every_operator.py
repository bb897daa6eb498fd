"""Every operator in one dataflow, keyed anew behind it, against plain Python.

Each branch of the table is an operator over the same random rows and what it must give, a step at a
time and in order. All branches go, tagged, into one more region that remembers every row that it
sees: a row too many, too few or in another order shows there. Some have a sink of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.dataflow.stream import Stream
from tests.spark.running import bag, completed
from tests.spark.sums import add, add_tables
from tests.spark.test_breadth import ORDERS, PAYMENTS, Page, got, pages

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "customer string, amount bigint"
Rows = list[tuple[Any, Any]]
Oracle = Callable[[list[Page], list[Page]], list[Rows]]


class Inputs(NamedTuple):
    """What a branch may begin with."""

    flow: ab.Dataflow
    orders: Stream
    payments: Stream
    region: Stream
    parts: dict[str, Stream]


class Branch(NamedTuple):
    """An operator, and what it must give in each step for the pages of both sources."""

    build: Callable[[Inputs], Stream]
    oracle: Oracle


def each_row(change: Callable[[Any, int], Rows]) -> Oracle:
    """Of an operator without state: what it gives for a row."""
    return lambda orders, _: [[made for row in page for made in change(*row)] for page in orders]


def twice_or_never(table: pa.Table) -> pa.Table:
    amount = table.column("amount").to_numpy()
    return table.take(pa.array(np.repeat(np.arange(len(amount)), np.abs(amount) % 3)))


def negated(df: DataFrame) -> DataFrame:
    return df.withColumn("amount", -F.col("amount"))


def unordered(df: DataFrame) -> DataFrame:
    return df.drop("_ord").repartition(3)


class Added(ab.Process):
    """The sum again, from a list."""

    amounts = ab.ListState("amount bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            self.amounts.append(row.amount)
        return (key.customer, sum(self.amounts.get()))


def settle(key: Any, row: Any, owed: int | None) -> Any:
    owed = (owed or 0) + (row.amount if row.input == "order" else -row.paid)
    return (key.customer, owed), owed


def running(*, anew: bool = False, key: Callable[[Any], Any] | None = None) -> Oracle:
    """The running totals, row by row; ``anew`` in every step, in the order of ``key``."""

    def oracle(orders: list[Page], _: list[Page]) -> list[Rows]:
        totals: dict[Any, int] = {}
        steps: list[Rows] = []
        for page in orders:
            totals = {} if anew else totals
            steps.append([])
            for customer, amount in page if key is None else sorted(page, key=key):
                totals[customer] = totals.get(customer, 0) + amount
                steps[-1].append((customer, totals[customer]))
        return steps

    return oracle


def per_step(*, anew: bool = False) -> Oracle:
    """The last of the running totals of each customer in a step."""

    def oracle(orders: list[Page], payments: list[Page]) -> list[Rows]:
        return [list(dict(step).items()) for step in running(anew=anew)(orders, payments)]

    return oracle


def balances(orders: list[Page], payments: list[Page]) -> list[Rows]:
    """The rows of the first source come before those of the second."""
    both = [
        [*page, *((client, -paid) for client, paid in paid)]
        for page, paid in zip(orders, payments, strict=True)
    ]
    return running()(both, [])


def keyed_union(given: Inputs) -> Stream:
    both = given.flow.union(
        "input",
        order=given.orders.key_by("customer"),
        payment=given.payments.key_by(customer="client"),
    )
    return both.distribute_by_key("both").stateful_map(
        "balance", settle, state="owed bigint", output=SCHEMA
    )


BRANCHES: dict[str, Branch] = {
    "where": Branch(
        lambda given: given.orders.where("amount > 20"), each_row(lambda c, a: [(c, a)] * (a > 20))
    ),
    "select": Branch(
        lambda given: given.orders.select("upper(customer) as customer", "amount * 2 as amount"),
        each_row(lambda c, a: [(c and c.upper(), 2 * a)]),
    ),
    "with_columns": Branch(
        lambda given: given.orders.with_columns(amount="amount + 1", more="amount - 1").select(
            "customer", "amount * more as amount"
        ),
        each_row(lambda c, a: [(c, (a + 1) * (a - 1))]),
    ),
    "map_batches": Branch(
        lambda given: given.orders.map_batches("batches", twice_or_never, output=SCHEMA),
        each_row(lambda c, a: [(c, a)] * (abs(a) % 3)),
    ),
    "transform": Branch(
        lambda given: given.orders.transform("negated", negated), each_row(lambda c, a: [(c, -a)])
    ),
    "split": Branch(
        lambda given: given.parts["odd"], each_row(lambda c, a: [(c, a)] * (a <= 50 and a % 2 != 0))
    ),
    "union": Branch(
        lambda given: given.parts["rest"].union(given.parts["big"], given.parts["odd"]),
        each_row(lambda c, a: [(c, a)]),
    ),
    "keyed_union": Branch(keyed_union, balances),
    "stateful_map": Branch(
        lambda given: given.region.stateful_map("map", add, state="total bigint", output=SCHEMA),
        running(),
    ),
    "stateful_batches": Branch(
        lambda given: given.region.stateful_batches(
            "tables", add_tables, state="total bigint", output=SCHEMA
        ),
        per_step(),
    ),
    "process": Branch(
        lambda given: given.region.process("process", Added, output=SCHEMA), per_step()
    ),
    "aggregate": Branch(
        lambda given: given.region.aggregate("sums", amount="sum(amount)"), per_step()
    ),
    # Less than any step takes: nothing is known of the step before.
    "stateful_map_ttl": Branch(
        lambda given: given.region.stateful_map(
            "map-ttl", add, state="total bigint", output=SCHEMA, ttl="1 millisecond"
        ),
        running(anew=True),
    ),
    "aggregate_ttl": Branch(
        lambda given: given.region.aggregate("sums-ttl", amount="sum(amount)", ttl="1 millisecond"),
        per_step(anew=True),
    ),
    "aggregate_long_ttl": Branch(
        lambda given: given.region.aggregate("sums-long", amount="sum(amount)", ttl="1 week"),
        per_step(),
    ),
    "order_by": Branch(
        lambda given: (
            given.orders.transform("shuffled", unordered)
            .key_distribute("shuffled-by-customer", "customer")
            .stateful_map(
                "ordered", add, state="total bigint", output=SCHEMA, order_by="amount desc"
            )
        ),
        running(key=lambda row: -row[1]),
    ),
    "order_by_in_order": Branch(
        lambda given: given.region.stateful_map(
            "tens", add, state="total bigint", output=SCHEMA, order_by=["amount desc"]
        ),
        running(key=lambda row: -row[1]),
    ),
}


def remember(key: Any, row: Any, seen: Any) -> Any:
    """Order shows: everything a key has seen, as one text."""
    seen = f"{seen or ''}{row.amount},"
    return (key.branch, key.customer, seen), seen


def remembered(branch: str, steps: list[Rows]) -> list[tuple[Any, ...]]:
    seen: dict[Any, str] = {}
    found = []
    for customer, amount in (row for step in steps for row in step):
        seen[customer] = f"{seen.get(customer, '')}{amount},"
        found.append((branch, customer, seen[customer]))
    return found


@pytest.mark.soak  # seventeen branches in one plan: half a minute each on a quiet machine
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_operator(workers: int, tmp_path: Path) -> None:
    orders, payments = pages(21, 3, 30), pages(22, 3, 30)
    flow = ab.Dataflow("every")
    one = flow.source("orders", ab.ScriptedSource(ORDERS, [*orders, ab.EOF]))
    other = flow.source("payments", ab.ScriptedSource(PAYMENTS, [*payments, ab.EOF]))
    region = one.key_distribute("by-customer", "customer")
    parts = one.split(big="amount > 50", odd="amount % 2 <> 0", rest="true")
    given = Inputs(flow, one, other, region, parts)
    sinks = {name: ab.MemorySink() for name in ("where", "map_batches", "transform", "process")}
    built = {name: branch.build(given) for name, branch in BRANCHES.items()}
    for name, sink in sinks.items():
        built[name].sink(f"{name}-out", sink)
    again = flow.union("branch", **built).key_distribute("again", "branch", "customer")
    seen = ab.MemorySink()
    again.stateful_map(
        "remember", remember, state="seen string", output="branch string, customer string, s string"
    ).sink("seen", seen)
    again.aggregate("counts", n="count(*)", total="sum(amount)").sink("counts-out", ab.MemorySink())
    pipeline = completed(
        flow, tmp_path / "state", workers=workers, spark_conf={"spark.sql.shuffle.partitions": "2"}
    )
    assert pipeline.status().step == 3
    wanted = {name: branch.oracle(orders, payments) for name, branch in BRANCHES.items()}
    for name, sink in sinks.items():
        found = {n: bag(rows(table)) for n, table in sink.steps().items()}
        assert found == {n: bag(step) for n, step in enumerate(wanted[name], start=1)}, name
    for name, steps in wanted.items():
        mine = [row for row in got(seen) if row[0] == name]
        assert bag(mine) == bag(remembered(name, steps)), name
    counts = {
        (row["branch"], row["customer"]): (row["n"], row["total"])
        for row in pipeline.state_table("counts").to_pylist()
    }
    totals: dict[Any, tuple[int, int]] = {}
    for name, steps in wanted.items():
        for customer, amount in (row for step in steps for row in step):
            n, total = totals.get((name, customer), (0, 0))
            totals[name, customer] = (n + 1, total + amount)
    assert counts == totals


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]
