"""The interface of a committed part.

A part's value is frozen, and every commit journals it whole. ``plan`` says what the next step does
for the part. ``after_commit`` computes the value to journal from the plan and the step's report.
A new part changes no other: plans, commits, checkpoints, sweeps and restarts use ``Parts``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from anabranch.coordinator.settings import Settings
from anabranch.messages import Message
from anabranch.progress.dataflow.outlook import StepOutlook
from anabranch.protocol.node import StepResult
from anabranch.protocol.time_graph import TimeGraph
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment
from anabranch.records.plan import Input, Plan
from anabranch.rescale.loads import Loads

V = TypeVar("V", bound=msgspec.Struct)
P = TypeVar("P", bound=msgspec.Struct)

Pairs = tuple[tuple[str, int], ...]
"""Workers of regions."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What a part sees when the next step is planned.

    ``placement`` is the one after the last commit. ``revised`` is the placement of the plan that
    this one revises: an assignment that differs from it must have a later generation. ``times`` is
    how event time travels through the dataflow, ``outlook`` the step's clock and its sources.
    """

    step: int
    inputs: tuple[Input, ...]
    placement: tuple[Assignment, ...]
    loads: Callable[[], Loads]
    recent: tuple[float, ...]
    settings: Settings
    revised: tuple[Assignment, ...] = ()
    times: TimeGraph = field(default_factory=TimeGraph)
    outlook: StepOutlook = field(default_factory=StepOutlook)


@dataclass(frozen=True, slots=True)
class WaitContext:
    """What a part sees while no step runs.

    ``now`` is monotonic, in seconds. ``outlook`` is what the next step would get: the clock, and
    what waits of its sources.
    """

    now: float
    times: TimeGraph = field(default_factory=TimeGraph)
    outlook: StepOutlook = field(default_factory=StepOutlook)


@dataclass(frozen=True, slots=True)
class PartPlan:
    """What a part adds to a plan.

    ``planned`` is journalled with the plan and passed to ``after_commit``. ``region_messages`` go
    to every worker with a task of the region, in every revision of the plan. ``messages`` go to
    single workers, each by region and worker. Only one part may set ``placement``. ``helping`` and
    ``helping_next`` are workers that have a task without owning bins: see ``Plan``.
    """

    planned: msgspec.Struct
    messages: tuple[tuple[str, int, Message], ...] = ()
    placement: tuple[Assignment, ...] | None = None
    helping: Pairs = ()
    helping_next: Pairs | None = None
    region_messages: tuple[tuple[str, Message], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitContext:
    """What a part sees when a step is committed: its plan, its result, its duration."""

    plan: Plan
    result: StepResult
    seconds: float

    def report(self, part: str) -> msgspec.Raw | None:
        """The node's report for a part, if any."""
        return self.result.parts.get(part)


class Part(ABC, Generic[V, P]):
    """One committed part. Stateless: everything it knows is in the value passed to it.

    When a plan is revised, ``placed`` parts plan again. What the others have planned stays, because
    the result may depend on it. So only ``placed`` parts may address single workers, which a
    revision may not have; the others address regions.
    """

    name: ClassVar[str]
    value_type: ClassVar[type[Any]]
    planned_type: ClassVar[type[Any]] = msgspec.Struct
    placed: ClassVar[bool] = False

    @abstractmethod
    def initial(self) -> V:
        """The value before the first commit."""

    def of(self, commit: Commit | None) -> V:
        """The value at a commit; the initial one if the commit lacks the part."""
        raw = None if commit is None else commit.parts.get(self.name)
        if raw is None:
            return self.initial()
        value: V = msgspec.json.decode(raw, type=self.value_type)
        return value

    @abstractmethod
    def after_commit(self, value: V, planned: P | None, context: CommitContext) -> V:
        """The value to journal with the commit of a step.

        ``value`` may be newer than the one the plan was made from: requests may have arrived
        since. ``planned`` is None if the part had nothing to do in that step.
        """

    def plan(self, value: V, context: PlanContext) -> PartPlan | None:
        """What the next step does for the part; None if nothing."""
        return None

    def pending(self, value: V, context: WaitContext) -> bool:
        """Whether to take a step even if no input waits."""
        return False

    def wakes_at(self, value: V, context: WaitContext) -> float | None:
        """When ``pending`` may change without an event, by ``context.now``."""
        return None

    def files(self, value: V) -> frozenset[str]:
        """The files that the value needs, relative to the store.

        They stay while a commit or checkpoint with this value is kept.
        """
        return frozenset()
