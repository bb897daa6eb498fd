"""Frontiers as a committed part: how far event time has come, and what is still pending.

``progress/`` does the arithmetic; this part carries it through plans, commits and restarts. A
frontier is planned before the step that sees it, from the commit before, so a step that is run or
planned again sees the same one.
"""

from __future__ import annotations

import msgspec

from anabranch.coordinator.parts.port import CommitContext, Part, PartPlan, PlanContext, WaitContext
from anabranch.progress.dataflow.step import advances, after_step, due_at, is_due, plan_frontiers
from anabranch.progress.dataflow.times import PART, Frontiers, PlannedFrontiers, TimesReport

BETWEEN_CLOCKS = 0.001
"""How many seconds the wall clock may be behind the monotonic one when something wakes."""


class FrontiersPart(Part[Frontiers, PlannedFrontiers]):
    """Plans the frontier of every operator, and records where inputs and operators stand.

    It does nothing for a dataflow without event time in which no operator handles the end.
    """

    name = PART
    value_type = Frontiers
    planned_type = PlannedFrontiers

    def initial(self) -> Frontiers:
        """Nothing is known."""
        return Frontiers()

    def plan(self, value: Frontiers, context: PlanContext) -> PartPlan | None:
        """The frontiers of the next step, told to all workers of each operator's region."""
        graph, outlook = context.times, context.outlook
        if not graph.operators and not outlook.draining:
            return None
        planned = plan_frontiers(graph, value, outlook)
        return PartPlan(planned, region_messages=tuple(advances(graph, value, planned)))

    def after_commit(
        self, value: Frontiers, planned: PlannedFrontiers | None, context: CommitContext
    ) -> Frontiers:
        """Where everything stands after the step, by the reports of its tasks."""
        if planned is None:
            return value
        raw, plan = context.report(PART), context.plan
        said = TimesReport() if raw is None else msgspec.json.decode(raw, type=TimesReport)
        return after_step(value, planned, plan.inputs, plan.clock_ns // 1000, said)

    def pending(self, value: Frontiers, context: WaitContext) -> bool:
        """Whether something is due, an operator must end, or the pipeline is to be drained."""
        return is_due(context.times, value, context.outlook)

    def wakes_at(self, value: Frontiers, context: WaitContext) -> float | None:
        """When something falls due by the clock, or a partition falls idle."""
        moment = due_at(context.times, value, context.outlook)
        if moment is None:
            return None
        # Both clocks are read one after the other: a moment later, it has passed by both.
        return context.now + (moment - context.outlook.clock_us) / 1e6 + BETWEEN_CLOCKS


FRONTIERS = FrontiersPart()
