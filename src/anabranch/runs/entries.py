"""Entries: the list and map items of keys, in state with sub-keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes, Mask, bin_of
from anabranch.records.layout import EXPIRY, Layout
from anabranch.runs.expiry import expired_rows
from anabranch.runs.keys import Index, to_mask
from anabranch.runs.rows import newest_entries
from anabranch.runs.sorted_rows import SortedRows, concat_rows


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries of the keys of a look-up, in the order of the keys, then by sub-key.

    Those of key *i* are the rows from ``offsets[i]`` up to ``offsets[i + 1]``. ``rows`` has the
    columns of the run: ``s_<name>``, ``v_<name>`` and, if the layout has it, ``expiry``.
    """

    layout: Layout
    rows: pa.RecordBatch
    offsets: Index

    @property
    def subkeys(self) -> pa.RecordBatch:
        """The sub-keys, under the layout's names."""
        columns = self.rows.columns[: len(self.layout.subkeys)]
        return pa.RecordBatch.from_arrays(columns, schema=self.layout.subkeys)

    @property
    def values(self) -> pa.RecordBatch:
        """The values, under the layout's names."""
        first = len(self.layout.subkeys)
        return self.rows.select(range(first, first + len(self.layout.values))).rename_columns(
            self.layout.values.names
        )

    @property
    def expiry(self) -> pa.Array | None:
        """When each entry expires; None if the layout has no expiry."""
        return self.rows.column(EXPIRY) if self.layout.expires else None

    @property
    def places(self) -> Index:
        """The place of each entry's key in the look-up."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def entries_of_keys(
    layout: Layout,
    stack: Sequence[tuple[SortedRows, Mask]],
    bins: int,
    hashes: Hashes,
    keys: pa.RecordBatch,
    now_ns: int | None,
) -> tuple[Index, pa.RecordBatch]:
    """Look up all entries of keys; return where each key's entries begin, and their rows.

    ``stack`` is newest first; each member has a mask of the bins it is listed for. The keys must
    be sorted by hash and unique.
    """
    numbers = bin_of(hashes, bins)
    every = np.arange(len(hashes))
    places, pieces = [every[:0]], []
    # Oldest first, as in a merge: the last of equal entries is the newest.
    for rows, counts in reversed(stack):
        place, piece = rows.entries(layout, hashes, keys, every[counts[numbers]])
        if len(place):
            places.append(place)
            pieces.append(piece)
    place, held = np.concatenate(places), concat_rows(layout.schema, pieces)
    if len(pieces) > 1:
        newest = newest_entries(place.astype(np.uint64), held.select(layout.subkey_columns))
        place, held = place[newest], held.take(pa.array(newest))
    gone = to_mask(held.column(layout.tombstone_column))
    if layout.expires:
        gone |= expired_rows(layout, held, now_ns)
    if gone.any():
        place, held = place[~gone], held.filter(pa.array(~gone))
    return np.searchsorted(place, np.arange(len(hashes) + 1)), held
