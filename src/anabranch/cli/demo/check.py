"""An independent check of the demo's result: plain Python over the input files.

It uses neither Anabranch nor Spark, and compares output and state row by row.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_STEP = re.compile(r"step-(\d{12})-\d+\.(parquet|json)")

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison: what, how many rows to expect, and the difference if there is one."""

    what: str
    rows: int
    difference: str | None

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return self.difference is None


class ExpectedTotals:
    """The batch computation: all customers and tiers in two dictionaries."""

    def __init__(self) -> None:
        self.customers: dict[str, tuple[int, int]] = {}
        self.tiers: dict[str, tuple[int, int, int]] = {}

    def order(self, customer: str, amount: int) -> Row:
        """Count an order; return the row that the first region should emit for it."""
        orders, spent = self.customers.get(customer, (0, 0))
        self.customers[customer] = (orders + 1, spent + amount)
        return (customer, orders + 1, spent + amount, amount)

    def bring_in(self, spent: int, amount: int) -> str:
        """Count an order's revenue; return its tier."""
        tier = tier_of(spent)
        orders, revenue, highest = self.tiers.get(tier, (0, 0, 0))
        self.tiers[tier] = (orders + 1, revenue + amount, max(highest, spent))
        return tier


def tier_of(spent: int) -> str:
    """The tier of a customer who has spent this many cents."""
    for tier, limit in (("bronze", 1_000_00), ("silver", 5_000_00), ("gold", 20_000_00)):
        if spent < limit:
            return tier
    return "platinum"


def check_result(
    orders: Path, totals: Path, tiers: Path, kept_totals: pa.Table, kept_tiers: pa.Table
) -> list[Comparison]:
    """Compare both regions' output files and both regions' state with the batch computation."""
    ledger = ExpectedTotals()
    expected = []
    for customer, amount in _read_orders(orders):
        row = ledger.order(customer, amount)
        ledger.bring_in(spent=row[2], amount=amount)
        expected.append(row)
    written = _read_output(totals, ("customer", "orders", "spent", "amount"))
    return [
        _compare("running totals written", expected, chain.from_iterable(written.values())),
        _compare("running totals kept", _rows_of(ledger.customers), _table_rows(kept_totals)),
        _compare_tiers(written, _read_output(tiers, ("tier", "orders", "revenue", "highest"))),
        _compare("revenue by tier kept", _rows_of(ledger.tiers), _table_rows(kept_tiers)),
    ]


def _compare_tiers(totals: dict[int, list[Row]], tiers: dict[int, list[Row]]) -> Comparison:
    """Compare tier by tier and step by step: a row has the tier's totals after a step.

    The first region's files, which are compared too, say which orders a step had.
    """
    ledger = ExpectedTotals()
    expected: list[Row] = []
    for step in sorted(totals):
        touched = {ledger.bring_in(spent, amount) for _, _, spent, amount in totals[step]}
        expected += [(step, tier, *ledger.tiers[tier]) for tier in touched]
    found = [(step, *row) for step, rows in tiers.items() for row in rows]
    return _compare("revenue by tier written, step by step", expected, found)


def _compare(what: str, expected: Iterable[Row], found: Iterable[Row]) -> Comparison:
    wanted, seen = Counter(expected), Counter(found)
    parts = [_difference_text("missing", wanted - seen), _difference_text("extra", seen - wanted)]
    difference = "; ".join(part for part in parts if part)
    return Comparison(what, wanted.total(), difference or None)


def _difference_text(what: str, rows: Counter[Row]) -> str:
    return f"{rows.total():,} {what}, such as {next(iter(rows))}" if rows else ""


def _read_orders(directory: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(directory.glob("orders-*.json")):
        with path.open(encoding="utf-8") as lines:
            for order in map(json.loads, lines):
                yield order["customer"], order["amount"]


def _read_output(directory: Path, columns: Sequence[str]) -> dict[int, list[Row]]:
    """The rows of a directory's output files, by step."""
    steps: dict[int, list[Row]] = {}
    for path in sorted(directory.iterdir()):
        name = _STEP.fullmatch(path.name)
        if name is not None:
            rows = _parquet_rows(path) if name[2] == "parquet" else _json_rows(path)
            found = [tuple(row.get(column) for column in columns) for row in rows]
            steps.setdefault(int(name[1]), []).extend(found)
    return steps


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _rows_of(kept: Mapping[str, tuple[int, ...]]) -> Iterator[Row]:
    return ((key, *values) for key, values in kept.items())


def _table_rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]
