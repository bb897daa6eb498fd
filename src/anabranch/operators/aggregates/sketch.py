"""``approx_percentile``: quantiles within a rank error, from a summary that stays small.

The summary is Greenwald's and Khanna's: values in order, each with ``gap``, by how much its least
possible rank is above that of the value before, and ``spread``, how far its rank may lie above
that. As long as ``gap + spread`` is nowhere more than twice the error allowed, every quantile is
found within it. Values are thinned out only where a summary is longer than the accuracy, so small
keys are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.counted import side_by_side
from anabranch.operators.aggregates.lists import Flat, flat, offsets_of
from anabranch.operators.aggregates.port import FunctionSpec, Int64s, Mask, Segments, State
from anabranch.operators.order.sort_columns import codes

_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of all keys, key after key."""

    values: pa.Array
    gap: Int64s
    spread: Int64s
    owner: Int64s


@dataclass(frozen=True, slots=True)
class QuantileSketch:
    """A summary per key; the rank of what is shown is off by at most rows / accuracy."""

    given: FunctionSpec

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The summary: three lists of one length."""
        whole = pa.list_(pa.int64())
        return [("values", pa.list_(self.given.kind)), ("gaps", whole), ("spreads", whole)]

    def advance(self, before: State, step: Segments) -> list[pa.Array]:
        """Insert the step's values, then thin out what has become too long."""
        values, owner = step.present()
        held = flat(before)
        inserted = insert(
            Summaries(
                held.values, held.columns[1].to_numpy(), held.columns[2].to_numpy(), held.owner
            ),
            values,
            owner,
        )
        thinned = thin_out(inserted, len(step), self._accuracy)
        columns = (thinned.values, pa.array(thinned.gap), pa.array(thinned.spread))
        return Flat(columns, thinned.owner).lists(len(step), step.where)

    def shown(self, kept: State, where: str) -> pa.Array:
        """The value at a share of the way, or one for each of several shares."""
        held = flat(kept)
        whole = Summaries(
            held.values, held.columns[1].to_numpy(), held.columns[2].to_numpy(), held.owner
        )
        wanted = self.given.parameters[0]
        if isinstance(wanted, tuple):
            return side_by_side([quantile(whole, len(kept[0]), share) for share in wanted])
        assert isinstance(wanted, float)
        return quantile(whole, len(kept[0]), wanted)

    @property
    def _accuracy(self) -> int:
        accuracy = self.given.parameters[1]
        assert isinstance(accuracy, float)
        return int(accuracy)


def insert(held: Summaries, values: pa.Array, owner: Int64s) -> Summaries:
    """The summaries with these values in them.

    A new value's rank among the values before is known as well as that of the value behind it, and
    its rank among the new ones exactly. One at either end has no doubt.
    """
    everything = pa.concat_arrays([held.values, values])
    owners = np.concatenate((held.owner, owner))
    is_new = np.arange(len(owners)) >= len(held.owner)
    order = np.lexsort((is_new, codes(everything), owners))
    owners, is_new = owners[order], is_new[order]
    gap = np.concatenate((held.gap, np.ones(len(owner), dtype=np.int64)))[order]
    spread = np.concatenate((held.spread, np.zeros(len(owner), dtype=np.int64)))[order]
    old = np.flatnonzero(~is_new)
    rows = np.flatnonzero(is_new)
    if len(old) and len(rows):
        behind = np.searchsorted(old, rows)
        has_behind = _same_owner(owners, rows, old, behind)
        inside = has_behind & _same_owner(owners, rows, old, behind - 1)
        after = old[behind[inside]]
        spread[rows[inside]] = gap[after] + spread[after] - 1
    return Summaries(everything.take(pa.array(order)), gap, spread, owners)


def _same_owner(owners: Int64s, rows: Int64s, old: Int64s, place: Int64s) -> Mask:
    """Whether the held value at each of these places belongs to the owner of the new row."""
    there = (place >= 0) & (place < len(old))
    found: Mask = there & (owners[old[np.clip(place, 0, len(old) - 1)]] == owners[rows])
    return found


def thin_out(held: Summaries, owners: int, accuracy: int) -> Summaries:
    """Merge neighbours in the summaries that are longer than the accuracy, as far as allowed.

    The first value stays, and the last is never merged into another: least and greatest are exact.
    """
    lengths = np.bincount(held.owner, minlength=owners)
    rows = np.zeros(owners, dtype=np.int64)
    np.add.at(rows, held.owner, held.gap)
    allowed = 2 * rows // accuracy
    due = (lengths > accuracy) & (allowed > 1)
    if not due.any():
        return held
    gap, spread, owner = held.gap.copy(), held.spread, held.owner
    kept = np.arange(len(owner))
    for turn in range(_ROUNDS):
        left = len(kept)
        for parity in (0, 1):
            merged = _mergeable(gap, spread, owner, due, allowed, parity)
            places = np.flatnonzero(merged)
            gap[places + 1] += gap[places]
            gap, spread, owner, kept = (part[~merged] for part in (gap, spread, owner, kept))
        if turn and len(kept) > 0.98 * left:
            break
    return Summaries(held.values.take(pa.array(kept)), gap, spread, owner)


def _mergeable(
    gap: Int64s, spread: Int64s, owner: Int64s, due: Mask, allowed: Int64s, parity: int
) -> Mask:
    """Which rows may be merged into the next one; every second row at most."""
    merged = np.zeros(len(owner), dtype=np.bool_)
    inner = np.zeros(len(owner), dtype=np.bool_)
    inner[1:-1] = (owner[1:-1] == owner[2:]) & (owner[1:-1] == owner[:-2])
    rows = np.flatnonzero(inner & (np.arange(len(owner)) % 2 == parity) & due[owner])
    merged[rows] = gap[rows] + gap[rows + 1] + spread[rows + 1] <= allowed[owner[rows]]
    return merged


def quantile(held: Summaries, owners: int, share: float) -> pa.Array:
    """A value whose rank is within the error of ``share`` of all rows, for each owner."""
    offsets = offsets_of(held.owner, owners)
    some = np.diff(offsets) > 0
    if not some.any():
        return pa.nulls(owners, held.values.type)
    starts = offsets[:-1][some]
    total = np.cumsum(held.gap)
    before = np.zeros(owners, dtype=np.int64)
    before[some] = total[starts] - held.gap[starts]
    highest = total - before[held.owner] + held.spread
    rows, error = np.zeros(owners, dtype=np.int64), np.zeros(owners, dtype=np.int64)
    rows[some] = np.add.reduceat(held.gap, starts)
    error[some] = np.maximum.reduceat(held.gap + held.spread, starts) // 2
    rank = np.maximum(np.ceil(share * rows).astype(np.int64), 1)
    # The value before the first that may lie too high cannot lie too low.
    high = highest > (rank + error)[held.owner]
    first_high = np.repeat(offsets[1:], np.diff(offsets))
    first_high[high] = np.flatnonzero(high)
    place = np.zeros(owners, dtype=np.int64)
    place[some] = np.minimum.reduceat(first_high, starts) - 1
    return held.values.take(pa.array(place, mask=~some))
