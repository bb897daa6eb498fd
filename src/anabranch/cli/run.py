"""``anabranch run``: run a dataflow and show its progress until it ends.

This module knows the options and the view, not Spark: ``register`` gets the function that serves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from anabranch.cli.exits import Exit
from anabranch.cli.node_options import Conf, HomesDirectory, IsolateWorkers, Master, spark_settings
from anabranch.coordinator.settings import DEFAULT_WORKERS, MARGIN_SECONDS, Deadlines, Settings
from anabranch.errors import TokenInvalid
from anabranch.http.schemas import LONGEST_SECONDS
from anabranch.http.token import TOKEN_VARIABLE, check_token
from anabranch.protocol.status import Phase, Status
from anabranch.records.bin_set import bin_bits
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.run import BINS

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.cli.run_view import RunView
    from anabranch.coordinator.effects import StepDone
    from anabranch.coordinator.port import Coordinator

SHOW_SECONDS = 1.0
USUAL = Settings()


class NodeKind(StrEnum):
    """Where the node runs: in its own process or in this one."""

    PROCESS = "process"
    INLINE = "inline"


class Serving(Protocol):
    """A served pipeline: coordinator, HTTP server and node."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, in this process."""
        ...

    @property
    def url(self) -> str:
        """Where the HTTP server listens."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for the pipeline to end; false on timeout."""
        ...

    def close(self) -> None:
        """Stop the server, remove the address file and unlock the directory."""
        ...


def register(app: typer.Typer, serve: Callable[..., Serving]) -> None:
    """Add ``run`` to the command line; ``serve`` is that of ``anabranch.run``."""

    @app.command()
    def run(  # the options are the documentation
        flow: Annotated[
            str, typer.Argument(metavar="FILE:FLOW", help="Python file or module, dataflow name.")
        ],
        directory: Annotated[
            Path, typer.Option(metavar="DIR", file_okay=False, help="Keep all state here.")
        ],
        workers: Annotated[
            int | None,
            typer.Option(
                min=1,
                help=f"Workers per region; by default as before, {DEFAULT_WORKERS} at first.",
                show_default=False,
            ),
        ] = None,
        master: Master = None,
        conf: Conf = None,
        host: Annotated[str, typer.Option(help="HTTP address.")] = "127.0.0.1",
        port: Annotated[
            int, typer.Option(min=0, max=65535, help="HTTP port; 0 picks a free one.")
        ] = 0,
        token: Annotated[
            str | None,
            typer.Option(
                envvar=TOKEN_VARIABLE,
                show_envvar=True,
                callback=_check_token,
                help="Require this token in HTTP calls; mandatory unless --host is loopback.",
            ),
        ] = None,
        target_latency: Annotated[
            float, typer.Option(min=0.01, max=600, help="Size batches to take this many seconds.")
        ] = USUAL.target_latency_seconds or 0.5,
        checkpoint_seconds: Annotated[
            float, typer.Option(min=0, help="Seconds between checkpoints.")
        ] = USUAL.checkpoint_seconds,
        keep_checkpoints: Annotated[int, typer.Option(min=1, help="Checkpoints to keep.")] = (
            USUAL.keep_checkpoints
        ),
        take_over: Annotated[
            bool, typer.Option("--take-over", help="Fence the current coordinator and replace it.")
        ] = False,
        rewind: Annotated[
            int | None,
            typer.Option(metavar="STEP", min=1, help="Go back to this checkpoint first."),
        ] = None,
        accept_duplicates: Annotated[
            bool,
            typer.Option(
                "--accept-duplicates",
                help="Rewind even if a sink cannot retract what it has published.",
            ),
        ] = False,
        accept_divergence: Annotated[
            bool,
            typer.Option(
                "--accept-divergence", help="Continue if a replay gives a different result."
            ),
        ] = False,
        node: Annotated[
            NodeKind, typer.Option(help="Run Spark in its own process or in this one.")
        ] = NodeKind.PROCESS,
        homes: HomesDirectory = None,
        isolate_workers: IsolateWorkers = False,
        bins: Annotated[
            int,
            typer.Option(
                callback=_power_of_two,
                help="Bins per region, a power of two; fixed once state exists.",
            ),
        ] = BINS,
        move: Annotated[MovePolicy, typer.Option(help="Bins to move per step of a rescale.")] = (
            MovePolicy.BATCHED
        ),
        move_ms: Annotated[
            float | None,
            typer.Option(min=0, help="Milliseconds a step may spend moving bins, if batched."),
        ] = None,
        move_bytes: Annotated[
            int | None, typer.Option(min=0, help="Bytes a step may move, if batched.")
        ] = None,
        step_seconds: Annotated[
            float, typer.Option(min=1, help="Fail a step that takes longer.")
        ] = USUAL.deadlines.step,
        query_seconds: Annotated[
            float,
            typer.Option(
                min=0, max=LONGEST_SECONDS, help="Time limit of a query; 0 refuses all queries."
            ),
        ] = USUAL.query_seconds,
    ) -> None:
        """Run a dataflow until its input ends or you stop it.

        Ctrl-C and SIGTERM finish the current step and keep a checkpoint; a second
        Ctrl-C stops at once. To continue, run it again with the same directory.
        """
        from rich.console import Console

        settings = Settings(
            workers=workers,
            target_latency_seconds=target_latency,
            checkpoint_seconds=checkpoint_seconds,
            keep_checkpoints=keep_checkpoints,
            accept_divergence=accept_divergence,
            rescale=RescaleSettings(policy=move, budget_bytes=move_bytes, budget_ms=move_ms),
            homes=None if homes is None else str(homes.absolute()),
            isolate_workers=isolate_workers,
            deadlines=Deadlines(step=step_seconds),
            query_seconds=query_seconds,
            # Files must outlast queries.
            grace_seconds=max(USUAL.grace_seconds, query_seconds + MARGIN_SECONDS),
        )
        start = partial(
            serve,
            flow,
            directory=directory,
            settings=settings,
            master=master,
            spark_conf=spark_settings(conf),
            bins=bins,
            inline=node is NodeKind.INLINE,
            host=host,
            port=port,
            token=token,
            take_over=take_over,
            rewind=rewind,
            accept_duplicates=accept_duplicates,
        )
        raise typer.Exit(watch(start, directory.absolute(), Console()))


