"""Nexmark as a stream: one source of all events, and the three streams that queries read.

The events lie on one time line and are dealt out to the partitions of the source in ranges.
"""

from functools import partial

import numpy as np
import pyarrow as pa

import anabranch as ab
from examples.nexmark.generator import (
    AUCTION,
    BID,
    PERSON,
    Nexmark,
    auctions,
    bids,
    is_auction,
    is_bid,
    is_person,
    people,
    timestamps,
)

EVENT = f"at timestamp, person struct<{PERSON}>, auction struct<{AUCTION}>, bid struct<{BID}>"
LATENESS = "4 seconds"


class Events:
    """The streams that queries read, out of one of all events in a dataflow."""

    def __init__(self, flow, stream):
        self.flow = flow
        self.stream = stream

    @property
    def people(self):
        """Those who have joined."""
        return self._of_kind("person", PERSON)

    @property
    def auctions(self):
        """The auctions that they have opened."""
        return self._of_kind("auction", AUCTION)

    @property
    def bids(self):
        """What they have bid."""
        return self._of_kind("bid", BID)

    def _of_kind(self, kind, schema):
        columns = [f"{kind}.{column.split()[0]}" for column in schema.split(", ")]
        return self.stream.where(f"{kind} is not null").select(*columns)


def nexmark(flow: ab.Dataflow, source: ab.GeneratorSource) -> Events:
    """The events of a source in a dataflow, each at the time at which it happened."""
    events = flow.source("events", source).assign_timestamps("at", lateness=LATENESS)
    return Events(flow, events)


def event_source(
    events: int,
    settings: Nexmark = Nexmark(),  # noqa: B008 - a constant
    *,
    partitions: int = 1,
    span: int = 1,
    events_per_step: int = 100_000,
) -> ab.GeneratorSource:
    """The first ``events`` events.

    Of ``partitions`` ranges of ``span`` events in a row each partition has one, then of the next
    ranges, and so on: partitions that are read alike are ``span`` events apart.
    """
    if events % (partitions * span):
        raise ValueError(f"{events} events are not dealt out evenly: {partitions} × {span}")
    return ab.GeneratorSource(
        partial(generate, settings, partitions, span),
        EVENT,
        partitions=partitions,
        rows_per_step=events_per_step,
        rows=events,
    )


def generate(settings, partitions, span, partition, start, end):
    """The events at places ``start`` to ``end`` of a partition."""
    place = np.arange(start, end, dtype=np.int64)
    return event_table(settings, (place // span * partitions + partition) * span + place % span)


def event_table(settings, events):
    """Events of all kinds, each in the column of its kind."""
    columns = {"at": timestamps(settings.times(events))}
    kinds = {
        "person": (people, is_person(events)),
        "auction": (auctions, is_auction(events)),
        "bid": (bids, is_bid(events)),
    }
    for kind, (make, mine) in kinds.items():
        rows = make(settings, events[mine]).to_struct_array().combine_chunks()
        columns[kind] = rows.take(pa.array(np.cumsum(mine) - 1, mask=~mine))
    return pa.table(columns)
