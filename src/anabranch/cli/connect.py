"""What the commands for a running pipeline share: options, the client, how they report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from anabranch.cli.exits import Exit
from anabranch.http.client import Client
from anabranch.http.schemas import LONGEST_SECONDS, OperationAnswer, ScaleAnswer

TOKEN_VARIABLE = "ANABRANCH_TOKEN"

Directory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", file_okay=False, help="The pipeline's directory."),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The coordinator's address, instead of --directory."),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        help="The coordinator's token; --directory finds it by itself.",
        show_envvar=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Seconds = Annotated[
    float,
    typer.Option(
        min=0,
        max=LONGEST_SECONDS,
        help="Seconds to wait. If unfinished, it continues in the background; exit code 5.",
    ),
]


def client_of(directory: Path | None, url: str | None, token: str | None) -> Client:
    """The client of the pipeline that the options name."""
    if (directory is None) == (url is None):
        raise typer.BadParameter("name the pipeline by either --directory or --url")
    if url is not None:
        return Client(url, token)
    assert directory is not None
    found = Client.of_directory(directory.absolute())
    return found if token is None else Client(found.url, token, found.pid)


def print_json(value: Any) -> None:  # noqa: ANN401  (whatever msgspec encodes)
    """Print a result on stdout as one line of JSON."""
    print(msgspec.json.encode(value).decode())


def report_operation(
    answer: OperationAnswer | ScaleAnswer, finished: str, unfinished: str, json: bool
) -> None:
    """Print the result of an operation; exit with ``GOING_ON`` if it is unfinished."""
    if json:
        print_json(answer)
    else:
        print(finished if answer.done else unfinished)
    if not answer.done:
        raise typer.Exit(Exit.GOING_ON)
