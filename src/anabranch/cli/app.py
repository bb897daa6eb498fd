"""The command line: what can be typed after ``anabranch``."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch import __version__
from anabranch.cli import remote, scale
from anabranch.cli.doctor.command import doctor
from anabranch.cli.exits import Exit, exit_of
from anabranch.cli.node import node
from anabranch.cli.plain_text import literal
from anabranch.cli.profile import profile
from anabranch.cli.run import register as register_run
from anabranch.cli.serving import serve_wanted
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
app.command()(doctor)
remote.register(app)
app.command()(profile)
scale.register(app)
register_run(app, serve_wanted)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anabranch {__version__}")
        raise typer.Exit


@app.callback()
def anabranch(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error, anywhere.")
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
    rows: Annotated[int, typer.Option(min=1, help="How many orders arrive.")] = 400_000,
    steps: Annotated[
        int,
        typer.Option(min=1, help="In how many files, a step each; on a slow machine several."),
    ] = 40,
    workers: Annotated[int, typer.Option(min=1, help="How many workers it begins with.")] = 2,
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
    up the revenue per tier of customers. While orders arrive it goes to twice the workers, and
    down to one: a map shows which worker has which bins. In the end everything is computed again
    in plain Python and compared: exit code 0 if it is equal, 1 if it is not.
    """
    from anabranch.cli.demo.command import DemoOptions, run_demo  # noqa: PLC0415  (no other command needs it)

    raise typer.Exit(run_demo(DemoOptions(rows, steps, workers, keep), Console()))


def main() -> None:
    """Run the command line. ``Exit`` lists the codes that it ends with."""
    # Bars and arrows must not end a program whose terminal cannot show them.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Whoever is told to end cleans up like someone who is interrupted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Taken out here, so that it may stand after a command too.
    debug = "--debug" in sys.argv[1:]
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except AnabranchError as error:
        sys.exit(_say(str(error), exit_of(error), debug))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        what = f"[anabranch] {type(error).__name__}: {error}. anabranch --debug shows where."
        sys.exit(_say(what, Exit.FAILED, debug))


def _say(what: str, code: Exit, debug: bool) -> Exit:
    """Print an error as one paragraph, its traceback before it where that is wanted."""
    if debug:
        traceback.print_exc()
    Console(stderr=True).print(literal(f"error: {what}", "bold red"), soft_wrap=True)
    return code


if __name__ == "__main__":
    main()
