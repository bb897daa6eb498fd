"""Route rows by bin, with tables that are written after the queries over them are planned.

The owners of bins change with every round of a rescale, and a query outlives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from anabranch.plan.boundary import PART, TO, Boundary, Seats
from anabranch.plan.sql import bin_text
from anabranch.records.placed import Assignment
from anabranch.spark.jvm import Java, java_class
from anabranch.spark.step.late_array import LateArray
from anabranch.task.program import Program


@dataclass
class Routes:
    """The routes of one program's rows. For one thread at a time."""

    spark: SparkSession
    program: Program
    _tables: dict[tuple[int, str], LateArray] = field(default_factory=dict)
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
            table = LateArray(self.spark, self.program.bins)
            self._tables[boundary.level.number, group] = table
            theirs = functions.expr(f"{TO} in ({', '.join(map(str, edges))})")
            cases = cases.when(theirs, table.column.getItem(number))
        known = functions.col(PART)
        return known if cases is functions else cases.otherwise(known)
