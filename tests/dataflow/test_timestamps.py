"""``assign_timestamps`` as the user writes it: what is recorded, typed, named and refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from anabranch import ARRIVAL
from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.graph import TimestampsNode, UntimedNode
from anabranch.dataflow.naming import ORD, TIME
from anabranch.dataflow.stream import Stream
from anabranch.dataflow.timestamps import inputs_before, timed_inputs
from anabranch.dataflow.types.event_times import untimed_finding
from anabranch.dataflow.types.schema import parse_schema
from anabranch.dataflow.types.typed import Typed
from anabranch.dataflow.validate import validate
from anabranch.dataflow.validation import Validation
from anabranch.protocol.sources import Source
from anabranch.protocol.time_graph import TimedInput
from tests.dataflow.fakes import FakeAnalyzer, FakeSource, add, orders, sink, source
from tests.dataflow.test_validate import chain, report

ANALYZER = FakeAnalyzer({}, frozenset({"amount > 0"}))
ROW = "customer string, amount double, at timestamp"
ASSIGN = 'assign_timestamps("at") after source "orders"'


def same(given: Any) -> Any:
    return given


def untimed(schema: Any) -> Any:
    """A transform that does not return the times."""
    return pa.schema([field for field in schema if field.name != TIME])


def unordered(schema: Any) -> Any:
    return pa.schema([field for field in schema if field.name != ORD])


def keyed(stream: Stream, name: str = "by") -> Stream:
    return stream.key_distribute(name, "customer")


def mapped(stream: Stream, name: str = "m") -> Stream:
    return stream.stateful_map(name, add, output=ROW)


def timed(stream: Stream) -> Stream:
    return stream.assign_timestamps("at")


def typed(build: Callable[[Stream], Stream]) -> tuple[Typed, int]:
    """The typed flow, and the node that was built last before the sink."""
    found = validate(chain(build).graph(), ANALYZER)
    return found, found.graph.sinks()[0].inputs[0]


def recorded(stream: Stream) -> TimestampsNode:
    node = stream._recorder.nodes[-1]
    assert isinstance(node, TimestampsNode)
    return node


def test_what_the_user_says_is_recorded_in_microseconds() -> None:
    _, stream = orders()
    plain = recorded(stream.assign_timestamps("at"))
    assert (plain.column, plain.lateness_us, plain.idle_us, plain.ahead_us, plain.on_error) == (
        "at",
        0,
        None,
        None,
        "fail",
    )
    full = recorded(
        stream.assign_timestamps(
            ARRIVAL,
            lateness=timedelta(seconds=4),
            idle="1 minute",
            ahead="0 seconds",
            on_error="dead-letter",
        )
    )
    assert (full.column, full.lateness_us, full.idle_us, full.ahead_us, full.on_error) == (
        None,
        4_000_000,
        60_000_000,
        0,
        "dead-letter",
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"column": 7}, TypeError),
        ({"column": None}, TypeError),
        ({"lateness": "-1 second"}, ValueError),
        ({"lateness": "soon"}, ValueError),
        ({"lateness": 4}, TypeError),
        ({"idle": "0 seconds"}, ValueError),
        ({"ahead": "-1 second"}, ValueError),
        ({"on_error": "drop"}, ValueError),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_at_once(
    given: dict[str, Any], error: type[Exception]
) -> None:
    _, stream = orders()
    with pytest.raises(error):
        stream.assign_timestamps(**{"column": "at", **given})


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s, False),
        (timed, True),
        (lambda s: s.assign_timestamps("AT"), True),
        (lambda s: s.assign_timestamps(ARRIVAL), True),
        (lambda s: timed(s.where("amount > 0")).select("customer").where("amount > 0"), True),
        (lambda s: timed(s).split(big="amount > 0")["big"], True),
        (lambda s: timed(s).with_columns(at="amount"), True),
        (lambda s: timed(s.map_batches("b", same, output=ROW)), True),
        (lambda s: timed(s).map_batches("b", same, output="n int"), True),
        (lambda s: timed(s.transform("t", same)), True),
        (lambda s: timed(s).transform("t", same), True),
        (lambda s: timed(s).transform("t", untimed), False),
        (lambda s: timed(s).transform("t", unordered), True),
        (lambda s: mapped(keyed(timed(s))).transform("t", same), True),
        # Rows that notifications made are known by their order.
        (lambda s: mapped(keyed(timed(s))).transform("t", unordered), False),
        (lambda s: s.transform("t", same), False),
        (lambda s: timed(s).union(timed(s)), True),
        (lambda s: timed(s.union(s)), True),
        (lambda s: s.union(s), False),
        (lambda s: keyed(timed(s)), True),
        (lambda s: timed(s.key_by("customer")).distribute_by_key("by"), True),
        (lambda s: mapped(keyed(timed(s))), True),
        (lambda s: keyed(timed(s)).aggregate("n", n="count(*)").local(), True),
        (lambda s: mapped(keyed(s)), False),
    ],
)
def test_times_stay_with_the_rows(build: Callable[[Stream], Stream], expected: bool) -> None:
    found, last = typed(build)
    assert found.timed(last) is expected


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (
            lambda s: s.assign_timestamps("on"),
            ('assign_timestamps("on") after source "orders"', 'there is no column "on"'),
        ),
        (
            lambda s: s.assign_timestamps("amount"),
            (
                'assign_timestamps("amount") after source "orders"',
                'column "amount" is double, which is no time',
            ),
        ),
        (lambda s: timed(timed(s)), (ASSIGN, "its rows have event times already")),
        (
            lambda s: timed(keyed(s)),
            (
                'assign_timestamps("at") after distribution "by"',
                'it stands behind distribution "by"',
            ),
        ),
        (
            lambda s: timed(mapped(keyed(s)).local()),
            (
                'assign_timestamps("at") after stateful_map "m"',
                'it stands behind distribution "by"',
            ),
        ),
        (
            lambda s: s.union(timed(s)),
            ('union() after source "orders"', "input 1 has no event times, but others have them"),
        ),
        (
            lambda s: timed(s).with_columns(**{TIME: "amount"}).transform("t", same),
            ('transform "t"', f'column "{TIME}" is the event time there'),
        ),
    ],
)
def test_one_mistake_is_one_problem(
    build: Callable[[Stream], Stream], problem: tuple[str, str]
) -> None:
    assert report(chain(build), ANALYZER) == [problem]


def test_a_date_is_no_time() -> None:
    flow = chain(timed, "customer string, at date")
    assert report(flow, ANALYZER) == [(ASSIGN, 'column "at" is date, which is no time')]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_both_kinds_of_timestamp_are_times(kind: str) -> None:
    assert report(chain(timed, f"customer string, at {kind}"), ANALYZER) == []


def test_behind_a_transform_the_source_of_a_row_must_be_known() -> None:
    flow, one = orders()
    two = flow.source("more", source())
    timed(one.union(two).transform("t", same)).sink("out", sink())
    assert report(flow, ANALYZER) == [
        (
            'assign_timestamps("at") after transform "t"',
            'transform "t" before it mixes the rows of several sources',
        )
    ]


def test_what_is_unknown_is_not_reported() -> None:
    assert report(chain(lambda s: timed(s.select("amount * 2 as x", "f(x) as at")))) == []


def finding_behind(build: Callable[[Stream], Stream]) -> str | None:
    """What an operator over event time says of the rows that it gets."""
    found, _ = typed(build)
    walk = Validation(found.graph, resolver=None, typed=list(found.nodes))  # type: ignore[arg-type]
    finding = untimed_finding(walk, found.graph.sinks()[0])
    return None if finding is None else finding.what


def test_who_needs_times_says_why_there_are_none() -> None:
    assert finding_behind(lambda s: mapped(keyed(timed(s)))) is None
    assert finding_behind(lambda s: mapped(keyed(s))) == "its rows have no event times"
    assert finding_behind(lambda s: timed(s).transform("t", untimed).where("amount > 0")) == (
        'its rows have no event times: transform "t" before it does not return _time'
    )
    assert finding_behind(lambda s: mapped(keyed(timed(s))).transform("t", unordered)) == (
        'its rows have no event times: transform "t" before it does not return _time and _ord'
    )


def inputs(flow: Dataflow) -> list[tuple[str, str, bool]]:
    return [(each.name, each.source, each.timed) for each in timed_inputs(flow.graph())]


def before(flow: Dataflow) -> dict[str, tuple[str, ...]]:
    """The nearest inputs and operators of each stateful operator."""
    graph = flow.graph()
    return {node.name: inputs_before(graph, node.id) for node in graph.stateful()}


def test_an_input_is_named_like_its_source() -> None:
    flow, one = orders()
    two = flow.source("more", source())
    mapped(keyed(one.assign_timestamps("at", lateness="2 seconds", idle="1 hour"))).sink(
        "s1", sink()
    )
    mapped(keyed(two, "by2"), "m2").sink("s2", sink())
    assert timed_inputs(flow.graph()) == (
        TimedInput("orders", "orders", True, 2_000_000, 3_600_000_000),
        TimedInput("more", "more", False),
    )
    assert before(flow) == {"m": ("orders",), "m2": ("more",)}


def test_further_inputs_of_a_source_are_numbered_those_without_times_last() -> None:
    flow, one = orders()
    mapped(keyed(one)).sink("s1", sink())
    mapped(keyed(timed(one), "by2"), "m2").sink("s2", sink())
    late = keyed(one.assign_timestamps(ARRIVAL), "by3")
    mapped(late, "m3").sink("s3", sink())
    assert inputs(flow) == [
        ("orders", "orders", True),
        ("orders#2", "orders", True),
        ("orders#3", "orders", False),
    ]
    assert before(flow) == {"m": ("orders#3",), "m2": ("orders",), "m3": ("orders#2",)}


def test_a_source_that_only_a_sink_reads_without_times_has_one_input() -> None:
    flow, one = orders()
    one.sink("raw", sink())
    mapped(keyed(timed(one))).sink("out", sink())
    assert inputs(flow) == [("orders", "orders", True)]


def test_behind_a_union_each_source_is_an_input_of_its_own() -> None:
    flow, one = orders()
    two = flow.source("more", source())
    both = timed(one.union(two.where("amount > 0")))
    first = mapped(keyed(both))
    second = mapped(keyed(first.union(both), "by2"), "m2")
    second.sink("out", sink())
    assert inputs(flow) == [("orders", "orders", True), ("more", "more", True)]
    assert before(flow) == {"m": ("orders", "more"), "m2": ("m", "orders", "more")}


def dead_letter(stream: Stream, column: str = "at") -> Stream:
    return stream.assign_timestamps(column, on_error="dead-letter")


def test_rows_without_a_time_have_a_way_to_the_dead_letters() -> None:
    flow, stream = orders()
    flow.dead_letters("letters", sink())
    dead_letter(stream.where("amount > 0")).sink("out", sink())
    dead_letter(stream).sink("again", sink())
    found = validate(flow.graph(), ANALYZER)
    untimed = [node for node in found.graph.nodes if isinstance(node, UntimedNode)]
    assert [found.schema(node.id) for node in untimed] == [DEAD_LETTER_SCHEMA] * 2
    letters = [each for each in found.graph.sinks() if each.letters and each.inputs]
    assert [each.name for each in letters] == ["orders-untimed", "orders-untimed-2"]
    assert [found.graph.node(each.inputs[0]) for each in letters] == untimed


def test_dead_letters_must_go_somewhere() -> None:
    assert report(chain(dead_letter), ANALYZER) == [(ASSIGN, "its dead letters go nowhere")]


@dataclass(frozen=True)
class Telling:
    """A source that tells times beside its rows."""

    schema: pa.Schema
    tells_times: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("of", "build", "what"),
    [
        (Telling, lambda s: s.assign_timestamps(TIME), None),
        (FakeSource, lambda s: s.assign_timestamps(TIME), "and the source tells no times"),
        (
            Telling,
            lambda s: s.where("amount > 0").assign_timestamps(TIME),
            "and only a source tells times beside its rows",
        ),
        (
            Telling,
            lambda s: s.assign_timestamps(TIME, on_error="dead-letter"),
            "so none becomes a dead letter",
        ),
    ],
)
def test_times_may_be_those_that_a_source_tells(
    of: type[Any], build: Callable[[Stream], Stream], what: str | None
) -> None:
    flow = Dataflow("shop")
    flow.dead_letters("letters", sink())
    build(flow.source("orders", cast(Source, of(parse_schema(ROW))))).sink("out", sink())
    found = report(flow, ANALYZER)
    assert len(found) == (what is not None)
    assert what is None or what in found[0][1]


def test_a_column_of_that_name_is_a_column() -> None:
    assert report(chain(lambda s: s.assign_timestamps(TIME), f"{TIME} timestamp"), ANALYZER) == []
    problems = report(chain(lambda s: s.assign_timestamps(TIME), f"{TIME} int"), ANALYZER)
    assert [what for _, what in problems] == [f'column "{TIME}" is int, which is no time']
