"""The command line: what can be typed after ``anabranch``."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from anabranch.cli.demo import INTERRUPTED, WRONG, Wish, run_demo
from anabranch.cli.node import node
from anabranch.cli.state import state
from anabranch.errors import AnabranchError

app = typer.Typer(
    name="anabranch",
    help="Stateful stream processing for Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.add_typer(state, name="state")
app.command()(node)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anabranch {version('anabranch')}")
        raise typer.Exit


@app.callback()
def anabranch(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Stateful stream processing for Python, on Spark."""


def _new_or_empty(directory: Path | None) -> Path | None:
    if directory is None or not directory.exists():
        return directory
    if not directory.is_dir() or os.listdir(directory):
        raise typer.BadParameter(f"{directory} must be a new or an empty directory")
    return directory


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="How many orders arrive.")] = 300_000,
    steps: Annotated[
        int,
        typer.Option(min=1, help="In how many files, a step each; on a slow machine several."),
    ] = 30,
    workers: Annotated[int, typer.Option(min=1, help="How many shares each region has.")] = 2,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=_new_or_empty,
            help="Keep input, output and state in this new directory.",
        ),
    ] = None,
) -> None:
    """Run a stateful pipeline on embedded Spark, watch it, and check its result.

    Orders arrive as JSON files. One region keeps a running total per customer, a second one adds
    up the revenue per tier of customers. In the end everything is computed again in plain Python
    and compared: exit code 0 if it is equal, 1 if it is not.
    """
    raise typer.Exit(run_demo(Wish(rows, steps, workers, keep), Console()))


def main() -> None:
    """Run the command line. Exit codes: 1 for a failure, 2 for wrong usage, 130 for Ctrl-C."""
    # Bars and arrows must not end a program whose terminal cannot show them.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Whoever is told to end cleans up like someone who is interrupted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except AnabranchError as error:
        Console(stderr=True).print(Text(f"error: {error}", "bold red"), soft_wrap=True)
        sys.exit(WRONG)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
