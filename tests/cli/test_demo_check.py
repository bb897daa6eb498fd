"""The demo's independent check, on a result small enough to be worked out by hand."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.cli.demo import check as demo_check
from anabranch.cli.demo.check import Comparison, check_result, tier_of

ORDERS = [[("ada", 60_000), ("bob", 100), ("ada", 50_000)], [("bob", 200), ("ada", 2_000_000)]]
# customer, orders, spent, amount; two files of output in the first step
TOTALS: dict[str, list[tuple[Any, ...]]] = {
    "step-000000000001-0": [("ada", 1, 60_000, 60_000), ("ada", 2, 110_000, 50_000)],
    "step-000000000001-1": [("bob", 1, 100, 100)],
    "step-000000000002-0": [("bob", 2, 300, 200), ("ada", 3, 2_110_000, 2_000_000)],
}
# tier, orders, revenue, highest: how a tier stands after the step
TIERS: dict[str, list[tuple[Any, ...]]] = {
    "step-000000000001-0": [("bronze", 2, 60_100, 60_000), ("silver", 1, 50_000, 110_000)],
    "step-000000000002-0": [("bronze", 3, 60_300, 60_000)],
    "step-000000000002-1": [("platinum", 1, 2_000_000, 2_110_000)],
}
KEPT_TOTALS = [("ada", 3, 2_110_000), ("bob", 2, 300)]
KEPT_TIERS = [
    ("bronze", 3, 60_300, 60_000),
    ("silver", 1, 50_000, 110_000),
    ("platinum", 1, 2_000_000, 2_110_000),
]
TOTAL_COLUMNS = ["customer", "orders", "spent", "amount"]
TIER_COLUMNS = ["tier", "orders", "revenue", "highest"]


def table(rows: list[tuple[Any, ...]], columns: list[str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], names=columns)


class Result:
    """A result of the demo on disk, as it should be; tests spoil it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kept_totals = list(KEPT_TOTALS)
        self.kept_tiers = list(KEPT_TIERS)
        for name in ("orders", "totals", "tiers", "totals/_manifest"):
            (root / name).mkdir()
        for number, orders in enumerate(ORDERS, start=1):
            lines = (json.dumps({"customer": c, "amount": a}) for c, a in orders)
            (root / f"orders/orders-{number:05d}.json").write_text("\n".join(lines) + "\n")
        for name, rows in TOTALS.items():
            self.write_totals(name, rows)
        for name, rows in TIERS.items():
            self.write_tiers(name, rows)

    def write_totals(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        pq.write_table(table(rows, TOTAL_COLUMNS), self.root / f"totals/{name}.parquet")

    def write_tiers(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        lines = (json.dumps(dict(zip(TIER_COLUMNS, row, strict=True))) for row in rows)
        (self.root / f"tiers/{name}.json").write_text("\n".join(lines) + "\n")

    def check(self) -> list[Comparison]:
        return check_result(
            self.root / "orders",
            self.root / "totals",
            self.root / "tiers",
            table(self.kept_totals, ["customer", "orders", "spent"]),
            table(self.kept_tiers, TIER_COLUMNS),
        )


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return Result(tmp_path)


def test_a_right_result_is_equal_in_every_part(result: Result) -> None:
    compared = result.check()
    assert [c.difference for c in compared] == [None] * 4
    assert [c.rows for c in compared] == [5, 2, 4, 3]


def spoil_kept_total(result: Result) -> None:
    result.kept_totals[1] = ("bob", 2, 301)


def forget_a_customer(result: Result) -> None:
    result.kept_totals.pop()


def spoil_kept_tier(result: Result) -> None:
    result.kept_tiers[0] = ("bronze", 3, 60_300, 50_000)


def spoil_an_early_tier(result: Result) -> None:
    result.write_tiers("step-000000000001-0", [("bronze", 2, 60_100, 60_000)])


def repeat_a_tier(result: Result) -> None:
    result.write_tiers("step-000000000002-2", [("bronze", 3, 60_300, 60_000)])


@pytest.mark.parametrize(
    ("spoil", "part", "report"),
    [
        (spoil_kept_total, 1, "1 missing, such as ('bob', 2, 300); 1 extra"),
        (forget_a_customer, 1, "1 missing, such as ('bob', 2, 300)"),
        (spoil_kept_tier, 3, "1 missing, such as ('bronze', 3, 60300, 60000); 1 extra"),
        (spoil_an_early_tier, 2, "1 missing, such as (1, 'silver', 1, 50000, 110000)"),
        (repeat_a_tier, 2, "1 extra, such as (2, 'bronze', 3, 60300, 60000)"),
    ],
)
def test_a_wrong_part_is_found_and_only_that(
    result: Result, spoil: Callable[[Result], None], part: int, report: str
) -> None:
    spoil(result)
    compared = result.check()
    assert [number for number, c in enumerate(compared) if not c.equal] == [part]
    assert str(compared[part].difference).startswith(report)


@pytest.mark.parametrize(
    "rows",
    [
        [("bob", 2, 300, 200)],  # a row is missing
        [("bob", 2, 300, 200), *[("ada", 3, 2_110_000, 2_000_000)] * 2],  # one is there twice
        [("bob", 2, 300, 200), ("ada", 3, 2_100_000, 2_000_000)],  # one is wrong
        # Rows that are right one by one, in the wrong order
        [("bob", 1, 200, 200), ("ada", 3, 2_110_000, 2_000_000)],
    ],
)
def test_wrong_running_totals_are_found(result: Result, rows: list[tuple[Any, ...]]) -> None:
    result.write_totals("step-000000000002-0", rows)
    assert not result.check()[0].equal


def test_an_order_that_was_never_read_is_found(result: Result) -> None:
    more = '{"customer": "cyd", "amount": 5}\n'
    (result.root / "orders/orders-00003.json").write_text(more)
    assert [c.equal for c in result.check()] == [False, False, True, False]


@pytest.mark.parametrize(
    ("spent", "tier"),
    [
        (0, "bronze"),
        (99_999, "bronze"),
        (100_000, "silver"),
        (499_999, "silver"),
        (500_000, "gold"),
        (1_999_999, "gold"),
        (2_000_000, "platinum"),
    ],
)
def test_tiers_begin_where_they_should(spent: int, tier: str) -> None:
    assert tier_of(spent) == tier


def test_the_check_knows_neither_anabranch_nor_spark() -> None:
    tree = ast.parse(Path(str(demo_check.__file__)).read_text(encoding="utf-8"))
    named = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    named |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in named}.isdisjoint({"anabranch", "pyspark"})
