"""What a case measured, and the few numbers that sum it up. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

Fact: TypeAlias = float | str


class Batch(msgspec.Struct, frozen=True):
    """One batch: its rows, how long after the batch before it was done, and where that went."""

    rows: int
    seconds: float
    parts: dict[str, float] = {}


class Outcome(msgspec.Struct, frozen=True):
    """What a case's process reports.

    ``cut`` says that time was up before the input was; ``seconds`` is the time from the start of
    the first batch until everything was written, ``info`` is whatever else the case found out.
    """

    batches: tuple[Batch, ...]
    seconds: float
    cut: bool = False
    info: dict[str, Fact] = {}


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    p95: float
    mean: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """The median, the extremes, the 95th percentile (nearest rank) and the mean.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, low=1.0, high=3.0, p95=3.0, mean=2.0, count=3)
    """
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    rank = -(-len(ordered) * 95 // 100)
    return Spread(
        statistics.median(ordered),
        ordered[0],
        ordered[-1],
        ordered[rank - 1],
        statistics.fmean(ordered),
        len(ordered),
    )


def measured(outcome: Outcome, warm: int) -> tuple[Batch, ...]:
    """The batches that count: those after the warm-up.

    Where few were done, the warm-up is the first third of them, and one always counts.
    """
    done = len(outcome.batches)
    third = -(-done // 3)
    return outcome.batches[max(min(warm, third, done - 1), 0) :]


def stretches(batches: Sequence[Batch], least: float = 1.0) -> tuple[Batch, ...]:
    """Batches joined to stretches of at least so many seconds; what is left goes to the last one.

    For systems that finish several batches at once: the time between the first and the second of
    them says nothing about how fast they are.

    >>> stretches([Batch(5, 24.0), Batch(5, 0.5)])
    (Batch(rows=10, seconds=24.5, parts={}),)
    """
    found: list[Batch] = []
    for batch in batches:
        if found and found[-1].seconds < least:
            found[-1] = _joined(found[-1], batch)
        else:
            found.append(batch)
    if len(found) > 1 and found[-1].seconds < least:
        found[-2:] = [_joined(*found[-2:])]
    return tuple(found)


def _joined(first: Batch, second: Batch) -> Batch:
    return Batch(first.rows + second.rows, first.seconds + second.seconds)


def rates(batches: Sequence[Batch]) -> Spread:
    """Rows per second, batch by batch."""
    return spread([batch.rows / batch.seconds for batch in batches])


def times(batches: Sequence[Batch]) -> Spread:
    """Seconds per batch."""
    return spread([batch.seconds for batch in batches])


def overall_rate(outcome: Outcome, warm: int) -> float:
    """Rows per second of a run without its warm-up, with all that comes after the last batch."""
    kept = measured(outcome, warm)
    before = sum(b.seconds for b in outcome.batches[: len(outcome.batches) - len(kept)])
    return sum(batch.rows for batch in kept) / (outcome.seconds - before)


def part_medians(batches: Sequence[Batch]) -> dict[str, float]:
    """The median of every part over the batches, 0 where a batch does not have it."""
    names = dict.fromkeys(name for batch in batches for name in batch.parts)
    return {
        name: statistics.median(batch.parts.get(name, 0.0) for batch in batches) for name in names
    }
