"""What a simulated cluster runs: a dataflow, and what must come of it.

The default one has two regions, so that rows are re-keyed on the way, an operator that depends on
the order of its rows, an aggregate, and two sinks of different kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from anabranch.dataflow.flow import Dataflow
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource

Row = tuple[Any, ...]

STEPS = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to: rows by sink and step, and state by operator.

    Only memory sinks and file sinks of JSON lines are shown. The rows of a step have no order.
    """

    output: Mapping[str, Mapping[int, list[Row]]]
    state: Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A dataflow to simulate, and the check of what came of it.

    ``make`` builds the dataflow; the directory is for what its sinks write. Every source must be a
    ``ScriptedSource`` that ends, every expression the name of a column. ``check`` raises
    ``AssertionError`` when the outcome is wrong. ``live`` says how many keys an operator holds
    after a step, where that is known.
    """

    make: Callable[[Path], Dataflow]
    check: Callable[[Outcome], None]
    live: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    workers: int = 3
    bins: int = 8


def remember(key: Any, row: Any, seen: Any) -> Any:  # noqa: ANN401
    """The amounts of a customer as they came; a sum of zero forgets the customer."""
    seen = [*(seen or []), row.amount]
    return (key.customer, len(seen), "+".join(map(str, seen))), (seen if sum(seen) else None)


def shop(script: int = 0, steps: int = STEPS) -> Scenario:
    """The default scenario: a small shop with random orders, the same for the same ``script``."""
    random = Random(script)
    pages = [
        [(random.choice("abcdefg"), random.randint(-2, 3)) for _ in range(random.randint(1, 4))]
        for _ in range(steps)
    ]
    story = Story(pages)

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("shop")
        seen = (
            flow.source("orders", ScriptedSource("customer string, amount bigint", [*pages, EOF]))
            .key_distribute("by-customer", "customer")
            .stateful_map(
                "seen", remember, state=None, output="customer string, times int, amounts string"
            )
        )
        seen.sink("rows", MemorySink())
        seen.key_distribute("by-times", "times").aggregate(
            "times", n="count(*)", last="max(amounts)"
        ).sink("counts", FileSink(directory / "counts", format="json"))
        return flow

    return Scenario(make, story.check, story.live)


class Story:
    """What the shop must give, computed one row at a time."""

    def __init__(self, pages: list[list[tuple[str, int]]]) -> None:
        """Go through all pages, one a step."""
        self.seen: dict[str, list[int]] = {}
        self.counts: dict[int, tuple[int, str]] = {}
        self.rows: dict[int, list[Row]] = {}
        self.counted: dict[int, list[Row]] = {}
        self.live: dict[str, dict[int, int]] = {"seen": {0: 0}, "times": {0: 0}}
        for step, page in enumerate(pages, start=1):
            self.rows[step] = [self._row(customer, amount) for customer, amount in page]
            changed = {row[1] for row in self.rows[step]}
            self.counted[step] = [(times, *self.counts[times]) for times in changed]
            self.live["seen"][step] = len(self.seen)
            self.live["times"][step] = len(self.counts)

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
        for sink, wanted in (("rows", self.rows), ("counts", self.counted)):
            found = outcome.output[sink]
            assert sorted(found) == sorted(wanted), f"R6: {sink} has the steps {sorted(found)}"
            for step, rows in wanted.items():
                assert sorted(found[step]) == sorted(rows), (
                    f"step {step} of sink {sink!r} has {sorted(found[step])}, not {sorted(rows)}"
                )
        held = {
            row["customer"]: msgspec.msgpack.decode(row["state"]) for row in outcome.state["seen"]
        }
        assert held == self.seen, f"state of 'seen' is {held}, not {self.seen}"
        counted = {row["times"]: (row["n"], row["last"]) for row in outcome.state["times"]}
        assert counted == self.counts, f"state of 'times' is {counted}, not {self.counts}"
