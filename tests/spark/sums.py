"""Running sums per customer: the same by ``stateful_map`` and by ``stateful_batches``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def add(key: Any, row: Any, total: int | None) -> Any:
    """A running sum, row by row."""
    total = (total or 0) + row.amount
    return (key.customer, total), total


def add_tables(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same sum, a step's rows at a time."""
    added = rows.group_by("_key").aggregate([("amount", "sum")]).sort_by("_key")
    total = pc.add(pc.fill_null(state.column("total"), 0), added.column("amount_sum"))
    output = {"customer": state.column("customer"), "amount": total, "_key": state.column("_key")}
    return pa.table(output), pa.table({"total": total})
