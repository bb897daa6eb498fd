"""The dataflows that are measured, and the checks that they computed the right thing."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow.compute as pc

import anabranch as ab
from benchmarks.data import FILES_PER_BATCH, SCHEMA, sum_of_amounts

OPERATOR = "totals"


class _Key(Protocol):
    key: int


class _Row(Protocol):
    amount: int


def add(key: _Key, row: _Row, total: int | None) -> tuple[tuple[int, int], int]:
    """A running sum: the user's function of ``stateful_map``."""
    total = (total or 0) + row.amount
    return (key.key, total), total


def keyed_sums(data: Path, output: Path, operator: str, column: str = "amount") -> ab.Dataflow:
    """Sums per key: ``operator`` is ``aggregate`` (count and sum) or ``map`` (a running sum)."""
    flow = ab.Dataflow("benchmark")
    rows = flow.source(
        "rows",
        ab.FileSource(data, "parquet", SCHEMA, watch=False, max_files_per_step=FILES_PER_BATCH),
    )
    keyed = rows.key_distribute("by-key", "key")
    if operator == "aggregate":
        sums = keyed.aggregate(OPERATOR, n="count(*)", total=f"sum({column})")
    else:
        sums = keyed.stateful_map(
            OPERATOR, add, state="total bigint", output="key bigint, total bigint"
        )
    sums.sink("out", ab.FileSink(output, format="parquet"))
    return flow


def check_sums(pipeline: ab.Pipeline, data: Path, column: str = "amount") -> int:
    """Compare the state with the input read so far; gives the number of keys."""
    state = pipeline.state_table(OPERATOR)
    steps = pipeline.status().step
    if column == "amount":
        expected = sum_of_amounts(data, steps)
        got = pc.sum(state.column("total")).as_py() or 0
        if got != expected:
            raise AssertionError(f"after {steps} steps the sums come to {got}, not {expected}")
    return int(state.num_rows)
