"""Time-to-live on a real Spark: what expires is not seen, and leaves the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.durations import ttl_ns
from tests.spark.expiring import BINS, STATES, expiring, sizes_after
from tests.spark.running import bag, commits, completed
from tests.spark.sums import add, add_tables
from tests.spark.test_breadth import ORDERS, Page, got, pages

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TTL = "700 milliseconds"
"""About what a few steps take: some state expires and some does not."""


class Lately(ab.Process):
    """What each handle has when a key's rows come, as one text."""

    value = ab.ValueState("n bigint", ttl=TTL)
    seen = ab.ListState("n bigint", ttl=TTL)
    tens = ab.MapState("ten bigint", "n bigint", ttl=TTL)

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        text = f"{self.value.get()} {self.seen.get()} {sorted(self.tens.items())}"
        for row in rows:
            self.value.set(row.amount)
            self.seen.append(row.amount)
            self.tens[row.amount // 10] = row.amount
        return (key.customer, text)


class Model:
    """All kinds of state in plain Python: everything with the time at which it was written."""

    def __init__(self) -> None:
        self.totals: dict[Any, tuple[int, int]] = {}
        self.values: dict[Any, tuple[int, int]] = {}
        self.lists: dict[Any, list[tuple[int, int]]] = {}
        self.tens: dict[Any, dict[int, tuple[int, int]]] = {}

    def step(self, page: Page, now: int) -> tuple[list[Any], list[Any], list[Any]]:
        """The running totals, the totals and the texts of a step."""
        ttl = ttl_ns(TTL)
        assert ttl is not None

        def alive(entry: tuple[int, int] | None) -> bool:
            return entry is not None and now < entry[1] + ttl

        totals = {customer: kept[0] for customer, kept in self.totals.items() if alive(kept)}
        running, texts = [], []
        for customer in dict.fromkeys(customer for customer, _ in page):
            value = self.values.get(customer)
            listed = [entry[0] for entry in self.lists.get(customer, []) if alive(entry)]
            tens = self.tens.setdefault(customer, {})
            shown = sorted((ten, entry[0]) for ten, entry in tens.items() if alive(entry))
            held = value[0] if value is not None and alive(value) else None
            texts.append((customer, f"{held} {listed} {shown}"))
        for customer, amount in page:
            totals[customer] = totals.get(customer, 0) + amount
            running.append((customer, totals[customer]))
            self.totals[customer] = (totals[customer], now)
            self.values[customer] = (amount, now)
            self.lists.setdefault(customer, []).append((amount, now))
            self.tens[customer][amount // 10] = (amount, now)
        return running, list(dict(running).items()), texts


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_what_expires_by_the_clock_of_the_steps_is_not_seen(workers: int, tmp_path: Path) -> None:
    """The oracle is told the clock of every step by its commit, and nothing else."""
    given = pages(31, 6, 6)
    outputs = {name: ab.MemorySink() for name in ("map", "tables", "sums", "lately")}
    flow = ab.Dataflow("lately")
    keyed = flow.source("orders", ab.ScriptedSource(ORDERS, [*given, ab.EOF])).key_distribute(
        "by-customer", "customer"
    )
    output = "customer string, amount bigint"
    keyed.stateful_map("map", add, state="total bigint", output=output, ttl=TTL).sink(
        "map-out", outputs["map"]
    )
    keyed.stateful_batches("tables", add_tables, state="total bigint", output=output, ttl=TTL).sink(
        "tables-out", outputs["tables"]
    )
    keyed.aggregate("sums", amount="sum(amount)", ttl=TTL).sink("sums-out", outputs["sums"])
    keyed.process("lately", Lately, output="customer string, text string").sink(
        "lately-out", outputs["lately"]
    )
    completed(flow, tmp_path / "state", workers=workers)
    made = commits(tmp_path / "state")
    assert len(made) == len(given)
    model = Model()
    report = [model.step(page, c.clock_ns) for page, c in zip(given, made, strict=True)]
    assert bag(got(outputs["map"])) == bag(row for step in report for row in step[0])
    for name in ("tables", "sums"):
        assert bag(got(outputs[name])) == bag(row for step in report for row in step[1]), name
    assert bag(got(outputs["lately"])) == bag(row for step in report for row in step[2])


def check_sizes(
    tmp_path: Path, steps: int, per_step: int, ttl: str, workers: int, patience: float = 120.0
) -> None:
    sizes, snapshot = sizes_after(
        expiring(steps, per_step, ttl), tmp_path / "state", workers=workers, patience=patience
    )
    print(f"{steps} steps of {per_step} rows: {sizes}")
    assert snapshot.step == steps
    assert set(snapshot.operators) == set(STATES)
    assert snapshot.bins == BINS
    assert sizes.alive > 0
    assert sizes.listed <= 2 * sizes.alive
    assert sizes.directory <= 2 * sizes.kept


def test_expired_state_leaves_the_files(tmp_path: Path) -> None:
    check_sizes(tmp_path, steps=14, per_step=8_000, ttl="2 seconds", workers=2)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("workers", [1, 3])
def test_expired_state_leaves_the_files_of_a_long_run(tmp_path: Path, workers: int) -> None:
    steps = int(os.environ.get("ANABRANCH_STEPS", "300"))
    check_sizes(
        tmp_path, steps=steps, per_step=20_000, ttl="5 seconds", workers=workers, patience=3600
    )
