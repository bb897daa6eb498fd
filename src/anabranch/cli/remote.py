"""Commands for a running pipeline: a thin layer over the HTTP client."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console

from anabranch.cli.connect import Json, Seconds, pipeline_command, print_json, report_operation
from anabranch.cli.exits import Exit
from anabranch.cli.line_pace import LinePace
from anabranch.cli.spinner import checkpoint_with_progress, with_spinner
from anabranch.cli.tables import checkpoint_table, status_line, status_picture
from anabranch.http.client import Client
from anabranch.http.profile_text import profile_text
from anabranch.http.schemas import (
    LAST_STEP,
    LONGEST_SECONDS,
    MOST_BYTES,
    MOST_ROWS,
    MOST_WORKERS,
    OperationAnswer,
    QueryRequest,
)
from anabranch.http.text_table import visible
from anabranch.protocol.status import ENDED, Status
from anabranch.records.profiles import ProfileKind, ProfileRequest
from anabranch.task.queries import LIMIT_BYTES, LIMIT_ROWS

WATCH_SECONDS = 1.0

Source = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="Only this source; the rest keeps running."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (status, checkpoint, checkpoints, pause, start, shutdown, load, query, profile):
        app.command()(command)


@pipeline_command
def status(
    client: Client,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second.")] = False,
    json: Json = False,
) -> None:
    """Show what a running pipeline is doing."""
    found = client.status()
    if watch:
        _watch(client, found, json)
    elif json:
        print_json(found)
    else:
        Console().print(status_picture(found))


@pipeline_command
def checkpoint(client: Client, seconds: Seconds = 600, json: Json = False) -> None:
    """Keep the last committed step as a checkpoint."""
    answer = checkpoint_with_progress(client, seconds, Console(stderr=True))
    _report(answer, f"Step {answer.step} is kept.", json)


@pipeline_command
def checkpoints(client: Client, json: Json = False) -> None:
    """List the kept checkpoints."""
    found = client.checkpoints()
    if json:
        print_json(found)
    elif found.checkpoints:
        Console().print(checkpoint_table(found.checkpoints))
    else:
        print("No checkpoint is kept yet.")


@pipeline_command
def pause(client: Client, source: Source = None, json: Json = False) -> None:
    """Pause the pipeline or one source until `start`."""
    answer = client.pause(source)
    _report(answer, _pause_text(answer, source, "is paused"), json)


@pipeline_command
def start(client: Client, source: Source = None, json: Json = False) -> None:
    """Resume a paused pipeline or source."""
    answer = client.start(source)
    _report(answer, _pause_text(answer, source, "is resumed"), json)


def _pause_text(answer: OperationAnswer, source: str | None, state: str) -> str:
    """The state of the pipeline, or of one source, after ``pause`` or ``start``."""
    phase, step = answer.status.phase.value, answer.status.step
    if source is None:
        return f"{phase.capitalize()} at step {step}."
    return f"Source {visible(source)} {state}. The pipeline is {phase}, at step {step}."


@pipeline_command
def shutdown(
    client: Client,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Abandon the current step; keep no checkpoint.")
    ] = False,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Finish the current step, publish, keep a checkpoint and end the pipeline."""
    answer = with_spinner(
        "Shutting down", lambda: client.shutdown(at_once=at_once, seconds=seconds)
    )
    _report(answer, f"Ended after step {answer.status.step}.", json)


@pipeline_command
def load(
    client: Client,
    step: Annotated[
        int, typer.Argument(min=1, max=LAST_STEP, help="A step that `checkpoints` lists.")
    ],
    accept_duplicates: Annotated[
        bool,
        typer.Option(
            "--accept-duplicates",
            help="Go back even if a sink cannot retract what it has published since.",
        ),
    ] = False,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Go back to a kept checkpoint, in a new branch. Later steps stay in the old branch."""
    answer = with_spinner(
        f"Going back to step {step}",
        lambda: client.load(step, accept_duplicates=accept_duplicates, seconds=seconds),
    )
    _report(answer, f"At step {answer.step}, in branch {answer.status.branch}.", json)


def _above_zero(seconds: float | None) -> float | None:
    """Reject a time limit of zero or less."""
    if seconds is not None and not seconds > 0:
        raise typer.BadParameter(f"{seconds:g} is not above 0.")
    return seconds


@pipeline_command
def query(
    client: Client,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query; each operator is a table.")],
    rows: Annotated[int, typer.Option(min=0, max=MOST_ROWS, help="Row limit.")] = LIMIT_ROWS,
    limit_bytes: Annotated[
        int, typer.Option("--bytes", min=0, max=MOST_BYTES, help="Byte limit.")
    ] = LIMIT_BYTES,
    seconds: Annotated[
        float | None,
        typer.Option(
            max=LONGEST_SECONDS, callback=_above_zero, help="Time limit; by default the pipeline's."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Query the state at the last committed step with SQL."""
    form: Literal["json", "text"] = "json" if json else "text"
    request = QueryRequest(sql, form, rows, limit_bytes, seconds)
    typer.echo(with_spinner("Querying", lambda: client.query(request)), nl=json)


@pipeline_command
def profile(
    client: Client,
    worker: Annotated[
        int, typer.Argument(min=0, max=MOST_WORKERS, help="The worker to profile.")
    ] = 0,
    region: Annotated[str | None, typer.Option(help="Profile only this region.")] = None,
    heap: Annotated[bool, typer.Option("--heap", help="Profile memory instead of time.")] = False,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Profile a worker in the next step that reads rows. That step is slower."""
    request = ProfileRequest(ProfileKind.HEAP if heap else ProfileKind.TIME, worker, region)
    found = with_spinner(f"Profiling worker {worker}", lambda: client.profile(request, seconds))
    if json:
        print_json(found)
    else:
        typer.echo(profile_text(found), nl=False)
    if not found.done:
        raise typer.Exit(Exit.UNFINISHED)


def _watch(client: Client, found: Status, json: bool) -> None:
    """Show the status until the pipeline ends or the user interrupts."""
    from rich.live import Live

    console, pace = Console(), LinePace()
    if json or not console.is_terminal:
        while True:
            if json:
                print(msgspec.json.encode(found).decode(), flush=True)
            elif pace.is_due(found, time.monotonic()) or found.phase in ENDED:
                print(status_line(found), flush=True)
            if found.phase in ENDED:
                return
            time.sleep(WATCH_SECONDS)
            found = client.status()
    with Live(status_picture(found), console=console, auto_refresh=False) as live:
        while found.phase not in ENDED:
            time.sleep(WATCH_SECONDS)
            found = client.status()
            live.update(status_picture(found), refresh=True)


def _report(answer: OperationAnswer, finished: str, json: bool) -> None:
    unfinished = f"The {answer.operation} is still in progress: see `anabranch status`."
    report_operation(answer, finished, unfinished, json)
