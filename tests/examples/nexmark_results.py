"""What a pipeline has published of a Nexmark query, beside what its oracle says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = {
    "q04": ["category"],
    "q15": ["day"],
    "q16": ["channel", "day"],
    "q17": ["auction", "day"],
    "q18": ["auction", "bidder"],
    "q19": ["auction", "rank"],
}
"""The queries that tell of changes, with the columns whose last row counts."""


def assert_equal(query: str, published: Path, wanted: pa.Table) -> None:
    """Compare the files that a query has published with all rows that it should give."""
    found = last_rows(query, published)
    assert found.num_rows == wanted.num_rows
    assert found.column_names == wanted.column_names
    ours, theirs = in_order(found), in_order(wanted.cast(found.schema))
    if ours != theirs:
        different = next(
            place for place in range(len(ours)) if ours.slice(place, 1) != theirs.slice(place, 1)
        )
        shown = [table.slice(different, 1).to_pylist()[0] for table in (ours, theirs)]
        raise AssertionError(f"{query}: row {different}: {shown[0]} is not {shown[1]}")


def last_rows(query: str, published: Path) -> pa.Table:
    """All rows that were published; of a query that tells of changes, the last of each key."""
    files = sorted(published.glob("step-*.parquet"), key=_step)
    rows = pa.concat_tables([pq.read_table(path) for path in files])
    if query not in KEYS:
        return rows
    numbered = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(KEYS[query]).aggregate([("place", "max")])["place_max"]
    return rows.take(last)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in the order of their values: two tables of the same rows are equal then."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])
