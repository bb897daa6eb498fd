"""A small shop: a dataflow of two regions, its input, and what must come of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.protocol.sinks import Sink
from anabranch.protocol.sources import Source
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.task.program import Program
from tests.dataflow.fakes import FakeAnalyzer

BINS = 8
SCHEMA = "customer string, amount bigint"

Page = list[tuple[str | None, int]]

PAGES: list[Page] = [
    [("ann", 3), ("bob", 5), ("ann", 4), (None, 1)],
    [("cid", 1), ("ann", -7), ("bob", 2)],
    [("bob", 2), ("dee", 9), ("cid", 1), ("dee", 9)],
    [("ann", 1)],
]


def remember(key: Any, row: Any, seen: Any) -> Any:
    """Order-sensitive: the amounts of a customer, as they came; a total of zero forgets."""
    seen = [*(seen or []), row.amount]
    return (key.customer, len(seen), "+".join(map(str, seen))), (seen if sum(seen) else None)


def shop(
    source: Source, rows: Sink, counts: Sink, *, function: Any = remember, name: str = "shop"
) -> Dataflow:
    flow = Dataflow(name)
    seen = (
        flow.source("orders", source)
        .key_distribute("by-customer", "customer")
        .stateful_map(
            "seen", function, state=None, output="customer string, times int, amounts string"
        )
    )
    seen.sink("rows", rows)
    seen.key_distribute("by-times", "times").aggregate(
        "times", n="count(*)", last="max(amounts)"
    ).sink("counts", counts)
    return flow


def program(flow: Dataflow, bins: int = BINS) -> Program:
    return Program(validate(flow.graph(), FakeAnalyzer()), bins)


def scripted(pages: Sequence[object] = PAGES, **more: Any) -> ScriptedSource:
    return ScriptedSource(SCHEMA, [*pages, EOF], **more)


def make_program(directory: Path, rows: MemorySink, source: Source | None = None) -> Program:
    counts = FileSink(directory / "counts", format="json")
    return program(shop(source or scripted(), rows, counts))


class Story:
    """What the shop must give, computed one row at a time."""

    def __init__(self, pages: Sequence[Page] = PAGES) -> None:
        self.seen: dict[str | None, list[int]] = {}
        self.counts: dict[int, tuple[int, str]] = {}
        #: step → rows of the sink "rows"
        self.rows: dict[int, list[tuple[str | None, int, str]]] = {}
        #: step → rows of the sink "counts", by times
        self.counted: dict[int, dict[int, tuple[int, str]]] = {}
        for step, page in enumerate(pages, start=1):
            self.rows[step] = [self._row(customer, amount) for customer, amount in page]
            changed = {times for _, times, _ in self.rows[step]}
            self.counted[step] = {times: self.counts[times] for times in changed}

    def _row(self, customer: str | None, amount: int) -> tuple[str | None, int, str]:
        seen = [*self.seen.pop(customer, []), amount]
        if sum(seen):
            self.seen[customer] = seen
        text = "+".join(map(str, seen))
        n, last = self.counts.get(len(seen), (0, ""))
        self.counts[len(seen)] = (n + 1, max(last, text))
        return customer, len(seen), text
