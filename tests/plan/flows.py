"""Small dataflows for the tests of lowering, typed without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.naming import ORD
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate
from tests.dataflow.fakes import FakeAnalyzer, sink, source

CONDITIONS = frozenset({"amount > 0", "n > 1", "total > 1"})
TYPES = {"n * 2": pa.field("twice", pa.int64()), "upper(customer)": pa.field("name", pa.string())}


def typed(flow: Dataflow) -> Typed:
    return validate(flow.graph(), FakeAnalyzer(TYPES, CONDITIONS))


def step(key: Any, row: Any, state: Any) -> Any:
    return None, state


def orders() -> tuple[Dataflow, Stream]:
    flow = Dataflow("shop")
    return flow, flow.source("orders", source("customer string, amount double"))


def mapped(stream: Stream, name: str) -> Stream:
    return stream.stateful_map(
        name, step, state="total double", output="customer string, total double"
    )


def one_region() -> Dataflow:
    flow, rows = orders()
    mapped(rows.key_distribute("r", "customer"), "m").sink("out", sink())
    return flow


def two_regions() -> Dataflow:
    flow, rows = orders()
    totals = mapped(rows.where("amount > 0").key_distribute("r1", "customer"), "m")
    counts = totals.key_distribute("r2", name="upper(customer)").aggregate("a", n="count(*)")
    counts.sink("out", sink())
    return flow


def two_ordered_regions() -> Dataflow:
    flow, rows = orders()
    totals = mapped(rows.key_distribute("r1", "customer"), "m1")
    mapped(totals.key_distribute("r2", "customer"), "m2").sink("out", sink())
    return flow


def several_sinks() -> Dataflow:
    flow, rows = orders()
    totals = mapped(rows.key_distribute("r", "customer"), "m")
    totals.sink("plain", sink())
    totals.sink("again", sink())
    totals.where("total > 1").select("total").sink("some", sink())
    return flow


def chained() -> Dataflow:
    flow, rows = orders()
    first = mapped(rows.key_distribute("r", "customer"), "m1")
    mapped(first, "m2").sink("out", sink())
    return flow


def chained_with_where() -> Dataflow:
    flow, rows = orders()
    first = mapped(rows.key_distribute("r", "customer"), "m1")
    mapped(first.where("total > 1"), "m2").sink("out", sink())
    return flow


def two_keyed_consumers() -> Dataflow:
    flow, rows = orders()
    some = rows.where("amount > 0")
    some.key_distribute("r1", "customer").aggregate("a1", n="count(*)").sink("s1", sink())
    mapped(some.key_distribute("r2", name="upper(customer)"), "m2").sink("s2", sink())
    return flow


def one_region_two_operators() -> Dataflow:
    flow, rows = orders()
    keyed = rows.key_distribute("r", "customer")
    keyed.aggregate("a", total="sum(amount)").sink("s1", sink())
    mapped(keyed, "m").sink("s2", sink())
    return flow


def straight_to_a_sink() -> Dataflow:
    flow, rows = orders()
    rows.where("amount > 0").sink("out", sink())
    return flow


def sink_after_distribution() -> Dataflow:
    flow, rows = orders()
    rows.where("amount > 0").key_distribute("r", "customer").sink("out", sink())
    return flow


def sink_after_local() -> Dataflow:
    flow, rows = orders()
    totals = mapped(rows.key_distribute("r", "customer"), "m")
    totals.local().sink("out", sink())
    totals.local().select("total").sink("less", sink())
    return flow


def key_before_select() -> Dataflow:
    flow, rows = orders()
    keyed = rows.key_by("customer").select("amount").distribute_by_key("r")
    keyed.aggregate("a", best="max(amount)", n="count(amount)", all="count(*)").sink("out", sink())
    return flow


def aggregate_after_aggregate() -> Dataflow:
    flow, rows = orders()
    first = rows.key_distribute("r", "customer").aggregate("a1", n="count(*)")
    first.aggregate("a2", most="max(n)").sink("out", sink())
    return flow


def order_passes_an_aggregate() -> Dataflow:
    flow, rows = orders()
    first = rows.key_distribute("r", "customer").aggregate("a", total="max(amount)")
    mapped(first.key_distribute("r2", "customer"), "m").sink("out", sink())
    return flow


def two_sources() -> Dataflow:
    flow, rows = orders()
    others = flow.source("others", source("n bigint"))
    mapped(rows.key_distribute("r1", "customer"), "m").sink("s1", sink())
    others.key_distribute("r2", "n").aggregate("a", count="count(*)").sink("s2", sink())
    return flow


def keyed_and_unkeyed() -> Dataflow:
    flow, rows = orders()
    rows.select("amount").sink("raw", sink())
    mapped(rows.key_distribute("unkeyed", "customer"), "m").where("total > 1").sink("big", sink())
    return flow


def mixed_depth() -> Dataflow:
    """At level 2 a sink of the first region waits beside the second region."""
    flow, rows = orders()
    totals = mapped(rows.key_distribute("r1", "customer"), "m")
    totals.where("total > 1").sink("big", sink())
    totals.key_distribute("r2", "customer").aggregate("a", n="count(*)").sink("out", sink())
    return flow


def as_rows(table: Any) -> Any:
    return table


def union_of_sources() -> Dataflow:
    flow, rows = orders()
    more = flow.source("more", source("customer string, amount double"))
    both = rows.union(more.where("amount > 0"))
    both.sink("raw", sink())
    mapped(both.key_distribute("r", "customer"), "m").sink("out", sink())
    return flow


def union_in_a_region() -> Dataflow:
    flow, rows = orders()
    first = mapped(rows.key_distribute("r", "customer"), "m1")
    mapped(first.union(first.where("total > 1")), "m2").sink("out", sink())
    return flow


def union_of_depths() -> Dataflow:
    flow, rows = orders()
    one = mapped(rows.key_distribute("r1", "customer"), "m1")
    two = mapped(one.key_distribute("r2", "customer"), "m2")
    flow.union("from", rows=rows, one=one, two=two).key_distribute("r3", "customer").aggregate(
        "a", n="count(*)"
    ).sink("out", sink())
    return flow


def batches_everywhere() -> Dataflow:
    flow, rows = orders()
    row = "customer string, amount double"
    early = rows.map_batches("early", as_rows, output=row).where("amount > 0")
    inside = early.key_distribute("r", "customer").map_batches("inside", as_rows, output=row)
    mapped(inside, "m").map_batches("late", as_rows, output=row).sink("out", sink())
    return flow


def without_order(schema: Any) -> Any:
    return pa.schema([field for field in schema if field.name != ORD])


def transform_of_a_source() -> Dataflow:
    flow, rows = orders()
    kept = rows.where("amount > 0").transform("t", as_rows)
    kept.sink("raw", sink())
    mapped(kept.key_distribute("r", "customer"), "m").sink("out", sink())
    return flow


def transform_behind_a_region() -> Dataflow:
    """It leaves the region; what gets its rows sits behind an exchange."""
    flow, rows = orders()
    totals = mapped(rows.key_distribute("r", "customer"), "m")
    totals.where("total > 1").sink("big", sink())
    totals.transform("t", without_order).where("total > 1").sink("out", sink())
    return flow


def transform_of_a_union() -> Dataflow:
    """Of a source, of tasks and of another transform, at once; a relay brings what is early."""
    flow, rows = orders()
    more = flow.source("more", source("customer string, amount double"))
    row = "customer string, amount double"
    inner = more.transform("inner", as_rows)
    deep = mapped(rows.key_distribute("r", "customer"), "m").map_batches("b", as_rows, output=row)
    every = rows.union(inner, deep).transform("outer", as_rows)
    every.key_distribute("r2", "customer").aggregate("a", n="count(*)").sink("out", sink())
    return flow


ALL = [
    transform_of_a_source,
    transform_behind_a_region,
    transform_of_a_union,
    union_of_sources,
    union_in_a_region,
    union_of_depths,
    batches_everywhere,
    one_region,
    two_regions,
    two_ordered_regions,
    several_sinks,
    chained,
    chained_with_where,
    two_keyed_consumers,
    one_region_two_operators,
    straight_to_a_sink,
    sink_after_distribution,
    sink_after_local,
    key_before_select,
    aggregate_after_aggregate,
    order_passes_an_aggregate,
    two_sources,
    keyed_and_unkeyed,
    mixed_depth,
]
