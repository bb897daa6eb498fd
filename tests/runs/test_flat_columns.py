from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runs.flat_columns import Flat, RowSelection, flat_columns
from anabranch.runs.sorted_rows import SortedRows
from tests.runs.state_model import PLAIN, in_one_buffer

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    **PLAIN,
    "double": (pa.float64(), [float("nan"), -0.0, 0.5, float("inf")]),
    "float": (pa.float32(), [0.25, -2.0]),
    "int16": (pa.int16(), [-(2**15), 3]),
    "wide": (pa.decimal256(50, 3), [Decimal("1.500"), Decimal(-(10**40))]),
    "list": (pa.list_(pa.int64()), [[], [1, 2]]),
}
FLAT = set(KINDS) - {"string", "binary", "list"}


def flat_of(schema: pa.Schema, batches: list[pa.RecordBatch], data: pa.Buffer) -> tuple[Any, ...]:
    starts = np.concatenate(([0], np.cumsum([batch.num_rows for batch in batches])))
    return flat_columns(schema, batches, starts.astype(np.int64), data)


def taken(flat: Flat, positions: list[int], lengths: list[int]) -> pa.Array:
    edges = np.searchsorted(positions, np.concatenate(([0], np.cumsum(lengths))))
    return flat.take(RowSelection(np.array(positions, dtype=np.int64), np.diff(edges)))


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_rows_are_those_that_arrow_takes(kind: str, data: st.DataObject) -> None:
    arrow, values = KINDS[kind]
    maybe_null = st.none() | st.sampled_from(values)
    # Whole batches without NULL have no bitmap.
    parts = data.draw(
        st.lists(
            st.lists(st.sampled_from(values), max_size=20) | st.lists(maybe_null, max_size=20),
            min_size=1,
            max_size=4,
        )
    )
    schema = pa.schema([("hash", pa.uint64()), ("c", arrow)])
    batches = []
    for part in parts:
        hashes = pa.array(np.zeros(len(part), dtype=np.uint64))
        batches.append(pa.record_batch([hashes, pa.array(part, arrow)], schema=schema))
    whole, batches = in_one_buffer(schema, batches)
    cut = data.draw(st.integers(0, 5))
    batches = [batch.slice(min(cut, batch.num_rows)) for batch in batches]
    rows = SortedRows(schema, batches, whole)
    together = pa.Table.from_batches(batches).combine_chunks()
    places = st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=30 if len(rows) else 0)
    positions = sorted(data.draw(places))
    expected = together.take(pa.array(positions, pa.int64()))
    got = rows.take(np.array(positions, dtype=np.int64))
    got.validate(full=True)
    # NaN equals NaN here, and -0.0 is not 0.0.
    assert repr(got.to_pylist()) == repr(expected.to_pylist())
    batches = [batch for batch in batches if batch.num_rows]
    flat = flat_of(schema, batches, whole)
    nulls = any(batch.column(1).null_count for batch in batches)
    assert (flat[1] is not None) == (kind in FLAT and not (kind == "bool" and nulls))


def test_several_batches_with_and_without_nulls() -> None:
    schema = pa.schema([("c", pa.int64())])
    parts: list[list[int | None]] = [[1, 2], [None, 4], [5, None, 7]]
    whole, batches = in_one_buffer(
        schema, [pa.record_batch([pa.array(part, pa.int64())], schema=schema) for part in parts]
    )
    (column,) = flat_of(schema, batches, whole)
    assert column is not None
    lengths = [len(part) for part in parts]
    assert taken(column, [0, 1, 2, 3, 3, 5, 6], lengths).to_pylist() == [1, 2, None, 4, 4, None, 7]
    assert taken(column, [0, 1], lengths).null_count == 0


@pytest.mark.parametrize("kind", ["int64", "bool", "decimal"])
def test_what_lies_elsewhere_is_not_gathered(kind: str) -> None:
    arrow, values = KINDS[kind]
    schema = pa.schema([("c", arrow)])
    batch = pa.record_batch([pa.array(values, arrow)], schema=schema)
    whole, batches = in_one_buffer(schema, [batch])
    assert flat_of(schema, batches, whole) != (None,)
    assert flat_of(schema, [*batches, batch], whole) == (None,)


def test_what_is_not_aligned_is_not_gathered() -> None:
    schema = pa.schema([("c", pa.int64())])
    whole, batches = in_one_buffer(
        schema, [pa.record_batch([pa.array([1, 2, 3], pa.int64())], schema=schema)]
    )
    shifted = whole.slice(4)
    assert flat_of(schema, batches, shifted) == (None,)
