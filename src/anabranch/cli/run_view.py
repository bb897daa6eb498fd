"""The view of ``anabranch run``: a live picture on a terminal, lines with what is new elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.cli.demo.view import sparkline
from anabranch.cli.line_pace import LinePace
from anabranch.cli.plain_text import literal
from anabranch.cli.sizes import size
from anabranch.cli.tables import STYLES, keys_of, paused_of
from anabranch.coordinator.effects import StepDone
from anabranch.http.feed import TimedStep
from anabranch.http.stats import rows_per_second
from anabranch.http.text_table import visible
from anabranch.protocol.status import Status

SHOWN_STEPS = 30
REMEMBERED = 600


class RunView:
    """Shows a pipeline: on a terminal a picture that updates in place, elsewhere lines.

    ``tell`` may be called from any thread.
    """

    def __init__(self, console: Console, where: str) -> None:
        """``where`` is the pipeline's address."""
        self._console = console
        self._where = where
        self._steps: deque[TimedStep] = deque(maxlen=REMEMBERED)
        self._pace = LinePace()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def tell(self, done: StepDone) -> None:
        """Record a committed step."""
        self._steps.append(TimedStep(done, time.monotonic()))

    def show(self, status: Status) -> None:
        """Draw the current status; off a terminal, print a line if it is worth one."""
        steps, now = list(self._steps), time.monotonic()
        if self._live is not None:
            self._live.update(picture(status, steps, now, self._where), refresh=True)
        elif self._pace.is_due(status, now):
            self.say(line(status, steps, now))

    def say(self, text: str) -> None:
        """Print a line, on a terminal above the picture."""
        if self._live is not None:
            self._console.print(literal(text), soft_wrap=True)
        else:
            # Not by Rich, which prints a line again if Ctrl-C interrupts it.
            print(visible(text, lines=True), file=self._console.file, flush=True)

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture on the screen."""
        if self._live is not None:
            self._live.stop()


def line(status: Status, steps: Sequence[TimedStep], now: float) -> str:
    """A pipeline on one line."""
    lag = sum(source.waiting for source in status.sources)
    latency = "-" if status.last_seconds is None else f"{status.last_seconds:.2f} s"
    why = "" if status.waiting_for is None else f"  waiting for {status.waiting_for}"
    return (
        f"{status.phase.value:10}  step {status.step:6}  {status.rows:11,} rows  "
        f"{rows_per_second(steps, now):9,.0f} rows/s  {latency:>8}  {keys_of(status):9,} keys  "
        f"lag {lag:,}{paused_of(status)}  published {status.published}{why}"
    )


def picture(status: Status, steps: Sequence[TimedStep], now: float, where: str) -> RenderableType:
    """A pipeline as a picture."""
    heading = Text.assemble((status.phase.value, STYLES.get(status.phase, "bold")), f"  {where}")
    parts: list[RenderableType] = [heading, Text()]
    if steps:
        parts.append(_numbers(status, steps, now))
    else:
        parts.append(Text("The first step takes longest: it warms up Spark and Python.", "dim"))
    if status.waiting_for is not None:
        parts.append(literal(f"waiting for {status.waiting_for}", "yellow"))
    if status.checkpoint is not None:
        making = status.checkpoint
        parts.append(Text(f"checkpoint: {making.files_done:,} of {making.files:,} files"))
    return Panel(
        Group(*parts),
        title=literal(status.dataflow or "pipeline"),
        title_align="left",
        border_style="cyan",
        width=78,
    )


def _numbers(status: Status, steps: Sequence[TimedStep], now: float) -> Table:
    recent = [seen.done for seen in steps[-SHOWN_STEPS:]]
    rates = [done.rows / max(done.seconds, 1e-9) for done in recent]
    seconds = [done.seconds for done in recent]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=8)
    table.add_column(justify="right", min_width=10)
    table.add_column()
    behind = status.step - status.published
    table.add_row("step", f"{status.step:,}", f"{behind} to publish" if behind else "published")
    table.add_row("rows", f"{status.rows:,}", "")
    rate = rows_per_second(steps, now)
    table.add_row("rows/s", f"{rate:,.0f}", Text(sparkline(rates, max(rates)), "green"))
    bars = Text(sparkline(seconds, max(seconds)), "yellow")
    table.add_row("latency", f"{seconds[-1]:.2f} s", bars)
    held = size(sum(region.bytes for region in status.regions))
    table.add_row("keys", f"{keys_of(status):,}", f"{held} over {status.workers} workers")
    for source in status.sources:
        name = f"{source.source} (paused)" if source.paused else source.source
        table.add_row("lag", f"{source.waiting:,}", literal(name))
    return table
