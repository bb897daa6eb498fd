"""Integer codes that compare like the values of a column, for every type.

Unlike ``sortable_ints``, whose numbers mean the same everywhere, codes compare only within one
column: they may be the ranks of its distinct values. NULL inside a value comes first, as in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.order import sortable_ints
from anabranch.operators.order.row_order import Int64s, begins


def codes(column: pa.Array) -> Int64s:
    """The code of each value of a column without NULLs; equal values have equal codes.

    >>> codes(pa.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    plain = sortable_ints.to_words(column)
    if plain is not None:
        dense: Int64s = plain.to_numpy(zero_copy_only=False).astype(np.int64)
        return dense
    if pa.types.is_struct(column.type):
        return ranks([_with_nulls(part) for part in column.flatten()], len(column))
    if pa.types.is_list(column.type):
        return _lists(column)
    encoded = column.dictionary_encode()
    by_rank = np.argsort(pc.sort_indices(encoded.dictionary).to_numpy()).astype(np.int64)
    value_ranks: Int64s = by_rank[encoded.indices.to_numpy()]
    return value_ranks


def _with_nulls(column: pa.Array) -> Int64s:
    if not column.null_count:
        return codes(column)
    found = np.zeros(len(column), dtype=np.int64)
    some = column.is_valid().to_numpy(zero_copy_only=False)
    found[some] = ranks([codes(column.drop_null())], int(some.sum())) + 1
    return found


def ranks(columns: Sequence[Int64s], rows: int) -> Int64s:
    """The rank of each row among the distinct rows, by the first column first."""
    if not columns or not rows:
        return np.zeros(rows, dtype=np.int64)
    order = np.lexsort(tuple(reversed(columns)))
    found = np.empty(rows, dtype=np.int64)
    found[order] = np.cumsum(begins(*(column[order] for column in columns))) - 1
    return found


def _lists(column: pa.Array) -> Int64s:
    """The rank of each list, compared element by element as Python tuples."""
    elements = _with_nulls(column.flatten()).tolist()
    edges = [0, *np.cumsum(pc.list_value_length(column).to_numpy()).tolist()]
    parts = [tuple(elements[start:end]) for start, end in pairwise(edges)]
    rank_of = {part: rank for rank, part in enumerate(sorted(set(parts)))}
    return np.fromiter((rank_of[part] for part in parts), dtype=np.int64, count=len(parts))
