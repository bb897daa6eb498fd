"""What is measured: one case per system and workload, those of a workload after one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.child import Option
from benchmarks.data import load_batches
from benchmarks.sizes import EventStream, Held, Rescale, Sizes, Stream

OURS = "benchmarks.ours"
STRUCTURED = "benchmarks.structured"
PEERS = "benchmarks/peers"
NEXMARK = "benchmarks.nexmark"
QUERIES = {
    **dict.fromkeys(("q05", "q07", "q08"), "hdfs"),
    "q09": "rocksdb",
    **dict.fromkeys(("q11", "q15", "q16", "q17", "q18"), "hdfs"),
}
"""Nexmark's queries that are measured, each with the other side's store; of ``transformWithState``
it can only be RocksDB."""
WAYS = ("batched", "fluid", "all-at-once")
"""The settings of a rescale, the usual one first."""


@dataclass(frozen=True, slots=True)
class Case:
    """One process: a program over some data.

    ``workload`` and ``subject`` name it, ``data`` is a directory below that of all data. ``peer``
    is the environment that it runs in, None for ours; ``seconds`` is how long it may measure.
    """

    workload: str
    subject: str
    program: str
    data: str
    warm: int
    seconds: float
    options: dict[str, Option] = field(default_factory=dict)
    peer: str | None = None

    @property
    def name(self) -> str:
        """Its name in results and on the command line."""
        return f"{self.workload}/{self.subject}"


def cases(sizes: Sizes) -> list[Case]:
    """All cases, in the order in which they run."""
    return [
        *_aggregate(sizes, sizes.medium, also_parquet=True),
        *_aggregate(sizes, sizes.large, also_parquet=False),
        *_map(sizes),
        *_latency(sizes),
        _held(sizes),
        *_rescale(sizes),
        *_nexmark(sizes),
        *_closing(sizes),
        _due(sizes),
        *_profile(sizes),
        *_peers(sizes),
    ]


def rescaled(wanted: Rescale) -> dict[str, Held]:
    """The data of the rescales, by name."""
    return {"rescale-1m": wanted.base, "rescale-100k": wanted.small_base}


def _aggregate(sizes: Sizes, stream: Stream, *, also_parquet: bool) -> Iterator[Case]:
    workload = f"aggregate-{stream.name}"
    yield _ours(sizes, workload, "ours", stream, "aggregate")
    yield _native(sizes, workload, "hdfs", stream)
    yield _native(sizes, workload, "rocksdb", stream)
    yield _native(sizes, workload, "rocksdb-tuned", stream)
    if also_parquet:
        yield _native(sizes, workload, "hdfs", stream, sink="parquet")
    yield _ours(sizes, workload, "ours-double", stream, "aggregate", "price")


def _map(sizes: Sizes) -> Iterator[Case]:
    medium, large, few = sizes.medium, sizes.large, sizes.few_keys
    yield _ours(sizes, f"map-{medium.name}", "ours", medium, "map")
    yield _transform(sizes, f"map-{medium.name}", "transform-row", medium, sizes.row_seconds)
    yield _transform(sizes, f"map-{medium.name}", "transform-pandas", medium, sizes.pandas_seconds)
    yield _ours(sizes, f"map-{large.name}", "ours", large, "map")
    yield _ours(sizes, f"map-{few.name}", "ours", few, "map")
    yield _native(sizes, f"map-{few.name}", "hdfs", few)
    yield _transform(sizes, f"map-{few.name}", "transform-row", few, sizes.row_seconds)
    yield _transform(sizes, f"map-{few.name}", "transform-pandas", few, sizes.pandas_seconds)


def _latency(sizes: Sizes) -> Iterator[Case]:
    small = sizes.small
    yield _ours(sizes, "latency", "ours", small, "aggregate")
    yield _native(sizes, "latency", "hdfs", small)
    yield _native(sizes, "latency", "rocksdb", small)
    yield _ours(sizes, "latency", "ours-map", small, "map")
    yield _transform(sizes, "latency", "transform-row", small, sizes.row_seconds)


def _held(sizes: Sizes) -> Case:
    held = sizes.held
    options: dict[str, Option] = {
        "warm": held.warm,
        "most": held.most,
        "load many": load_batches(held, held.many),
        "load few": load_batches(held, held.few),
    }
    return Case("held", "ours", "benchmarks.held", "held", 0, sizes.case_seconds, options)


def _rescale(sizes: Sizes) -> Iterator[Case]:
    wanted = sizes.rescale
    for data, base in rescaled(wanted).items():
        shape: dict[str, Option] = {
            "load": load_batches(base, base.many),
            "warm": base.warm,
            "steady": wanted.steady,
            "bins": wanted.bins,
        }
        ways = WAYS if base is wanted.base else WAYS[:1]
        for policy in ways:
            runs = wanted.runs if policy == WAYS[0] and base is wanted.base else 1
            options = {**shape, "way": policy, "runs": runs}
            yield Case(data, policy, "benchmarks.rescale", data, 0, sizes.case_seconds, options)
        store = {**shape, "store": "rocksdb"}
        yield Case(data, "offline", "benchmarks.offline", data, 0, sizes.case_seconds, store)


def _nexmark(sizes: Sizes) -> Iterator[Case]:
    stream = sizes.nexmark
    for query, store in QUERIES.items():
        workload = f"nexmark-{query}"
        yield _query(sizes, workload, "ours", f"{NEXMARK}.ours", stream, query=query)
        theirs: dict[str, Option] = {"query": query, "store": store, "rows": stream.events}
        subject = "transform-row" if store == "rocksdb" else store
        yield _query(sizes, workload, subject, f"{NEXMARK}.structured", stream, **theirs)
        yield _query(sizes, "nexmark-profile", query, f"{NEXMARK}.profile", stream, query=query)
    for query in ("tumbling", "total"):
        yield _query(sizes, "nexmark-window", query, f"{NEXMARK}.ours", stream, query=query)


def _closing(sizes: Sizes) -> Iterator[Case]:
    workload, stream = "nexmark-closing", sizes.closing
    yield _query(sizes, workload, "ours", f"{NEXMARK}.closing_ours", stream, query="tumbling")
    yield _query(sizes, workload, "hdfs", f"{NEXMARK}.closing_structured", stream, store="hdfs")


def _due(sizes: Sizes) -> Case:
    many, few = sizes.pending
    options: dict[str, Option] = {"many": many, "few": few}
    program = f"{NEXMARK}.due"
    return Case("nexmark-due", "ours", program, "nexmark-due", 0, sizes.case_seconds, options)


def _profile(sizes: Sizes) -> Iterator[Case]:
    profiled = [
        ("aggregate", sizes.small),
        ("aggregate", sizes.medium),
        ("aggregate", sizes.large),
        ("map", sizes.medium),
        ("map", sizes.large),
    ]
    for operator, stream in profiled:
        yield Case(
            "profile",
            f"{operator}-{stream.name}",
            "benchmarks.profile",
            stream.name,
            stream.warm,
            sizes.case_seconds,
            {"operator": operator},
        )


def _peers(sizes: Sizes) -> Iterator[Case]:
    for snapshot_seconds in (1, 10):
        yield _peer(sizes, "bytewax", f"-{snapshot_seconds}s", snapshot_seconds=snapshot_seconds)
    yield _peer(sizes, "pathway", "", recovery=False)
    yield _peer(sizes, "pathway", "-log", recovery=True)


def _query(
    sizes: Sizes, workload: str, subject: str, program: str, stream: EventStream, **options: Option
) -> Case:
    return Case(workload, subject, program, stream.name, stream.warm, sizes.case_seconds, options)


def _ours(
    sizes: Sizes, workload: str, subject: str, stream: Stream, operator: str, column: str = "amount"
) -> Case:
    options: dict[str, Option] = {"operator": operator, "column": column}
    return Case(workload, subject, OURS, stream.name, stream.warm, sizes.case_seconds, options)


def _native(sizes: Sizes, workload: str, store: str, stream: Stream, sink: str = "noop") -> Case:
    subject = store if sink == "noop" else f"{store}-{sink}"
    options: dict[str, Option] = {
        "query": "aggregate",
        "store": store,
        "sink": sink,
        "rows": stream.rows,
    }
    return Case(
        workload, subject, STRUCTURED, stream.name, stream.warm, sizes.case_seconds, options
    )


def _transform(sizes: Sizes, workload: str, query: str, stream: Stream, seconds: float) -> Case:
    """transformWithState, which is cut after some time; it needs the RocksDB store."""
    options: dict[str, Option] = {
        "query": query,
        "store": "rocksdb",
        "sink": "noop",
        "rows": stream.rows,
    }
    return Case(workload, query, STRUCTURED, stream.name, stream.warm, seconds, options)


def _peer(sizes: Sizes, peer: str, variant: str, **options: Option) -> Case:
    """Another system; its "batches" are stretches of about a second, the first few are warm-up."""
    program = f"{PEERS}/{peer}_totals.py"
    return Case(
        "peers",
        f"{peer}{variant}",
        program,
        sizes.medium.name,
        5,
        sizes.peer_seconds,
        options,
        peer,
    )
