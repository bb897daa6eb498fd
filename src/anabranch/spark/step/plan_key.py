"""The query of a step, which may be yet to come, and everything that it depends on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from anabranch.plan.boundary import Seats
from anabranch.records.plan import Plan
from anabranch.records.slices import Slice
from anabranch.spark.step.late_rows import Blanks
from anabranch.spark.step.reading import ReadOrder


@dataclass(frozen=True, slots=True)
class PlanKey:
    """Everything that a step's query depends on; the placement of bins is not part of it.

    ``shape`` is what its plan depends on; ``read_tasks`` is their number, by level.
    """

    step: int
    revision: int
    ending: str | None
    reads: tuple[tuple[str, tuple[Slice, ...]], ...]
    seating: tuple[Seats, ...]
    shape: tuple[Hashable, ...]
    read_tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepQuery:
    """A step as a query that returns its reports, and the blanks to fill before it runs."""

    plan_key: PlanKey
    frame: DataFrame
    blanks: Blanks | None
    orders: tuple[tuple[Blanks, tuple[ReadOrder, ...]], ...]

    @property
    def seating(self) -> tuple[Seats, ...]:
        """The seats of every level's workers."""
        return self.plan_key.seating


def reads_of(plan: Plan) -> tuple[tuple[str, tuple[Slice, ...]], ...]:
    """What a step reads of each source."""
    return tuple((given.source, given.slices) for given in plan.inputs)
