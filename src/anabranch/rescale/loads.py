"""The load of each bin, from the commit and from the reports of workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anabranch.records.bin_set import BinSet
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.run_list import Listed
from anabranch.records.worker_load import NOTHING, BinLoad, WorkerLoad

SMOOTHING = 0.25
"""The weight of the newest step in the averages of rows and seconds."""


class RegionLoad(msgspec.Struct, frozen=True):
    """The loads of a region. ``heard`` are the bins that a worker has reported.

    The bins of a source are its partitions. It moves before the regions that it feeds.
    """

    region: str
    bins: tuple[BinLoad, ...]
    heard: BinSet = BinSet()
    source: bool = False

    def bin(self, number: int) -> BinLoad:
        """The load of a bin; nothing is known of a bin that was added since."""
        return self.bins[number] if number < len(self.bins) else NOTHING


class Loads(msgspec.Struct, frozen=True):
    """The loads of all regions. They are estimates: a plan from old loads is still correct."""

    regions: tuple[RegionLoad, ...] = ()

    def of(self, region: str) -> RegionLoad:
        """The loads of a region."""
        for each in self.regions:
            if each.region == region:
                return each
        return RegionLoad(region, ())


def from_states(placement: Sequence[Assignment], states: Sequence[OperatorState]) -> Loads:
    """The loads that a commit implies: live keys per bin, and the bytes of runs spread over bins.

    A partition of a source weighs nothing: its position is in the plan.
    """
    return Loads(
        tuple(
            RegionLoad(each.region, _bins_of(each, states), source=each.source)
            for each in placement
        )
    )


def _bins_of(assignment: Assignment, states: Sequence[OperatorState]) -> tuple[BinLoad, ...]:
    count = len(assignment.workers)
    keys, size = [0] * count, [0] * count
    for state in states:
        if state.shape.region != assignment.region:
            continue
        for number, live in enumerate(state.live):
            keys[number] += live
        for listed in state.runs:
            for number, part in _spread(listed, state.live):
                size[number] += part
    return tuple(BinLoad(*each) for each in zip(keys, size, strict=True))


def _spread(listed: Listed, live: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Spread the bytes of a run over its bins by live keys; the bins of blobs are known."""
    bins = tuple(listed.bins)
    weights = [live[number] for number in bins]
    if not sum(weights):
        weights = [1] * len(bins)
    whole, passed, given = sum(weights), 0, 0
    for number, weight in zip(bins, weights, strict=True):
        passed += weight
        upto = listed.run.bytes * passed // whole
        yield number, upto - given
        given = upto
    for blob in listed.run.blobs:
        if blob.bin in listed.bins:
            yield blob.bin, blob.bytes


def update_loads(loads: Loads, answers: Iterable[WorkerLoad]) -> Loads:
    """The loads updated by a step's reports, which may come in any order.

    Rows and seconds are smoothed over recent steps; a step without rows for a region does not
    count. Bins without a report keep their load. ``ValueError`` if two workers report one bin (R1).
    """
    by_region: dict[str, dict[int, BinLoad]] = {}
    for answer in answers:
        reported = by_region.setdefault(answer.region, {})
        for number, load in zip(answer.bins, answer.loads, strict=True):
            if number in reported:
                raise ValueError(f"R1: two workers report bin {number} of {answer.region!r}")
            reported[number] = load
    regions = sorted({*by_region, *(each.region for each in loads.regions)})
    return Loads(tuple(_update(loads.of(name), by_region.get(name, {})) for name in regions))


def _update(region: RegionLoad, reported: dict[int, BinLoad]) -> RegionLoad:
    if not any(load.rows for load in reported.values()):
        return region
    size = max(len(region.bins), max(reported) + 1)
    heard = region.heard.mask(size).tolist()
    bins = tuple(_smooth(region.bin(n), reported.get(n), heard[n]) for n in range(size))
    new = BinSet.of(number for number in reported if not heard[number])
    return msgspec.structs.replace(region, bins=bins, heard=region.heard | new)


def _smooth(old: BinLoad, new: BinLoad | None, known: bool) -> BinLoad:
    if new is None or not known:
        return old if new is None else new
    return BinLoad(
        new.keys,
        new.bytes,
        old.rows + SMOOTHING * (new.rows - old.rows),
        old.seconds + SMOOTHING * (new.seconds - old.seconds),
    )


def combine_loads(measured: Loads, held: Loads) -> Loads:
    """Combine measured loads (``update_loads``) with the content of bins (``from_states``)."""
    return Loads(tuple(_combine(measured.of(each.region), each) for each in held.regions))


def _combine(measured: RegionLoad, held: RegionLoad) -> RegionLoad:
    pairs = [(measured.bin(number), load) for number, load in enumerate(held.bins)]
    bins = tuple(BinLoad(h.keys + m.keys, h.bytes, m.rows, m.seconds) for m, h in pairs)
    return msgspec.structs.replace(held, bins=bins, heard=measured.heard)


def weights(region: RegionLoad, bins: int) -> tuple[float, ...]:
    """The weight of each bin in balancing, by the best measure there is.

    Useful seconds if any were measured, else rows, else keys, else all bins weigh the same.

    >>> weights(RegionLoad("r", (BinLoad(keys=3), BinLoad(keys=1))), 2)
    (3.0, 1.0)
    """
    loads = [region.bin(number) for number in range(bins)]
    for measure in (
        [load.seconds for load in loads],
        [load.rows for load in loads],
        [float(load.keys) for load in loads],
    ):
        if any(measure):
            return tuple(measure)
    return (1.0,) * bins
