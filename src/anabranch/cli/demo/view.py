"""The view of the demo: a live picture on a terminal, one line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from anabranch.cli.demo.bins import Bins, bin_map, bins_text
from anabranch.cli.scale_text import request_text
from anabranch.cli.sizes import size
from anabranch.coordinator.effects import StepDone
from anabranch.protocol.status import RescaleStatus

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_STEPS = 30
_BAR_CELLS = 24


@dataclass(frozen=True, slots=True)
class Tier:
    """One row of the second region's state."""

    name: str
    orders: int
    revenue: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything to show at one moment; ``started`` is by the monotonic clock.

    ``moved_in`` are the steps in which bins moved; ``settled`` has a line per finished rescale.
    """

    phase: str
    finished: bool
    started: float
    history: Sequence[StepDone]
    published: int
    total_rows: int
    files: int
    customers: int
    tiers: Sequence[Tier]
    bins: Sequence[Bins] = ()
    rescale: RescaleStatus | None = None
    moved_in: frozenset[int] = frozenset()
    settled: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """How many rows are committed."""
        return sum(done.rows for done in self.history)


def view_for(console: Console) -> LineView | LiveView:
    """The view that suits the output."""
    return LiveView(console) if console.is_terminal else LineView(console)


class LineView:
    """One line per committed step: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0
        self._phase = ""
        self._settled = 0

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def show(self, frame: Frame) -> None:
        """Print a change of phase, and the new steps."""
        if frame.phase != self._phase:
            self._phase = frame.phase
            self._print(frame.phase)
        for done in frame.history[self._shown :]:
            self._shown += 1
            so_far = sum(earlier.rows for earlier in frame.history[: self._shown])
            self._print(
                f"step {done.step:3}  {done.rows:7,} rows  {so_far:9,} so far  "
                f"{_rate(done):9,.0f} rows/s  {done.seconds:6.2f} s  {done.keys:6,} keys  "
                f"published {frame.published}"
                + ("  moving" if done.step in frame.moved_in else "")
                + (f"  bins {bins_text(frame.bins)}" if frame.bins else "")
            )
        for text in frame.settled[self._settled :]:
            self._settled += 1
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """A picture that updates in place and stays when the demo ends."""

    def __init__(self, console: Console) -> None:
        self._spinner = Spinner("dots")
        self._frame: Frame | None = None
        # Crops rows that do not fit while live; the last frame is shown whole.
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            refresh_per_second=8,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Draw the last frame and restore the cursor."""
        self._live.stop()

    def show(self, frame: Frame) -> None:
        """Draw a frame from now on."""
        self._frame = frame

    def _picture(self) -> RenderableType:
        if self._frame is None:
            return ""
        mark = "✓" if self._frame.finished else self._spinner.render(time.monotonic())
        return draw(self._frame, mark, time.monotonic())


def draw(frame: Frame, mark: RenderableType, now: float) -> RenderableType:
    """A frame as a picture."""
    heading = Table.grid(padding=(0, 1))
    heading.add_row(mark, frame.phase, Text(f"{now - frame.started:.0f} s", "dim"))
    parts: list[RenderableType] = [heading, Text(), _flow(frame), Text()]
    if frame.history:
        parts += [_numbers(frame), Text()]
        if frame.bins:
            parts += [_moving(frame), bin_map(frame.bins), Text()]
        parts.append(_tiers(frame.tiers))
    else:
        parts.append(Text("The first step takes longest: it warms up Spark and Python.", "dim"))
    body = Group(*parts)
    return Panel(body, title="anabranch demo", title_align="left", border_style="cyan", width=78)


def sparkline(values: Sequence[float], top: float) -> str:
    """Values as small bars; ``top`` and above get the highest bar.

    >>> sparkline([0, 5, 10, 99], top=10)
    '▁▅██'
    """
    if top <= 0:
        return _BARS[0] * len(values)
    last = len(_BARS) - 1
    return "".join(_BARS[round(last * min(max(value, 0) / top, 1))] for value in values)


def _flow(frame: Frame) -> Text:
    """The dataflow on one line, with the number of keys of each region."""
    arrow = (" ─▶ ", "dim")
    return Text.assemble(
        (f"{frame.files} JSON file{'' if frame.files == 1 else 's'}", "bold"),
        arrow,
        ("running total", "bold cyan"),
        f" {frame.customers:,} customers",
        arrow,
        ("revenue", "bold magenta"),
        f" {len(frame.tiers)} tiers",
        no_wrap=True,
    )


def _numbers(frame: Frame) -> Table:
    """The numbers of the run, with the last steps as small bars."""
    recent = frame.history[-_SHOWN_STEPS:]
    warm = frame.history[1:] or frame.history
    rates, seconds = [_rate(done) for done in recent], [done.seconds for done in recent]
    usual = median(done.seconds for done in warm)
    last = frame.history[-1]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=8)
    table.add_column(justify="right", min_width=10)
    table.add_column()
    bar = ProgressBar(total=max(frame.total_rows, 1), completed=frame.rows, width=_SHOWN_STEPS)
    table.add_row("rows", f"{frame.rows:,}", bar)
    table.add_row(
        "rows/s", f"{_rate(last):,.0f}", Text(sparkline(rates, max(map(_rate, warm))), "green")
    )
    # Scaled to the warm steps: the first one would flatten all others.
    bars = sparkline(seconds, max(done.seconds for done in warm))
    shown = Text()
    for done, one in zip(recent, bars, strict=True):
        shown.append(one, "bold magenta" if done.step in frame.moved_in else "yellow")
    shown.append(f"  median {usual:.2f}")
    moving = [done.seconds for done in warm if done.step in frame.moved_in]
    if moving:
        shown.append(f" / {median(moving):.2f}", "bold magenta")
    table.add_row("latency", f"{last.seconds:.2f} s", shown)
    table.add_row("keys", f"{last.keys:,}", "")
    table.add_row("step", f"{last.step}", f"committed, {frame.published} published")
    return table


def _moving(frame: Frame) -> Text:
    """The progress of the current rescale, or the result of the last one."""
    rescale = frame.rescale
    if rescale is None:
        workers = len({worker for region in frame.bins for worker in region.workers})
        said = f"{workers} worker{'' if workers == 1 else 's'}"
        text = frame.settled[-1] if frame.settled else f"{said}, each cell a few bins by owner"
        return Text(text, "dim", no_wrap=True, overflow="ellipsis")
    bins, keys = rescale.moved_bins + rescale.left_bins, rescale.moved_keys + rescale.left_keys
    return Text.assemble(
        (f"scaling to {request_text(rescale.request)}: ", "bold magenta"),
        f"{rescale.moved_bins:,}/{bins:,} bins, {rescale.moved_keys:,}/{keys:,} keys, "
        f"{size(rescale.moved_bytes)}, {rescale.seconds_left:.0f} s left",
        no_wrap=True,
        overflow="ellipsis",
    )


def _tiers(tiers: Sequence[Tier]) -> Table:
    """The second region's state; the largest revenue is a full bar."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold magenta", min_width=8)
    table.add_column(justify="right", min_width=10)
    table.add_column(justify="right", min_width=16)
    table.add_column(width=_BAR_CELLS)
    table.add_row(
        *(Text(name, "dim") for name in ("tier", "orders", "revenue")), Text(" " * _BAR_CELLS)
    )
    largest = max((tier.revenue for tier in tiers), default=0)
    for tier in tiers:
        cells = round(_BAR_CELLS * tier.revenue / largest) if largest else 0
        money = f"{tier.revenue / 100:,.2f}"
        table.add_row(tier.name, f"{tier.orders:,}", money, Text("▇" * cells, "magenta"))
    return table


def _rate(done: StepDone) -> float:
    return done.rows / done.seconds if done.seconds > 0 else 0.0
