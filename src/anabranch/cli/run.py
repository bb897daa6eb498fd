"""``anabranch run``: a dataflow of a Python file, watched until it ends.

What serves it is given to ``register``: this module knows the options and the view, nothing of
Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from anabranch.cli.connect import TOKEN_VARIABLE
from anabranch.cli.exits import Exit
from anabranch.cli.run_view import RunView
from anabranch.cli.spark_conf import Conf, spark_settings
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.operations import ShutDownPipeline
from anabranch.coordinator.port import Coordinator
from anabranch.coordinator.settings import Settings
from anabranch.errors import TokenInvalid
from anabranch.http.schemas import LONGEST_SECONDS
from anabranch.http.token import check_token
from anabranch.protocol.failures import error_of
from anabranch.protocol.status import Phase, Status
from anabranch.records.bins import bin_bits
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.run import BINS

SHOW_SECONDS = 1.0
USUAL = Settings()


class NodeKind(StrEnum):
    """Where the node runs: in a process of its own, or in this one."""

    PROCESS = "process"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that ``anabranch run`` was told."""

    flow: str
    directory: Path
    workers: int
    master: str | None
    conf: tuple[tuple[str, str], ...]
    host: str
    port: int
    token: str | None
    target_latency: float
    checkpoint_seconds: float
    keep_checkpoints: int
    take_over: bool
    rewind: int | None
    accept_duplicates: bool
    accept_divergence: bool
    node: NodeKind
    homes: str | None = None
    isolate_workers: bool = False
    bins: int = BINS
    rescale: RescaleSettings = field(default_factory=RescaleSettings)
    step_seconds: float = USUAL.deadlines.step
    query_seconds: float = USUAL.query_seconds


class Serving(Protocol):
    """A pipeline that is served: coordinator, HTTP server and node."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, in this process."""
        ...

    @property
    def url(self) -> str:
        """Where the HTTP server listens."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most for the pipeline's end; whether it has ended."""
        ...

    def close(self) -> None:
        """Stop the server, take back the address, let go of the directory."""
        ...


Serve = Callable[[Wanted, Callable[[StepDone], None]], Serving]
"""Serves what is wanted; tells each committed step, from any thread."""


