"""The end of the input is told to all keys, some bins at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.task import task_state
from tests.node.shop import PAGES, program, scripted
from tests.node.test_restarts import Shop


class Ledger(ab.Process):
    """Every kind of state; at the end it is told, and half of it forgotten."""

    amounts = ab.ListState("n bigint")
    last = ab.ValueState("n bigint", ttl="1 day")
    times = ab.MapState("n bigint", "times bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> None:
        for row in rows:
            self.amounts.append(row.amount)
            self.last.set(row.amount)
            self.times[row.amount] = self.times.get(row.amount, 0) + 1

    def on_end(self, key: Any) -> Any:
        yield (key.customer, str(self.amounts.get()))
        yield (key.customer, f"{self.last.get()} {sorted(self.times.items())}")
        self.amounts.clear()
        self.amounts.append(-1)
        self.last.set(0)
        for n in [n for n, _ in self.times.items()]:
            if n % 2:
                del self.times[n]


class Ledgers(Shop):
    """A shop that tells everything at the end."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        flow = Dataflow("ledgers")
        flow.source("orders", scripted()).key_distribute("by-customer", "customer").process(
            "ledger", Ledger, output="customer string, text string"
        ).sink("rows", self.rows)
        self.program = program(flow)


def seen() -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for customer, amount in (row for page in PAGES for row in page):
        found.setdefault(customer, []).append(amount)
    return found


def times(amounts: list[int]) -> list[tuple[int, int]]:
    return sorted((n, amounts.count(n)) for n in set(amounts))


@pytest.mark.parametrize("keys", [1, 2, 1 << 16])
@pytest.mark.parametrize("workers", [1, 3])
def test_all_keys_are_told_once(
    tmp_path: Path, workers: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_state, "KEYS_AT_ONCE", keys)
    shop = Ledgers(tmp_path)
    shop.run(workers=workers)
    report = [tuple(row.values()) for row in shop.rows.rows()]
    wanted: list[Any] = []
    for customer, amounts in seen().items():
        wanted += [(customer, str(amounts)), (customer, f"{amounts[-1]} {times(amounts)}")]
    assert sorted(map(repr, report)) == sorted(map(repr, wanted))
    lives = {state.operator: sum(state.live) for state in shop.commits()[-1].states}
    even = sum(n % 2 == 0 for amounts in seen().values() for n in set(amounts))
    keys_there = len(seen())
    assert lives == {"ledger.amounts": keys_there, "ledger.last": keys_there, "ledger.times": even}
