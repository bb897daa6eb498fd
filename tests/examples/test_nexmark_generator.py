"""The Nexmark generator: its events are those of the benchmark, however they are cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dataflow.types.schema import parse_schema
from examples.nexmark import generator as nexmark
from examples.nexmark.generator import AUCTION, BID, PERSON, Nexmark, auctions, bids, people

Make = Callable[[Nexmark, int, int, int, int], pa.Table]
KINDS: list[tuple[Make, str]] = [(people, PERSON), (auctions, AUCTION), (bids, BID)]
SETTINGS = Nexmark(seed=7)


@pytest.mark.parametrize(("make", "schema"), KINDS, ids=["people", "auctions", "bids"])
def test_columns_are_those_of_the_schema(make: Make, schema: str) -> None:
    wanted = parse_schema(schema)
    made = make(SETTINGS, 0, 1, 0, 10)
    assert made.schema.names == wanted.names
    assert made.schema.types == wanted.types


@pytest.mark.parametrize("make", [make for make, _ in KINDS], ids=["people", "auctions", "bids"])
@given(partitions=st.integers(1, 4), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_an_event_is_the_same_in_every_partition_and_slice(
    make: Make, partitions: int, cuts: list[int]
) -> None:
    whole = make(SETTINGS, 0, 1, 0, 40 * partitions).to_pylist()
    for partition in range(partitions):
        ends = [0, *sorted(cuts), 40]
        found = [
            row
            for start, end in pairwise(ends)
            for row in make(SETTINGS, partition, partitions, start, end).to_pylist()
        ]
        assert found == whole[partition::partitions]


def test_the_first_events_are_dealt_as_the_benchmark_has_it() -> None:
    kinds: list[Any] = [nexmark.person_source, nexmark.auction_source, nexmark.bid_source]
    counts = [[kind(events).rows for kind in kinds] for events in (0, 1, 2, 4, 5, 50, 51, 1000)]
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
    one, three, many = people(SETTINGS, 0, 1, 0, 2), auctions(SETTINGS, 0, 1, 0, 4), 10_000
    assert one["id"].to_pylist() == [1000, 1001]
    assert three["id"].to_pylist() == [1000, 1001, 1002, 1003]
    times = bids(SETTINGS, 0, 1, 0, many)["at"].cast(pa.int64()).to_numpy() - SETTINGS.base
    numbers = np.arange(many)
    events = numbers // 46 * 50 + 4 + numbers % 46
    assert (times == events * 1_000 // SETTINGS.rate * 1_000).all()


def test_the_skew_is_that_of_the_benchmark() -> None:
    rows = 230_000
    made = bids(SETTINGS, 0, 1, 0, rows)
    events = np.arange(rows) // 46 * 50 + 4 + np.arange(rows) % 46
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
    made = auctions(SETTINGS, 0, 1, 0, 5_000)
    length = made["expires"].cast(pa.int64()).to_numpy() - made["at"].cast(pa.int64()).to_numpy()
    horizon = 1_667 * 1_000_000 // SETTINGS.rate
    assert (length >= 1_000).all()
    assert (length <= 2 * horizon + 1_000).all()
    assert (made["reserve"].to_numpy() > made["initial_bid"].to_numpy()).all()
    assert set(made["category"].to_pylist()) == {10, 11, 12, 13, 14}


def test_another_seed_gives_other_events() -> None:
    assert bids(Nexmark(seed=1), 0, 1, 0, 50) != bids(Nexmark(seed=2), 0, 1, 0, 50)
