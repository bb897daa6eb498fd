"""Queries over state: their limits, and what runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from anabranch.task.state_reader import Snapshot

LIMIT_ROWS = 100_000
LIMIT_BYTES = 64 << 20
LIMIT_SECONDS = 60.0
"""Of a query, unless told otherwise."""

MOST_ROWS = (1 << 31) - 2

STEP = b"anabranch.step"
"""In the metadata of a result's schema: the step that the query saw."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much a query may cost: rows and bytes of its result, seconds from call to result."""

    rows: int
    bytes: int
    seconds: float

    def __post_init__(self) -> None:
        """Refuse what no query could keep."""
        if not 0 <= self.rows <= MOST_ROWS or self.bytes < 0 or not self.seconds > 0:
            raise ValueError(f"a query's limits must be positive, rows below 2**31 - 1: {self}")


class Queries(Protocol):
    """Whoever can run SQL over state: Spark, where it runs in this process."""

    def run(self, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits) -> pa.Table:
        """The rows of a query over the state that is committed when it begins."""
        ...

    def frame(self, snapshot: Snapshot, operator: str) -> Any:  # noqa: ANN401
        """An operator's state as a DataFrame that reads the files when it is used."""
        ...
