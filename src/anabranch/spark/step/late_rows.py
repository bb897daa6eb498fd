"""Rows that are written after the query over them was planned.

Planning a step takes as long as running a small one, and what a step is told is known only when the
one before is committed. So the rows with what it is told are blank while its query is planned, and
are filled in just before it runs: Spark reads them when it sends out their task. They are made
once, and serve all steps with as many tasks, or with fewer: some may stay blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.jvm import STRUCT, java_class

AT = "at"
TOLD = "told"

_ROW = "org.apache.spark.sql.catalyst.expressions.GenericInternalRow"
_SCHEMA = f"{AT} int, {TOLD} binary"


class Blanks:
    """So many rows of a number and some bytes, in one task or in one each.

    One job at a time may read them: a task that is sent out again, after it has failed, takes with
    it what is written in them then.
    """

    def __init__(self, spark: SparkSession, count: int, *, tasks: int = 1) -> None:
        """All of them are blank; ``tasks`` is how many tasks read them."""
        context = spark.sparkContext
        jvm: Any = context._jvm
        gateway: Any = context._gateway
        session: Any = spark._jsparkSession
        java: Any = context._jsc
        kind = java_class(jvm, "java.lang.Object")
        self._arrays = [gateway.new_array(kind, 2) for _ in range(count)]
        self._written: list[tuple[int | None, bytes | None]] = [(None, None)] * count
        rows = java_class(jvm, "java.util.ArrayList")()
        row = java_class(jvm, _ROW)
        for array in self._arrays:
            # The row does not copy the array: what is written there later is in the row.
            rows.add(row(array))
        #: the rows as Spark's own RDD
        self.rows: Any = java.parallelize(rows, tasks).rdd()
        schema = java_class(jvm, STRUCT).fromDDL(_SCHEMA)
        self.frame = DataFrame(session.internalCreateDataFrame(self.rows, schema, False), spark)

    def __len__(self) -> int:
        """How many."""
        return len(self._arrays)

    def fill(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write these rows; all others are blank."""
        blank = [(None, None)] * (len(self) - len(rows))
        for place, (array, (at, report)) in enumerate(
            zip(self._arrays, [*rows, *blank], strict=True)
        ):
            before = self._written[place]
            if before[0] != at:
                array[0] = at
            if before[1] != report:
                array[1] = None if report is None else bytearray(report)
            self._written[place] = (at, report)
