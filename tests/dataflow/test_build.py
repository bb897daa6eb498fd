"""Building records frozen nodes and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.graph import (
    AggregateNode,
    DistributeNode,
    KeyByNode,
    LocalNode,
    SelectNode,
    SinkNode,
    SourceNode,
    StatefulMapNode,
    WhereNode,
    WithColumnsNode,
)
from anabranch.dataflow.stream import Stream
from tests.dataflow.fakes import add, orders, sink, source


def test_every_operator_is_one_node_that_holds_what_was_said() -> None:
    flow = Dataflow("shop")
    where_from, where_to = source(), sink()
    (
        flow.source("orders", where_from)
        .where("amount > 0")
        .select("*", "amount * 2 as twice")
        .with_columns(day="date(at)", self="1")
        .key_by("customer", "`day`", "date(at)", week="week(at)")
        .distribute_by_key("by-customer")
        .stateful_map("running", add, state="total double", output="customer string")
        .aggregate("totals", n="count(*)", name="max(customer)")
        .local()
        .sink("out", where_to)
    )
    assert flow.graph().nodes == (
        SourceNode(0, (), "orders", where_from),
        WhereNode(1, (0,), "amount > 0"),
        SelectNode(2, (1,), ("*", "amount * 2 as twice")),
        WithColumnsNode(3, (2,), (("day", "date(at)"), ("self", "1"))),
        KeyByNode(
            4,
            (3,),
            (("customer", "customer"), ("day", "`day`"), ("", "date(at)"), ("week", "week(at)")),
        ),
        DistributeNode(5, (4,), "by-customer"),
        StatefulMapNode(6, (5,), "running", add, "total double", "customer string"),
        AggregateNode(7, (6,), "totals", (("n", "count(*)"), ("name", "max(customer)"))),
        LocalNode(8, (7,)),
        SinkNode(9, (8,), "out", where_to),
    )


def test_key_distribute_is_key_by_and_distribute_by_key() -> None:
    short, stream = orders()
    stream.key_distribute("by", "customer", name="upper(customer)")
    long, stream = orders()
    stream.key_by("customer", name="upper(customer)").distribute_by_key("by")
    assert short.graph() == long.graph()


def test_a_stream_can_be_used_again_and_a_graph_does_not_change() -> None:
    flow, stream = orders()
    paid = stream.where("amount > 0")
    before = flow.graph()
    paid.sink("one", sink())
    paid.sink("two", sink())
    graph = flow.graph()
    assert len(before.nodes) == 2
    assert [node.id for node in graph.consumers(1)] == [2, 3]
    assert graph.consumers(3) == ()
    assert graph.node(1) == WhereNode(1, (0,), "amount > 0")
    assert [s.name for s in graph.sources()] == ["orders"]
    assert [s.name for s in graph.sinks()] == ["one", "two"]
    assert graph.stateful() == ()


def test_sinks_end_a_stream() -> None:
    _, stream = orders()
    assert stream.sink("out", sink()) is None  # type: ignore[func-returns-value]


def test_nodes_are_frozen() -> None:
    flow, _ = orders()
    with pytest.raises(AttributeError, match="immutable"):
        flow.graph().nodes[0].id = 3  # type: ignore[misc]


def test_a_dataflow_survives_pickling_and_can_be_continued() -> None:
    flow, stream = orders()
    again, last = pickle.loads(pickle.dumps((flow, stream.where("amount > 0"))))
    assert again.graph() == flow.graph()
    last.sink("out", sink())
    assert len(again.graph().nodes) == 3
    assert len(flow.graph().nodes) == 2


def test_mistakes_are_recorded_and_not_raised() -> None:
    flow = Dataflow("")
    stream = flow.source("a/b", source())
    stream.where("").select().with_columns().key_by().distribute_by_key("").aggregate("", n="x")
    nothing: Any = lambda: None  # noqa: E731
    stream.stateful_map("", nothing, state="?", output="").local().sink("", sink())
    assert len(flow.graph().nodes) == 10


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.where(True), r"where takes a condition as text \(str\), not bool"),
        (lambda s: s.select("a", 1), r"select takes an expression as text \(str\), not int"),
        (lambda s: s.select(["a"]), "not list"),
        (lambda s: s.with_columns(x=1), r"with_columns takes x=… as text \(str\), not int"),
        (lambda s: s.key_by(len), r"key_by takes a column as text \(str\), not builtin_function"),
        (lambda s: s.key_by(x=None), r"key_by takes x=… as text \(str\), not NoneType"),
        (lambda s: s.distribute_by_key(None), "distribute_by_key takes a name"),
        (lambda s: s.key_distribute(1, "a"), "key_distribute takes a name"),
        (lambda s: s.aggregate(None, n="count(*)"), "aggregate takes a name"),
        (lambda s: s.aggregate("a", n=len), "aggregate takes n=…"),
        (lambda s: s.stateful_map(1, add, output="a int"), "stateful_map takes a name"),
        (lambda s: s.stateful_map("a", "add", output="a int"), "takes a function, not str"),
        (lambda s: s.stateful_map("a", add, output=None), "takes an output schema"),
        (lambda s: s.stateful_map("a", add, output="a int", state=int), "a state schema or None"),
        (lambda s: s.sink(None, sink()), "sink takes a name"),
        (lambda s: s.sink("out", "directory"), r"sink takes a sink such as FileSink\(…\), not str"),
        (lambda s: Dataflow(None), "Dataflow takes a name"),  # type: ignore[arg-type]
        (lambda s: Dataflow("a").source("x", "in"), "takes a source with a schema, not str"),  # type: ignore[arg-type]
        (lambda s: Dataflow("a").source(1, source()), "source takes a name"),  # type: ignore[arg-type]
    ],
)
def test_wrong_python_types_are_refused_at_once(build: Callable[[Any], Any], message: str) -> None:
    flow, stream = orders()
    with pytest.raises(TypeError, match=message):
        build(stream)
    assert len(flow.graph().nodes) == 1


def test_a_source_is_not_asked_for_its_schema_while_building() -> None:
    class Careful:
        @property
        def schema(self) -> object:
            raise AssertionError("asked")

    Dataflow("a").source("x", Careful())  # type: ignore[arg-type]


def test_streams_and_dataflows_say_what_they_are() -> None:
    flow, stream = orders()
    assert repr(stream) == "<Stream after orders>"
    assert repr(stream.where("true")) == "<Stream after where>"
    assert repr(flow) == "<Dataflow shop: 2 operators>"
    assert isinstance(stream, Stream)
