"""A query that was made, and what it was made for: it may be for a step that is yet to come."""

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
    """The step that a query is for: all that it depends on. Which bins are where is not in it.

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
    """A step as a query that gives its reports, and the blanks that are to be filled before."""

    plan_key: PlanKey
    frame: DataFrame
    blanks: Blanks | None
    orders: tuple[tuple[Blanks, tuple[ReadOrder, ...]], ...]

    @property
    def seating(self) -> tuple[Seats, ...]:
        """Where the workers of every level sit."""
        return self.plan_key.seating


def reads_of(plan: Plan) -> tuple[tuple[str, tuple[Slice, ...]], ...]:
    """What a step reads of each source."""
    return tuple((given.source, given.slices) for given in plan.inputs)
