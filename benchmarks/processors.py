"""A running sum per key for transformWithState: one read and one write of state per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class RunningSum(StatefulProcessor):
    """Row by row, as ``flows.add`` does it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ANN401
        """Add the rows of a key; a row out for every row in."""
        held = self._total.get()
        total = held[0] if held else 0
        for row in rows:
            total += row.amount
            yield Row(key=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        """Nothing to close."""


class RunningSumInPandas(RunningSum):
    """A data frame at a time."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ANN401
        """Add the rows of a key; a row out for every row in."""
        held = self._total.get()
        total = held[0] if held else 0
        for frame in rows:
            sums = frame["amount"].cumsum() + total
            total = int(sums.iloc[-1])
            yield pd.DataFrame({"key": key[0], "total": sums})
        self._total.update((total,))
