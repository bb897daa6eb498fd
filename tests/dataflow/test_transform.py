"""``transform`` as the user writes it: what is recorded, typed and refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from anabranch.dataflow.functions import DriverFunction, code_fingerprint
from anabranch.dataflow.graph import TransformNode
from anabranch.dataflow.naming import ORD
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate
from tests.dataflow.fakes import FakeAnalyzer, add, orders, sink
from tests.dataflow.test_validate import chain, report

ANALYZER = FakeAnalyzer({"f(x)": pa.field("", pa.int64())}, frozenset({"amount > 0"}))
OUTPUT = "total double"


def same(schema: Any) -> Any:
    """A function that returns what it is given, ``_ord`` among it."""
    return schema


def unordered(schema: Any) -> Any:
    return pa.schema([field for field in schema if field.name != ORD])


def renamed(schema: Any) -> Any:
    return schema.set(0, pa.field("who", pa.string()))


def typed(build: Callable[[Stream], Stream]) -> tuple[Typed, int]:
    """The typed flow, and the node that was built last before the sink."""
    flow = chain(build)
    found = validate(flow.graph(), ANALYZER)
    return found, found.graph.sinks()[0].inputs[0]


def mapped(stream: Stream, name: str = "m") -> Stream:
    return stream.stateful_map(name, add, output=OUTPUT)


def keyed(stream: Stream, name: str = "by") -> Stream:
    return stream.key_distribute(name, "customer")


def test_columns_are_those_of_the_function_and_the_region_ends() -> None:
    found, last = typed(lambda s: keyed(s).transform("t", renamed))
    assert found.schema(last).names == ["who", "amount", "at"]
    assert (found.key(last), found.nodes[last].next_key, found.region(last)) == (None, None, None)
    assert found.ordered(last)


@pytest.mark.parametrize(
    ("build", "ordered"),
    [
        (lambda s: s.transform("t", same), True),
        (lambda s: s.transform("t", unordered), False),
        (lambda s: s.transform("t", unordered).where("amount > 0"), False),
        (lambda s: s.transform("t", unordered).union(s), False),
        (lambda s: s.transform("t", same).union(s), True),
        # Without an order before it the function is not given one.
        (lambda s: s.transform("t", unordered).transform("u", same), False),
        (lambda s: keyed(s.transform("t", unordered)).aggregate("n", n="count(*)"), False),
    ],
)
def test_the_order_is_known_where_the_function_returns_it(
    build: Callable[[Stream], Stream], ordered: bool
) -> None:
    found, last = typed(build)
    assert found.ordered(last) is ordered


ADVICE = ", which a transform before it does not return"


@pytest.mark.parametrize(
    ("build", "problems"),
    [
        (
            lambda s: mapped(s.transform("t", same)),
            [('stateful_map "m"', "it keeps state, but its rows are not distributed by key")],
        ),
        (
            lambda s: s.key_by("customer").transform("t", same),
            [('transform "t"', "there is a key_by before it")],
        ),
        (
            lambda s: s.transform("t", lambda: None),
            [('transform "t"', "cannot be called with 1 positional argument")],
        ),
        (
            lambda s: s.transform("t", lambda schema: "it raised Oops: no"),
            [('transform "t"', "cannot be used: it raised Oops: no")],
        ),
        (
            lambda s: s.transform("t", lambda schema: schema.append(schema.field(0))),
            [('transform "t"', 'there are two columns "customer"')],
        ),
        (
            lambda s: s.with_columns(**{ORD: "amount"}).transform("t", same),
            [('transform "t"', f'column "{ORD}" names the input row there')],
        ),
        # One mistake is one problem, however many operators miss the order.
        (
            lambda s: mapped(mapped(keyed(s.transform("t", unordered))), "again"),
            [('stateful_map "m"', f"it depends on the order of its rows{ADVICE}")],
        ),
        (
            lambda s: keyed(s.transform("t", unordered)).stateful_batches(
                "b", lambda rows, state: (rows, state), state="n bigint", output="n bigint"
            ),
            [('stateful_batches "b"', f"it depends on the order of its rows{ADVICE}")],
        ),
        (
            lambda s: keyed(s.transform("t", unordered)).aggregate(
                "a", n="count(*)", total="sum(amount)", last="last(at)"
            ),
            [('aggregate "a"', f'column "total" depends on the order of the rows{ADVICE}')],
        ),
        (
            lambda s: keyed(s.transform("t", unordered)).aggregate(
                "a", n="count(*)", newest="max(at)"
            ),
            [],
        ),
    ],
)
def test_what_cannot_be_is_reported(
    build: Callable[[Stream], Stream], problems: list[tuple[str, str]]
) -> None:
    found = report(chain(build), ANALYZER)
    assert [operator for operator, _ in found] == [operator for operator, _ in problems]
    for (_, what), (_, words) in zip(found, problems, strict=True):
        assert words in what


def test_without_an_analyzer_nothing_is_known_behind_it() -> None:
    called: list[object] = []
    flow = chain(lambda s: mapped(keyed(s.transform("t", called.append).select("any", "customer"))))
    assert report(flow) == []
    assert called == []


def test_only_functions_and_names_are_taken() -> None:
    _, stream = orders()
    with pytest.raises(TypeError, match="transform takes a function, not str"):
        stream.transform("t", "select 1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transform takes a name"):
        stream.transform(same, same)  # type: ignore[arg-type]


def test_the_node_has_name_and_function_and_tasks_get_neither_code_nor_captives() -> None:
    flow, stream = orders()
    captive = lambda: None  # noqa: E731 - what pickle refuses
    stream.transform("t", lambda df: (captive, df)).sink("out", sink())
    (node,) = [node for node in flow.graph().nodes if isinstance(node, TransformNode)]
    assert (node.kind, node.name) == ("transform", "t")
    assert node.function(1) == (captive, 1)
    sent = pickle.loads(pickle.dumps(node.function))
    assert sent == DriverFunction(None, node.function.fingerprint)
    with pytest.raises(AssertionError, match="a task called"):
        sent(1)


def test_other_code_has_another_fingerprint() -> None:
    functions = [
        lambda df: df,
        lambda df: df.where("a"),
        lambda df: df.where("b"),
        lambda df: df.limit(1),
        lambda df: [x for x in df if x in {"a", "b"}],
        lambda df: [x for x in df if x in {"a", "c"}],
    ]
    assert len({code_fingerprint(function) for function in functions}) == len(functions)
    assert code_fingerprint(same) == code_fingerprint(same)
