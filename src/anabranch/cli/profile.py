"""``anabranch profile``: where the time or the memory of a worker goes."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.connect import Json, Seconds, pipeline_command, print_json
from anabranch.cli.exits import Exit
from anabranch.cli.spinner import with_spinner
from anabranch.http.client import Client
from anabranch.http.profile_text import profile_text
from anabranch.http.schemas import MOST_WORKERS
from anabranch.records.profiles import ProfileKind, ProfileRequest


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
