"""Entries of a state, taken apart into their columns: those that fall due in a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Hashes, Mask, to_hashes
from anabranch.records.layout import HASH, KEY_PREFIX, SUBKEY_PREFIX, VALUE_PREFIX
from anabranch.runs.changes import identity
from anabranch.runs.rows import group_keys


@dataclass(frozen=True, slots=True, eq=False)
class DueEntries:
    """Entries, sorted by hash, key and sub-key; the columns have the names of the layout."""

    hashes: Hashes
    keys: pa.Table
    subkeys: pa.Table
    values: pa.Table

    def __len__(self) -> int:
        return len(self.hashes)

    def filter(self, chosen: Mask) -> DueEntries:
        """Those of the entries that a mask chooses."""
        mask = pa.array(chosen)
        return DueEntries(
            self.hashes[chosen],
            self.keys.filter(mask),
            self.subkeys.filter(mask),
            self.values.filter(mask) if self.values.num_columns else self.values,
        )

    def among(self, hashes: Hashes, keys: pa.Table, subkeys: pa.Table) -> Mask:
        """Which of the entries are among these, by key and sub-key."""
        own = identity(self.keys, self.subkeys)
        other = identity(keys, subkeys).cast(own.schema)
        groups = group_keys(
            np.concatenate([self.hashes, hashes]), pa.Table.from_batches([own, other])
        )
        there = np.zeros(len(groups), dtype=np.bool_)
        there[groups.group_of_row[len(self) :]] = True
        found: Mask = there[groups.group_of_row[: len(self)]]
        return found


def due_entries(batches: Iterator[pa.RecordBatch]) -> DueEntries | None:
    """The entries in what ``TimedEntries.due`` gives; None if there are none."""
    found = list(batches)
    if not found:
        return None
    table = pa.Table.from_batches(found).combine_chunks()
    return DueEntries(
        to_hashes(table.column(HASH)),
        _part(table, KEY_PREFIX),
        _part(table, SUBKEY_PREFIX),
        _part(table, VALUE_PREFIX),
    )


def _part(table: pa.Table, prefix: str) -> pa.Table:
    names = [name for name in table.column_names if name.startswith(prefix)]
    return table.select(names).rename_columns([name.removeprefix(prefix) for name in names])
