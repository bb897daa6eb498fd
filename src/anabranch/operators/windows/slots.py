"""Rows grouped by key and by a second number, such as the pane they are in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.order.row_order import Int64s, begins
from anabranch.operators.rows import Rows
from anabranch.records.bins import Hashes, Mask
from anabranch.runs.keys import same_keys
from anabranch.runs.rows import Groups, group_keys
from anabranch.runs.sort_pairs import sort_pairs

ABSENT = -1
"""The place of a key that is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSlots:
    """Rows grouped by key and pane. A slot is one pane of one key; they are sorted by both.

    ``order`` lists the rows slot by slot, within a slot in the order of the batch; ``starts`` is
    where each slot begins in it.
    """

    groups: Groups
    order: Int64s
    starts: Int64s
    key_of_slot: Int64s
    panes: Int64s

    def __len__(self) -> int:
        """The number of slots."""
        return len(self.starts)

    @property
    def hashes(self) -> Hashes:
        """The hash of each slot's key."""
        return self.groups.hashes[self.key_of_slot]

    @property
    def keys(self) -> pa.RecordBatch:
        """The key of each slot."""
        return self.groups.keys.take(pa.array(self.key_of_slot))

    def rows_of(self, chosen: Mask) -> tuple[Int64s, Int64s, Int64s]:
        """Of the chosen rows: the slots that have any, the rows by slot, and where each begins."""
        if chosen.all():
            return np.arange(len(self)), self.order, self.starts
        slot_of = np.repeat(np.arange(len(self)), np.diff(np.append(self.starts, len(self.order))))
        kept = chosen[self.order]
        slot_of = slot_of[kept]
        starts = np.flatnonzero(begins(slot_of))
        return slot_of[starts], self.order[kept], starts


def slots_of(rows: Rows, panes: Int64s) -> RowSlots:
    """Group the rows of a region by key and pane."""
    assert rows.hashes is not None
    assert rows.keys is not None
    groups = group_keys(rows.hashes, rows.keys)
    if len(panes) and panes.min() == panes.max():
        order, starts = groups.order, groups.starts
    else:
        order = sort_pairs(groups.group_of_row, panes)
        starts = np.flatnonzero(begins(groups.group_of_row[order], panes[order]))
    leaders = order[starts]
    return RowSlots(groups, order, starts, groups.group_of_row[leaders], panes[leaders])


def key_numbers(hashes: Hashes, keys: pa.RecordBatch) -> Int64s:
    """The number of each row's key, for rows that are sorted by hash and key.

    >>> keys = pa.record_batch({"name": ["a", "a", None, "b"]})
    >>> key_numbers(np.array([3, 3, 3, 9], dtype=np.uint64), keys).tolist()
    [0, 0, 1, 2]
    """
    new = np.ones(len(hashes), dtype=np.bool_)
    new[1:] = hashes[1:] != hashes[:-1]
    alike = np.flatnonzero(~new)
    before, after = keys.take(pa.array(alike - 1)), keys.take(pa.array(alike))
    new[alike] = ~same_keys(before.columns, after.columns, len(alike))
    return np.cumsum(new) - 1


def key_places(
    hashes: Hashes, keys: pa.RecordBatch, asked_hashes: Hashes, asked_keys: pa.RecordBatch
) -> Int64s:
    """The place of each asked key among keys that are sorted by hash; ``ABSENT`` if not there."""
    found = np.full(len(asked_hashes), ABSENT, dtype=np.int64)
    place = np.searchsorted(hashes, asked_hashes)
    asked = np.arange(len(asked_hashes))
    while True:
        inside = place < len(hashes)
        asked, place = asked[inside], place[inside]
        alike = hashes[place] == asked_hashes[asked]
        asked, place = asked[alike], place[alike]
        if not len(asked):
            return found
        held, wanted = keys.take(pa.array(place)), asked_keys.take(pa.array(asked))
        same = same_keys(held.columns, wanted.columns, len(asked))
        found[asked[same]] = place[same]
        # Another key may have the same hash.
        asked, place = asked[~same], place[~same] + 1


def pair_places(major: Int64s, minor: Int64s, asked_major: Int64s, asked_minor: Int64s) -> Int64s:
    """The place of each asked pair among pairs, which ascend; ``ABSENT`` if it is not there.

    >>> pairs = np.array([0, 0, 3]), np.array([5, 9, 5])
    >>> pair_places(*pairs, np.array([3, 0, 3, 0]), np.array([5, 9, 9, 7])).tolist()
    [2, 1, -1, -1]
    """
    if not len(major):
        return np.full(len(asked_major), ABSENT, dtype=np.int64)
    known = np.unique(minor)
    words = major * len(known) + np.searchsorted(known, minor)
    rank = np.minimum(np.searchsorted(known, asked_minor), len(known) - 1)
    found = np.searchsorted(words, asked_major * len(known) + rank)
    found = np.minimum(found, len(words) - 1)
    hit = (major[found] == asked_major) & (minor[found] == asked_minor)
    return np.where(hit, found, ABSENT)
