"""The dataflow that the tests of ``anabranch node`` run: a total per customer."""

from __future__ import annotations

import os
from typing import Any

import anabranch as ab

BASE = os.environ.get("NODE_FLOW_BASE", ".")


def add(key: Any, row: Any, total: int | None) -> tuple[Any, int]:
    """Adds up, and says the new total."""
    new = (total or 0) + row.amount
    return (key.customer, new), new


flow = ab.Dataflow("orders")
(
    flow.source(
        "orders",
        ab.FileSource(
            os.path.join(BASE, "in"),
            format="json",
            schema="customer string, amount bigint",
            max_files_per_step=1,
        ),
    )
    .key_distribute("by-customer", "customer")
    .stateful_map("total", add, state="total bigint", output="customer string, total bigint")
    .sink("totals", ab.FileSink(os.path.join(BASE, "out"), format="json"))
)
