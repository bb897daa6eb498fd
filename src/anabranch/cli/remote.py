"""The commands that talk to a running pipeline, over HTTP only."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from anabranch.cli.connect import Directory, Json, Seconds, Token, Url, client_of
from anabranch.cli.exits import Exit
from anabranch.cli.spinner import checkpoint_with_progress, with_spinner
from anabranch.cli.tables import checkpoint_table, status_line, status_picture
from anabranch.http.client import Client
from anabranch.http.schemas import (
    LAST_STEP,
    LONGEST_SECONDS,
    MOST_BYTES,
    MOST_ROWS,
    OperationAnswer,
    QueryRequest,
)
from anabranch.http.text_table import visible
from anabranch.protocol.status import ENDED, Status
from anabranch.task.queries import LIMIT_BYTES, LIMIT_ROWS

WATCH_SECONDS = 1.0

Source = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="Only this source; all else goes on."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (status, checkpoint, checkpoints, pause, start, shutdown, load, query):
        app.command()(command)


def status(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second.")] = False,
    json: Json = False,
) -> None:
    """Show what a running pipeline is doing."""
    client = client_of(directory, url, token)
    found = client.status()
    if watch:
        _watch(client, found, json)
    elif json:
        _print_json(found)
    else:
        Console().print(status_picture(found))


def checkpoint(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Keep the last committed step."""
    client = client_of(directory, url, token)
    answer = checkpoint_with_progress(client, seconds, Console(stderr=True))
    _end(answer, f"Step {answer.step} is kept.", json)


def checkpoints(
    directory: Directory = None, url: Url = None, token: Token = None, json: Json = False
) -> None:
    """List the kept checkpoints."""
    found = client_of(directory, url, token).checkpoints()
    if json:
        _print_json(found)
    elif found.checkpoints:
        Console().print(checkpoint_table(found.checkpoints))
    else:
        print("No checkpoint is kept yet.")


def pause(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    source: Source = None,
    json: Json = False,
) -> None:
    """Take no further step until `start`; or ask nothing more of one source."""
    answer = client_of(directory, url, token).pause(source)
    _end(answer, _stands(answer, source, "is paused"), json)


def start(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    source: Source = None,
    json: Json = False,
) -> None:
    """Go on after a pause, of the pipeline or of one source."""
    answer = client_of(directory, url, token).start(source)
    _end(answer, _stands(answer, source, "goes on"), json)


def _stands(answer: OperationAnswer, source: str | None, so: str) -> str:
    """How the pipeline, or a source of it, stands after a pause or a start."""
    phase, step = answer.status.phase.value, answer.status.step
    if source is None:
        return f"{phase.capitalize()} at step {step}."
    return f"Source {visible(source)} {so}. The pipeline is {phase}, at step {step}."


def shutdown(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Give up the step under way and keep no checkpoint."),
    ] = False,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Finish the step under way, publish, keep a checkpoint, and end the pipeline."""
    client = client_of(directory, url, token)
    answer = with_spinner(
        "Shutting down",
        lambda: client.shutdown(at_once=at_once, seconds=seconds),
        Console(stderr=True),
    )
    _end(answer, f"Ended after step {answer.status.step}.", json)


def load(
    step: Annotated[
        int, typer.Argument(min=1, max=LAST_STEP, help="A step that `checkpoints` lists.")
    ],
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    accept_duplicates: Annotated[
        bool,
        typer.Option(
            "--accept-duplicates",
            help="Also where a sink cannot take back what it has published since.",
        ),
    ] = False,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Go back to a kept checkpoint; later steps stay behind in their own branch."""
    client = client_of(directory, url, token)
    answer = with_spinner(
        f"Going back to step {step}",
        lambda: client.load(step, accept_duplicates=accept_duplicates, seconds=seconds),
        Console(stderr=True),
    )
    _end(answer, f"At step {answer.step}, in branch {answer.status.branch}.", json)


def _above_zero(seconds: float | None) -> float | None:
    """Refuse a time in which nothing can be done."""
    if seconds is not None and not seconds > 0:
        raise typer.BadParameter(f"{seconds:g} is not above 0.")
    return seconds


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One query over the operators.")],
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    rows: Annotated[int, typer.Option(min=0, max=MOST_ROWS, help="The most rows.")] = LIMIT_ROWS,
    limit_bytes: Annotated[
        int, typer.Option("--bytes", min=0, max=MOST_BYTES, help="The most bytes.")
    ] = LIMIT_BYTES,
    seconds: Annotated[
        float | None,
        typer.Option(
            max=LONGEST_SECONDS,
            callback=_above_zero,
            help="The most seconds; what the pipeline allows unless told.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print the rows of one SQL query over the state at the last committed step."""
    client = client_of(directory, url, token)
    form: Literal["json", "text"] = "json" if json else "text"
    asked = QueryRequest(sql, form, rows, limit_bytes, seconds)
    found = with_spinner("Querying", lambda: client.query(asked), Console(stderr=True))
    typer.echo(found, nl=json)


def _watch(client: Client, found: Status, json: bool) -> None:
    """Show the status until the pipeline has ended or the user has seen enough."""
    console = Console()
    if json or not console.is_terminal:
        while True:
            print(msgspec.json.encode(found).decode() if json else status_line(found), flush=True)
            if found.phase in ENDED:
                return
            time.sleep(WATCH_SECONDS)
            found = client.status()
    with Live(status_picture(found), console=console, auto_refresh=False) as live:
        while found.phase not in ENDED:
            time.sleep(WATCH_SECONDS)
            found = client.status()
            live.update(status_picture(found), refresh=True)


def _end(answer: OperationAnswer, text: str, json: bool) -> None:
    """Print what became of an operation; one that still goes on has an exit code of its own."""
    if json:
        _print_json(answer)
    elif answer.done:
        print(text)
    else:
        print(f"The {answer.operation} still goes on: see `anabranch status`.")
    if not answer.done:
        raise typer.Exit(Exit.GOING_ON)


def _print_json(value: Any) -> None:  # noqa: ANN401  (whatever is printed)
    print(msgspec.json.encode(value).decode())
