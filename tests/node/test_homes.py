"""Homes while rows flow and workers come and go: what is copied, read and missed. No Spark here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import Settings
from anabranch.homes import home_directory
from anabranch.records.commit import Commit
from anabranch.records.home_use import HomeUse
from anabranch.records.plan import Plan
from anabranch.records.run_list import runs_of
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.runs.compaction import LIMITS
from anabranch.sinks.memory import MemorySink
from anabranch.task.worker_home import Homes, homes_of, tidy_homes
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.engine import Engine
from tests.node.test_live_rescale import STEPS, Story
from tests.spark.running import commits

pytestmark = pytest.mark.timeout(900)
FLUID = RescaleSettings(policy=MovePolicy.FLUID)
BATCHED = RescaleSettings(policy=MovePolicy.BATCHED, budget_bytes=2000)


class Lived:
    """A pipeline whose workers have homes, from start to end."""

    def __init__(
        self,
        path: Path,
        policy: RescaleSettings,
        *,
        isolated: bool = True,
        watch: Callable[[StepDone], None] = lambda done: None,
        before: Callable[[Plan], None] = lambda plan: None,
    ) -> None:
        self.story, self.rows, totals = Story(3), MemorySink(), MemorySink()
        made = self.story.program(self.rows, totals)
        self.homes = Homes(str(path / "homes"), isolated)
        self.plane = MemoryPlane(made, path / "state", homes=self.homes, before=before)
        chosen = Settings(workers=2, rescale=policy, homes=self.homes.directory)
        self.directory = path / "state"
        self.engine = Engine(
            made, self.directory, plane=self.plane, settings=chosen, watch=watch, paced=True
        )
        self.pipeline = self.engine.start().pipeline

    def scale(self, workers: int) -> None:
        self.pipeline.scale(workers)
        self.engine.until(lambda status: status.rescale is None)

    def end(self) -> None:
        self.engine.finish()
        assert [
            sorted(tuple(r.values()) for r in table.to_pylist())
            for table in self.rows.steps().values()
        ] == [sorted(self.story.rows[i * 20 : i * 20 + 20]) for i in range(STEPS)]

    @property
    def uses(self) -> list[HomeUse]:
        return [done.homes for done in self.engine.done]

    def names(self) -> set[str]:
        root = Path(self.homes.directory)
        return {path.name for path in root.iterdir()} if root.exists() else set()


@pytest.mark.parametrize("policy", [FLUID, BATCHED], ids=lambda s: str(s.policy))
def test_up_and_down_with_homes_of_their_own(tmp_path: Path, policy: RescaleSettings) -> None:
    lived = Lived(tmp_path, policy)
    lived.engine.until(lambda status: status.step >= 4)
    lived.scale(4)
    assert lived.names() == {"worker-0", "worker-1", "worker-2", "worker-3"}
    lived.scale(2)
    # Who stays is chosen by what it has, which depends on when bins were merged.
    owners = {worker for each in lived.pipeline.status().regions for worker in each.bins}
    assert len(owners) == 2
    assert lived.names() == {f"worker-{n}" for n in owners}, "those without bins have no home"
    lived.end()
    uses = lived.uses
    assert sum(use.moved_bytes for use in uses) > 0
    assert sum(use.home_bytes for use in uses) > 0
    assert [(use.store_bytes, use.misses) for use in uses] == [(0, 0)] * len(uses)
    history = lived.pipeline.scale_history()
    assert [each.outcome for each in history] == ["settled"] * 2
    assert all(each.moved.copied_bytes > 0 for each in history)
    assert lived.pipeline.status().homes.moved_bytes == sum(use.moved_bytes for use in uses)


def test_a_shared_home_has_it_all_already(tmp_path: Path) -> None:
    lived = Lived(tmp_path, BATCHED, isolated=False)
    lived.engine.until(lambda status: status.step >= 4)
    lived.scale(4)
    lived.scale(2)
    lived.end()
    assert lived.names() == {"shared"}
    assert all(use.moved_bytes == use.store_bytes == use.misses == 0 for use in lived.uses)
    assert sum(use.home_bytes for use in lived.uses) > 0


def test_homes_that_are_wiped_change_nothing_and_are_missed(tmp_path: Path) -> None:
    def wipe(plan: Plan) -> None:
        if plan.step % 7 == 0:
            shutil.rmtree(tmp_path / "homes", ignore_errors=True)

    lived = Lived(tmp_path, FLUID, before=wipe)
    lived.engine.until(lambda status: status.step >= 4)
    lived.scale(4)
    lived.scale(2)
    lived.end()
    missed = {done.step for done in lived.engine.done if done.homes.misses}
    assert missed
    assert all(step % 7 == 0 or (step - 1) % 7 == 0 for step in missed)
    assert sum(use.store_bytes for use in lived.uses) > 0


def test_homes_hold_no_more_than_the_last_commit_needs(tmp_path: Path) -> None:
    lived = Lived(tmp_path, BATCHED)
    lived.engine.until(lambda status: status.step >= 4)
    for workers in (4, 3, 2):
        lived.scale(workers)
    lived.end()
    last, before = commits(lived.directory)[-1], commits(lived.directory)[-2]
    named = {name.rpartition("/")[2] for commit in (last, before) for name in _files(commit)}
    for path in Path(lived.homes.directory).rglob("*"):
        if path.is_file():
            assert home_directory._base(path.name) in named


def test_three_rescales_in_a_row_keep_the_runs_of_a_bin_within_the_limit(tmp_path: Path) -> None:
    most: list[int] = []

    def seen(done: StepDone) -> None:
        most.append(_highest(commits(tmp_path / "state")[-1:]))

    lived = Lived(tmp_path, FLUID, watch=seen)
    lived.engine.until(lambda status: status.step >= 4)
    for workers in (4, 1, 3):
        lived.pipeline.scale(workers)
        lived.engine.until(lambda status: status.rescale and status.rescale.moved_bins >= 3)
    lived.engine.until(lambda status: status.rescale is None)
    lived.end()
    assert len(most) >= STEPS
    assert max(most) <= LIMITS.run_limit


def test_homes_that_were_left_behind_are_tidied(tmp_path: Path) -> None:
    for isolated, left in ((False, {"worker-1", "worker-7"}), (True, {"worker-1"})):
        for worker in (1, 7):
            (tmp_path / f"worker-{worker}" / "run").mkdir(parents=True, exist_ok=True)
        tidy_homes(Homes(str(tmp_path), isolated), (0, 1))
        assert {path.name for path in tmp_path.iterdir()} == left


def test_without_homes_nothing_is_copied_and_no_step_is_spent_on_it(tmp_path: Path) -> None:
    chosen = Settings(workers=2)
    assert not chosen.moving.prefetch
    assert Settings(isolate_workers=True).moving.prefetch
    assert homes_of(tmp_path, None, isolated=False) is None
    assert homes_of(tmp_path, None, isolated=True) == Homes(str(tmp_path / "home"), True)
    elsewhere = homes_of(tmp_path, str(tmp_path / "x"), isolated=False)
    assert elsewhere == Homes(str(tmp_path / "x"), False)


def _files(commit: Commit) -> set[str]:
    return {listed.run.name for state in commit.states for listed in state.runs}


def _highest(found: list[Commit]) -> int:
    return max(
        len(runs_of(state.runs, number))
        for commit in found
        for state in commit.states
        for number in range(len(state.live))
    )
