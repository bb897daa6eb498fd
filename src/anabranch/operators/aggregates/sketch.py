"""``approx_percentile``: quantiles within a rank error, from a Greenwald-Khanna summary.

A summary has values in order, each with ``gap``, its least possible rank minus that of the value
before, and ``spread``, its greatest minus its least possible rank. As long as no ``gap + spread``
exceeds twice the allowed error, every quantile is found within that error. A summary is thinned out
only if it is longer than the accuracy, so small keys are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.lists import FlatLists, flatten_lists, offsets_of
from anabranch.operators.aggregates.port import Function, Segments, State
from anabranch.operators.aggregates.value_counts import zip_to_lists
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.order.sort_columns import codes
from anabranch.records.bins import Mask

_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of all keys, key after key."""

    values: pa.Array
    gap: Int64s
    spread: Int64s
    owner: Int64s

    @classmethod
    def of_state(cls, state: State) -> Summaries:
        """The summaries in state columns."""
        lists = flatten_lists(state)
        values, gap, spread = lists.columns
        return cls(values, gap.to_numpy(), spread.to_numpy(), lists.owner)


class QuantileSketch(Function):
    """A summary per key; the rank of a result is off by at most rows / accuracy."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The summary, as three lists of equal length."""
        whole = pa.list_(pa.int64())
        return [("values", pa.list_(self.spec.kind)), ("gaps", whole), ("spreads", whole)]

    def reduce(self, step: Segments) -> list[pa.Array]:
        """The step's values, sorted: an exact summary unless they are too many."""
        values, owner = step.present()
        order = np.lexsort((codes(values), owner))
        ones = np.ones(len(order), dtype=np.int64)
        exact = Summaries(values.take(pa.array(order)), ones, ones - 1, owner[order])
        return self._state(exact, len(step), step.where)

    def merge(self, before: State, after: State, where: str) -> list[pa.Array]:
        """Merge both, then thin out summaries that have become too long."""
        both = merge_summaries(Summaries.of_state(before), Summaries.of_state(after))
        return self._state(both, len(before[0]), where)

    def _state(self, held: Summaries, owners: int, where: str) -> list[pa.Array]:
        thinned = thin_out(held, owners, self._accuracy)
        columns = (thinned.values, pa.array(thinned.gap), pa.array(thinned.spread))
        return FlatLists(columns, thinned.owner).lists(owners, where)

    def result(self, state: State, where: str) -> pa.Array:
        """The value at a share of all values, or one for each of several shares."""
        summaries = Summaries.of_state(state)
        wanted = self.spec.parameters[0]
        if isinstance(wanted, tuple):
            return zip_to_lists([quantile(summaries, len(state[0]), share) for share in wanted])
        assert isinstance(wanted, float)
        return quantile(summaries, len(state[0]), wanted)

    @property
    def _accuracy(self) -> int:
        accuracy = self.spec.parameters[1]
        assert isinstance(accuracy, float)
        return int(accuracy)


def merge_summaries(one: Summaries, two: Summaries) -> Summaries:
    """The summaries of the union of two sets of values.

    The rank of a value among those of the other summary is as uncertain as that of the next value
    there. Both ends are exact: the first value of a summary has gap 1 and spread 0, and behind the
    last one there is no uncertainty.
    """
    values = pa.concat_arrays([one.values, two.values])
    owner = np.concatenate((one.owner, two.owner))
    is_second = np.arange(len(owner)) >= len(one.owner)
    order = np.lexsort((is_second, codes(values), owner))
    owner, is_second = owner[order], is_second[order]
    gap = np.concatenate((one.gap, two.gap))[order]
    spread = np.concatenate((one.spread, two.spread))[order]
    merged = spread.copy()
    for mine in (is_second, ~is_second):
        rows, others = np.flatnonzero(mine), np.flatnonzero(~mine)
        behind = np.searchsorted(others, rows)
        rows, behind = rows[behind < len(others)], behind[behind < len(others)]
        same = owner[others[behind]] == owner[rows]
        after = others[behind[same]]
        merged[rows[same]] += gap[after] + spread[after] - 1
    return Summaries(values.take(pa.array(order)), gap, merged, owner)


def thin_out(held: Summaries, owners: int, accuracy: int) -> Summaries:
    """Merge neighbours in summaries longer than the accuracy, as far as the error allows.

    The first and the last value stay, so minimum and maximum are exact.
    """
    lengths = np.bincount(held.owner, minlength=owners)
    rows = np.zeros(owners, dtype=np.int64)
    np.add.at(rows, held.owner, held.gap)
    allowed = 2 * rows // accuracy
    due = (lengths > accuracy) & (allowed > 1)
    if not due.any():
        return held
    gap, spread, owner = held.gap.copy(), held.spread, held.owner
    rest = np.arange(len(owner))
    for turn in range(_ROUNDS):
        left = len(rest)
        for parity in (0, 1):
            merged = _mergeable(gap, spread, owner, due, allowed, parity)
            places = np.flatnonzero(merged)
            gap[places + 1] += gap[places]
            gap, spread, owner, rest = (part[~merged] for part in (gap, spread, owner, rest))
        if turn and len(rest) > 0.98 * left:
            break
    return Summaries(held.values.take(pa.array(rest)), gap, spread, owner)


def _mergeable(
    gap: Int64s, spread: Int64s, owner: Int64s, due: Mask, allowed: Int64s, parity: int
) -> Mask:
    """Which rows may be merged into the next row; at most every second row."""
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
    # The value before the first whose rank may be too high cannot have too low a rank.
    high = highest > (rank + error)[held.owner]
    first_high = np.repeat(offsets[1:], np.diff(offsets))
    first_high[high] = np.flatnonzero(high)
    place = np.zeros(owners, dtype=np.int64)
    place[some] = np.minimum.reduceat(first_high, starts) - 1
    return held.values.take(pa.array(place, mask=~some))
