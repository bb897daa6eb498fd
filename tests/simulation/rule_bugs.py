"""Bugs that break one rule and no other, put in on purpose: R3, R7, R8 and R9."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from anabranch.coordinator.effects import Effect
from anabranch.coordinator.jobs.checkpoint import CheckpointJob
from anabranch.coordinator.memory import Memory
from anabranch.messages import Control
from anabranch.node.core import NodeCore
from anabranch.operators.order.row_order import RowOrder
from anabranch.task.state_reader import Snapshot
from anabranch.task.task_place import TaskPlace
from anabranch.testing.plane.computed_step import ComputedStep
from anabranch.testing.plane.exchange import Arrived
from anabranch.testing.plane.step_memo import DoneTask

Patch = pytest.MonkeyPatch


def a_query_sees_a_step_before_its_commit(patch: Patch) -> None:
    """A query is given the state of a step that has run and may never count (R3)."""
    run_step = NodeCore.run_step

    def showing(self: Any) -> bool:
        did = run_step(self)
        if did and self._duties.ran is not None:
            plan, result = self._duties.ran
            placement = {each.region: each.workers for each in plan.placement}
            self.snapshot = Snapshot(
                plan.step, plan.clock_ns, self._program.bins, result.states, placement
            )
        return did

    patch.setattr(NodeCore, "run_step", showing)


def rows_of_a_key_are_taken_as_they_come(patch: Patch) -> None:
    """Nobody puts the rows of a key in their order after the exchange (R7)."""
    patch.setattr(RowOrder, "permutation", lambda self: None)


def a_request_is_forgotten(patch: Patch) -> None:
    """Whoever asks for a checkpoint that has to be taken first is never answered (R8)."""
    begin = CheckpointJob.begin

    def forgetting(self: CheckpointJob, memory: Memory) -> list[Effect]:
        effects = begin(self, memory)
        if self.under_way is not None:
            self.under_way = msgspec.structs.replace(self.under_way, numbers=())
        return effects

    patch.setattr(CheckpointJob, "begin", forgetting)


def a_result_depends_on_the_worker(patch: Patch) -> None:
    """All but the first two workers see other texts than those that were sent (R9)."""
    computed = ComputedStep._computed

    def other(
        self: Any, control: Control, place: TaskPlace, arrived: Sequence[tuple[int, str, Arrived]]
    ) -> DoneTask:
        if control.worker > 1:
            arrived = [(consumer, name, _told_otherwise(each)) for consumer, name, each in arrived]
        return computed(self, control, place, arrived)

    patch.setattr(ComputedStep, "_computed", other)


def _told_otherwise(arrived: Arrived) -> Arrived:
    values = arrived.rows.values
    for number, field in enumerate(values.schema):
        if pa.types.is_string(field.type):
            texts = pa.array(["?"] * values.num_rows, field.type)
            values = values.set_column(number, field, texts)
    return replace(arrived, rows=replace(arrived.rows, values=values))


RULE_BUGS = (
    a_query_sees_a_step_before_its_commit,
    rows_of_a_key_are_taken_as_they_come,
    a_request_is_forgotten,
    a_result_depends_on_the_worker,
)
