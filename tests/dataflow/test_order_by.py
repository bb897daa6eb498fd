"""``order_by=`` as the user writes it: what is recorded, typed and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.dataflow.order_by import OrderColumn, order_columns
from anabranch.dataflow.stream import Stream
from tests.dataflow.fakes import add, orders
from tests.dataflow.test_transform import ANALYZER, OUTPUT, keyed, typed, unordered
from tests.dataflow.test_validate import chain, report


def stateful(kind: str, stream: Stream, order_by: Any) -> Stream:
    if kind == "map":
        return stream.stateful_map("m", add, output=OUTPUT, order_by=order_by)
    if kind == "batches":
        return stream.stateful_batches(
            "m", lambda rows, state: (rows, state), state="n int", output=OUTPUT, order_by=order_by
        )
    return stream.aggregate("m", total="sum(amount)", last="last(at)", order_by=order_by)


@pytest.mark.parametrize("kind", ["map", "batches", "aggregate"])
@pytest.mark.parametrize("order_by", ["at", ["at desc", "AMOUNT"]])
def test_it_gives_an_unordered_stream_an_order(kind: str, order_by: Any) -> None:
    found, last = typed(lambda s: stateful(kind, keyed(s.transform("t", unordered)), order_by))
    assert found.ordered(last)


@pytest.mark.parametrize(
    ("order_by", "what"),
    [
        ("when", 'order_by: there is no column "when"'),
        ("at backwards", 'order_by: there is no column "at backwards"'),
        ("customer", 'order_by: column "customer" has type string'),
    ],
)
@pytest.mark.parametrize("build", [lambda s: s, lambda s: s.transform("t", unordered)])
def test_columns_that_cannot_order_are_one_problem(
    build: Callable[[Stream], Stream], order_by: str, what: str
) -> None:
    flow = chain(lambda s: stateful("map", keyed(build(s)), order_by))
    assert report(flow, ANALYZER) == [('stateful_map "m"', what)]


@pytest.mark.parametrize("kind", ["map", "batches", "aggregate"])
def test_only_texts_are_taken(kind: str) -> None:
    _, stream = orders()
    with pytest.raises(TypeError, match="takes order_by= as text"):
        stateful(kind, keyed(stream), [1])


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (None, ()),
        ([], ()),
        (" at ", (OrderColumn("at"),)),
        ("at ASC", (OrderColumn("at"),)),
        ("a b desc", (OrderColumn("a b", descending=True),)),
        ("desc", (OrderColumn("desc"),)),
    ],
)
def test_directions(given: Any, columns: tuple[OrderColumn, ...]) -> None:
    assert order_columns("process", given) == columns
