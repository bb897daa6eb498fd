"""A picture of the time of every step, run under run, on the same axes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from benchmarks.measure import Batch
from benchmarks.results import Result

DURING = "during"
"""The part of a batch that says 1.0 for the steps between the request and its end."""

WIDTH, LEFT, RIGHT, TOP, HEIGHT, BETWEEN = 760, 60, 20, 40, 130, 50
LINE, BAND, GREY, INK = "#2563eb", "#fde68a", "#d1d5db", "#1f2937"


@dataclass(frozen=True, slots=True)
class Axes:
    """Seconds since the first step across, seconds of a step upwards."""

    last: float
    most: float
    top: float

    def x(self, seconds: float) -> float:
        """Where a moment is."""
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.last

    def y(self, seconds: float) -> float:
        """Where a step of so many seconds is."""
        return self.top + HEIGHT * (1 - seconds / self.most)


def steps_picture(found: Sequence[Result]) -> str:
    """The runs as SVG, the time of the rescale shaded; nothing where there is no run."""
    if not found:
        return ""
    most = max(batch.seconds for each in found for batch in each.batches()) * 1.1
    last = max(sum(batch.seconds for batch in each.batches()) for each in found)
    height = TOP + len(found) * (HEIGHT + BETWEEN)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for place, each in enumerate(found):
        axes = Axes(last, most, TOP + place * (HEIGHT + BETWEEN))
        lines += _panel(each.subject, each.batches(), axes)
    return "\n".join((*lines, "</svg>")) + "\n"


def _panel(name: str, batches: Sequence[Batch], axes: Axes) -> Iterator[str]:
    ends = list(accumulate(batch.seconds for batch in batches))
    yield (
        f'<text x="{LEFT}" y="{axes.top - 10:.0f}" font-weight="bold" fill="{INK}">'
        f"{escape(name)}</text>"
    )
    yield from _band(batches, ends, axes)
    yield from _grid(axes)
    points = [(axes.x(end), axes.y(b.seconds)) for end, b in zip(ends, batches, strict=True)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{joined}" fill="none" stroke="{LINE}" stroke-width="1.2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{LINE}"/>'


def _band(batches: Sequence[Batch], ends: Sequence[float], axes: Axes) -> Iterator[str]:
    """The time from the request to the end of the rescale."""
    inside = [place for place, batch in enumerate(batches) if batch.parts.get(DURING)]
    if not inside:
        return
    left = axes.x(ends[inside[0]] - batches[inside[0]].seconds)
    wide = max(axes.x(ends[inside[-1]]) - left, 1.0)
    yield (
        f'<rect x="{left:.1f}" y="{axes.top:.0f}" width="{wide:.1f}" height="{HEIGHT}" '
        f'fill="{BAND}"/>'
    )
    yield (f'<text x="{left:.1f}" y="{axes.top - 10:.0f}" fill="{INK}">{len(inside)} steps</text>')


def _grid(axes: Axes) -> Iterator[str]:
    """Lines at round numbers, with their meaning."""
    for mark in _round_marks(axes.most, 5):
        y = axes.y(mark)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GREY}"/>'
        yield (
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">'
            f"{1000 * mark:.0f} ms</text>"
        )
    for mark in _round_marks(axes.last, 8):
        x, y = axes.x(mark), axes.top + HEIGHT + 16
        yield f'<text x="{x:.1f}" y="{y:.0f}" text-anchor="middle" fill="{INK}">{mark:g} s</text>'


def _round_marks(most: float, about: int) -> list[float]:
    """Round numbers from 0 up to the most, about so many.

    >>> _round_marks(0.87, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    >>> _round_marks(31.0, 8)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    """
    unit = 1e-3
    while True:
        for step in (unit, 2 * unit, 5 * unit):
            if most / step <= about:
                return [round(step * n, 6) for n in range(int(most / step) + 1)]
        unit *= 10
