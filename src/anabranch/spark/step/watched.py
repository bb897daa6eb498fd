"""What Spark adds to a query that SQL cannot say: the step's clock, and who watches times go by.

An ``observe`` computes the latest times while rows pass, in the job of the step. Each query has a
collector of its own, also if its plan is a copy of an earlier one: so two steps never mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from anabranch.messages import ReadTime
from anabranch.plan.boundary import CLOCK
from anabranch.plan.time_sql import Cut, CutQuery, Latest
from anabranch.spark.jvm import Java, java_class
from anabranch.spark.step.assembly import Assembly
from anabranch.spark.step.late_array import LateArray

_FUNCTIONS = "org.apache.spark.sql.functions"
# Not a constant to Spark, which would compute it when it plans.
_FIRST = "least(spark_partition_id(), 0)"
_MARK = "|"
"""Between the name of an input, which never has it, and the number of a partition."""

_decode = msgspec.json.Decoder(dict[str, int | None]).decode


@dataclass
class CutViews:
    """Creates the views of the cuts of one program's queries. For one thread at a time."""

    assembly: Assembly

    def open(self, query: CutQuery) -> str:
        """Create the views that a query reads; gives its text."""
        for cut in query.cuts:
            self._open(cut)
        return query.text

    def write_clock(self, clock_ns: int) -> None:
        """Set the clock of the step that runs next."""
        if "_clock" in vars(self):
            self._clock.write([clock_ns // 1000])

    def _open(self, cut: Cut) -> None:
        frame = self.assembly.query(cut.text)
        if cut.clock:
            frame = self.assembly.with_column(frame, CLOCK, self._clock_column)
        if cut.latest:
            columns = [(each.sql, latest_name(each)) for each in cut.latest]
            frame = self.assembly.observe(frame, cut.view, columns)
        self.assembly.view(frame, cut.view)

    @cached_property
    def _clock(self) -> LateArray:
        return LateArray(self.assembly.spark, 1, "bigint")

    @cached_property
    def _clock_column(self) -> Java:
        functions = java_class(self.assembly.spark._jvm, _FUNCTIONS)
        return self._clock.column.getItem(functions.expr(_FIRST))


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who watched the times of a job: executions of queries that were planned, and collectors."""

    executions: Sequence[Java] = ()
    collectors: Sequence[Java] = field(default=())

    def times(self) -> tuple[ReadTime, ...]:
        """What they saw, once the job is done."""
        return tuple(each for row in self._rows() for each in read_times(str(row.json())))

    def _rows(self) -> Iterator[Java]:
        for execution in self.executions:
            found = execution.observedMetrics().values().iterator()
            while found.hasNext():
                yield found.next()
        for collector in self.collectors:
            yield collector.collectedMetrics()


def latest_name(latest: Latest) -> str:
    """The name of what an ``observe`` computes, which says what it is."""
    return f"{latest.input}{_MARK}{'' if latest.partition is None else latest.partition}"


def read_times(row: str) -> Iterator[ReadTime]:
    """What a row of an ``observe`` says, as JSON; NULL if there were no rows.

    >>> [(each.input, each.partition) for each in read_times('{"a|": 7, "b|0": null, "b|1": 9}')]
    [('a', None), ('b', 1)]
    """
    for name, latest in _decode(row).items():
        source, _, number = name.partition(_MARK)
        if latest is not None:
            yield ReadTime(source, int(number) if number else None, latest)
