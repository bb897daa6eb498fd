"""``stateful_batches`` and ``process`` on a real Spark, re-keyed, against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from tests.spark.running import bag, completed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

Page = list[tuple[str | None, int]]


def pages() -> list[Page]:
    chosen = random.Random(7)
    names = ["ann", "bob", "cid", "dan", None]
    return [[(chosen.choice(names), chosen.randint(-9, 99)) for _ in range(30)] for _ in range(4)]


def sums(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The sum of each key that the step changed."""
    added = rows.group_by("_key").aggregate([("amount", "sum")]).sort_by("_key")
    total = pc.add(pc.fill_null(state.column("total"), 0), added.column("amount_sum"))
    output = {"customer": state.column("customer"), "total": total, "_key": state.column("_key")}
    return pa.table(output), pa.table({"total": total})


class History(ab.Process):
    """Everything that a key has seen, and how often each value of it; told at the end."""

    seen = ab.ListState("n bigint")
    times = ab.MapState("n bigint", "times bigint")
    last = ab.ValueState("n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            self.seen.append(row.total)
            self.times[row.total] = self.times.get(row.total, 0) + 1
            self.last.set(row.total)
        return (key.parity, "rows", len(rows), self.last.get())

    def on_end(self, key: Any) -> Any:
        seen = self.seen.get()
        assert Counter(seen) == dict(self.times.items())
        yield (key.parity, "end", len(seen), sum(seen))
        self.seen.clear()


def by_hand(given: list[Page]) -> tuple[list[Any], dict[int, list[int]], Counter[int]]:
    """The totals of every step, what each parity saw of them, and in how many steps."""
    totals: Counter[Any] = Counter()
    written: list[Any] = []
    seen: dict[int, list[int]] = {}
    report: Counter[int] = Counter()
    for page in given:
        for customer, amount in page:
            totals[customer] += amount
        changed = [(customer, totals[customer]) for customer in {c for c, _ in page}]
        written += changed
        for _, total in changed:
            seen.setdefault(total % 2, []).append(total)
        report.update({total % 2 for _, total in changed})
    return written, seen, report


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_kinds_of_state_over_two_regions(tmp_path: Path, workers: int) -> None:
    given = pages()
    outputs = {name: ab.MemorySink() for name in ("sums", "again", "history")}
    flow = ab.Dataflow("kinds")
    rows = flow.source(
        "orders", ab.ScriptedSource("customer string, amount bigint", [*given, ab.EOF])
    )
    summed = rows.key_distribute("by-customer", "customer").stateful_batches(
        "sums", sums, state="total bigint", output="customer string, total bigint"
    )
    summed.sink("sums-out", outputs["sums"])
    summed.where("true").sink("again-out", outputs["again"])
    summed.key_distribute("by-parity", parity="pmod(total, 2)").process(
        "history", History, output="parity bigint, what string, n bigint, value bigint"
    ).sink("history-out", outputs["history"])
    pipeline = completed(flow, tmp_path / "state", workers=workers)
    written, seen, report = by_hand(given)
    for name in ("sums", "again"):
        assert bag(tuple(row.values()) for row in outputs[name].rows()) == bag(written)
    history = [tuple(row.values()) for row in outputs["history"].rows()]
    ends = {row[0]: row[2:] for row in history if row[1] == "end"}
    assert ends == {parity: (len(values), sum(values)) for parity, values in seen.items()}
    assert Counter(row[0] for row in history if row[1] == "rows") == report
    assert pipeline.status().keys == {
        "sums": len({customer for customer, _ in written}),
        "history.seen": 0,
        "history.times": sum(len(set(values)) for values in seen.values()),
        "history.last": len(seen),
    }
    kept = pipeline.query('select parity, n, times from "history.times"').to_pylist()
    wanted = {(p, n): times for p, values in seen.items() for n, times in Counter(values).items()}
    assert {(row["parity"], row["n"]): row["times"] for row in kept} == wanted
