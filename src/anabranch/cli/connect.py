"""What the commands for a running pipeline share: options, the client, how they report."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from anabranch.cli.exits import Exit
from anabranch.http.client import Client
from anabranch.http.schemas import LONGEST_SECONDS, OperationAnswer, ScaleAnswer
from anabranch.http.token import TOKEN_VARIABLE

KEYWORD = Parameter.KEYWORD_ONLY

Directory = Annotated[
    Path | None, typer.Option(metavar="DIR", file_okay=False, help="The pipeline's directory.")
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


def pipeline_command(function: Callable[..., None]) -> Callable[..., None]:
    """A command for a running pipeline: options name the client, which is its first argument."""

    @wraps(function)
    def command(
        directory: Path | None, url: str | None, token: str | None, **options: object
    ) -> None:
        function(client_of(directory, url, token), **options)

    signature = inspect.signature(function, eval_str=True)
    _client, *own = signature.parameters.values()
    named = (("directory", Directory), ("url", Url), ("token", Token))
    shared = [Parameter(name, KEYWORD, default=None, annotation=kind) for name, kind in named]
    parameters = [*shared, *(each.replace(kind=KEYWORD) for each in own)]
    # Typer reads the options from the signature.
    setattr(command, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
    return command


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
    """Print the result of an operation; exit with ``UNFINISHED`` if it is unfinished."""
    if json:
        print_json(answer)
    else:
        print(finished if answer.done else unfinished)
    if not answer.done:
        raise typer.Exit(Exit.UNFINISHED)
