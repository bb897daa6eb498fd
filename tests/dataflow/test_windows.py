"""Windows as the user writes them: what is recorded, typed and refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.graph import AggregateNode, ApplyNode, TopNode
from anabranch.dataflow.order_by import OrderColumn
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.types.schema import to_ddl
from anabranch.dataflow.validate import validate
from anabranch.dataflow.windows import SessionWindow, SlidingWindow, TumblingWindow
from tests.dataflow.fakes import FakeAnalyzer, orders
from tests.dataflow.test_validate import chain, report

ANALYZER = FakeAnalyzer({}, frozenset())
ROW = "customer string, amount double, at timestamp"
HOUR = 3600 * 10**6


def keyed(stream: Stream) -> Stream:
    return stream.assign_timestamps("at").key_distribute("by", "customer")


def windowed(stream: Stream, window: Any = None) -> Any:
    """A windowed stream, of any type so that wrong arguments can be tried."""
    return keyed(stream).window(window or ab.tumbling("1 hour"))


def same(table: pa.Table) -> pa.Table:
    return table


def columns_of(build: Callable[[Stream], Stream], ddl: str | None = None) -> str:
    """The columns that come out of what is built."""
    typed = validate(chain(build, ddl).graph(), ANALYZER)
    return to_ddl(typed.schema(typed.graph.sinks()[0].inputs[0]))


def test_windows_are_recorded_in_microseconds() -> None:
    assert ab.tumbling("1 hour", offset="90 minutes") == TumblingWindow(HOUR, HOUR // 2)
    assert ab.tumbling(timedelta(hours=1), offset="-15 minutes") == TumblingWindow(
        HOUR, HOUR * 3 // 4
    )
    assert ab.sliding("1 hour", every="20 minutes") == SlidingWindow(HOUR, HOUR // 3)
    assert ab.session("30 minutes") == SessionWindow(HOUR // 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ab.tumbling("0 seconds"), "the length of a window must be positive"),
        (lambda: ab.tumbling("soon"), "'soon' is not a time"),
        (lambda: ab.session("-1 second"), "the gap of a session must be positive"),
        (
            lambda: ab.sliding("1 hour", every="2 hours"),
            "every is '2 hours', more than the length '1 hour'",
        ),
        (
            lambda: ab.sliding("1 hour", every="7 seconds"),
            "have 3600 pieces; at most 1000 are possible",
        ),
    ],
)
def test_windows_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_thousand_pieces_are_possible() -> None:
    assert ab.sliding("1000 seconds", every="1 second") == SlidingWindow(10**9, 10**6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.window("1 hour"), "window takes ab.tumbling"),
        (lambda s: windowed(s).top("best", "3", by="amount"), "top takes a number of rows"),
        (lambda s: windowed(s).top("best", True, by="amount"), "top takes a number of rows"),
        (lambda s: windowed(s).top("best", 3, by=[1]), "top takes by= as text"),
        (lambda s: s.top(7, 3, by="amount"), "top takes a name"),
        (lambda s: windowed(s).apply("all", "same", output="n int"), "apply takes a function"),
        (lambda s: windowed(s).apply("all", same, output=None), "apply takes an output schema"),
        (lambda s: windowed(s).aggregate("n", n=1), "aggregate takes n=…"),
    ],
)
def test_python_types_are_checked_at_once(build: Callable[[Stream], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        build(orders(ROW)[1])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: windowed(s).top("best", 0, by="amount"), "at least one row, not 0"),
        (lambda s: windowed(s).aggregate("n", emit="now", n="count(*)"), 'emit is "final" or'),
        (lambda s: s.top("best", 1, by="amount", ttl="0 days"), "must be positive"),
    ],
)
def test_values_are_checked_at_once(build: Callable[[Stream], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(orders(ROW)[1])


def test_what_the_user_says_is_recorded() -> None:
    flow, stream = orders(ROW)
    hour = ab.tumbling("1 hour")
    windowed(stream).aggregate("n", emit="changes", n="count(*)")
    assert flow.graph().nodes[-1] == AggregateNode(
        4, (3,), "n", (("n", "count(*)"),), window=hour, emit="changes"
    )
    by = (OrderColumn("amount", True), OrderColumn("customer"))
    windowed(stream).top("best", 3, by="amount desc, customer", ties=True)
    assert flow.graph().nodes[-1] == TopNode(8, (7,), "best", 3, by, True, None, hour)
    keyed(stream).top("most", 3, by=["amount desc", "customer"], ttl="1 second")
    assert flow.graph().nodes[-1] == TopNode(12, (11,), "most", 3, by, False, 10**9)
    windowed(stream).apply("all", same, output="n int")
    assert flow.graph().nodes[-1] == ApplyNode(16, (15,), "all", same, "n int", hour)


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (
            lambda s: windowed(s).aggregate("n", n="count(*)", most="max(amount)"),
            "customer string, window_start timestamp, window_end timestamp, n bigint not null, "
            "most double",
        ),
        (
            lambda s: windowed(s).top("best", 3, by="amount"),
            "customer string, amount double, at timestamp, window_start timestamp, "
            "window_end timestamp, rank int not null",
        ),
        (
            lambda s: keyed(s).top("best", 3, by="Amount DESC"),
            "customer string, amount double, at timestamp, rank int not null",
        ),
        # The windows of what comes in stay: those of this window are not added.
        (
            lambda s: (
                windowed(s)
                .aggregate("n", n="count(*)")
                .key_distribute("all", w="window_end")
                .window(ab.tumbling("1 hour"))
                .top("best", 1, by="n desc")
            ),
            "customer string, window_start timestamp, window_end timestamp, n bigint not null, "
            "rank int not null",
        ),
        (lambda s: windowed(s).apply("all", same, output="n int, s string"), "n int, s string"),
        (
            lambda s: windowed(s).apply("all", same, output="n int").late,
            "customer string, amount double, at timestamp, frontier timestamp",
        ),
    ],
)
def test_output_columns(build: Callable[[Stream], Stream], columns: str) -> None:
    assert columns_of(build, ROW) == columns


NO_TIMES = "its rows have no event times"


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (
            lambda s: (
                s.key_distribute("by", "customer")
                .window(ab.tumbling("1 hour"))
                .aggregate("n", n="count(*)")
            ),
            ('aggregate "n"', NO_TIMES),
        ),
        (
            lambda s: (
                s.key_distribute("by", "customer")
                .window(ab.session("1 hour"))
                .top("best", 1, by="amount")
            ),
            ('top "best"', NO_TIMES),
        ),
        (
            lambda s: (
                s.key_distribute("by", "customer")
                .window(ab.session("1 hour"))
                .apply("all", same, output="n int")
            ),
            ('apply "all"', NO_TIMES),
        ),
        (
            lambda s: windowed(s, ab.session("1 hour")).aggregate(
                "n", emit="changes", n="count(*)"
            ),
            (
                'aggregate "n"',
                "sessions cannot emit changes: those that merge would have to be taken back",
            ),
        ),
        (
            lambda s: windowed(s).aggregate("n", window_end="max(at)"),
            (
                'aggregate "n"',
                'column "window_end" has the name of a window column, which the output already has',
            ),
        ),
        (
            lambda s: (
                s.assign_timestamps("at")
                .key_distribute("by", window_end="at")
                .window(ab.tumbling("1 hour"))
                .aggregate("n", n="count(*)")
            ),
            ('aggregate "n"', 'the key has a column "window_end", which the output gets too'),
        ),
        (
            lambda s: windowed(s.select("*", "amount as Rank")).top("best", 1, by="amount"),
            ('top "best"', 'its rows have a column "rank", which the output gets too'),
        ),
        (
            lambda s: keyed(s).top("best", 1, by="price desc"),
            ('top "best"', 'by: there is no column "price"'),
        ),
        (lambda s: keyed(s).top("best", 1, by=" , "), ('top "best"', "by: there is no column")),
        (
            lambda s: windowed(s.select("*", "at as window_start")).apply(
                "all", same, output="n int"
            ),
            (
                'apply "all"',
                'column "window_start" would appear twice in the table that the function gets',
            ),
        ),
        (
            lambda s: windowed(s).apply("all", same, output="_window bigint"),
            ('apply "all"', 'output column "_window" names the window of a row'),
        ),
        (
            lambda s: windowed(s).apply("all", lambda: None, output="n int"),
            ('apply "all"', "cannot be called with 1 positional argument"),
        ),
        (
            lambda s: s.assign_timestamps("at").top("best", 1, by="amount"),
            ('top "best"', "it keeps state, but its rows are not distributed by key"),
        ),
        (
            lambda s: keyed(s).top("best", 1, by="amount").late,
            ("late() after top", 'no row comes too late for top "best"'),
        ),
    ],
)
def test_one_mistake_is_one_problem(
    build: Callable[[Stream], Stream], problem: tuple[str, str]
) -> None:
    ((operator, what),) = report(chain(build, ROW), ANALYZER)
    assert operator.startswith(problem[0])
    assert problem[1] in what


def test_a_map_has_no_order() -> None:
    flow = chain(lambda s: keyed(s).top("best", 1, by="tags"), f"{ROW}, tags map<string, int>")
    ((_, what),) = report(flow, ANALYZER)
    assert what == 'by: column "tags" is map<string,int>, which has no order'


def test_the_rows_of_an_apply_are_a_state_of_their_own() -> None:
    def build(stream: Stream) -> Stream:
        rows = keyed(stream)
        rows.window(ab.tumbling("1 hour")).apply("all", same, output="n int")
        return rows.aggregate("All.rows", n="count(*)")

    ((operator, what),) = report(chain(build, ROW), ANALYZER)
    assert operator == 'aggregate "All.rows"'
    assert what == 'its name is taken by apply "all"'
