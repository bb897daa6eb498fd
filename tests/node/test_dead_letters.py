"""Dead letters are output: committed with their step, published once, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.dataflow.flow import Dataflow
from anabranch.sinks.memory import MemorySink
from tests.node.shop import PAGES, program, remember, scripted
from tests.node.test_restarts import Shop


def touchy(key: Any, row: Any, seen: Any) -> Any:
    """Refuses every amount of 1 and of 9."""
    if row.amount in (1, 9):
        raise ValueError(f"not {row.amount}")
    return remember(key, row, seen)


class Touchy(Shop):
    """A shop that cannot take every order."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.letters = MemorySink()
        flow = Dataflow("touchy")
        flow.dead_letters("letters", self.letters)
        flow.source("orders", scripted()).key_distribute("by-customer", "customer").stateful_map(
            "seen",
            touchy,
            output="customer string, times int, amounts string",
            on_error="dead-letter",
        ).sink("rows", self.rows)
        self.program = program(flow)


def report(letters: MemorySink) -> dict[int, list[Any]]:
    return {
        step: sorted((json.loads(row["row"])["amount"], row["error"]) for row in table.to_pylist())
        for step, table in letters.steps().items()
    }


@pytest.mark.parametrize("point", [None, "ran", "committed", "publishing letters", "published"])
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_cannot_be_taken_are_there_once(
    tmp_path: Path, point: str | None, workers: int
) -> None:
    shop = Touchy(tmp_path)
    if point is not None:
        shop.run_and_die(point, 3, workers=workers)
    shop.run(workers=workers)
    refused = {
        step: sorted((n, f"ValueError: not {n}") for _, n in page if n in (1, 9))
        for step, page in enumerate(PAGES, start=1)
    }
    assert report(shop.letters) == refused
    # The others come out as if the refused ones had never been there.
    seen: dict[str | None, list[int]] = {}
    wanted = []
    for customer, amount in (row for page in PAGES for row in page if row[1] not in (1, 9)):
        seen.setdefault(customer, []).append(amount)
        wanted.append((customer, len(seen[customer]), "+".join(map(str, seen[customer]))))
        if not sum(seen[customer]):
            del seen[customer]
    assert sorted(map(repr, (tuple(row.values()) for row in shop.rows.rows()))) == sorted(
        map(repr, wanted)
    )


def touchy_tables(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same over tables: the sums of the customers."""
    amounts = rows.column("amount").to_pylist()
    refused = [amount for amount in amounts if amount in (1, 9)]
    if refused:
        raise ValueError(f"not {min(refused)}")
    sums = [total or 0 for total in state.column("total").to_pylist()]
    for key, amount in zip(rows.column("_key").to_pylist(), amounts, strict=True):
        sums[key] += amount
    report = {"customer": state.column("customer"), "total": sums, "_key": state.column("_key")}
    return pa.table(report), pa.table({"total": pa.array(sums, pa.int64())})


class TouchyTables(Shop):
    """A shop that cannot take every customer of a step."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.letters = MemorySink()
        flow = Dataflow("touchy")
        flow.dead_letters("letters", self.letters)
        flow.source("orders", scripted()).key_distribute(
            "by-customer", "customer"
        ).stateful_batches(
            "sums",
            touchy_tables,
            state="total bigint",
            output="customer string, total bigint",
            on_error="dead-letter",
        ).sink("rows", self.rows)
        self.program = program(flow)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_key_that_tables_cannot_take_fails_alone_on_any_number_of_workers(
    tmp_path: Path, workers: int
) -> None:
    shop = TouchyTables(tmp_path)
    shop.run(workers=workers)
    totals: dict[str | None, int] = {}
    wanted, refused = [], []
    for step, page in enumerate(PAGES, start=1):
        guilty = {customer for customer, amount in page if amount in (1, 9)}
        refused += [(step, customer, n) for customer, n in page if customer in guilty]
        for customer, amount in page:
            if customer not in guilty:
                totals[customer] = totals.get(customer, 0) + amount
        wanted += [(c, totals[c]) for c in {c for c, _ in page} - guilty]
    letters = [
        (row["step"], json.loads(row["key"])["customer"], json.loads(row["row"])["amount"])
        for row in shop.letters.rows()
    ]
    assert sorted(map(repr, letters)) == sorted(map(repr, refused))
    found = [tuple(row.values()) for row in shop.rows.rows()]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
