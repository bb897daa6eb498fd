"""Rescales as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from anabranch.cli.plain_text import literal, plain_table
from anabranch.cli.sizes import size
from anabranch.protocol.rescale_history import FinishedRescale, MovedTotals
from anabranch.protocol.rescale_requests import Assign, Rebalance, Scale, TargetRequest
from anabranch.protocol.status import RescaleStatus
from anabranch.rescale.forecast import Forecast


def request_text(request: TargetRequest | None) -> str:
    """The target of a rescale.

    >>> request_text(Scale(4)), request_text(Scale(None, (("by-customer", 8),), (2,)))
    ('4 workers', 'by-customer: 8 workers, without worker 2')
    """
    match request:
        case None:
            return "the last bins arrive"
        case Rebalance(regions):
            return f"rebalance {', '.join(regions) or 'all regions'}"
        case Assign():
            return "given shares"
        case Scale(workers, regions, remove):
            parts = [] if workers is None else [_workers(workers)]
            parts += [f"{region}: {_workers(count)}" for region, count in regions]
            if remove:
                named = ", ".join(map(str, remove))
                parts.append(f"without worker{'s' if len(remove) > 1 else ''} {named}")
            return ", ".join(parts)


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def budget_text(rescale: RescaleStatus) -> str:
    """The budget of a step for moving bins."""
    parts = []
    if rescale.budget_bins is not None:
        parts.append(f"{rescale.budget_bins} bin{'' if rescale.budget_bins == 1 else 's'}")
    if rescale.budget_bytes is not None:
        parts.append(size(rescale.budget_bytes))
    if rescale.budget_seconds is not None:
        parts.append(f"{rescale.budget_seconds:.2f} s more than {rescale.usual_seconds:.2f}")
    return "budget " + (", ".join(parts) if parts else "none")


def left_text(rescale: RescaleStatus) -> str:
    """What the bar does not show: keys, bytes, time, the longest step, the budget."""
    keys = rescale.moved_keys + rescale.left_keys
    moved = size(rescale.moved_bytes)
    copied = f"{size(rescale.copied_bytes)} copied  " if rescale.copied_bytes else ""
    return (
        f"{rescale.moved_keys:,}/{keys:,} keys  "
        f"{moved}/{size(rescale.moved_bytes + rescale.left_bytes)}  "
        f"{copied}{rescale.seconds_left:.0f} s left  longest step {rescale.longest_seconds:.2f} s  "
        f"{budget_text(rescale)}"
    )


def rescale_text(rescale: RescaleStatus) -> str:
    """A rescale in progress, in a few lines."""
    bins = rescale.moved_bins + rescale.left_bins
    lines = [
        f"Rescale {rescale.number}, {request_text(rescale.request)}: "
        f"{rescale.phase.replace('_', ' ')}, {rescale.moved_bins:,} of {bins:,} bins moved",
        left_text(rescale),
    ]
    for region in sorted({*rescale.waiting, *rescale.in_hand_over}):
        lines.append(
            f"{region}: {rescale.waiting.get(region, 0):,} bins wait, "
            f"{rescale.in_hand_over.get(region, 0):,} in hand-over"
        )
    return "\n".join(lines)


def forecast_text(found: Forecast) -> str:
    """What a rescale would move, and how long it would take."""
    if not found.bins:
        return "Nothing would be moved."
    workers = ", ".join(map(str, found.workers))
    return (
        f"Would move {found.bins:,} bins with {found.keys:,} keys and {size(found.bytes)}, in "
        f"{found.steps:,} steps or about {found.seconds:.0f} s; {size(found.longest_round_bytes)} "
        f"at most in one step. Workers after it: {workers}. Nothing was changed."
    )


def moved_text(moved: MovedTotals) -> str:
    """What a rescale moved.

    >>> moved_text(MovedTotals(64, 5_000, 2048, 7, 0.31))
    '64 bins, 5,000 keys, 2.0 KiB moved in 7 steps, the longest 0.31 s'
    >>> moved_text(MovedTotals(64, 5_000, 2048, 7, 0.31, 3072))
    '64 bins, 5,000 keys, 2.0 KiB moved in 7 steps, 3.0 KiB copied, the longest 0.31 s'
    """
    if not moved.bins:
        return "nothing was moved"
    copied = f"{size(moved.copied_bytes)} copied, " if moved.copied_bytes else ""
    return (
        f"{moved.bins:,} bins, {moved.keys:,} keys, {size(moved.bytes)} moved in "
        f"{moved.steps:,} steps, {copied}the longest {moved.longest_seconds:.2f} s"
    )


def outcome_text(found: FinishedRescale | None) -> str:
    """How a rescale ended."""
    if found is None:
        return (
            "The outcome of the rescale is unknown: the pipeline was rewound, or too many rescales "
            "followed. See `anabranch scale history`."
        )
    workers = ", ".join(map(str, found.workers))
    after = f" Workers: {workers}." if workers else ""
    said = found.outcome.value.replace("-", " ").capitalize()
    return f"{said} ({request_text(found.request)}): {moved_text(found.moved)}.{after}"


def history_table(history: Sequence[FinishedRescale]) -> Table:
    """Recent finished rescales."""
    moved_names = ("bins", "keys", "bytes", "copied", "steps", "longest")
    table = plain_table("rescale", "request", "outcome", *moved_names, "workers")
    for each in history:
        moved = each.moved
        table.add_row(
            str(each.number),
            literal(request_text(each.request)),
            each.outcome.value,
            f"{moved.bins:,}",
            f"{moved.keys:,}",
            size(moved.bytes),
            size(moved.copied_bytes),
            f"{moved.steps:,}",
            f"{moved.longest_seconds:.2f} s",
            " ".join(map(str, each.workers)),
        )
    return table
