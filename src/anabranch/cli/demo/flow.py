"""The dataflow of the demo: spending per customer, revenue per customer tier.

It has two regions. The first is keyed by customer: a Python function keeps the number of orders
and the sum spent. The second is keyed by the tier that the customer has reached with the order:
Spark SQL computes the tier, an aggregate the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anabranch.dataflow.flow import Dataflow
from anabranch.sinks.file import FileSink
from anabranch.sources.files import FileSource

TOTALS = "running-total"
TIERS = "revenue"
TIER = """case when spent < 100000 then 'bronze'
               when spent < 500000 then 'silver'
               when spent < 2000000 then 'gold'
               else 'platinum' end"""
"""The tier of a customer, from the cents spent so far."""


class Key(NamedTuple):
    """The key of the first region."""

    customer: str


class DemoOrder(NamedTuple):
    """A row of the input; the amount is in cents."""

    customer: str
    amount: int


class Spending(NamedTuple):
    """The state of a customer."""

    orders: int
    spent: int


Total = tuple[str, int, int, int]


def add_order(key: Key, order: DemoOrder, before: Spending | None) -> tuple[Total, Spending]:
    """Count an order; return the row to emit and the new state."""
    orders, spent = before if before is not None else (0, 0)
    now = Spending(orders + 1, spent + order.amount)
    return (key.customer, now.orders, now.spent, order.amount), now


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of the demo."""

    root: Path

    @property
    def orders(self) -> Path:
        """The input."""
        return self.root / "orders"

    @property
    def totals(self) -> Path:
        """The first region's output: a row per order."""
        return self.root / "totals"

    @property
    def tiers(self) -> Path:
        """The second region's output: a row per tier that a step changed."""
        return self.root / "tiers"

    @property
    def state(self) -> Path:
        """The pipeline's directory."""
        return self.root / "state"


def demo_flow(places: Places) -> Dataflow:
    """The demo's dataflow over these directories."""
    flow = Dataflow("demo")
    schema = "customer string, amount bigint"
    orders = flow.source("orders", FileSource(places.orders, format="json", schema=schema))
    totals = orders.key_distribute("by-customer", "customer").stateful_map(
        TOTALS,
        add_order,
        state="orders bigint, spent bigint",
        output="customer string, orders bigint, spent bigint, amount bigint",
    )
    totals.sink("totals", FileSink(places.totals, format="parquet"))
    tiers = totals.key_distribute("by-tier", tier=TIER).aggregate(
        TIERS, orders="count(*)", revenue="sum(amount)", highest="max(spent)"
    )
    tiers.sink("tiers", FileSink(places.tiers, format="json"))
    return flow
