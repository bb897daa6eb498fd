"""One step, from its plan to what it came to."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.errors import AttemptsDisagree
from anabranch.node.identity import check_sources
from anabranch.node.interrogation import part_reports, worker_loads
from anabranch.node.offers import Offers
from anabranch.node.opening import Surroundings
from anabranch.node.step_outcome import (
    StepOutcome,
    expected_tasks,
    planned_reads,
    rows_read,
    step_outcome,
)
from anabranch.plan.controls import planned_frontiers
from anabranch.protocol.data_plane import DataPlane, RetryStep
from anabranch.protocol.node import StepResult
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.task.program import Program

ATTEMPTS = 3


def run_plan(
    program: Program,
    plane: DataPlane,
    offers: Offers,
    around: Surroundings,
    plan: Plan,
    states: Sequence[OperatorState],
) -> StepResult:
    """Run a step until its tasks agree, three times at most; raises why it came to nothing."""
    check_sources(program, plan.inputs, around.store)
    why = ""
    expected = expected_tasks(program.physical, plan)
    planned = planned_reads(program.physical, plan)
    for _ in range(ATTEMPTS):
        offers.check(plan.inputs)
        try:
            reports = plane.run(plan, states)
        except RetryStep as error:
            why = str(error)
        else:
            offers.check(plan.inputs)
            settled = step_outcome(states, reports, expected, planned)
            if isinstance(settled, StepOutcome):
                return _result(program, plane, plan, settled)
            why = settled.why
        around.reached(f"disagreed: {why}", plan.step)
    raise AttemptsDisagree(
        f"Step {plan.step} ran {ATTEMPTS} times and its tasks never agreed: {why}",
        do="Executors are probably lost again and again; see Spark's log. Running the "
        "pipeline again repeats the step.",
    )


def _result(program: Program, plane: DataPlane, plan: Plan, settled: StepOutcome) -> StepResult:
    return StepResult(
        step=plan.step,
        revision=plan.revision,
        states=_at_frontiers(program, plan, settled.states),
        staged=settled.staged,
        counts=settled.counts,
        rows=rows_read(program.physical, settled.counts),
        rows_merged=settled.rows_merged,
        seconds={**settled.seconds, **getattr(plane, "timings", {})},
        loads=worker_loads(program.physical, plan, settled),
        homes=settled.homes,
        profiles=settled.profiles,
        parts=part_reports(program.physical, plan, settled),
    )


def _at_frontiers(
    program: Program, plan: Plan, states: Sequence[OperatorState]
) -> tuple[OperatorState, ...]:
    """The states, with the frontier of the step where rows expire by event time."""
    frontiers = planned_frontiers(plan)
    found = []
    for state in states:
        shape, operator = program.states[state.operator]
        by_event = shape.clock == "event"
        found.append(replace(state, frontier=frontiers[operator]) if by_event else state)
    return tuple(found)