def _check_token(token: str | None) -> str | None:
    """Reject an invalid token before anything starts.

    An empty environment variable counts as a token: setting it does not mean "let anyone in".
    """
    given = os.environ.get(TOKEN_VARIABLE) if token is None else token
    try:
        if given is not None:
            check_token(given)
    except TokenInvalid as error:
        raise typer.BadParameter(f"{error.what}. {error.do}") from error
    return given


def _power_of_two(bins: int) -> int:
    """Reject an invalid number of bins before anything starts."""
    try:
        bin_bits(bins)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
    return bins


def watch(start: Callable[..., Serving], directory: Path, console: Console) -> Exit:
    """Start a pipeline and show it until it ends; raise its failure, if any."""
    from anabranch.cli.run_view import RunView
    from anabranch.protocol.failures import error_of

    report: list[StepDone] = []
    view: RunView | None = None

    def tell(done: StepDone) -> None:
        if view is None:
            report.append(done)
        else:
            view.tell(done)

    serving = start(watch=tell)
    try:
        view = RunView(console, serving.url)
        for done in report:
            view.tell(done)
        with view:
            view.say(f"Serving at {serving.url}; directory {directory}")
            ended_in_order = _until_end(serving, view)
        status = serving.coordinator.status()
    finally:
        serving.close()
    if status.failure is not None and status.phase is Phase.FAILED:
        raise error_of(status.failure)
    console.print(_end_text(status), markup=False, highlight=False, soft_wrap=True)
    return Exit.DONE if ended_in_order else Exit.INTERRUPTED


def _until_end(serving: Serving, view: RunView) -> bool:
    """Show the pipeline until it ends; false if a second Ctrl-C cut it short."""
    interrupted = answered = 0
    while True:
        try:
            # Not in the except block: the next Ctrl-C may come at any time.
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
    from anabranch.coordinator.operations import ShutDownPipeline

    serving.coordinator.ask(ShutDownPipeline(at_once=at_once), 0)
    view.say("Stopping at once" if at_once else "Stopping; Ctrl-C again to stop at once")


def _end_text(status: Status) -> str:
    return (
        f"{status.phase.value.capitalize()} after step {status.step}: {status.rows:,} rows, "
        f"published up to step {status.published}."
    )
