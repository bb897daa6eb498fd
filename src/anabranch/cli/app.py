"""The command line ``anabranch``: its commands, its global options, its exit."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from anabranch import __version__
from anabranch.cli import remote, scale
from anabranch.cli.doctor.command import doctor
from anabranch.cli.exits import Exit, exit_of
from anabranch.cli.node import node
from anabranch.cli.run import register as register_run
from anabranch.cli.state import state
from anabranch.errors import AnabranchError
from anabranch.run import serve

app = typer.Typer(
    name="anabranch",
    help="Stateful stream processing for Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

register_run(app, serve)
remote.register(app)
scale.register(app)
app.add_typer(state, name="state")
app.command()(doctor)
app.command()(node)


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
        bool, typer.Option("--debug", help="Print tracebacks; valid after a command, too.")
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
    rows: Annotated[int, typer.Option(min=1, help="Number of orders.")] = 400_000,
    steps: Annotated[
        int,
        typer.Option(min=1, help="Number of input files; a slow machine reads several per step."),
    ] = 40,
    workers: Annotated[int, typer.Option(min=1, help="Initial number of workers.")] = 2,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=_new_or_empty,
            help="Keep input, output and state in this new or empty directory.",
        ),
    ] = None,
) -> None:
    """Run a stateful pipeline on embedded Spark, watch it, and check its result.

    Orders arrive as JSON files. One region keeps a running total per customer,
    another sums the revenue per customer tier. Meanwhile the pipeline scales to
    twice the workers, then down to one; a map shows who owns which bins. Then
    plain Python recomputes everything: exit code 0 if equal, 1 if not.
    """
    from rich.console import Console

    from anabranch.cli.demo.command import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(rows, steps, workers, keep), Console()))


def main() -> None:
    """Run the command line and exit with one of the codes in ``Exit``."""
    # Bars and arrows must not crash the program on a terminal that cannot show them.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Removed here so that it is also accepted after a command.
    debug = "--debug" in sys.argv[1:]
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except AnabranchError as error:
        sys.exit(_print_error(str(error), exit_of(error), debug))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        what = f"[anabranch] {type(error).__name__}: {error}. anabranch --debug shows where."
        sys.exit(_print_error(what, Exit.FAILED, debug))


def _print_error(what: str, code: Exit, debug: bool) -> Exit:
    """Print an error as one paragraph, after its traceback if ``debug``."""
    from rich.console import Console

    from anabranch.cli.plain_text import literal

    if debug:
        traceback.print_exc()
    Console(stderr=True).print(literal(f"error: {what}", "bold red"), soft_wrap=True)
    return code


if __name__ == "__main__":
    main()
