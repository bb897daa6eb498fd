"""What runs a step: Spark, or something that stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from anabranch.messages import Report
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan


class RunAgain(Exception):
    """A step was given up half-way for no fault of its own: it may end well if it is run again."""


class DataPlane(Protocol):
    """Whoever runs a step: Spark, or something that stands in for it in a simulation."""

    def run(self, plan: Plan, states: Sequence[OperatorState]) -> list[Report]:
        """Run a step and give the reports of all its tasks. Raises why it failed, or ``RunAgain``.

        Nothing of a step that was given up counts.
        """
        ...


@runtime_checkable
class Preparing(DataPlane, Protocol):
    """A data plane that can get ready for a step while another one runs."""

    def prepare(self, plan: Plan) -> bool:
        """Get ready for a step that may come; whether there was anything to do.

        The step that comes may be another one, and this one may come at another time or with
        another state. Any thread may call.
        """
        ...


@runtime_checkable
class Cancellable(DataPlane, Protocol):
    """A data plane that can be asked to give up the step under way."""

    def cancel(self) -> None:
        """Make ``run`` raise soon. Any thread may call, also when nothing runs, and repeatedly."""
        ...
