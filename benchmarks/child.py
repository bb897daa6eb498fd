"""The border between the conductor and the process of one case: JSON in, JSON out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchmarks.measure import Outcome

Option: TypeAlias = str | int | float | bool


class Spec(msgspec.Struct, frozen=True):
    """What a case's process is told.

    ``work`` is a directory of its own, ``seconds`` how long it may measure; the outcome goes to
    the file ``result``.
    """

    data: str
    work: str
    result: str
    seconds: float
    options: dict[str, Option] = {}

    def text(self, option: str) -> str:
        """An option that is text."""
        return str(self.options[option])

    def number(self, option: str) -> int:
        """An option that is a number."""
        return int(self.options[option])


WORKERS = 2
MASTER = f"local[{WORKERS}]"
COMMON_CONF = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
"""What every Spark here is started with, ours and theirs."""


def case(measure: Callable[[Spec], Outcome]) -> None:
    """The body of a case's program: read the specification, measure, write the outcome."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Spec)
    outcome = measure(spec)
    Path(spec.result).write_bytes(msgspec.json.encode(outcome))
