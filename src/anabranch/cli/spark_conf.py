"""The option ``--conf KEY=VALUE``: Spark settings."""

from __future__ import annotations

from typing import Annotated

import typer

Conf = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a Spark option; repeatable.")
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
