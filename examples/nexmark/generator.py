"""The events of Nexmark, the field's benchmark: people, auctions and bids of an auction site.

Of 50 events in a row, the first is a person, the next three are auctions, and 46 are bids. What
event n is depends on the seed and n alone, so that any range of events can be made anywhere, again
and again. Everything is computed over arrays: a core makes more than a million bids a second.

    events = np.arange(1_000_000)
    bids(Nexmark(), events[is_bid(events)])
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

GROUP, PEOPLE, AUCTIONS, BIDS = 50, 1, 3, 46
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE, IN_FLIGHT, AHEAD, HOT = 1000, 100, 10, 100
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Dieter")
LAST_NAMES = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)

PERSON = (
    "id bigint, name string, email string, credit_card string, city string, state string, "
    "at timestamp, extra string"
)
AUCTION = (
    "id bigint, item string, description string, initial_bid bigint, reserve bigint, "
    "at timestamp, expires timestamp, seller bigint, category bigint, extra string"
)
BID = (
    "auction bigint, bidder bigint, price bigint, channel string, url string, "
    "at timestamp, extra string"
)


@dataclass(frozen=True)
class Nexmark:
    """The settings of a run: all events are determined by them.

    ``rate`` is in events a second of event time, ``base`` the time of the first event in
    microseconds since 1970.
    """

    seed: int = 1
    rate: int = 10_000
    base: int = 1_436_918_400_000_000

    def times(self, events: Int64s) -> Int64s:
        """When the events happen, in microseconds; whole milliseconds, as the field has them."""
        return self.base + (events * 1_000 // self.rate) * 1_000

    def uniform(self, events: Int64s, draw: int) -> Floats:
        """A number in [0, 1) for each event; the draws of an event are independent."""
        mixed = events.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.uint64((self.seed * 0xD1B54A32D192ED03 + draw * 0xAEF17502108EF2D9) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53

    def below(self, events: Int64s, draw: int, bound: int | Int64s) -> Int64s:
        """A whole number from 0 to below a bound for each event."""
        return (self.uniform(events, draw) * bound).astype(np.int64)

    def prices(self, events: Int64s, draw: int) -> Int64s:
        """Prices in cents: each power of ten as likely as the next."""
        return np.rint(10 ** (self.uniform(events, draw) * 6) * 100).astype(np.int64)

    def people(self, events: Int64s, draw: int) -> Int64s:
        """One of the last people, or of the next ones."""
        people = events // GROUP + 1
        active = np.minimum(people, ACTIVE_PEOPLE)
        return people - active + self.below(events, draw, active + AHEAD)


def is_person(events: Int64s) -> Mask:
    """Which of the events are people."""
    return events % GROUP < PEOPLE


def is_auction(events: Int64s) -> Mask:
    """Which of the events are auctions."""
    return ~is_person(events) & ~is_bid(events)


def is_bid(events: Int64s) -> Mask:
    """Which of the events are bids."""
    return events % GROUP >= PEOPLE + AUCTIONS


def last_auction(events: Int64s) -> Int64s:
    """The number of the last auction at each event, without the first id."""
    offset = events % GROUP
    return AUCTIONS * (events // GROUP) + np.where(offset == 0, -1, np.clip(offset - 1, 0, 2))


def hot(last: Int64s) -> Int64s:
    """The one of the last hundred that everybody likes; it moves on."""
    return last // HOT * HOT


def bids(settings: Nexmark, events: Int64s) -> pa.Table:
    """The events with these numbers, which are bids."""
    last = last_auction(events)
    low = np.maximum(last - IN_FLIGHT, 0)
    some = low + settings.below(events, 1, last - low + 1 + AHEAD)
    auction = np.where(settings.uniform(events, 0) < 1 / 2, hot(last), some)
    famous = hot(events // GROUP) + 1
    bidder = np.where(settings.uniform(events, 2) < 3 / 4, famous, settings.people(events, 3))
    few = settings.uniform(events, 5) < 1 / 2
    channel = np.where(
        few,
        settings.below(events, 6, len(HOT_CHANNELS)),
        len(HOT_CHANNELS) + settings.below(events, 6, CHANNELS),
    )
    names, urls = channels()
    return pa.table(
        {
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": settings.prices(events, 4),
            "channel": names.take(pa.array(channel)),
            "url": urls.take(pa.array(channel)),
            "at": timestamps(settings.times(events)),
            "extra": texts(settings, events, 7, 16),
        }
    )


def auctions(settings: Nexmark, events: Int64s) -> pa.Table:
    """The events with these numbers, which are auctions."""
    number = events // GROUP * AUCTIONS + events % GROUP - PEOPLE
    times = settings.times(events)
    ahead = settings.times(events + IN_FLIGHT * GROUP // AUCTIONS) - times
    length = 1 + settings.below(events, 14, np.maximum(2 * (ahead // 1_000), 1))
    initial = settings.prices(events, 11)
    people = settings.people(events, 10)
    seller = np.where(settings.uniform(events, 9) < 3 / 4, hot(events // GROUP), people)
    return pa.table(
        {
            "id": FIRST_ID + number,
            "item": texts(settings, events, 15, 20),
            "description": texts(settings, events, 16, 100),
            "initial_bid": initial,
            "reserve": initial + settings.prices(events, 12),
            "at": timestamps(times),
            "expires": timestamps(times + length * 1_000),
            "seller": FIRST_ID + seller,
            "category": FIRST_CATEGORY + settings.below(events, 13, CATEGORIES),
            "extra": texts(settings, events, 17, 300),
        }
    )


def people(settings: Nexmark, events: Int64s) -> pa.Table:
    """The events with these numbers, which are people."""
    digits = settings.below(events, 22, 10**16)
    cards = [f"{n:016d}" for n in digits.tolist()]
    first_names = chosen(FIRST_NAMES, settings.below(events, 18, len(FIRST_NAMES)))
    last_names = chosen(LAST_NAMES, settings.below(events, 19, len(LAST_NAMES)))
    names = [f"{one} {other}" for one, other in zip(first_names, last_names, strict=True)]
    mailbox = texts(settings, events, 20, 7).to_pylist()
    host = texts(settings, events, 21, 5).to_pylist()
    return pa.table(
        {
            "id": FIRST_ID + events // GROUP,
            "name": names,
            "email": [f"{one}@{other}.com" for one, other in zip(mailbox, host, strict=True)],
            "credit_card": [f"{n[:4]} {n[4:8]} {n[8:12]} {n[12:]}" for n in cards],
            "city": chosen(CITIES, settings.below(events, 23, len(CITIES))),
            "state": chosen(STATES, settings.below(events, 24, len(STATES))),
            "at": timestamps(settings.times(events)),
            "extra": texts(settings, events, 25, 90),
        }
    )


def timestamps(microseconds: Int64s) -> pa.Array:
    """Times as Spark has them."""
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def chosen(words: tuple[str, ...], places: Int64s) -> list[str]:
    """A word for each place."""
    return [words[place] for place in places.tolist()]


@cache
def channels() -> tuple[pa.Array, pa.Array]:
    """The names and addresses of all channels, the famous ones first."""
    page = "https://www.nexmark.com/{}/item.htm?query=1"
    others = [f"channel-{number}" for number in range(CHANNELS)]
    urls = [page.format(name.lower()) for name in HOT_CHANNELS]
    urls += [f"{page.format(name)}&channel_id={number}" for number, name in enumerate(others)]
    return pa.array([*HOT_CHANNELS, *others]), pa.array(urls)


@cache
def pool(length: int) -> pa.Array:
    """A thousand texts of about a length: from four fifths of it to six fifths."""
    generator = np.random.default_rng(length)
    sizes = generator.integers(length - length // 5, length + length // 5, 1000, endpoint=True)
    letters = generator.integers(ord("a"), ord("z") + 1, (1000, int(sizes.max())), dtype=np.uint8)
    return pa.array([bytes(row[:size]).decode() for row, size in zip(letters, sizes, strict=True)])


def texts(settings: Nexmark, events: Int64s, draw: int, length: int) -> pa.Array:
    """A text of about a length for each event."""
    return pool(length).take(pa.array(settings.below(events, draw, 1000)))
