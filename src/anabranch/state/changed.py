"""What a step did to some keys, and the rows of state that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.state.bins import Hashes, Mask, check_hashes
from anabranch.state.keys import Index, one_batch
from anabranch.state.layout import Layout, nullable
from anabranch.state.rows import group_keys, is_ascending

Rows: TypeAlias = pa.Table | pa.RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """New values of some keys, in any order, each key once; ``tombstone`` marks the forgotten.

    Columns go by place, as in the layout; their types must be the layout's. What stands in the
    value columns of a forgotten key does not matter.
    """

    hashes: Hashes
    keys: Rows
    values: Rows
    tombstone: Mask

    def __len__(self) -> int:
        """How many keys."""
        return len(self.hashes)


def sorted_order(changed: Changed) -> Index:
    """The order of the changes by (hash, key); refuses a key that occurs twice."""
    if is_ascending(changed.hashes):
        return np.arange(len(changed))
    groups = group_keys(changed.hashes, changed.keys)
    if len(groups) < len(changed):
        raise ValueError("a key occurs twice in what one step changed")
    return groups.order


def to_rows(layout: Layout, changed: Changed, order: Index) -> pa.RecordBatch:
    """The changes as state rows, in this order."""
    check_hashes(changed.hashes)
    keys, values = one_batch(changed.keys), one_batch(changed.values)
    columns = [
        pa.array(changed.hashes),
        *_fit("key", keys, layout.keys),
        *_fit("value", _without_forgotten(values, changed.tombstone), layout.values),
        pa.array(changed.tombstone, type=pa.bool_()),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
    return rows if is_ascending(changed.hashes) else rows.take(pa.array(order))


def _without_forgotten(values: pa.RecordBatch, tombstone: Mask) -> pa.RecordBatch:
    if not tombstone.any():
        return values
    return values.take(pa.array(np.arange(len(tombstone)), mask=tombstone))


def _fit(what: str, given: pa.RecordBatch, wanted: pa.Schema) -> list[pa.Array]:
    """The columns in the layout's types, which differ at most in what may be NULL inside them."""
    types = [nullable(kind) for kind in given.schema.types]
    if types != wanted.types:
        raise TypeError(f"{what} columns are {types}, not {wanted.types}")
    return [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(given.columns, wanted.types, strict=True)
    ]
