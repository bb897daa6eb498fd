"""Flows with one mistake each, and the one problem that is reported for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow, InvalidSchema
from tests.dataflow.fakes import FakeAnalyzer, add, arrow_source, orders, problems_of, sink, source

DOUBLE = pa.field("", pa.float64())
ANALYZER = FakeAnalyzer(
    {
        "amount * 2": DOUBLE,
        "date(at)": pa.field("", pa.date32()),
        "ratio()": DOUBLE,
        "age()": pa.field("", pa.duration("us")),
        "lower(customer)": pa.field("", pa.string()),
    },
    frozenset({"amount > 0"}),
)


def report(flow: Dataflow, analyzer: FakeAnalyzer | None = None) -> list[tuple[str, str]]:
    """Operator and what, of each problem; none where the flow is valid."""
    try:
        validate(flow.graph(), analyzer)
    except InvalidDataflow as error:
        invalid = error
    else:
        return []
    assert all(problem.do.endswith((".", "?")) for problem in invalid.problems)
    assert all("\n" not in str(problem) for problem in invalid.problems)
    return problems_of(invalid)


def chain(build: Callable[[Stream], Stream], ddl: str | None = None) -> Dataflow:
    """A flow from a source through what is built to a sink."""
    flow, stream = orders() if ddl is None else orders(ddl)
    build(stream).sink("out", sink())
    return flow


def keyed(stream: Stream) -> Stream:
    return stream.key_distribute("by", "customer")


def mapped(stream: Stream, **schemas: Any) -> Stream:
    return stream.stateful_map("running", add, **{"output": "total double", **schemas})


SOUND = [
    lambda s: s,
    lambda s: s.where("amount > 0").select("*", "amount * 2 as twice").where("amount > 0"),
    lambda s: (
        s.select("AMOUNT", "customer as who")
        .key_distribute("by", "WHO")
        .aggregate("n", n="count(*)")
    ),
    lambda s: s.with_columns(amount="amount * 2", day="date(at)").key_distribute("by", "day"),
    lambda s: keyed(s).aggregate("n", n="count(*)", total="sum(amount)", last="max(at)"),
    lambda s: keyed(s).aggregate(
        "n", n="count(*) filter (where amount > 0)", last="max_by(amount, at)"
    ),
    lambda s: mapped(keyed(s).select("amount"), state="total double").aggregate("n", n="count(*)"),
    lambda s: mapped(
        keyed(s).local().key_by("customer").where("amount > 0").distribute_by_key("again")
    ),
    lambda s: s.key_distribute("by", day="date(at)").aggregate("n", n="count(amount)"),
]


@pytest.mark.parametrize("build", SOUND)
@pytest.mark.parametrize("analyzer", [None, ANALYZER])
def test_sound_flows_have_no_problems(
    build: Callable[[Stream], Stream], analyzer: FakeAnalyzer | None
) -> None:
    assert report(chain(build), analyzer) == []


# What both with and without an analyzer is reported, once.
PLAIN = [
    (
        lambda s: s.where("amout"),
        ('where("amout") after source "orders"', 'there is no column "amout"'),
    ),
    (lambda s: s.where("  "), ('where(" ") after source "orders"', "its condition is empty")),
    (
        lambda s: s.select("customer", "`amout`"),
        ('select("customer", "`amout`") after source "orders"', 'there is no column "amout"'),
    ),
    (
        lambda s: s.select("amout as x").where("x"),
        ('select("amout as x") after source "orders"', 'there is no column "amout"'),
    ),
    (lambda s: s.select(), ('select() after source "orders"', "it selects nothing")),
    (
        lambda s: s.select("*", ""),
        ('select("*", "") after source "orders"', "an expression is empty"),
    ),
    (
        lambda s: s.select("*", "Amount"),
        (
            'select("*", "Amount") after source "orders"',
            'columns "amount" and "Amount" differ only in case, which Spark ignores',
        ),
    ),
    (
        lambda s: s.select("amount", "at as amount"),
        (
            'select("amount", "at as amount") after source "orders"',
            'there are two columns "amount"',
        ),
    ),
    (
        lambda s: s.select("amount as _AB_x").select("*"),
        (
            'select("amount as _AB_x") after source "orders"',
            'column "_AB_x" starts with _ab_, which is reserved',
        ),
    ),
    (
        lambda s: s.with_columns(x="amout"),
        ('with_columns(x="amout") after source "orders"', 'there is no column "amout"'),
    ),
    (lambda s: s.with_columns(), ('with_columns() after source "orders"', "it adds nothing")),
    (
        lambda s: s.with_columns(x="amount", X="at"),
        (
            'with_columns(x="amount", X="at") after source "orders"',
            'columns "x" and "X" differ only in case, which Spark ignores',
        ),
    ),
    (
        lambda s: s.with_columns(_ab_x="amount"),
        (
            'with_columns(_ab_x="amount") after source "orders"',
            'column "_ab_x" starts with _ab_, which is reserved',
        ),
    ),
    (
        lambda s: s.key_distribute("by", "custmer"),
        ('key of distribution "by"', 'there is no column "custmer"'),
    ),
    (
        lambda s: s.key_distribute("by", "amount"),
        ('key of distribution "by"', 'key "amount" has type double, which cannot be a key'),
    ),
    (
        lambda s: s.key_distribute("by", "date(at)"),
        ('key of distribution "by"', 'the key "date(at)" has no name'),
    ),
    (
        lambda s: s.with_columns(**{"größe": "amount"}).key_distribute("by", "größe"),
        ('key of distribution "by"', 'the name of the column "größe" is not a plain word'),
    ),
    (
        lambda s: s.with_columns(**{"a.b": "amount"}).key_distribute("by", "a.b"),
        ('key of distribution "by"', 'the name of the column "a.b" is not a plain word'),
    ),
    (lambda s: s.key_distribute("by"), ('key of distribution "by"', "it has no key")),
    (
        lambda s: s.key_distribute("by", "customer", Customer="at"),
        (
            'key of distribution "by"',
            'columns "customer" and "Customer" differ only in case, which Spark ignores',
        ),
    ),
    (
        lambda s: s.key_distribute("by", _ab_k="customer"),
        ('key of distribution "by"', 'key "_ab_k" starts with _ab_, which is reserved'),
    ),
    (
        lambda s: s.distribute_by_key("by").aggregate("n", n="count(*)"),
        ('distribution "by"', "there is no key_by before it"),
    ),
    (
        lambda s: keyed(s).distribute_by_key("again"),
        ('distribution "again"', "there is no key_by before it"),
    ),
    (
        lambda s: s.key_by("customer").local().distribute_by_key("by"),
        ('distribution "by"', "there is no key_by before it"),
    ),
    (
        lambda s: s.aggregate("n", n="count(*)").aggregate("m", m="count(*)"),
        ('aggregate "n"', "it keeps state, but its rows are not distributed by key"),
    ),
    (
        lambda s: mapped(s.where("amount > 0")),
        ('stateful_map "running"', "it keeps state, but its rows are not distributed by key"),
    ),
    (
        lambda s: mapped(s.key_by("customer")),
        ('stateful_map "running"', "key_by alone does not bring a key's rows together"),
    ),
    (
        lambda s: mapped(keyed(s).key_by("at")),
        ('stateful_map "running"', "key_by alone does not bring a key's rows together"),
    ),
    (
        lambda s: mapped(keyed(s).local().where("amount > 0")),
        ('stateful_map "running"', "it keeps state after local(), which ended the region"),
    ),
    (lambda s: keyed(s).aggregate("n"), ('aggregate "n"', "it aggregates nothing")),
    (
        lambda s: keyed(s).aggregate("n", customer="count(*)"),
        (
            'aggregate "n"',
            'column "customer" has the name of a key column, which the output already has',
        ),
    ),
    (
        lambda s: keyed(s).aggregate("n", a="count(*)", A="count(*)"),
        ('aggregate "n"', 'columns "a" and "A" differ only in case, which Spark ignores'),
    ),
    (
        lambda s: keyed(s).aggregate("n", _ab_n="count(*)"),
        ('aggregate "n"', 'column "_ab_n" starts with _ab_, which is reserved'),
    ),
    (
        lambda s: keyed(s).aggregate("n", m="product(amount)").where("m"),
        (
            'aggregate "n"',
            'column "m": aggregate function "product" in "product(amount)" is not supported',
        ),
    ),
    (
        lambda s: keyed(s).aggregate("n", m="sum(amout)"),
        ('aggregate "n"', 'there is no column "amout"'),
    ),
    (
        lambda s: keyed(s).aggregate("n", m="corr(amount, amout)"),
        ('aggregate "n"', 'there is no column "amout"'),
    ),
    (
        lambda s: keyed(s).aggregate("n", m="count(*) filter (where amout)"),
        ('aggregate "n"', 'there is no column "amout"'),
    ),
    (
        lambda s: keyed(s).aggregate("n", m="sum(customer)"),
        ('aggregate "n"', 'column "m": sum is not defined for "customer", which is string'),
    ),
    (
        lambda s: keyed(s).aggregate("n", n="count(*)").where("amount"),
        ('where("amount") after aggregate "n"', 'there is no column "amount"'),
    ),
    (
        lambda s: mapped(keyed(s), state="total doubl"),
        (
            'stateful_map "running"',
            'state: the schema cannot be read: column "total" has type "doubl", which is not '
            'supported (character 7 of "total doubl")',
        ),
    ),
    (
        lambda s: mapped(keyed(s), state=""),
        ('stateful_map "running"', "state: the schema has no columns"),
    ),
    (
        lambda s: mapped(keyed(s), output="total").where("anything"),
        (
            'stateful_map "running"',
            'output: the schema cannot be read: expected the type of column "total", but the '
            'text ends (character 6 of "total")',
        ),
    ),
    (
        lambda s: mapped(keyed(s), output="a int, A int"),
        (
            'stateful_map "running"',
            'output: columns "a" and "A" differ only in case, which Spark ignores',
        ),
    ),
    (
        lambda s: mapped(keyed(s), state="_ab_n int"),
        ('stateful_map "running"', 'state column "_ab_n" starts with _ab_, which is reserved'),
    ),
    (
        lambda s: mapped(keyed(s)).where("amount"),
        ('where("amount") after stateful_map "running"', 'there is no column "amount"'),
    ),
    (
        lambda s: keyed(s).aggregate("orders", n="count(*)"),
        ('aggregate "orders"', 'its name is taken by source "orders"'),
    ),
    (
        lambda s: s.key_distribute("OUT", "customer"),
        ('sink "out"', 'its name is taken by distribution "OUT"'),
    ),
    (lambda s: s.key_distribute("", "customer"), ('distribution ""', "it has no name")),
    (
        lambda s: s.key_distribute("a/b", "customer"),
        ('distribution "a/b"', "the name 'a/b' cannot be a file name"),
    ),
    (
        lambda s: s.key_distribute("..", "customer"),
        ('distribution ".."', "the name '..' cannot be a file name"),
    ),
    (
        lambda s: s.key_distribute("x\n", "customer"),
        ('distribution "x "', "the name 'x\\n' cannot be a file name"),
    ),
    (
        lambda s: s.key_distribute("x" * 101, "customer"),
        (f'distribution "{"x" * 101}"', "its name has 101 characters"),
    ),
]


@pytest.mark.parametrize(("build", "problem"), PLAIN)
@pytest.mark.parametrize("analyzer", [None, ANALYZER])
def test_each_mistake_is_reported_once(
    build: Callable[[Stream], Stream], problem: tuple[str, str], analyzer: FakeAnalyzer | None
) -> None:
    assert report(chain(build), analyzer) == [problem]


# What only someone who understands SQL can tell.
@pytest.mark.parametrize(
    ("build", "problems"),
    [
        (
            lambda s: s.where("amout > 0").where("amount > 0"),
            [
                (
                    'where("amout > 0") after source "orders"',
                    '"amout > 0" cannot be used: no such condition: amout > 0',
                )
            ],
        ),
        (
            lambda s: s.select("customer", "f(x) as y", "amout", "g(x)").where("y").where("z"),
            [
                (
                    'select("customer", "f(x) as y", "amout", "g(x)") after source "orders"',
                    '"f(x) as y" cannot be used: cannot resolve f(x)',
                ),
                (
                    'select("customer", "f(x) as y", "amout", "g(x)") after source "orders"',
                    'there is no column "amout"',
                ),
                (
                    'select("customer", "f(x) as y", "amout", "g(x)") after source "orders"',
                    '"g(x)" cannot be used: cannot resolve g(x)',
                ),
            ],
        ),
        (
            lambda s: s.with_columns(x="f(x)", y="g(y)").where("x").where("z"),
            [
                (
                    'with_columns(x="f(x)", y="g(y)") after source "orders"',
                    '"f(x)" cannot be used: cannot resolve f(x)',
                ),
                (
                    'with_columns(x="f(x)", y="g(y)") after source "orders"',
                    '"g(y)" cannot be used: cannot resolve g(y)',
                ),
                ('where("z") after source "orders"', 'there is no column "z"'),
            ],
        ),
        (
            lambda s: s.with_columns(x="*"),
            [('with_columns(x="*") after source "orders"', '"*" gives 3 columns for "x"')],
        ),
        (
            lambda s: s.with_columns(x="age()").where("x > 0").with_columns(y="x"),
            [
                (
                    'with_columns(x="age()") after source "orders"',
                    'column "x": type duration[us] is not supported',
                )
            ],
        ),
        (
            lambda s: s.key_distribute("by", r="age()").aggregate("n", n="count(*)").select("*"),
            [('key of distribution "by"', 'key "r" has type duration[us], which cannot be a key')],
        ),
        (
            lambda s: s.key_distribute("by", r="ratio()").aggregate("n", n="count(*)"),
            [('key of distribution "by"', 'key "r" has type double, which cannot be a key')],
        ),
        (
            lambda s: s.key_distribute("by", r="f(x)").aggregate("n", n="count(*)"),
            [('key of distribution "by"', '"f(x)" cannot be used: cannot resolve f(x)')],
        ),
        (
            lambda s: s.with_columns(x="f(x)").key_distribute("by", r="ratio()", y="g(x)"),
            [
                (
                    'with_columns(x="f(x)") after source "orders"',
                    '"f(x)" cannot be used: cannot resolve f(x)',
                ),
                ('key of distribution "by"', 'key "r" has type double, which cannot be a key'),
            ],
        ),
        (
            lambda s: keyed(s).aggregate("n", n="sum(lower(customer))", m="sum(f(x))"),
            [
                (
                    'aggregate "n"',
                    'column "n": sum is not defined for "lower(customer)", which is string',
                ),
                ('aggregate "n"', '"f(x)" cannot be used: cannot resolve f(x)'),
            ],
        ),
    ],
)
def test_sql_is_checked_by_the_analyzer(
    build: Callable[[Stream], Stream], problems: list[tuple[str, str]]
) -> None:
    assert report(chain(build), ANALYZER) == problems


def test_a_long_operator_is_named_by_its_beginning() -> None:
    flow = chain(lambda s: s.with_columns(customer="upper(customer)", amount="abs(amount)", x="y"))
    (problem,) = report(flow)
    assert problem == (
        'with_columns(customer="upper(customer)", amount="abs…) after source "orders"',
        'there is no column "y"',
    )


def test_without_an_analyzer_sql_is_not_judged() -> None:
    flow = chain(
        lambda s: (
            s.where("amout > 0")
            .select("f(x) as y", "g(x)")
            .where("y")
            .where("may_exist")
            .key_distribute("by", "y", "whatever")
            .aggregate("n", n="sum(h(x))", m="min(y)")
        )
    )
    assert report(flow) == []


def test_a_plain_condition_must_be_boolean() -> None:
    assert report(chain(lambda s: s.where("customer"))) == [
        ('where("customer") after source "orders"', '"customer" is string, not boolean')
    ]
    assert report(chain(lambda s: s.where("paid"), "paid boolean")) == []
    assert report(chain(lambda s: s.where("true"))) == []


def test_the_analyzer_is_asked_once_where_all_is_well() -> None:
    analyzer = FakeAnalyzer()
    assert report(chain(lambda s: s.select("customer", "amount")), analyzer) == []
    assert analyzer.asked == [(None, "customer"), (None, "amount")]


# The dataflow as a whole.


def test_an_empty_dataflow_needs_everything() -> None:
    assert report(Dataflow("")) == [
        ('dataflow ""', "it has no name"),
        ('dataflow ""', "it has no source"),
        ('dataflow ""', "it has no sink"),
    ]


def test_streams_that_end_nowhere_are_reported() -> None:
    flow, stream = orders()
    stream.where("amount > 0")
    keyed(stream).aggregate("n", n="count(*)")
    stream.key_by("customer")
    mapped(stream.key_distribute("again", "customer")).local()
    flow.source("more", source()).sink("out", sink())
    flow.source("unused", source())
    what = "its rows go nowhere"
    assert report(flow) == [
        ('where("amount > 0") after source "orders"', what),
        ('key_by("customer") after source "orders"', what),
        ('local() after stateful_map "running"', what),
        ('source "unused"', what),
    ]


def test_state_alone_is_not_a_result() -> None:
    flow, stream = orders()
    keyed(stream).aggregate("n", n="count(*)")
    assert report(flow) == [('dataflow "shop"', "it has no sink")]


def test_a_sink_may_refuse_the_rows() -> None:
    flow, stream = orders()
    stream.sink("out", sink("column 'at' is odd"))
    assert report(flow) == [('sink "out"', "it cannot take these rows: column 'at' is odd")]


# Sources.


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (pa.schema([]), "it has no columns"),
        ("a int", "its schema is not a pyarrow schema"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), 'there are two columns "a"'),
        (
            pa.schema([("_ab_order", pa.int64())]),
            'column "_ab_order" starts with _ab_, which is reserved',
        ),
        (pa.schema([("", pa.int64())]), "a column has no name"),
        (pa.schema([("n", pa.uint64())]), 'column "n": type uint64 is not supported'),
    ],
)
def test_a_sources_schema_is_checked(schema: object, what: str) -> None:
    flow = Dataflow("shop")
    # Nothing that follows is reported, but for what is not there whatever the schema was.
    flow.source("in", arrow_source(schema)).select("*").sink("out", sink())
    assert report(flow) == [('source "in"', what)]


def test_a_sources_unreadable_schema_is_a_problem() -> None:
    class Lazy:
        @property
        def schema(self) -> pa.Schema:
            raise InvalidSchema("The schema has no columns", do="Write some.")

    flow = Dataflow("shop")
    flow.source("in", Lazy()).where("x").sink("out", sink())  # type: ignore[arg-type]
    assert report(flow) == [('source "in"', "the schema has no columns")]
