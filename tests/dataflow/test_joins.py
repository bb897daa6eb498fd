"""Joins and dedup as users write them: what they give, and each mistake with its one problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.graph import DedupNode, DistributeNode, JoinNode, UnionNode
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import to_ddl
from anabranch.dataflow.validate import validate
from anabranch.errors import InvalidDataflow
from tests.dataflow.fakes import FakeAnalyzer, problems_of, sink, source

ORDERS = "id bigint not null, amount double not null, at timestamp"
PAYMENTS = "order_id bigint, paid double not null, paid_at timestamp"
ANALYZER = FakeAnalyzer()
HOUR = ("-1 minute", "1 hour")


def sides(
    left: str = ORDERS, right: str = PAYMENTS, *, timed: bool = True
) -> tuple[Dataflow, Stream, Stream]:
    flow = Dataflow("flow")
    orders, payments = flow.source("orders", source(left)), flow.source("pay", source(right))
    if timed:
        orders, payments = orders.assign_timestamps("at"), payments.assign_timestamps("paid_at")
    return flow, orders, payments


def keyed() -> tuple[Dataflow, Stream, Stream]:
    flow, orders, payments = sides()
    return flow, orders.key_by("id"), payments.key_by("order_id")


def columns(flow: Dataflow, stream: Stream) -> str:
    stream.sink("out", sink())
    return to_ddl(validate(flow.graph(), ANALYZER).schema(stream._id)).replace("`", "").lower()


def problems(flow: Dataflow, stream: Stream) -> list[tuple[str, str]]:
    stream.sink("out", sink())
    with pytest.raises(InvalidDataflow) as error:
        validate(flow.graph(), ANALYZER)
    return problems_of(error.value)


def test_a_join_is_a_union_of_its_sides_a_distribution_and_one_operator() -> None:
    flow, orders, payments = keyed()
    joined = orders.join("paid", payments, region="by-order", within=HOUR, how="left")
    *_, both, distribution, join = flow.graph().nodes
    assert isinstance(both, UnionNode)
    assert both.sides
    assert isinstance(distribution, DistributeNode)
    assert distribution.name == "by-order"
    assert join == JoinNode(
        join.id, (distribution.id,), "paid", "left", (-60_000_000, 3_600_000_000)
    )
    assert joined._id == join.id


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", "id bigint not null, amount double not null, at timestamp, paid double not null"),
        ("left", "id bigint not null, amount double not null, at timestamp, paid double"),
        ("right", "id bigint, amount double, at timestamp, paid double not null"),
        ("full", "id bigint, amount double, at timestamp, paid double"),
    ],
)
def test_it_gives_the_key_once_and_null_for_what_may_be_missing(how: Any, expected: str) -> None:
    flow, orders, payments = keyed()
    joined = orders.join("paid", payments, region="by-order", within=HOUR, how=how)
    assert columns(flow, joined) == f"{expected}, paid_at timestamp"


def test_a_key_that_the_left_rows_do_not_have_comes_first() -> None:
    flow, orders, payments = sides()
    left = orders.key_by("id").select("amount")
    joined = left.join("j", payments.key_by("order_id"), region="r", ttl="1 day")
    assert columns(flow, joined) == (
        "id bigint not null, amount double not null, paid double not null, paid_at timestamp"
    )


def test_a_window_join_gives_the_window_unless_a_side_has_one() -> None:
    flow, orders, payments = keyed()
    joined = orders.join("j", payments, region="r", window=ab.tumbling("1 day"))
    assert columns(flow, joined).endswith(
        "paid_at timestamp, window_start timestamp, window_end timestamp"
    )
    flow, orders, payments = sides("id bigint, window_end timestamp, at timestamp")
    left = orders.key_by("id")
    joined = left.join("j", payments.key_by("order_id"), region="r", window=ab.tumbling("1 day"))
    assert columns(flow, joined) == (
        "id bigint, window_end timestamp, at timestamp, paid double not null, paid_at timestamp, "
        "window_start timestamp"
    )


@pytest.mark.parametrize("method", ["join_as_of", "join_latest"])
def test_other_joins_have_the_columns_of_a_join(method: str) -> None:
    flow, orders, payments = keyed()
    joined = getattr(orders, method)("j", payments, region="r", how="left")
    assert columns(flow, joined) == (
        "id bigint not null, amount double not null, at timestamp, paid double, paid_at timestamp"
    )


def test_dedup_gives_its_rows() -> None:
    flow, orders, _ = sides()
    once = orders.key_distribute("by-id", "id").dedup("once", within="10 minutes")
    node = flow.graph().node(once._id)
    assert isinstance(node, DedupNode)
    assert node.within_us == 600_000_000


def test_late_rows_of_a_join_say_their_side() -> None:
    flow, orders, payments = keyed()
    joined = orders.join("j", payments, region="r", within=HOUR)
    joined.sink("joined", sink())
    assert columns(flow, joined.late) == (
        "side tinyint not null, l_id bigint, l_amount double, l_at timestamp, r_order_id bigint, "
        "r_paid double, r_paid_at timestamp, frontier timestamp"
    )


PAID = 'join "paid"'
MISTAKES: dict[str, tuple[Callable[[Stream, Stream], Stream], str]] = {
    "no form": (
        lambda o, p: o.key_by("id").join("paid", p.key_by("order_id"), region="r"),
        "nothing says which rows meet, so its state would only grow",
    ),
    "two forms": (
        lambda o, p: o.key_by("id").join(
            "paid", p.key_by("order_id"), region="r", within=HOUR, ttl="1 day"
        ),
        "it has within and ttl",
    ),
    "outer with ttl": (
        lambda o, p: o.key_by("id").join(
            "paid", p.key_by("order_id"), region="r", ttl="1 day", how="full"
        ),
        "a full join with a ttl does not know when a row stays alone",
    ),
    "bounds": (
        lambda o, p: o.key_by("id").join(
            "paid", p.key_by("order_id"), region="r", within=("1 hour", "0 seconds")
        ),
        "the lower bound of within is above the upper one",
    ),
    "sessions": (
        lambda o, p: o.key_by("id").join(
            "paid", p.key_by("order_id"), region="r", window=ab.session("1 hour")
        ),
        "the rows of two streams have no sessions in common",
    ),
    "too long": (
        lambda o, p: o.key_by("id").join(
            "paid", p.key_by("order_id"), region="r", ttl=f"{40_000 * 366} days"
        ),
        "a duration is over 36,000 years",
    ),
    "left key": (
        lambda o, p: o.join("paid", p.key_by("order_id"), region="r", within=HOUR),
        "its left side has no key",
    ),
    "right key": (
        lambda o, p: o.key_by("id").join("paid", p, region="r", within=HOUR),
        "its right side has no key",
    ),
    "key types": (
        lambda o, p: o.key_by("id").join("paid", p.key_by("paid_at"), region="r", within=HOUR),
        "its sides have different keys: id bigint not null and paid_at timestamp",
    ),
    "columns": (
        lambda o, p: o.key_by("id").join(
            "paid",
            p.select("order_id", "paid as amount").key_by("order_id"),
            region="r",
            within=HOUR,
        ),
        'there would be two columns "amount"',
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_problem_of_the_join(mistake: str) -> None:
    build, what = MISTAKES[mistake]
    flow, orders, payments = sides()
    assert problems(flow, build(orders, payments)) == [(PAID, what)]


@pytest.mark.parametrize(
    ("method", "label"),
    [
        (lambda a, b: a.join("j", b, region="r", ttl="1 day"), 'join "j"'),
        (lambda a, b: a.join_as_of("j", b, region="r"), 'join_as_of "j"'),
    ],
)
def test_joins_over_event_time_need_it(method: Any, label: str) -> None:
    flow, orders, payments = sides(timed=False)
    joined = method(orders.key_by("id"), payments.key_by("order_id"))
    assert problems(flow, joined) == [(label, "its rows have no event times")]


def test_the_latest_row_needs_no_event_times() -> None:
    flow, orders, payments = sides(timed=False)
    joined = orders.key_by("id").join_latest("j", payments.key_by("order_id"), region="r")
    assert columns(flow, joined).startswith("id bigint")


def test_a_timed_and_an_untimed_side_are_one_problem() -> None:
    flow, orders, payments = sides(timed=False)
    left = orders.assign_timestamps("at").key_by("id")
    joined = left.join("j", payments.key_by("order_id"), region="r", within=HOUR)
    what = "its right side has no event times, but the left one has them"
    assert problems(flow, joined) == [('join "j"', what)]


def test_its_states_may_not_have_the_name_of_an_operator() -> None:
    flow, orders, payments = keyed()
    joined = orders.join("j", payments, region="r", within=HOUR)
    other = joined.stateful_map("j.left", lambda key, row, state: (None, None), output="n int")
    what = 'its name is taken by join "j"'
    assert problems(flow, other) == [('stateful_map "j.left"', what)]


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda a, b: a.join("j", b, region="r", within="1 hour"), TypeError, "two durations"),
        (lambda a, b: a.join("j", b, region="r", within=("x", "1 hour")), ValueError, "not a time"),
        (lambda a, b: a.join("j", b, region="r", window="1 day"), TypeError, "ab.tumbling"),
        (lambda a, b: a.join("j", b, region="r", ttl="0 days"), ValueError, "must be positive"),
        (lambda a, b: a.join("j", b, region="r", ttl="1 day", how="outer"), ValueError, '"full"'),
        (lambda a, b: a.join_as_of("j", b, region="r", how="full"), ValueError, '"inner", "left"'),
        (lambda a, b: a.join_latest("j", b, region="r", how="right"), ValueError, "join_latest"),
        (lambda a, b: a.join("j", 7, region="r", ttl="1 day"), TypeError, "join takes streams"),
        (lambda a, b: a.join("j", b, region=7, ttl="1 day"), TypeError, "the name of a region"),
        (lambda a, b: a.dedup("d", within="0 seconds"), ValueError, "must be positive"),
    ],
)
def test_what_is_no_argument_is_said_at_once(build: Any, error: Any, text: str) -> None:
    _, orders, payments = sides()
    with pytest.raises(error, match=text):
        build(orders.key_by("id"), payments.key_by("order_id"))
