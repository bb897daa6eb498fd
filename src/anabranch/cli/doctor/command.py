"""``anabranch doctor``: check whether pipelines can run here, and advise if they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.connect import Json, print_json
from anabranch.cli.doctor.checks import Check, Verdict
from anabranch.cli.exits import Exit

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def doctor(
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The pipeline's directory; this one by default."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark and run a job too.")] = False,
    json: Json = False,
) -> None:
    """Check Java, Spark, packages, disk, ports and memory, with advice on what to fix.

    It changes nothing. The exit code is 1 if something keeps pipelines from running.
    """
    from rich.console import Console

    found: list[Check] = []
    for check in _checks((directory or Path()).absolute(), spark):
        found.append(check)
        if not json:
            Console().print(_line(check), soft_wrap=True)
    if json:
        print_json(found)
    if any(check.verdict is Verdict.FAIL for check in found):
        raise typer.Exit(Exit.FAILED)


def _checks(directory: Path, spark: bool) -> Iterator[Check]:
    from anabranch.cli.doctor.directory_checks import directory_checks
    from anabranch.cli.doctor.machine_checks import machine_checks
    from anabranch.cli.doctor.package_checks import package_checks
    from anabranch.cli.doctor.spark_checks import java_checks, session_check

    yield from package_checks()
    yield from java_checks()
    yield from machine_checks()
    yield from directory_checks(directory)
    if spark:
        yield session_check()


def _line(check: Check) -> Text:
    from rich.text import Text

    from anabranch.cli.plain_text import literal

    advice = f". {check.do}" if check.do else ""
    return Text.assemble(
        (f"{check.verdict.value:4}", STYLES[check.verdict]),
        literal(f"  {check.name}: {check.what}{advice}"),
    )
