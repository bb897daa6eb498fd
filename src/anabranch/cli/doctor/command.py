"""``anabranch doctor``: whether pipelines can run here, and what to do where they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from anabranch.cli.doctor.checks import Check, Verdict
from anabranch.cli.doctor.directory_checks import directory_checks
from anabranch.cli.doctor.machine_checks import machine_checks
from anabranch.cli.doctor.package_checks import package_checks
from anabranch.cli.doctor.spark_checks import java_checks, session_check
from anabranch.cli.exits import Exit
from anabranch.cli.plain_text import literal

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def doctor(
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where a pipeline is to run; here unless told."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark and run a job too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check Java, Spark, packages, disk, ports, memory; say what to do about each.

    Nothing is changed. Ends with 1 if something keeps pipelines from running.
    """
    found: list[Check] = []
    for check in _checks((directory or Path()).absolute(), spark):
        found.append(check)
        if not json:
            Console().print(_line(check), soft_wrap=True)
    if json:
        print(msgspec.json.encode(found).decode())
    if any(check.verdict is Verdict.FAIL for check in found):
        raise typer.Exit(Exit.FAILED)


def _checks(directory: Path, spark: bool) -> Iterator[Check]:
    yield from package_checks()
    yield from java_checks()
    yield from machine_checks()
    yield from directory_checks(directory)
    if spark:
        yield session_check()


def _line(check: Check) -> Text:
    advice = f". {check.do}" if check.do else ""
    return Text.assemble(
        (f"{check.verdict.value:4}", STYLES[check.verdict]),
        literal(f"  {check.name}: {check.what}{advice}"),
    )
