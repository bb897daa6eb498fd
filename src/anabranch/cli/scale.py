"""``anabranch scale`` and ``rebalance``: change the workers of a running pipeline, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.core import TyperGroup

from anabranch.cli.connect import (
    Directory,
    Json,
    Seconds,
    Token,
    Url,
    client_of,
    pipeline_command,
    print_json,
    report_operation,
)
from anabranch.cli.exits import Exit
from anabranch.cli.scale_progress import await_rescale
from anabranch.cli.scale_text import forecast_text, history_table, outcome_text, rescale_text
from anabranch.cli.spinner import with_spinner
from anabranch.http.client import Client
from anabranch.http.schemas import MOST_WORKERS, RebalanceRequest, ScaleAnswer, ScaleRequest
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import Balance, Rebalance, Scale, TargetRequest
from anabranch.protocol.status import ENDED

Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait for the last bin, with a progress bar.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would move; change nothing.")]
_TO = "to"


class _NumberOrVerb(TyperGroup):
    """Reads ``scale 4`` as ``scale to 4``: arguments without a verb are a target."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (as click's)
        """Insert the verb if it is missing."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_TO, *args]
        return super().parse_args(ctx, args)


scale = typer.Typer(
    cls=_NumberOrVerb,
    no_args_is_help=True,
    help="Change the number of workers while rows flow: `scale 4`.",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(scale, name="scale")
    app.command()(rebalance)


@scale.command(_TO)
def scale_to(
    workers: Annotated[
        int | None,
        typer.Argument(min=1, max=MOST_WORKERS, help="Number of workers.", show_default=False),
    ] = None,
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    region: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=N]", help="Scale only this region, to N if given; repeatable."),
    ] = None,
    remove: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MOST_WORKERS,
            metavar="WORKER",
            help="Move all bins off this worker; repeatable.",
        ),
    ] = None,
    by: Annotated[Balance, typer.Option(help="What to balance.")] = Balance.BINS,
    dry_run: DryRun = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Scale to N workers: `anabranch scale 4`. A second request replaces the first.

    `scale --region by-customer 8` changes one region; `scale --remove 2` empties a worker.
    """
    everywhere, regions = _worker_counts(workers, region or [])
    asked = ScaleRequest(everywhere, regions, tuple(remove or ()), by, dry_run)
    # Not a ``pipeline_command``: wrong usage is reported before the client is looked up.
    client = client_of(directory, url, token)
    answer = with_spinner("Asking", lambda: client.scale(asked, seconds))
    request = Scale(asked.workers, tuple(asked.regions.items()), asked.remove, asked.by)
    _follow(client, answer, wait, seconds, json, request=request)


@pipeline_command
def rebalance(
    client: Client,
    region: Annotated[
        list[str] | None, typer.Argument(metavar="[REGION]...", help="Regions; all by default.")
    ] = None,
    by: Annotated[Balance, typer.Option(help="What to balance.")] = Balance.LOAD,
    dry_run: DryRun = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Redistribute the bins over the same workers, by measured load."""
    asked = RebalanceRequest(tuple(region or ()), by, dry_run)
    answer = with_spinner("Asking", lambda: client.rebalance(asked, seconds))
    _follow(client, answer, wait, seconds, json, request=Rebalance(asked.regions, asked.by))


@scale.command("status")
@pipeline_command
def scale_status(client: Client, json: Json = False) -> None:
    """Show the progress of the current rescale."""
    found = client.rescales()
    if json:
        print_json(found)
    elif found.rescale is not None:
        print(rescale_text(found.rescale))
    else:
        print("No rescale is in progress.")


@scale.command("history")
@pipeline_command
def scale_history(client: Client, json: Json = False) -> None:
    """List recent finished rescales."""
    found = client.rescales()
    if json:
        print_json(found.history)
    elif found.history:
        Console().print(history_table(found.history))
    else:
        print("No rescale has finished yet.")


@scale.command("pause")
@pipeline_command
def scale_pause(client: Client, seconds: Seconds = 600, json: Json = False) -> None:
    """Move no more bins until `scale resume`; rows keep flowing."""
    _report(client.scale_pause(seconds), "The rescale is paused.", json)


@scale.command("resume")
@pipeline_command
def scale_resume(
    client: Client, wait: Wait = True, seconds: Seconds = 600, json: Json = False
) -> None:
    """Resume a paused rescale."""
    _follow(client, client.scale_resume(seconds), wait, seconds, json)


@scale.command("cancel")
@pipeline_command
def scale_cancel(
    client: Client,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Move the bins back to where they were.")
    ] = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Stop a rescale and leave the bins where they are, or roll it back."""
    answer = client.scale_cancel(roll_back=roll_back, seconds=seconds)
    wanted = (RescaleOutcome.CANCELLED, RescaleOutcome.ROLLED_BACK)
    _follow(client, answer, wait, seconds, json, wanted=wanted)


def _worker_counts(workers: int | None, given: list[str]) -> tuple[int | None, dict[str, int]]:
    """The number of workers for all regions, and those for single regions.

    >>> _worker_counts(4, []), _worker_counts(8, ["a"]), _worker_counts(None, ["a=2", "b=3"])
    ((4, {}), (None, {'a': 8}), (None, {'a': 2, 'b': 3}))
    """
    regions: dict[str, int] = {}
    plain = False
    for each in given:
        name, _, number = each.rpartition("=")
        if name and number.isdecimal() and int(number):
            if int(number) > MOST_WORKERS:
                raise typer.BadParameter(f"{number} workers for region {name!r} are too many")
            regions[name] = int(number)
        elif workers is not None:
            regions[each], plain = workers, True
        else:
            raise typer.BadParameter(f"how many workers for region {each!r}?")
    return (None if plain else workers), regions


def _follow(
    client: Client,
    answer: ScaleAnswer,
    wait: bool,
    seconds: float,
    json: bool,
    *,
    request: TargetRequest | None = None,
    wanted: tuple[RescaleOutcome, ...] = (RescaleOutcome.SETTLED,),
) -> None:
    """Wait for a rescale and print its outcome; ``REFUSED`` if it is not among those ``wanted``.

    ``request`` tells it from other users' requests that arrive right behind it.
    """
    if answer.forecast is not None:
        print_json(answer) if json else print(forecast_text(answer.forecast))
        return
    if not wait or not answer.done:
        _report(answer, "The rescale is in progress: see `anabranch scale status`.", json)
        return
    found = await_rescale(client, answer, seconds, Console(stderr=True), request)
    ended = found.finished
    done = found.over and ended is not None and ended.outcome in wanted
    if json:
        print_json(msgspec.structs.replace(answer, done=done, status=found.status))
    elif found.over:
        print(outcome_text(ended))
    elif found.status.phase in ENDED:
        print("The pipeline has ended; the rescale continues when it runs again.")
    else:
        print("The rescale is still in progress: see `anabranch scale status`.")
    if not done:
        raise typer.Exit(Exit.REFUSED if found.over else Exit.UNFINISHED)


def _report(answer: ScaleAnswer, finished: str, json: bool) -> None:
    unfinished = "Accepted, but no step has committed it yet: see `anabranch status`."
    report_operation(answer, finished, unfinished, json)
