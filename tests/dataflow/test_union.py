"""Unions and splits: what they give, and each mistake with its one problem."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import to_ddl
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow
from tests.dataflow.fakes import add, orders, problems_of, sink, source

ROW = "customer string, amount bigint"


def two(first: str, second: str) -> tuple[Dataflow, Stream, Stream]:
    flow = Dataflow("flow")
    return flow, flow.source("a", source(first)), flow.source("b", source(second))


def united(first: str, second: str, tag: str | None = None) -> str | list[tuple[str, str]]:
    """The columns of a union of two sources, or its problems."""
    flow, a, b = two(first, second)
    stream = a.union(b) if tag is None else flow.union(tag, a=a, b=b)
    stream.sink("out", sink())
    try:
        typed = validate(flow.graph())
    except InvalidDataflow as error:
        return problems_of(error)
    return to_ddl(typed.schema(stream._id))


def test_a_union_of_nothing_is_one_problem() -> None:
    flow, a, b = two(ROW, ROW)
    a.union(b).union(flow.union("tag")).sink("out", sink())
    with pytest.raises(InvalidDataflow) as error:
        validate(flow.graph())
    assert problems_of(error.value) == [("union() after nothing", "it unites nothing")]


@pytest.mark.parametrize(
    ("first", "second", "columns"),
    [
        (ROW, ROW, ROW),
        (ROW, "amount bigint, customer string", ROW),
        (ROW, "AMOUNT bigint, customer string", ROW),
        ("id bigint not null", "id bigint", "id bigint"),
        ("id bigint not null", "id bigint not null", "id bigint NOT NULL"),
    ],
)
def test_the_columns_go_by_name(first: str, second: str, columns: str) -> None:
    found = united(first, second)
    assert isinstance(found, str)
    assert found.lower().replace("`", "") == columns.lower()


def test_a_tagged_union_has_every_column() -> None:
    found = united("id bigint not null, x int", "id bigint not null, y string", "input")
    assert isinstance(found, str)
    assert found.replace("`", "").lower() == (
        "input string not null, id bigint not null, x int, y string"
    )


@pytest.mark.parametrize(
    ("first", "second", "tag", "what"),
    [
        (ROW, "customer string", None, 'input 2 has no column "amount"'),
        ("customer string", ROW, None, 'input 2 has a column "amount" that input 1 lacks'),
        (ROW, "customer string, amount int", None, 'column "amount" is bigint in one input and'),
        (ROW, "customer string, amount int", "t", 'column "amount" is bigint in one input and'),
        (ROW, ROW, "amount", 'input 1 has a column "amount", which is the tag\'s name'),
        (ROW, ROW, "_ab_tag", 'column "_ab_tag" starts with _ab_'),
    ],
)
def test_columns_that_do_not_fit_are_named(
    first: str, second: str, tag: str | None, what: str
) -> None:
    found = united(first, second, tag)
    assert isinstance(found, list)
    assert all(operator.startswith("union") for operator, _ in found)
    assert any(text.startswith(what) for _, text in found)


def test_streams_of_another_dataflow_and_other_things_are_refused_at_once() -> None:
    _, one = orders()
    _, other = orders()
    with pytest.raises(ValueError, match="of one dataflow"):
        one.union(other)
    with pytest.raises(TypeError, match="union takes streams, not str"):
        one.union("rows")  # type: ignore[arg-type]


def test_inputs_in_one_region_stay_in_it() -> None:
    flow, rows = orders()
    keyed = rows.key_distribute("by", "customer")
    again = keyed.where("amount > 0").union(keyed)
    again.stateful_map("m", add, output="n bigint").sink("out", sink())
    assert validate(flow.graph()).region(again._id) == keyed._id


def _one_key(a: Stream, b: Stream) -> Stream:
    return a.key_by("customer").union(b)


def _other_keys(a: Stream, b: Stream) -> Stream:
    return a.key_by("customer").union(b.key_by("amount"))


def _two_regions(a: Stream, b: Stream) -> Stream:
    return a.key_distribute("x", "customer").union(b.key_distribute("y", "customer"))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (_one_key, "input 2 has no key, but others have one"),
        (_other_keys, "its inputs have different keys"),
    ],
)
def test_keys_must_be_the_same(build: Callable[[Stream, Stream], Stream], what: str) -> None:
    flow, a, b = two(ROW, ROW)
    build(a, b).distribute_by_key("r").stateful_map("m", add, output="n bigint").sink("o", sink())
    with pytest.raises(InvalidDataflow) as error:
        validate(flow.graph())
    assert problems_of(error.value)[0][1] == what


def test_inputs_in_two_regions_are_in_none() -> None:
    flow, a, b = two(ROW, ROW)
    _two_regions(a, b).stateful_map("m", add, output="n bigint").sink("o", sink())
    with pytest.raises(InvalidDataflow) as error:
        validate(flow.graph())
    assert "its rows are not distributed by key" in str(error.value)


def test_a_split_gives_a_stream_for_each_condition() -> None:
    flow, rows = orders()
    parts = rows.split(big="amount > 100", rest="true")
    assert list(parts) == ["big", "rest"]
    for name, part in parts.items():
        part.sink(name, sink())
    assert [node.kind for node in validate(flow.graph()).graph.nodes].count("split") == 2


def test_each_condition_of_a_split_is_checked() -> None:
    flow, rows = orders()
    for name, part in rows.split(one="nowhere", two="customer is null").items():
        part.sink(name, sink())
    with pytest.raises(InvalidDataflow) as error:
        validate(flow.graph())
    (found,) = problems_of(error.value)
    assert found == ('split(one="nowhere") after source "orders"', 'there is no column "nowhere"')


def test_a_split_without_conditions_is_refused_at_once() -> None:
    _, rows = orders()
    with pytest.raises(TypeError, match="split takes conditions"):
        rows.split()
