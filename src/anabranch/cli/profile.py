"""``anabranch profile``: where the time or the memory of a worker goes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from anabranch.cli.connect import Directory, Json, Seconds, Token, Url, client_of
from anabranch.cli.exits import Exit
from anabranch.cli.spinner import with_spinner
from anabranch.http.profile_text import profile_text
from anabranch.http.schemas import MOST_WORKERS
from anabranch.records.profiles import ProfileKind, ProfileRequest


def profile(
    worker: Annotated[
        int, typer.Argument(min=0, max=MOST_WORKERS, help="Whose tasks are looked at.")
    ] = 0,
    region: Annotated[
        str | None, typer.Option(help="In this region alone; in all unless told.")
    ] = None,
    heap: Annotated[
        bool, typer.Option("--heap", help="What it holds in memory, in place of its time.")
    ] = False,
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Print what a worker spends in the next step that reads something. That step is slower."""
    client = client_of(directory, url, token)
    request = ProfileRequest(ProfileKind.HEAP if heap else ProfileKind.TIME, worker, region)
    found = with_spinner(
        f"Looking at worker {worker}",
        lambda: client.profile(request, seconds),
        Console(stderr=True),
    )
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        typer.echo(profile_text(found), nl=False)
    if not found.done:
        raise typer.Exit(Exit.GOING_ON)
