"""The Nexmark generator: its events are those of the benchmark, however they are cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.dataflow.types.schema import parse_schema
from anabranch.records.slices import RangeSlice
from examples.nexmark import generator as nexmark
from examples.nexmark.events import EVENT, event_source
from examples.nexmark.generator import (
    AUCTION,
    BID,
    PERSON,
    Int64s,
    Mask,
    Nexmark,
    auctions,
    bids,
    is_auction,
    is_bid,
    is_person,
    people,
)

Kind = tuple[Callable[[Int64s], Mask], Callable[[Nexmark, Int64s], pa.Table], str]
KINDS: list[Kind] = [
    (is_person, people, PERSON),
    (is_auction, auctions, AUCTION),
    (is_bid, bids, BID),
]
EVERY_KIND = pytest.mark.parametrize(
    ("mine", "make", "schema"), KINDS, ids=["people", "auctions", "bids"]
)
SETTINGS = Nexmark(seed=7)


def first(mine: Callable[[Int64s], Mask], events: int) -> Int64s:
    """The numbers of one kind of the first events."""
    numbers = np.arange(events)
    return numbers[mine(numbers)]


@EVERY_KIND
def test_columns_are_those_of_the_schema(
    mine: Callable[[Int64s], Mask], make: Callable[[Nexmark, Int64s], pa.Table], schema: str
) -> None:
    wanted = parse_schema(schema)
    made = make(SETTINGS, first(mine, 100))
    assert made.schema.names == wanted.names
    assert made.schema.types == wanted.types


@EVERY_KIND
def test_an_event_is_the_same_whatever_is_made_with_it(
    mine: Callable[[Int64s], Mask], make: Callable[[Nexmark, Int64s], pa.Table], schema: str
) -> None:
    numbers = first(mine, 4_000)
    some = np.random.default_rng(7).random(len(numbers)) < 0.3
    whole = make(SETTINGS, numbers)
    assert make(SETTINGS, numbers[some]) == whole.filter(pa.array(some))


def test_the_first_events_are_dealt_as_the_benchmark_has_it() -> None:
    counts = [
        [len(first(mine, events)) for mine, _, _ in KINDS]
        for events in (0, 1, 2, 4, 5, 50, 51, 1000)
    ]
    assert counts == [
        [0, 0, 0],
        [1, 0, 0],
        [1, 1, 0],
        [1, 3, 0],
        [1, 3, 1],
        [1, 3, 46],
        [2, 3, 46],
        [20, 60, 920],
    ]


def test_ids_and_times_are_on_one_line() -> None:
    """Event n happens n / rate seconds after the first; auctions and people are numbered on."""
    assert people(SETTINGS, first(is_person, 100))["id"].to_pylist() == [1000, 1001]
    opened = auctions(SETTINGS, first(is_auction, 52))
    assert opened["id"].to_pylist() == [1000, 1001, 1002, 1003]
    events = first(is_bid, 10_000)
    times = bids(SETTINGS, events)["at"].cast(pa.int64()).to_numpy() - SETTINGS.base
    assert (times == events * 1_000 // SETTINGS.rate * 1_000).all()


def test_the_skew_is_that_of_the_benchmark() -> None:
    events = first(is_bid, 250_000)
    made = bids(SETTINGS, events)
    auction = made["auction"].to_numpy() - 1000
    last = 3 * (events // 50) + 2
    assert abs((auction == last // 100 * 100).mean() - 0.5) < 0.01
    # About one bid in 22 is for an auction that has not begun.
    assert abs((auction > last).mean() - 0.045) < 0.005
    assert (auction <= last + 10).all()
    assert (auction >= np.maximum(last - 102, 0)).all()
    bidder = made["bidder"].to_numpy() - 1000
    assert abs((bidder == events // 50 // 100 * 100 + 1).mean() - 0.75) < 0.01
    price = made["price"].to_numpy()
    assert price.min() >= 100
    assert price.max() <= 10**8
    assert abs((price < 10**5).mean() - 0.5) < 0.01
    famous = pc.is_in(made["channel"], value_set=pa.array(nexmark.HOT_CHANNELS))
    assert abs(famous.to_numpy().mean() - 0.5) < 0.01


def test_auctions_end_after_they_begin_and_within_their_horizon() -> None:
    made = auctions(SETTINGS, first(is_auction, 80_000))
    length = made["expires"].cast(pa.int64()).to_numpy() - made["at"].cast(pa.int64()).to_numpy()
    horizon = 1_667 * 1_000_000 // SETTINGS.rate
    assert (length >= 1_000).all()
    assert (length <= 2 * horizon + 1_000).all()
    assert (made["reserve"].to_numpy() > made["initial_bid"].to_numpy()).all()
    assert set(made["category"].to_pylist()) == {10, 11, 12, 13, 14}


def test_another_seed_gives_other_events() -> None:
    events = first(is_bid, 50)
    assert bids(Nexmark(seed=1), events) != bids(Nexmark(seed=2), events)


def read(partition: int, start: int, end: int, *, partitions: int, span: int) -> pa.Table:
    source = event_source(240, SETTINGS, partitions=partitions, span=span)
    return pa.Table.from_batches(source.read(RangeSlice(partition, start, end)))


@pytest.mark.parametrize(("partitions", "span"), [(1, 1), (4, 1), (4, 10), (2, 60), (3, 80)])
def test_every_event_is_in_one_partition(partitions: int, span: int) -> None:
    each = 240 // partitions
    parts = [
        pa.concat_tables(
            read(number, start, start + each // 2, partitions=partitions, span=span)
            for start in (0, each // 2)
        )
        for number in range(partitions)
    ]
    for part in parts:
        times = part["at"].cast(pa.int64()).to_numpy()
        assert (np.diff(times) >= 0).all()
    whole = pa.concat_tables(parts).filter(pc.field("bid").is_valid())
    bidders = sorted(bid["auction"] for bid in whole["bid"].to_pylist())
    assert bidders == sorted(bids(SETTINGS, first(is_bid, 240))["auction"].to_pylist())


def test_partitions_that_are_read_alike_are_a_span_apart() -> None:
    ahead = [read(number, 0, 1, partitions=4, span=20)["at"][0].value for number in range(4)]
    assert np.diff(ahead).tolist() == [20 * 1_000_000 // SETTINGS.rate] * 3


def test_an_event_is_of_one_kind() -> None:
    made = read(0, 0, 100, partitions=1, span=1)
    assert made.schema.types == parse_schema(EVENT).types
    events = np.arange(100)
    for kind, (mine, make, _) in zip(("person", "auction", "bid"), KINDS, strict=True):
        assert made[kind].is_valid().to_pylist() == mine(events).tolist()
        rows = make(SETTINGS, first(mine, 100)).to_pylist()
        assert made[kind].drop_null().to_pylist() == rows


def test_events_that_cannot_be_dealt_out_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="100 events are not dealt out evenly"):
        event_source(100, partitions=3, span=10)
