"""The options by which commands find a running pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.http.client import Client
from anabranch.http.schemas import LONGEST_SECONDS

TOKEN_VARIABLE = "ANABRANCH_TOKEN"

Directory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", file_okay=False, help="The directory that the pipeline runs in."),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The coordinator's address, in place of --directory."),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        help="The coordinator's token; with --directory it is found.",
        show_envvar=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seconds = Annotated[
    float,
    typer.Option(
        min=0, max=LONGEST_SECONDS, help="How long to wait; what was begun goes on after that."
    ),
]


def client_of(directory: Path | None, url: str | None, token: str | None) -> Client:
    """The client that the options mean."""
    if (directory is None) == (url is None):
        raise typer.BadParameter("name the pipeline by --directory or by --url, one of the two")
    if url is not None:
        return Client(url, token)
    assert directory is not None
    found = Client.of_directory(directory.absolute())
    return found if token is None else Client(found.url, token, found.pid)
