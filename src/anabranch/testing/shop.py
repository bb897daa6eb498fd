"""The default scenario: a small shop, with customers of several kinds.

It has two regions, so that rows are re-keyed on the way, an operator that depends on the order of
its rows, an aggregate, and two sinks of different kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from anabranch.dataflow.flow import Dataflow
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from anabranch.testing.scenario import Outcome, Row, Scenario

STEPS = 20
LARGE_BYTES = 14

Page = list[tuple[str, int]]


class Customers(StrEnum):
    """Who comes: a few; new ones in every step; one all the time; fewer than there are workers.

    ``GIANT``: what is remembered of a customer soon has a file of its own. ``STATELESS``: as
    ``FEW``, and the second region keeps nothing.
    """

    SOME = "some"
    STORM = "storm"
    HOT = "hot"
    FEW = "few"
    GIANT = "giant"
    STATELESS = "stateless"


def shop(
    script: int = 0,
    steps: int = STEPS,
    customers: Customers = Customers.SOME,
    sinks_away: float = 0.0,
) -> Scenario:
    """A shop with random orders, the same for the same ``script``."""
    random = Random(script)
    pages = [_page(random, customers, step) for step in range(steps)]
    stateless = customers is Customers.STATELESS
    story = Story(pages, stateless=stateless)

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("shop")
        seen = (
            flow.source("orders", ScriptedSource("customer string, amount bigint", [*pages, EOF]))
            .key_distribute("by-customer", "customer")
            .stateful_map("seen", remember, state=None, output=SEEN)
        )
        seen.sink("rows", MemorySink())
        by_times = seen.key_distribute("by-times", "times")
        counts = (
            by_times.map_batches("same", unchanged, output=SEEN)
            if stateless
            else by_times.aggregate("times", n="count(*)", last="max(amounts)")
        )
        counts.sink("counts", FileSink(directory / "counts", format="json"))
        return flow

    large = LARGE_BYTES if customers is Customers.GIANT else None
    return Scenario(make, story.check, story.live, large_bytes=large, sinks_away=sinks_away)


SEEN = "customer string, times int, amounts string"


def remember(key: Any, row: Any, seen: Any) -> Any:  # noqa: ANN401
    """The amounts of a customer as they came; a sum of zero forgets the customer."""
    seen = [*(seen or []), row.amount]
    return (key.customer, len(seen), "+".join(map(str, seen))), (seen if sum(seen) else None)


def unchanged(table: pa.Table) -> pa.Table:
    """The rows as they are."""
    return table


def _page(random: Random, customers: Customers, step: int) -> Page:
    size = random.randint(1, 4)
    names: Sequence[str] = "abcdefg"
    match customers:
        case Customers.STORM:
            names = [f"new-{step}-{number}" for number in range(size)] + ["a"]
        case Customers.HOT:
            names = "hhhhhhhab"
        case Customers.FEW | Customers.STATELESS:
            names = "ab"
        case Customers.GIANT:
            names = "gggabc"
    return [(random.choice(names), random.randint(-2, 3)) for _ in range(size)]


class Story:
    """What the shop must give, computed one row at a time."""

    def __init__(self, pages: Sequence[Page], *, stateless: bool = False) -> None:
        """Go through all pages, one a step."""
        self._stateless = stateless
        self.seen: dict[str, list[int]] = {}
        self.counts: dict[int, tuple[int, str]] = {}
        self.rows: list[list[Row]] = []
        self.counted: list[list[Row]] = []
        self.live: dict[str, dict[int, int]] = {"seen": {0: 0}, "times": {0: 0}}
        for number, page in enumerate(pages, start=1):
            rows = [self._row(customer, amount) for customer, amount in page]
            changed = {row[1] for row in rows}
            self.rows.append(rows)
            counted = [(times, *self.counts[times]) for times in changed]
            self.counted.append(rows if stateless else counted)
            self.live["seen"][number] = len(self.seen)
            self.live["times"][number] = len(self.counts)

    def _row(self, customer: str, amount: int) -> Row:
        seen = [*self.seen.pop(customer, []), amount]
        if sum(seen):
            self.seen[customer] = seen
        text = "+".join(map(str, seen))
        n, last = self.counts.get(len(seen), (0, ""))
        self.counts[len(seen)] = (n + 1, max(last, text))
        return customer, len(seen), text

    def check(self, outcome: Outcome) -> None:
        """Compare output, step by step, and state."""
        steps = outcome.steps
        assert len(steps) == len(self.rows), f"R6: steps {steps} have read something"
        for step, rows in zip(steps, self.rows, strict=True):
            found = outcome.output["rows"].get(step, [])
            same = len(found) == len(rows) and _amounts(found) == _amounts(rows)
            swapped = same and sorted(found) != sorted(rows)
            assert not swapped, f"R7: step {step} took rows in another order: {sorted(found)}"
        outcome.check("rows", dict(zip(steps, self.rows, strict=True)))
        outcome.check("counts", dict(zip(steps, self.counted, strict=True)))
        held = {
            row["customer"]: msgspec.msgpack.decode(row["state"]) for row in outcome.state["seen"]
        }
        assert held == self.seen, f"R9: state of 'seen' is {held}, not {self.seen}"
        if self._stateless:
            return
        counted = {row["times"]: (row["n"], row["last"]) for row in outcome.state["times"]}
        assert counted == self.counts, f"R9: state of 'times' is {counted}, not {self.counts}"


def _amounts(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The amounts of each customer after a step, whatever their order."""
    last = {customer: text for customer, _, text in sorted(rows, key=lambda row: int(row[1]))}
    return {customer: sorted(text.split("+")) for customer, text in last.items()}
