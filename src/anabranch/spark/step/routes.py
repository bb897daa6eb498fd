"""Where the rows of each bin go: tables that are written after the queries over them were planned.

Which worker has a bin changes with every round of a rescale. Were it in the text of a query, Spark
would plan each of those steps anew, and compile its code. So the tables are literals whose content
is written just before a step runs, as blanks are: Spark reads it when it sends out the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from anabranch.plan.boundary import PART, TO, Boundary, Seats
from anabranch.plan.sql import bin_text
from anabranch.records.placed import Assignment
from anabranch.spark.jvm import java_class
from anabranch.task.program import Program

_CATALYST = "org.apache.spark.sql.catalyst"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"

Java = Any
"""An object of the JVM; it has no type here."""


class Table:
    """A number for each bin, as a column that is the same for every row.

    One job at a time may read it: a task that is sent out again takes what is written then.
    """

    def __init__(self, spark: SparkSession, size: int) -> None:
        """All numbers are 0."""
        jvm: Java = spark.sparkContext._jvm
        self._begins: int = java_class(jvm, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET
        self._data: Java = java_class(jvm, f"{_CATALYST}.expressions.UnsafeArrayData")()
        self._written: list[int] = []
        self.write([0] * size)
        kind = java_class(jvm, "org.apache.spark.sql.types.DataType").fromDDL("array<int>")
        # It does not copy the data: what they point to later is in the literal.
        literal = java_class(jvm, f"{_CATALYST}.expressions.Literal")(self._data, kind)
        self.column: Java = java_class(jvm, _COLUMNS).column(literal)

    def write(self, values: Sequence[int]) -> None:
        """Write all numbers, with one call: in a rescale, many single bins get another one."""
        assert not self._written or len(values) == len(self._written)
        if list(values) == self._written:
            return
        data = packed(values)
        self._data.pointTo(data, self._begins, len(data))
        self._written = list(values)


def packed(values: Sequence[int]) -> bytearray:
    """Numbers as Spark keeps an array of them in memory.

    Their count as 64 bits, a bit for each that would say that it is missing, and the numbers in 32
    bits each, all of it filled up to words of 64 bits.

    >>> list(packed([7, 8, 9]).hex("_", 4).split("_")[-4:])
    ['07000000', '08000000', '09000000', '00000000']
    """
    words = -(-len(values) // 64)
    count = np.array([len(values)], dtype=np.int64)
    numbers = np.zeros(len(values) + len(values) % 2, dtype=np.int32)
    numbers[: len(values)] = values
    return bytearray(count.tobytes() + bytes(8 * words) + numbers.tobytes())


class Routes:
    """The routes of one program's rows. For one thread at a time."""

    def __init__(self, spark: SparkSession, program: Program) -> None:
        """No call is made yet."""
        self._spark = spark
        self._program = program
        self._tables: dict[tuple[int, str], Table] = {}
        self._columns: dict[int, Java] = {}

    def column(self, boundary: Boundary) -> Java:
        """The partition of each row that arrives at a level."""
        level = boundary.level.number
        if level not in self._columns:
            self._columns[level] = self._made(boundary)
        return self._columns[level]

    def write(self, placement: Sequence[Assignment], seating: Sequence[Seats]) -> None:
        """Write who has which bin; ``seating`` has the seats of every level."""
        owners = {assignment.region: assignment.workers for assignment in placement}
        # The query of the step after this one may be made meanwhile.
        for (level, group), table in list(self._tables.items()):
            seat = seating[level].of(group)
            region = next(
                each.region
                for each in self._program.physical.levels[level].groups
                if each.name == group
            )
            assert region is not None
            table.write([seat[worker] for worker in owners[region]])

    def _made(self, boundary: Boundary) -> Java:
        """By its bin's owner where a row has a key; others know their partition."""
        jvm: Java = self._spark.sparkContext._jvm
        functions = java_class(jvm, "org.apache.spark.sql.functions")
        number = functions.expr(bin_text(self._program.bins))
        cases: Java = functions
        for group, edges in boundary.keyed_edges().items():
            table = Table(self._spark, self._program.bins)
            self._tables[boundary.level.number, group] = table
            theirs = functions.expr(f"{TO} in ({', '.join(map(str, edges))})")
            cases = cases.when(theirs, table.column.getItem(number))
        known = functions.col(PART)
        return known if cases is functions else cases.otherwise(known)
