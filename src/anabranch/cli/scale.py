"""``anabranch scale`` and ``rebalance``: other workers for a running pipeline, over HTTP only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.core import TyperGroup

from anabranch.cli.connect import Directory, Json, Seconds, Token, Url, client_of
from anabranch.cli.exits import Exit
from anabranch.cli.scale_progress import until_over
from anabranch.cli.scale_text import forecast_text, history_table, outcome_text, rescale_text
from anabranch.cli.spinner import with_spinner
from anabranch.http.client import Client
from anabranch.http.schemas import MOST_WORKERS, RebalanceRequest, ScaleAnswer, ScaleRequest
from anabranch.protocol.rescale_history import RescaleOutcome
from anabranch.protocol.rescale_requests import Balance, Rebalance, Scale, TargetRequest
from anabranch.protocol.status import ENDED

Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until all bins are there, with a bar.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be moved, and change nothing.")
]
_TO = "to"


class _NumberOrVerb(TyperGroup):
    """Reads ``scale 4`` as ``scale to 4``: a command without a verb is a request."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (as click's)
        """Put the verb in where it was left out."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [_TO, *args]
        return super().parse_args(ctx, args)


scale = typer.Typer(
    cls=_NumberOrVerb,
    no_args_is_help=True,
    help="Go to another number of workers while rows flow: `scale 4`.",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(scale, name="scale")
    app.command()(rebalance)


@scale.command(_TO)
def scale_to(
    workers: Annotated[
        int | None,
        typer.Argument(min=1, max=MOST_WORKERS, help="How many workers.", show_default=False),
    ] = None,
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=N]",
            help="This region only, or with a number of its own; may be given again.",
        ),
    ] = None,
    remove: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MOST_WORKERS,
            metavar="WORKER",
            help="A worker to have no bins; may be given again.",
        ),
    ] = None,
    by: Annotated[Balance, typer.Option(help="What is to be equal on all.")] = Balance.BINS,
    dry_run: DryRun = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Go to so many workers: `anabranch scale 4`. A second request replaces the first.

    `scale --region by-customer 8` changes one region; `scale --remove 2` empties a worker.
    """
    everywhere, regions = _counts(workers, region or [])
    asked = ScaleRequest(everywhere, regions, tuple(remove or ()), by, dry_run)
    client = client_of(directory, url, token)
    answer = with_spinner("Asking", lambda: client.scale(asked, seconds), Console(stderr=True))
    request = Scale(asked.workers, tuple(asked.regions.items()), asked.remove, asked.by)
    _follow(client, answer, RescaleWait(wait, seconds, json, request))


def rebalance(
    region: Annotated[
        list[str] | None, typer.Argument(metavar="[REGION]...", help="All unless some are named.")
    ] = None,
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    by: Annotated[Balance, typer.Option(help="What is to be equal on all.")] = Balance.LOAD,
    dry_run: DryRun = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Share the bins anew among the same workers, by their measured load."""
    asked = RebalanceRequest(tuple(region or ()), by, dry_run)
    client = client_of(directory, url, token)
    answer = with_spinner("Asking", lambda: client.rebalance(asked, seconds), Console(stderr=True))
    _follow(client, answer, RescaleWait(wait, seconds, json, Rebalance(asked.regions, asked.by)))


@scale.command("status")
def scale_status(
    directory: Directory = None, url: Url = None, token: Token = None, json: Json = False
) -> None:
    """Show how far the rescale is that is under way."""
    found = client_of(directory, url, token).rescales()
    if json:
        _print_json(found)
    elif found.rescale is not None:
        print(rescale_text(found.rescale))
    else:
        print("No rescale is under way.")


@scale.command("history")
def scale_history(
    directory: Directory = None, url: Url = None, token: Token = None, json: Json = False
) -> None:
    """List the last rescales that are over."""
    found = client_of(directory, url, token).rescales()
    if json:
        _print_json(found.history)
    elif found.history:
        Console().print(history_table(found.history))
    else:
        print("There was no rescale yet.")


@scale.command("pause")
def scale_pause(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Hand no more bins over until `scale resume`; rows go on."""
    _end(client_of(directory, url, token).scale_pause(seconds), "The rescale is paused.", json)


@scale.command("resume")
def scale_resume(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Go on with a rescale that was paused."""
    client = client_of(directory, url, token)
    _follow(client, client.scale_resume(seconds), RescaleWait(wait, seconds, json))


@scale.command("cancel")
def scale_cancel(
    directory: Directory = None,
    url: Url = None,
    token: Token = None,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Bring the bins back to where they were.")
    ] = False,
    wait: Wait = True,
    seconds: Seconds = 600,
    json: Json = False,
) -> None:
    """Leave the bins where they are, or bring them back to where they were."""
    client = client_of(directory, url, token)
    answer = client.scale_cancel(roll_back=roll_back, seconds=seconds)
    wanted = (RescaleOutcome.CANCELLED, RescaleOutcome.ROLLED_BACK)
    _follow(client, answer, RescaleWait(wait, seconds, json, wanted=wanted))


def _counts(workers: int | None, given: list[str]) -> tuple[int | None, dict[str, int]]:
    """The number for all regions, and those for single ones.

    >>> _counts(4, []), _counts(8, ["by-customer"]), _counts(None, ["a=2", "b=3"])
    ((4, {}), (None, {'by-customer': 8}), (None, {'a': 2, 'b': 3}))
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


@dataclass(frozen=True, slots=True)
class RescaleWait:
    """Whether and how long to wait for a rescale, and which ends are what was asked for.

    ``request`` tells it from those of others that came right behind it.
    """

    wait: bool
    seconds: float
    json: bool
    request: TargetRequest | None = None
    wanted: tuple[RescaleOutcome, ...] = (RescaleOutcome.SETTLED,)


def _follow(client: Client, answer: ScaleAnswer, report: RescaleWait) -> None:
    """See a rescale to its end, and say how it ended; refused if somebody else has ended it."""
    if answer.forecast is not None:
        _print_json(answer) if report.json else print(forecast_text(answer.forecast))
        return
    if not report.wait or not answer.done:
        _end(answer, "It is under way: see `anabranch scale status`.", report.json)
        return
    found = until_over(client, answer, report.seconds, Console(stderr=True), report.request)
    ended = found.finished
    done = found.over and ended is not None and ended.outcome in report.wanted
    if report.json:
        _print_json(msgspec.structs.replace(answer, done=done, status=found.status))
    elif found.over:
        print(outcome_text(ended))
    elif found.status.phase in ENDED:
        print("The pipeline has ended; the rescale goes on when it runs again.")
    else:
        print("The rescale still goes on: see `anabranch scale status`.")
    if not done:
        raise typer.Exit(Exit.REFUSED if found.over else Exit.GOING_ON)


def _end(answer: ScaleAnswer, text: str, json: bool) -> None:
    """Print what became of a request; one that no commit knows has an exit code of its own."""
    if json:
        _print_json(answer)
    elif answer.done:
        print(text)
    else:
        print("It was taken, but no step has committed it yet: see `anabranch status`.")
    if not answer.done:
        raise typer.Exit(Exit.GOING_ON)


def _print_json(value: Any) -> None:  # noqa: ANN401  (whatever is printed)
    print(msgspec.json.encode(value).decode())
