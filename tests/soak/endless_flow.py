"""A dataflow that never ends by itself: sums of numbers by three keys."""

from __future__ import annotations

import anabranch as ab


def numbers(partition: int, start: int, end: int) -> dict[str, range]:
    """Row i holds i."""
    return {"i": range(start, end)}


flow = ab.Dataflow("endless")
_rows = flow.source("numbers", ab.GeneratorSource(numbers, "i bigint", rows_per_step=12))
_keyed = _rows.with_columns(k="i % 3").key_distribute("by-k", "k")
_keyed.aggregate("totals", n="count(*)", total="sum(i)").sink("out", ab.MemorySink())
