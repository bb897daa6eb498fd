"""The options that ``run`` and ``node`` share: Spark and where workers keep state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Master = Annotated[str | None, typer.Option(help="Spark master URL; local[*] by default.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a Spark option; repeatable.")
]
HomesDirectory = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", file_okay=False, help="Copy state to this directory of each worker's host."
    ),
]
IsolateWorkers = Annotated[
    bool,
    typer.Option(
        "--isolate-workers", help="Give each worker its own home: state that moves is copied."
    ),
]


def spark_settings(pairs: list[str] | None) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs.

    >>> spark_settings(["spark.driver.memory=2g", "spark.x=a=b"])
    {'spark.driver.memory': '2g', 'spark.x': 'a=b'}
    """
    found = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--conf takes KEY=VALUE, not {pair!r}")
        found[key] = value
    return found
