"""The SQL of event time: what is computed for rows, and where a query is cut to watch them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.stream import Stream
from anabranch.plan.boundary import CLOCK, TIME, TO
from anabranch.plan.physical import Physical
from anabranch.plan.time_sql import NO_TIME, CutQuery
from anabranch.protocol.sources import Source
from anabranch.records.times import END_OF_TIME, TOO_FAR
from tests.dataflow.fakes import sink, source
from tests.plan.crossings import crossings, queries
from tests.plan.test_timed_paths import (
    ROW,
    files,
    keyed,
    lowered,
    mapped,
    numbered,
    physical,
    same,
    timed,
)


def only(found: Physical) -> CutQuery:
    """The one query with cuts."""
    every = [query for crossing in crossings(found) for query in queries(crossing)]
    # Each source is read here by the JVM and by Python: of the two, that of the JVM comes first.
    return next(query for query in every if query.cuts)


def test_a_query_is_cut_behind_the_times_and_before_what_drops_rows() -> None:
    found = only(physical(lambda s: mapped(keyed(timed(s).where("amount > 0"))), files()))
    (cut,) = found.cuts
    assert f"as {TIME}" in cut.text
    assert "amount > 0" not in cut.text
    assert "amount > 0" in found.text
    assert cut.view in found.text
    assert "unix_micros" not in found.text
    assert [(each.input, each.partition) for each in cut.latest] == [("orders", None)]


def test_rows_that_a_filter_before_drops_are_not_seen() -> None:
    found = only(physical(lambda s: mapped(keyed(timed(s.where("amount > 0")))), files()))
    assert "amount > 0" in found.cuts[0].text


def test_rows_of_one_input_are_watched_once_whoever_reads_them() -> None:
    flow = Dataflow("shop")
    rows = timed(flow.source("orders", files()))
    for number in range(3):
        mapped(keyed(rows.where("amount > 0"), f"r{number}"), f"m{number}").sink(
            f"s{number}", sink()
        )
    (cut,) = only(lowered(flow)).cuts
    # Of the rows of all edges, those of the first are counted.
    assert f"{TO} = 1" in cut.latest[0].sql


def test_several_inputs_of_a_source_are_watched_for_themselves() -> None:
    flow = Dataflow("shop")
    rows = flow.source("orders", files())
    mapped(keyed(timed(rows))).sink("s1", sink())
    mapped(keyed(timed(rows.where("amount > 0")), "r2"), "m2").sink("s2", sink())
    first, second = only(lowered(flow)).cuts
    assert [cut.latest[0].input for cut in (first, second)] == ["orders", "orders#2"]
    assert first.view != second.view
    assert first.view in second.text


def test_what_read_tasks_see_needs_no_cut() -> None:
    found = physical(lambda s: mapped(keyed(timed(s))), numbered())
    (crossing, *_) = crossings(found)
    assert crossing.from_tasks([0], "reads").cuts == ()


@pytest.mark.parametrize(
    ("count", "seen"), [(1, [0]), (2, [0, 1]), (64, list(range(64))), (128, [None])]
)
def test_partitions_are_told_apart_up_to_a_limit(count: int, seen: list[int | None]) -> None:
    found = physical(lambda s: mapped(keyed(timed(s.where("amount > 0")))), numbered())
    (crossing, *_) = crossings(found)
    crossing.partitions["orders"] = count
    (cut,) = crossing.from_tasks([0], "reads").cuts
    assert [each.partition for each in cut.latest] == seen
    assert ("_ab_o0 & 4294967295" in cut.latest[0].sql) is (None not in seen)


@pytest.mark.parametrize(
    ("build", "clocks"),
    [
        (lambda s: s.assign_timestamps("at"), [False]),
        (lambda s: s.assign_timestamps(ab.ARRIVAL), [True, False]),
        (lambda s: s.assign_timestamps("at", ahead="1 hour"), [True, False]),
    ],
)
def test_the_clock_is_there_where_times_depend_on_it(
    build: Callable[[Stream], Stream], clocks: list[bool]
) -> None:
    found = only(physical(lambda s: mapped(keyed(build(s))), files()))
    assert [cut.clock for cut in found.cuts] == clocks
    assert (CLOCK in found.cuts[-1].text) is (True in clocks)


def test_times_are_limited_and_those_too_far_ahead_do_not_count() -> None:
    ahead = physical(lambda s: mapped(keyed(s.assign_timestamps("at", ahead="1 hour"))), files())
    _, cut = only(ahead).cuts
    assert f"least({CLOCK} + 3600000000, {END_OF_TIME - 1}) then {TOO_FAR}" in cut.text
    assert f"{TIME} < {END_OF_TIME}" in cut.latest[0].sql


def test_a_row_without_a_time_is_named_or_left_out() -> None:
    fails = only(physical(lambda s: mapped(keyed(timed(s))), files())).cuts[0].text
    assert f"{NO_TIME}: source \\'orders\\', column \\'at\\': " in fails
    assert "'customer', `customer`" in fails
    flow = Dataflow("shop")
    flow.dead_letters("letters", sink())
    rows = flow.source("orders", files()).assign_timestamps("at", on_error="dead-letter")
    mapped(keyed(rows)).sink("out", sink())
    found = only(lowered(flow))
    assert NO_TIME not in found.cuts[0].text
    assert "then `at` is not null" in found.cuts[0].text
    assert "then `at` is null" in found.text + found.cuts[0].text


@pytest.mark.parametrize("of", [source(ROW), files(), numbered()])
def test_a_transform_gets_the_times_and_gives_them_back(of: Source) -> None:
    found = physical(lambda s: mapped(keyed(timed(s).transform("t", same))), of)
    texts = [query.text for crossing in crossings(found) for query in queries(crossing)]
    assert any(f"timestamp_micros({TIME}) as _time" in text for text in texts)
    assert any("unix_micros(coalesce(_time, raise_error(" in text for text in texts)
