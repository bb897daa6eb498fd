"""``anabranch demo``: a pipeline sums up arriving orders; an independent check follows.

Meanwhile the pipeline scales to twice its workers and down to one, without stopping.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from anabranch.cli.demo.bins import Bins
from anabranch.cli.demo.check import Comparison, check_result
from anabranch.cli.demo.flow import TIERS, TOTALS, Places, demo_flow
from anabranch.cli.demo.orders import OrderWriter
from anabranch.cli.demo.rescales import DemoRescales, planned_rescales
from anabranch.cli.demo.view import Frame, LineView, LiveView, Tier, view_for
from anabranch.cli.plain_text import literal
from anabranch.cli.scale_text import request_text
from anabranch.cli.sizes import size
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import Settings
from anabranch.pipeline import Pipeline
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.status import Status
from anabranch.rescale.rounds import RescaleSettings
from anabranch.run import run

RIGHT, WRONG, INTERRUPTED = 0, 1, 130
FINISHED = "Finished"
STALLED_SECONDS = 180.0
_TICK_SECONDS = 0.1
# Optimizing for a long run would take half of the CPU time of a short one.
_SHORT_RUN = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC"
}
# Few enough that the map has a cell for each and shows every move.
_BINS = 64
# The state is small: with a larger budget all bins would move at once.
_BIN_BY_BIN = Settings(rescale=RescaleSettings(budget_ms=2, prefetch=False))
_TIER_ORDER = ("bronze", "silver", "gold", "platinum")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo. ``keep`` is where its files stay; None deletes them."""

    rows: int
    steps: int
    workers: int
    keep: Path | None
    seed: int = 1


