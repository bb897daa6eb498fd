"""A part that only a test defines lives through everything that the coordinator can do.

No line of the product knows it. Coordinator, journal, node and tasks are real; rows move in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.coordinator.driver.checkpoint_copy import checkpoint_files
from anabranch.coordinator.driver.journal_reader import read_checkpoints, read_journal_view
from anabranch.coordinator.parts.parts import STANDARD
from anabranch.coordinator.settings import Settings
from anabranch.errors import FutureFormat
from anabranch.journal.entry_names import PlanName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.records.commit import Commit
from anabranch.records.plan import Plan, decode_plan
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, PAUSE, ScriptedSource
from tests.coordinator.counter_part import COUNTER, PENDING_STEPS, Counter, counter_of, file_of
from tests.coordinator.value_part import NAME as VALUE_NAME
from tests.coordinator.value_part import VALUE, Heard, heard_of
from tests.node.engine import Engine, Killed
from tests.node.shop import SCHEMA, make_program
from tests.spark.running import commits, eventually

WORKERS = 2
REGIONS = 2
HASTY = itertools.count(10**12, 100 * 10**9)
"""A clock by which files may go soon."""

PAGES = [[(f"c{number % 3}", 1)] for number in range(8)]


def engine(
    tmp_path: Path,
    pages: list[object],
    *,
    parts: tuple[object, ...] = (*STANDARD, COUNTER),
    reached: Callable[[str, int], None] = lambda point, step: None,
    workers: int = WORKERS,
    **settings: object,
) -> Engine:
    directory = tmp_path / "state"

    def write_file(plan: Plan) -> None:
        path = directory / file_of(plan.step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("counted")

    made = make_program(tmp_path, MemorySink(), ScriptedSource(SCHEMA, pages))
    chosen = Settings(workers=workers, grace_seconds=60.0, query_seconds=0.0, **settings)  # type: ignore[arg-type]
    return Engine(
        made,
        directory,
        settings=chosen,
        plane_before=write_file,
        clock_ns=lambda: next(HASTY),
        parts=parts,
        reached=reached,
    )


def last(tmp_path: Path) -> Commit:
    found = read_journal_view(Journal(FileDirectory(tmp_path / "state" / "journal"))).commit
    assert found is not None
    return found


def expected(steps: int, step: int) -> Counter:
    """Every worker of both regions answers in every step."""
    return Counter(steps, steps * WORKERS * REGIONS, steps, file_of(step))


def test_it_is_in_every_commit_and_is_answered_by_every_worker(tmp_path: Path) -> None:
    engine(tmp_path, [*PAGES, EOF]).run()
    found = commits(tmp_path / "state")
    assert [counter_of(commit) for commit in found] == [
        expected(commit.step, commit.step) for commit in found
    ]
    assert found[-1].step >= len(PAGES)


def test_it_is_a_reason_for_steps_until_it_is_no_more_pending(tmp_path: Path) -> None:
    done = engine(tmp_path, [PAGES[0], EOF]).run()
    assert sorted(each.rows for each in done) == [0, 0, 1]
    assert counter_of(last(tmp_path)) == expected(PENDING_STEPS, PENDING_STEPS)


def test_a_checkpoint_holds_it_and_a_rewind_goes_back_to_it(tmp_path: Path) -> None:
    running = engine(tmp_path, [*PAGES[:4], PAUSE, *PAGES[4:], PAUSE, EOF]).start()
    running.until(lambda status: status.step >= 4)
    kept = running.pipeline.checkpoint().checkpoints[-1].step
    (checkpoint,) = [
        each
        for each in read_checkpoints(Journal(FileDirectory(tmp_path / "state" / "journal")))
        if each.step == kept
    ]
    assert counter_of(checkpoint.commit) == expected(kept, kept)
    assert file_of(kept) in checkpoint_files(checkpoint)
    running.pipeline.load(kept)
    eventually(lambda: last(tmp_path).step >= kept)
    running.shutdown()
    assert read_journal_view(Journal(FileDirectory(tmp_path / "state" / "journal"))).branch == 1
    found = last(tmp_path)
    assert counter_of(found) == expected(found.step, found.step)


def test_a_new_leader_goes_on_with_it(tmp_path: Path) -> None:
    first = engine(tmp_path, [*PAGES[:3], PAUSE, EOF]).start()
    first.until(lambda status: status.step >= 3)
    first.abandon()
    before = last(tmp_path)
    second = engine(tmp_path, [*PAGES, EOF])
    second.run()
    found = last(tmp_path)
    assert found.step > before.step
    assert counter_of(found) == expected(found.step, found.step)


def test_a_replay_and_its_repair_leave_it_as_committed(tmp_path: Path) -> None:
    first = engine(tmp_path, [*PAGES[:5], PAUSE, EOF]).start()
    first.until(lambda status: status.step >= 2)
    first.pipeline.checkpoint()
    first.until(lambda status: status.step >= 5)
    first.abandon()
    before = last(tmp_path)
    newest = [listed.run.name for state in before.states for listed in state.runs]
    (tmp_path / "state" / max(newest, key=lambda name: name.split("/")[-1])).unlink()
    second = engine(tmp_path, [*PAGES, EOF])
    second.run()
    repaired = list((tmp_path / "state" / "journal" / "repair" / "0").iterdir())
    assert repaired, "nothing was replayed"
    found = last(tmp_path)
    assert counter_of(found) == expected(found.step, found.step)


def test_without_it_the_directory_is_refused(tmp_path: Path) -> None:
    first = engine(tmp_path, [*PAGES[:3], PAUSE, EOF]).start()
    first.until(lambda status: status.step >= 3)
    first.abandon()
    before = last(tmp_path)
    with pytest.raises(FutureFormat, match="The last commit carries 'counter'"):
        engine(tmp_path, [*PAGES, EOF], parts=STANDARD).run()
    assert last(tmp_path) == before


def test_its_files_stay_while_a_commit_or_checkpoint_names_them(tmp_path: Path) -> None:
    pages = [[("a", 1)] for _ in range(20)]
    running = engine(tmp_path, [*pages, PAUSE, EOF], keep_checkpoints=1).start()
    running.until(lambda status: status.step >= 5)
    kept = running.pipeline.checkpoint().checkpoints[-1].step
    running.until(lambda status: status.step >= 20)
    room = tmp_path / "state" / "part" / "counter"
    eventually(lambda: len(list(room.iterdir())) < 20)
    assert (tmp_path / "state" / file_of(kept)).exists()
    newer = running.pipeline.checkpoint().checkpoints[-1].step
    assert newer > kept
    eventually(lambda: not (tmp_path / "state" / file_of(kept)).exists())
    assert (tmp_path / "state" / file_of(newer)).exists()
    running.shutdown()


def killed_at(point: str, step: int) -> Callable[[str, int], None]:
    """Kill whoever gets to this point, and everybody who gets to any other one after that."""
    dead: list[bool] = []

    def reached(here: str, now: int) -> None:
        if dead or (here, now) == (point, step):
            dead.append(True)
            raise Killed

    return reached


def told(steps: int, workers: int, value: int) -> Heard:
    """Every worker of both regions has heard the value of every step."""
    regions = ("by-customer", "by-times")
    everybody = tuple((region, worker) for region in regions for worker in range(workers))
    return Heard(value, everybody, steps)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 4)], ids=["lost", "joined"])
def test_what_it_tells_a_region_reaches_every_worker_of_a_revision(
    tmp_path: Path, before: int, after: int
) -> None:
    """A worker is lost, or joins, after a plan was written and before it was run."""
    parts = (*STANDARD, VALUE)
    with pytest.raises(Killed):
        engine(
            tmp_path, [*PAGES, EOF], parts=parts, workers=before, reached=killed_at("planned", 3)
        ).run()
    assert last(tmp_path).step == 2
    engine(tmp_path, [*PAGES, EOF], parts=parts, workers=after).run()
    journal = Journal(FileDirectory(tmp_path / "state" / "journal"))
    first, revised = (decode_plan(journal.read(PlanName(3, number)).body) for number in (0, 1))
    assert first.placement != revised.placement
    assert revised.parts[VALUE_NAME] == first.parts[VALUE_NAME], "the result depends on it"
    for commit in commits(tmp_path / "state"):
        has = before if commit.step < 3 else after
        if commit.step == 3:  # a worker without bins is told so in a last task
            has = max(before, after)
        assert heard_of(commit) == told(commit.step, has, heard_of(commit).value)
