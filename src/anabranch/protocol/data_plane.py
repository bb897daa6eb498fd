"""The data plane: what runs the tasks of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from anabranch.messages import Report
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan

WATCHED = "-watched"
"""The group of the report on event times that no task saw; it is not a valid region name."""


class RetryStep(Exception):
    """A step failed through no fault of its own: a retry may succeed."""


class DataPlane(Protocol):
    """Runs steps: Spark, or its stand-in in a simulation."""

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step and return the reports of all its tasks. A failed step has no effect.

        If the plane itself saw event times of the step, there is one more report, of ``WATCHED``.
        Raises the cause of a failure, or ``RetryStep``.
        """


@runtime_checkable
class PreparablePlane(DataPlane, Protocol):
    """A data plane that can prepare a step while another one runs."""

    def prepare(self, plan: Plan) -> bool:
        """Prepare a likely next step; returns whether there was anything to do.

        Only a hint: another step may come instead, or this one later or with other state.
        Thread-safe.
        """


@runtime_checkable
class Cancellable(DataPlane, Protocol):
    """A data plane that can cancel the running step."""

    def cancel(self) -> None:
        """Make ``run`` raise soon. Thread-safe and idempotent, even when nothing runs."""


@runtime_checkable
class MortalPlane(DataPlane, Protocol):
    """A data plane that may die while the node lives: Spark's JVM is a process of its own."""

    def check_alive(self) -> None:
        """Raise ``JvmDied`` if it is dead. Thread-safe."""
