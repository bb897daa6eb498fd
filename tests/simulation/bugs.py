"""Bugs that were put in on purpose: what a search that finds nothing must be able to find.

Each is a small change of the real code, in place while a schedule runs. Those of rescaling are in
``rescale_bugs``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from anabranch.coordinator import plans, recovering
from anabranch.journal.file_directory import FileLease
from anabranch.messages import Report
from anabranch.node import step_outcome as settle
from anabranch.node import step_runner as stepping
from anabranch.node.core import NodeCore
from anabranch.node.node_machine import Duties
from anabranch.node.offers import Offers
from anabranch.protocol.node import Output
from anabranch.protocol.sinks import StagedStep
from anabranch.records.placed import OperatorState
from anabranch.records.plan import Plan
from anabranch.runs import rows
from anabranch.runs import run_stack as stacked_runs
from anabranch.sinks import memory
from anabranch.sinks.memory import MemoryPublisher
from anabranch.sinks.staging import read_staged
from anabranch.store.retention import Sweeper
from anabranch.testing.cluster.rule_broken import RuleBroken
from anabranch.testing.plane.memory_plane import MemoryPlane
from anabranch.testing.plane.step_memo import DoneStep
from anabranch.testing.simulation import Simulation
from tests.simulation.coordinator_bugs import COORDINATOR_BUGS
from tests.simulation.rescale_bugs import RESCALE_BUGS
from tests.simulation.rule_bugs import RULE_BUGS

Patch = pytest.MonkeyPatch


def acknowledge_before_commit(patch: Patch) -> None:
    """A source is told that its input is committed as soon as it is taken."""
    take = Offers.take

    def taken(self: Any, step: int) -> Any:
        inputs = take(self, step)
        self._committed = inputs or self._committed
        return inputs

    patch.setattr(Offers, "take", taken)


def commit_without_an_acknowledgement(patch: Patch) -> None:
    """Sources are never told what is committed."""
    patch.setattr(Offers, "_acknowledge", lambda self, name: None)


def commit_without_one_report(patch: Patch) -> None:
    """Nobody misses a task that did not report."""
    patch.setattr(stepping, "expected_tasks", lambda physical, plan: [])


def report_of_another_attempt(patch: Patch) -> None:
    """Of several attempts of a task the one that reported last counts, whoever used which."""

    def last(reports: Sequence[Report], expected: object) -> dict[Any, Report]:
        return {settle.task_of(report.attempt): report for report in reports}

    patch.setattr(settle, "_agreed", last)


def late_attempt_overwrites_a_file(patch: Patch) -> None:
    """A late attempt writes under the names of the one that counts, and is killed in between."""
    disturbed = MemoryPlane._disturbed

    def overwriting(
        self: MemoryPlane,
        reports: list[Report],
        done: DoneStep,
        plan: Plan,
        states: Sequence[OperatorState],
    ) -> list[Report]:
        late = len(self.late)
        result = disturbed(self, reports, done, plan, states)
        if len(self.late) > late:
            names = [file.name for report in result for file in report.staged]
            self.late[-1] = lambda: _cut([self.store / name for name in names])
        return result

    patch.setattr(MemoryPlane, "_disturbed", overwriting)


def _cut(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.exists():
            half = path.read_bytes()[:20]
            aside = path.with_name("half")
            aside.write_bytes(half)
            os.replace(aside, path)


def commit_by_a_fenced_coordinator(patch: Patch) -> None:
    """Nobody keeps a coordinator from writing that was taken over from."""
    fence = Duties.fence

    def obeying(self: Duties, leader: int) -> None:
        fence(self, max(leader, self.leader))

    patch.setattr(FileLease, "fence", lambda self: None)
    patch.setattr(Duties, "fence", obeying)


def publish_before_commit(patch: Patch) -> None:
    """Output is published as soon as a step has run."""
    run_step = NodeCore.run_step

    def publishing(self: Any) -> bool:
        did = run_step(self)
        if did and self._duties.ran is not None and self._outbox is not None:
            result = self._duties.ran[1]
            self._outbox.add(Output(result.step, result.staged))
        return did

    patch.setattr(NodeCore, "run_step", publishing)


def publish_twice(patch: Patch) -> None:
    """A sink that is given a step again adds its rows again."""

    def adding(self: MemoryPublisher, staged: StagedStep) -> None:
        data = [read_staged(self.context.store, file).to_pybytes() for file in staged.files]
        published = memory._registry.setdefault(self.sink.id, memory._Published())
        name = (staged.branch, staged.step)
        published.steps[name] = (*published.steps.get(name, ()), *data)

    patch.setattr(MemoryPublisher, "publish", adding)


def replay_with_other_slices(patch: Patch) -> None:
    """A plan that runs again reads what it likes."""
    revised = plans.revise_plan

    def other(known: Any, plan: Plan) -> Plan:
        same = revised(known, plan)
        return msgspec.structs.replace(same, revision=plan.revision + 1, inputs=())

    patch.setattr(recovering, "revise_plan", other)


def query_on_a_removed_file(patch: Patch) -> None:
    """Files go as soon as the next step does not need them."""
    sweep = Sweeper.sweep

    def at_once(self: Any, *arguments: Any) -> int:
        self._grace = 0.0
        return sweep(self, *arguments)

    patch.setattr(Sweeper, "sweep", at_once)


def merge_that_drops_a_newer_row(patch: Patch) -> None:
    """Of the rows of a key that are merged, the oldest wins."""
    merge_rows = rows.merge_rows

    def oldest(layout: Any, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return merge_rows(layout, parts[::-1])

    patch.setattr(stacked_runs, "merge_rows", oldest)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        acknowledge_before_commit,
        commit_without_an_acknowledgement,
        commit_without_one_report,
        report_of_another_attempt,
        late_attempt_overwrites_a_file,
        commit_by_a_fenced_coordinator,
        publish_before_commit,
        publish_twice,
        replay_with_other_slices,
        query_on_a_removed_file,
        merge_that_drops_a_newer_row,
        *COORDINATOR_BUGS,
        *RESCALE_BUGS,
        *RULE_BUGS,
    )
}


FOUND_BY = {
    "a_part_is_lost_on_rewind": r"R4: step \d+ reads",
    "an_answer_is_counted_twice": r"R8: coordinator-\d+ answers request \d+ twice",
    "a_query_sees_a_step_before_its_commit": "R3: ",
    "a_request_is_forgotten": "R8: .* ended without an answer",
    "a_result_depends_on_the_worker": "R9: ",
    "a_source_partition_is_read_by_both": "R4: ",
    "acknowledge_before_commit": "R5: ",
    "acquire_after_the_data": "R2: ",
    "an_operators_state_is_left_behind": "R2: ",
    "cancel_that_forgets_a_bin": "R2: ",
    "collect_before_the_steps_data": r"R2: |R9: ",
    "commit_by_a_fenced_coordinator": r"leader \d+ has committed step \d+ after leader \d+ came",
    "commit_without_an_acknowledgement": r"R5: '\w+' was last told of ",
    "commit_without_one_report": "R2: |R4: |R6: ",
    "crash_between_collect_and_acquire": "R2: ",
    "late_attempt_overwrites_a_file": r"the pipeline fails .*'store\.corrupt_",
    "merge_that_drops_a_newer_row": r"R2: |R9: ",
    "publish_before_commit": r"R6: .* publishes step \d+ before its commit",
    "publish_twice": r"R6: step \d+ of sink '\w+' has",
    "query_on_a_removed_file": r"a query of step \d+ fails",
    "replay_with_other_slices": "R4: ",
    "report_of_another_attempt": "R2: |R4: ",
    "rows_of_a_key_are_taken_as_they_come": "R7: ",
    "second_rescale_from_a_stale_assignment": "R2: ",
    "two_owners_for_one_step": "R1: ",
}
"""What is wrong with each of them. A bug that only keeps everything from running shows nothing."""


def is_found(name: str, simulation: Simulation, seed: int) -> bool:
    """Whether a schedule, run while the bug is in place, breaks a rule as that bug does."""
    try:
        simulation.run(seed)
    except RuleBroken as error:
        wanted = rf"seed {seed}: (AssertionError: )?({FOUND_BY[name]})"
        return re.match(wanted, str(error)) is not None
    return False


@contextlib.contextmanager
def bug(name: str) -> Iterator[None]:
    """Put a bug in for a while."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield


__all__ = ["BUGS", "FOUND_BY", "bug", "is_found"]
