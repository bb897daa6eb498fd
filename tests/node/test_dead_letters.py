"""Dead letters are output: committed with their step, published once, whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def told(letters: MemorySink) -> dict[int, list[Any]]:
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
    assert told(shop.letters) == refused
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
