"""Which test process runs what: a file stays in one, and so do all files that use the shared Spark.

Most of what a test on Spark costs is Java code that runs for the first time. With one Spark for all
of them, it does so once, and not in every process. What they run one after the other takes longer
than anything else, so the other processes give way to theirs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

ON_SHARED_SPARK = "files that use the shared Spark"

NICENESS = 5

_USES_IT = re.compile(r'\bspark: SparkSession|_started_spark\b|usefixtures\("spark"')


class BySpark(LoadFileScheduling):
    """Hands out files, and those that use the shared Spark together."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        """``log`` is xdist's."""
        super().__init__(config, log)
        self._root = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return ON_SHARED_SPARK if uses_shared_spark(self._root / file) else file


class GiveWay:
    """A plugin for a test process among several: unless it has the shared Spark, it is nice."""

    def __init__(self) -> None:
        """Its first test will tell which process this is."""
        self._knows = False

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Step back, and with this process all that it will start."""
        if not self._knows:
            self._knows = True
            if not uses_shared_spark(item.path):
                os.nice(NICENESS)


def check_names(names: Iterable[str]) -> None:
    """Refuse tests of the same name: of these a process among several runs one, silently."""
    often = [name for name, times in Counter(names).items() if times > 1]
    if often:
        raise pytest.UsageError(f"several tests have the same name: {', '.join(often)}")


@cache
def uses_shared_spark(file: Path) -> bool:
    """Whether a test in the file asks for the session that all tests share."""
    return _USES_IT.search(file.read_text()) is not None