def register(app: typer.Typer, serve: Serve) -> None:
    """Add ``run`` to the command line."""

    @app.command()
    def run(  # the options are the documentation
        flow: Annotated[
            str, typer.Argument(metavar="FILE:FLOW", help="A Python file or module, and a name.")
        ],
        directory: Annotated[
            Path, typer.Option(metavar="DIR", file_okay=False, help="Where the state lives.")
        ],
        workers: Annotated[int, typer.Option(min=1, help="Shares of each region.")] = USUAL.workers,
        master: Annotated[
            str | None, typer.Option(help="Spark's master; local[*] unless told.")
        ] = None,
        conf: Conf = None,
        host: Annotated[str, typer.Option(help="Where HTTP listens.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
        token: Annotated[
            str | None,
            typer.Option(
                envvar=TOKEN_VARIABLE,
                show_envvar=True,
                callback=_that_calls_can_bring,
                help="What calls must bring; needed when --host is not loopback.",
            ),
        ] = None,
        target_latency: Annotated[
            float, typer.Option(min=0.01, max=600, help="Seconds that a step should take.")
        ] = USUAL.target_latency_seconds or 0.5,
        checkpoint_seconds: Annotated[
            float, typer.Option(min=0, help="Seconds from one checkpoint to the next.")
        ] = USUAL.checkpoint_seconds,
        keep_checkpoints: Annotated[int, typer.Option(min=1, help="How many to keep.")] = (
            USUAL.keep_checkpoints
        ),
        take_over: Annotated[
            bool, typer.Option("--take-over", help="Also where another coordinator leads.")
        ] = False,
        rewind: Annotated[
            int | None,
            typer.Option(metavar="STEP", min=1, help="Go back to this checkpoint first."),
        ] = None,
        accept_duplicates: Annotated[
            bool,
            typer.Option(
                "--accept-duplicates",
                help="With --rewind: also where a sink cannot take back what it has published.",
            ),
        ] = False,
        accept_divergence: Annotated[
            bool,
            typer.Option(
                "--accept-divergence", help="Go on when a replay comes to another result."
            ),
        ] = False,
        node: Annotated[
            NodeKind, typer.Option(help="Spark in a process of its own, or in this one.")
        ] = NodeKind.PROCESS,
        homes: Annotated[
            Path | None,
            typer.Option(
                metavar="DIR",
                file_okay=False,
                help="Where workers keep copies of state, on every host; in place unless told.",
            ),
        ] = None,
        isolate_workers: Annotated[
            bool,
            typer.Option(
                "--isolate-workers",
                help="Each worker has a home of its own: what moves is copied.",
            ),
        ] = False,
        bins: Annotated[
            int,
            typer.Option(
                callback=_power_of_two,
                help="How many bins each region has, for ever: a power of two.",
            ),
        ] = BINS,
        move: Annotated[MovePolicy, typer.Option(help="How much of a rescale one step does.")] = (
            MovePolicy.BATCHED
        ),
        move_ms: Annotated[
            float | None,
            typer.Option(min=0, help="Milliseconds that a step may spend on moving, if batched."),
        ] = None,
        move_bytes: Annotated[
            int | None, typer.Option(min=0, help="Bytes that a step may move, if batched.")
        ] = None,
        step_seconds: Annotated[
            float, typer.Option(min=1, help="Seconds after which a step is given up.")
        ] = USUAL.deadlines.step,
        query_seconds: Annotated[
            float,
            typer.Option(
                min=0, max=LONGEST_SECONDS, help="Seconds that a query may take; 0 takes none."
            ),
        ] = USUAL.query_seconds,
    ) -> None:
        """Run a dataflow until its input ends or it is told to stop.

        Ctrl-C and SIGTERM finish the step under way and keep a checkpoint; a second Ctrl-C stops
        at once. Running it again with the same directory continues.
        """
        wanted = Wanted(
            flow,
            directory.absolute(),
            workers,
            master,
            tuple(spark_settings(conf).items()),
            host,
            port,
            token,
            target_latency,
            checkpoint_seconds,
            keep_checkpoints,
            take_over,
            rewind,
            accept_duplicates,
            accept_divergence,
            node,
            None if homes is None else str(homes.absolute()),
            isolate_workers,
            bins,
            RescaleSettings(policy=move, budget_bytes=move_bytes, budget_ms=move_ms),
            step_seconds,
            query_seconds,
        )
        raise typer.Exit(watch(wanted, serve, Console()))


def _that_calls_can_bring(token: str | None) -> str | None:
    """Refuse a token before anything is started.

    An empty variable counts as a token: whoever set it did not mean that anybody may call.
    """
    given = os.environ.get(TOKEN_VARIABLE) if token is None else token
    try:
        if given is not None:
            check_token(given)
    except TokenInvalid as error:
        raise typer.BadParameter(f"{error.what}. {error.do}") from error
    return given


def _power_of_two(bins: int) -> int:
    """Refuse a number of bins before anything is started."""
    try:
        bin_bits(bins)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
    return bins


def watch(wanted: Wanted, serve: Serve, console: Console) -> Exit:
    """Serve a dataflow and show it until it ends; raises what made it fail."""
    report: list[StepDone] = []
    view: RunView | None = None

    def tell(done: StepDone) -> None:
        if view is None:
            report.append(done)
        else:
            view.tell(done)

    serving = serve(wanted, tell)
    try:
        view = RunView(console, serving.url)
        for done in report:
            view.tell(done)
        with view:
            view.say(f"Serving at {serving.url}; directory {wanted.directory}")
            ended_in_order = _until_end(serving, view)
        status = serving.coordinator.status()
    finally:
        serving.close()
    if status.failure is not None and status.phase is Phase.FAILED:
        raise error_of(status.failure)
    console.print(_last_words(status), markup=False, highlight=False, soft_wrap=True)
    return Exit.DONE if ended_in_order else Exit.INTERRUPTED


def _until_end(serving: Serving, view: RunView) -> bool:
    """Show until the end; whether nothing was given up on the way there."""
    interrupted = answered = 0
    while True:
        try:
            # Not where it is caught: the next Ctrl-C may come at any time.
            if answered < interrupted:
                answered = interrupted
                _stop(serving, view, at_once=interrupted > 1)
            ended = serving.wait(SHOW_SECONDS)
            view.show(serving.coordinator.status())
            if ended:
                return interrupted < 2
        except KeyboardInterrupt:
            interrupted += 1


def _stop(serving: Serving, view: RunView, *, at_once: bool) -> None:
    serving.coordinator.ask(ShutDownPipeline(at_once=at_once), 0)
    view.say("Stopping at once" if at_once else "Stopping; Ctrl-C again to stop at once")


def _last_words(status: Status) -> str:
    return (
        f"{status.phase.value.capitalize()} after step {status.step}: {status.rows:,} rows, "
        f"published up to step {status.published}."
    )