@dataclass(slots=True)
class DemoProgress:
    """A running demo: its steps so far, and the view that shows them."""

    request: DemoOptions
    places: Places
    view: LineView | LiveView
    started: float
    rescales: DemoRescales
    history: list[StepDone] = field(default_factory=list)
    last_step_at: float = 0.0
    tiers: tuple[Tier, ...] = ()
    tiers_at: int = 0
    settled: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many orders are committed."""
        return sum(done.rows for done in self.history)

    def show(self, phase: str, pipeline: Pipeline | None = None) -> None:
        """Show the current status."""
        status = pipeline.status() if pipeline is not None else None
        if pipeline is not None and status is not None and status.step != self.tiers_at:
            self.tiers, self.tiers_at = _tiers(pipeline), status.step
        self.view.show(self._frame(phase, status))

    def phase(self) -> str:
        """The phase while orders arrive."""
        workers = self.rescales.going_to
        if workers is None:
            return "Orders arrive"
        return f"Orders arrive, bins move to {workers} worker{'' if workers == 1 else 's'}"

    def advance(self, pipeline: Pipeline) -> None:
        """Begin a rescale that is due; note one that has finished."""
        status = pipeline.status()
        over = self.rescales.advance(pipeline, status, self.rows / self.request.rows)
        if over is not None:
            self.settled.append(settled_text(over))

    def _frame(self, phase: str, status: Status | None) -> Frame:
        return Frame(
            phase,
            phase == FINISHED,
            self.started,
            tuple(self.history),
            0 if status is None else status.published,
            self.request.rows,
            sum(1 for _ in self.places.orders.glob("orders-*.json")),
            0 if status is None else status.keys[TOTALS],
            self.tiers,
            () if status is None else tuple(Bins.of(region) for region in status.regions),
            None if status is None else status.rescale,
            frozenset(done.step for done in self.history if self.rescales.moved_in(done.step)),
            tuple(self.settled),
        )


def run_demo(request: DemoOptions, console: Console) -> int:
    """Run the demo and return its exit code."""
    with _directory(request.keep) as root:
        places = Places(root)
        places.orders.mkdir()
        writer = OrderWriter.into(places.orders, request.rows, request.steps, request.seed)
        with view_for(console) as view:
            rescales = DemoRescales(planned_rescales(request.workers))
            show = DemoProgress(request, places, view, time.monotonic(), rescales)
            show.show("Starting Spark")
            pipeline = run(
                demo_flow(places),
                directory=places.state,
                workers=request.workers,
                bins=_BINS,
                spark_conf=_SHORT_RUN,
                settings=_BIN_BY_BIN,
                watch=lambda done: _step_done(show, writer, done),
            )
            finished = _watch(show, pipeline, writer)
        if not finished:
            console.print(f"Stopped after step {pipeline.status().step}; nothing was checked.")
            return INTERRUPTED
        if request.keep is not None:
            console.print(literal(f"The files are in {request.keep}."), soft_wrap=True)
        return _judge(console, request.rows, places, pipeline)


def settled_text(over: FinishedRescale) -> str:
    """The result of a rescale, on one line."""
    moved = over.moved
    return (
        f"At {request_text(over.request)}: {moved.bins} bins, {moved.keys:,} keys, "
        f"{size(moved.bytes)} moved, longest step {moved.longest_seconds:.2f} s"
    )


def _step_done(show: DemoProgress, writer: OrderWriter, done: StepDone) -> None:
    show.history.append(done)
    show.last_step_at = time.monotonic()
    writer.committed(show.rows)


def _watch(show: DemoProgress, pipeline: Pipeline, writer: OrderWriter) -> bool:
    """Show the pipeline until all orders are committed and published; False if interrupted."""
    writer.start()
    try:
        while not _all_in(show, writer):
            pipeline.wait(_TICK_SECONDS)
            show.advance(pipeline)
            writer.keep_pace(show.rescales.going_to is not None)
            show.show(show.phase(), pipeline)
        while not show.rescales.is_over and not _stalled(show, writer):
            pipeline.wait(_TICK_SECONDS)
            show.advance(pipeline)
            show.show("All orders are in, bins still move", pipeline)
        show.show("All orders are in", pipeline)
        pipeline.shutdown()
        show.show(FINISHED, pipeline)
        return True
    except KeyboardInterrupt:
        show.show("Stopping after the current step; Ctrl-C again to abandon it", pipeline)
        pipeline.shutdown()
        show.show("Stopped", pipeline)
        return False
    finally:
        writer.stop()


def _all_in(show: DemoProgress, writer: OrderWriter) -> bool:
    """Whether every order is committed. A pipeline that loses some stalls."""
    if not writer.finished():
        return False
    return show.rows >= writer.written or _stalled(show, writer)


def _stalled(show: DemoProgress, writer: OrderWriter) -> bool:
    waited = time.monotonic() - max(show.last_step_at, writer.last_written_at)
    return waited > STALLED_SECONDS


def _tiers(pipeline: Pipeline) -> tuple[Tier, ...]:
    rows = {row["tier"]: row for row in pipeline.state_table(TIERS).to_pylist()}
    found = (rows[name] for name in _TIER_ORDER if name in rows)
    return tuple(Tier(row["tier"], row["orders"], row["revenue"]) for row in found)


def _judge(console: Console, rows: int, places: Places, pipeline: Pipeline) -> int:
    """Compare with the batch computation, print the result and return the exit code."""
    console.print(
        f"Checking: summing up the same {rows:,} orders in plain Python, without Spark",
        highlight=False,
    )
    compared = check_result(
        places.orders,
        places.totals,
        places.tiers,
        pipeline.state_table(TOTALS),
        pipeline.state_table(TIERS).select(["tier", "orders", "revenue", "highest"]),
    )
    for comparison in compared:
        console.print(_line(comparison), soft_wrap=True)
    if all(comparison.equal for comparison in compared):
        console.print(Text("The result is right: output and state are as expected.", "green"))
        return RIGHT
    console.print(Text("THE RESULT IS WRONG: see the differences above.", "bold red"))
    return WRONG


def _line(comparison: Comparison) -> Text:
    verdict = ("equal", "green") if comparison.equal else (str(comparison.difference), "bold red")
    return Text.assemble(f"  {comparison.what:40} {comparison.rows:9,} rows  ", verdict)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """The directory of the demo's files: a temporary one, or one to keep."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-", ignore_cleanup_errors=True) as root:
        yield Path(root)
