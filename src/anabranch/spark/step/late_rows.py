"""Rows that are written after the query over them is planned.

Planning a step takes as long as running a small one, and the messages to its tasks are known only
when the step before is committed. So these rows are blank while the query is planned, and are
filled in just before it runs: Spark reads them when it sends out their task. They are created once
and serve all steps with as many tasks or fewer: some may stay blank.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from anabranch.spark.jvm import STRUCT, Java, java_class, java_list
from anabranch.spark.step.assembly import frame_over

AT = "at"
PAYLOAD = "payload"

_ROW = "org.apache.spark.sql.catalyst.expressions.GenericInternalRow"
_SCHEMA = f"{AT} int, {PAYLOAD} binary"


class Blanks:
    """A fixed number of rows with a number and some bytes, in one task or in one each.

    Only one job at a time may read them: a failed task that is sent out again takes their current
    content.
    """

    def __init__(self, spark: SparkSession, count: int, *, tasks: int = 1, view: str = "") -> None:
        """Create blank rows; ``tasks`` is the number of tasks that read them."""
        self.view = view
        gateway: Java = spark.sparkContext._gateway
        context: Java = spark.sparkContext._jsc
        kind = java_class(gateway.jvm, "java.lang.Object")
        self._arrays = [gateway.new_array(kind, 2) for _ in range(count)]
        self._written: list[tuple[int | None, bytes | None]] = [(None, None)] * count
        # A row does not copy its array, so it sees later writes.
        rows = java_list(spark, map(java_class(gateway.jvm, _ROW), self._arrays))
        #: the rows as Spark's own RDD
        self.rows: Java = context.parallelize(rows, tasks).rdd()
        self.frame = frame_over(spark, self.rows, java_class(gateway.jvm, STRUCT).fromDDL(_SCHEMA))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._arrays)

    def fill(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write these rows and blank all others."""
        filled = [*rows, *[(None, None)] * (len(self) - len(rows))]
        for place, (array, (at, payload)) in enumerate(zip(self._arrays, filled, strict=True)):
            before = self._written[place]
            if before[0] != at:
                array[0] = at
            if before[1] != payload:
                array[1] = None if payload is None else bytearray(payload)
            self._written[place] = (at, payload)
