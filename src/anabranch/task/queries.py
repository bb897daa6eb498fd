"""Queries over state: their limits, and the interface that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.task.state_reader import Snapshot

LIMIT_ROWS = 100_000
LIMIT_BYTES = 64 << 20
LIMIT_SECONDS = 60.0
"""The default limits of a query."""

MOST_ROWS = (1 << 31) - 2

STEP = b"anabranch.step"
"""The metadata key in a result's schema for the step that the query read."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of a query: rows and bytes of its result, seconds from call to result."""

    rows: int
    bytes: int
    seconds: float

    def __post_init__(self) -> None:
        """Reject limits that no query could meet."""
        if not 0 <= self.rows <= MOST_ROWS or self.bytes < 0 or not self.seconds > 0:
            raise ValueError(f"a query's limits must be positive, rows below 2**31 - 1: {self}")


class Queries(Protocol):
    """Runs SQL over state: Spark, if it is in this process."""

    def run(self, sql: str, committed: Callable[[], Snapshot], limits: QueryLimits) -> pa.Table:
        """The rows of a query over the state committed when it starts."""

    def frame(self, snapshot: Snapshot, operator: str) -> Any:  # noqa: ANN401
        """An operator's state as a lazy DataFrame: it reads the files when it is used."""
