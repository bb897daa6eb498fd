"""What is known of the load of each bin: what its commit says, and what workers report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anabranch.records.bins import BinSet
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.run_list import Listed
from anabranch.records.worker_load import NOTHING, BinLoad, WorkerLoad

SMOOTHING = 0.25
"""How much of rows and seconds the newest step makes up."""


class RegionLoad(msgspec.Struct, frozen=True):
    """What is known of a region. ``heard`` are the bins that a worker has reported.

    A source's bins are its partitions, and it moves before regions that it feeds.
    """

    region: str
    bins: tuple[BinLoad, ...]
    heard: BinSet = BinSet()
    source: bool = False

    def bin(self, number: int) -> BinLoad:
        """The load of a bin; nothing is known of one that was added since."""
        return self.bins[number] if number < len(self.bins) else NOTHING


class Loads(msgspec.Struct, frozen=True):
    """What is known of all regions. It is an estimate: who plans by an old one is still right."""

    regions: tuple[RegionLoad, ...] = ()

    def of(self, region: str) -> RegionLoad:
        """What is known of a region."""
        for each in self.regions:
            if each.region == region:
                return each
        return RegionLoad(region, ())


def from_states(placement: Sequence[Assignment], states: Sequence[OperatorState]) -> Loads:
    """What a commit says: live keys by bin, and the bytes of the runs spread over their bins.

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
    """The bytes of a run by bin, in the proportion of live keys; those of blobs are known."""
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


def observed(loads: Loads, answers: Iterable[WorkerLoad]) -> Loads:
    """What workers have reported, after a step's answers, in whatever order these come.

    Rows and seconds are smoothed over recent steps; a step that had no rows for a region says
    nothing of it. Bins that nobody reports stay as they are. No two workers report one bin (R1):
    ``ValueError``.
    """
    by_region: dict[str, dict[int, BinLoad]] = {}
    for answer in answers:
        told = by_region.setdefault(answer.region, {})
        for number, load in zip(answer.bins, answer.loads, strict=True):
            if number in told:
                raise ValueError(f"R1: two workers report bin {number} of {answer.region!r}")
            told[number] = load
    regions = sorted({*by_region, *(each.region for each in loads.regions)})
    return Loads(tuple(_observed(loads.of(name), by_region.get(name, {})) for name in regions))


def _observed(region: RegionLoad, told: dict[int, BinLoad]) -> RegionLoad:
    if not any(load.rows for load in told.values()):
        return region
    size = max(len(region.bins), max(told) + 1)
    heard = region.heard.mask(size).tolist()
    bins = tuple(
        _smoothed(region.bin(number), told.get(number), heard[number]) for number in range(size)
    )
    new = BinSet.of(number for number in told if not heard[number])
    return msgspec.structs.replace(region, bins=bins, heard=region.heard | new)


def _smoothed(old: BinLoad, new: BinLoad | None, known: bool) -> BinLoad:
    if new is None or not known:
        return old if new is None else new
    return BinLoad(
        new.keys,
        new.bytes,
        old.rows + SMOOTHING * (new.rows - old.rows),
        old.seconds + SMOOTHING * (new.seconds - old.seconds),
    )


def completed(measured: Loads, held: Loads) -> Loads:
    """What workers have reported (``observed``), with what bins hold by now (``from_states``)."""
    return Loads(tuple(_completed(measured.of(each.region), each) for each in held.regions))


def _completed(measured: RegionLoad, held: RegionLoad) -> RegionLoad:
    bins = tuple(_both(measured.bin(number), load) for number, load in enumerate(held.bins))
    return msgspec.structs.replace(held, bins=bins, heard=measured.heard)


def _both(done: BinLoad, held: BinLoad) -> BinLoad:
    return BinLoad(held.keys + done.keys, held.bytes, done.rows, done.seconds)


def weights(region: RegionLoad, bins: int) -> tuple[float, ...]:
    """What each bin weighs when load is balanced: the best measure that there is.

    Useful seconds if any were measured, else rows, else keys, else each bin counts alike.

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
