"""A step's rows grouped by key, in the form in which operators process them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.operators.rows import Rows
from anabranch.runs.rows import Groups, group_keys

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """A step's rows grouped by key, the rows of a key in their order.

    ``values`` are the rows in this order; ``parents`` are their places in the batch.
    """

    groups: Groups
    parents: Int64s
    values: pa.Table


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Some keys with their rows: half-open ranges of group and row numbers."""

    first_group: int
    last_group: int
    first_row: int
    last_row: int


def group_rows(rows: Rows) -> KeyRows:
    """Group the rows of a region by key."""
    assert rows.hashes is not None
    assert rows.keys is not None
    places = None if rows.order is None else rows.order.permutation()
    hashes, keys = rows.hashes, rows.keys
    if places is not None:
        hashes, keys = hashes[places], keys.take(pa.array(places))
    groups = group_keys(hashes, keys)
    parents = groups.order if places is None else places[groups.order]
    return KeyRows(groups, parents, rows.values.take(pa.array(parents)))


def split_groups(starts: Int64s, rows: int, size: int) -> Iterator[RowSpan]:
    """Split the groups into parts of about ``size`` rows; a larger group is a part by itself."""
    ends = np.append(starts[1:], rows)
    group = 0
    while group < len(starts):
        begin = int(starts[group])
        last = max(int(np.searchsorted(ends, begin + size, side="right")), group + 1)
        yield RowSpan(group, last, begin, int(ends[last - 1]))
        group = last
