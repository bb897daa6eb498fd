"""How large everything is: the real thing, and a tiny one that only shows that all of it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    """A run of equal batches over uniformly drawn keys; the first ``warm`` are not counted."""

    name: str
    rows: int
    keys: int
    batches: int
    warm: int


@dataclass(frozen=True, slots=True)
class EventStream:
    """Nexmark's events in equal batches, at so many a second; the first ``warm`` do not count."""

    name: str
    events: int
    rate: int
    batches: int
    warm: int


@dataclass(frozen=True, slots=True)
class Held:
    """Two states of very different size under batches that change equally many keys.

    ``load`` is the rows of a loading batch, ``most`` the steps after which to give up.
    """

    many: int
    few: int
    rows: int
    load: int
    warm: int
    most: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """A rescale under load: bases of two sizes, and equal batches around it.

    ``base`` and ``small_base`` are keys; ``steady`` is how many steps are looked at before and
    after, ``runs`` how often it is done anew with the usual setting. Half the ``bins`` move.
    """

    base: Held
    small_base: Held
    bins: int
    steady: int
    runs: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """One size of the whole benchmark. Seconds bound those who cannot finish."""

    name: str
    medium: Stream
    large: Stream
    few_keys: Stream
    small: Stream
    held: Held
    rescale: Rescale
    nexmark: EventStream
    closing: EventStream
    pending: tuple[int, int]
    row_seconds: float
    pandas_seconds: float
    peer_seconds: float
    case_seconds: float

    def streams(self) -> tuple[Stream, ...]:
        """The data sets that several systems read."""
        return (self.medium, self.large, self.few_keys, self.small)


FULL = Sizes(
    "full",
    medium=Stream("100k", rows=100_000, keys=1_000_000, batches=34, warm=10),
    large=Stream("1m", rows=1_000_000, keys=1_000_000, batches=12, warm=4),
    few_keys=Stream("1m-10k-keys", rows=1_000_000, keys=10_000, batches=12, warm=4),
    small=Stream("1k", rows=1_000, keys=1_000_000, batches=150, warm=50),
    held=Held(many=10_000_000, few=100_000, rows=100_000, load=1_000_000, warm=20, most=200),
    rescale=Rescale(
        base=Held(many=1_000_000, few=0, rows=20_000, load=250_000, warm=60, most=400),
        small_base=Held(many=100_000, few=0, rows=20_000, load=50_000, warm=60, most=400),
        bins=256,
        steady=25,
        runs=5,
    ),
    nexmark=EventStream("nexmark", events=100_000, rate=10_000, batches=20, warm=6),
    closing=EventStream("closing", events=1_000, rate=100, batches=120, warm=40),
    pending=(10_000_000, 10_000),
    row_seconds=100.0,
    pandas_seconds=160.0,
    peer_seconds=60.0,
    case_seconds=240.0,
)

QUICK = Sizes(
    "quick",
    medium=Stream("100k", rows=2_000, keys=5_000, batches=5, warm=2),
    large=Stream("1m", rows=6_000, keys=5_000, batches=4, warm=1),
    few_keys=Stream("1m-10k-keys", rows=6_000, keys=50, batches=4, warm=1),
    small=Stream("1k", rows=100, keys=5_000, batches=6, warm=2),
    held=Held(many=20_000, few=2_000, rows=2_000, load=10_000, warm=2, most=8),
    rescale=Rescale(
        base=Held(many=5_000, few=0, rows=200, load=2_500, warm=2, most=60),
        small_base=Held(many=1_000, few=0, rows=100, load=500, warm=2, most=60),
        bins=16,
        steady=3,
        runs=2,
    ),
    nexmark=EventStream("nexmark", events=2_000, rate=200, batches=5, warm=2),
    closing=EventStream("closing", events=100, rate=10, batches=8, warm=2),
    pending=(100_000, 1_000),
    row_seconds=40.0,
    pandas_seconds=40.0,
    peer_seconds=10.0,
    case_seconds=90.0,
)
