"""Route rows by bin, with tables that are written after the queries over them are planned.

The owners of bins change with every round of a rescale. In the text of a query, they would make
Spark plan and compile each of those steps again. So the tables are literals whose content is
written just before a step runs, like blanks: Spark reads it when it sends out the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import SparkSession

from anabranch.plan.boundary import PART, TO, Boundary, Seats
from anabranch.plan.sql import bin_text
from anabranch.records.placed import Assignment
from anabranch.spark.jvm import Java, java_class
from anabranch.task.program import Program

_CATALYST = "org.apache.spark.sql.catalyst"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"


class Table:
    """A number for each bin, as a column that is the same for every row.

    Only one job at a time may read it: a task that is sent out again takes its current content.
    """

    def __init__(self, spark: SparkSession, size: int) -> None:
        jvm: Java = spark._jvm
        self._begins: int = java_class(jvm, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET
        self._data: Java = java_class(jvm, f"{_CATALYST}.expressions.UnsafeArrayData")()
        self._written: list[int] = []
        self.write([0] * size)
        kind = java_class(jvm, "org.apache.spark.sql.types.DataType").fromDDL("array<int>")
        # The literal does not copy the data, so it sees later writes.
        literal = java_class(jvm, f"{_CATALYST}.expressions.Literal")(self._data, kind)
        self.column: Java = java_class(jvm, _COLUMNS).column(literal)

    def write(self, values: Sequence[int]) -> None:
        """Write all numbers with one call: in a rescale many bins change."""
        assert not self._written or len(values) == len(self._written)
        if list(values) == self._written:
            return
        data = pack_array(values)
        self._data.pointTo(data, self._begins, len(data))
        self._written = list(values)


def pack_array(values: Sequence[int]) -> bytearray:
    """Numbers in the memory layout of Spark's ``UnsafeArrayData``.

    The count in 64 bits, a null bit for each number, and the numbers in 32 bits each, padded to
    words of 64 bits.

    >>> list(pack_array([7, 8, 9]).hex("_", 4).split("_")[-4:])
    ['07000000', '08000000', '09000000', '00000000']
    """
    words = -(-len(values) // 64)
    count = np.array([len(values)], dtype=np.int64)
    numbers = np.zeros(len(values) + len(values) % 2, dtype=np.int32)
    numbers[: len(values)] = values
    return bytearray(count.tobytes() + bytes(8 * words) + numbers.tobytes())


@dataclass
class Routes:
    """The routes of one program's rows. For one thread at a time."""

    spark: SparkSession
    program: Program
    _tables: dict[tuple[int, str], Table] = field(default_factory=dict)
    _columns: dict[int, Java] = field(default_factory=dict)

    def column(self, boundary: Boundary) -> Java:
        """The partition of each row that arrives at a level."""
        level = boundary.level.number
        if level not in self._columns:
            self._columns[level] = self._make_column(boundary)
        return self._columns[level]

    def write(self, placement: Sequence[Assignment], seating: Sequence[Seats]) -> None:
        """Write the owners of bins; ``seating`` has the seats of every level."""
        owners = {assignment.region: assignment.workers for assignment in placement}
        # A copy: the query of the next step may be built meanwhile.
        for (level, group), table in list(self._tables.items()):
            seat = seating[level].of(group)
            groups = self.program.physical.levels[level].groups
            region = next(each.region for each in groups if each.name == group)
            assert region is not None
            table.write([seat[worker] for worker in owners[region]])

    def _make_column(self, boundary: Boundary) -> Java:
        """The partition by the bin's owner for rows with a key; others name their partition."""
        functions = java_class(self.spark._jvm, "org.apache.spark.sql.functions")
        number = functions.expr(bin_text(self.program.bins))
        cases: Java = functions
        for group, edges in boundary.keyed_edges().items():
            table = Table(self.spark, self.program.bins)
            self._tables[boundary.level.number, group] = table
            theirs = functions.expr(f"{TO} in ({', '.join(map(str, edges))})")
            cases = cases.when(theirs, table.column.getItem(number))
        known = functions.col(PART)
        return known if cases is functions else cases.otherwise(known)
