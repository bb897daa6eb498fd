"""Steps, deaths and restarts, with every part real but Spark."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import Settings
from anabranch.dataflow.flow import Dataflow
from anabranch.errors import (
    AttemptsDisagree,
    ChangedDataflow,
    CorruptEntry,
    OtherDataflow,
    ReadFailed,
    UserFunctionFailed,
)
from anabranch.journal.entry_names import CommitName, PlanName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.protocol.status import Phase
from anabranch.records.bins import BinSet
from anabranch.records.commit import Commit, decode_commit
from anabranch.records.plan import Plan, decode_plan
from anabranch.runs.region_state import RegionState
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.generator import GeneratorSource
from anabranch.sources.scripted import PAUSE, Fail, ScriptedSource
from anabranch.task.program import Program
from anabranch.testing.plane.memory_plane import MemoryPlane
from tests.node.engine import Engine, Killed, files_of
from tests.node.shop import BINS, PAGES, Story, make_program, program, remember, scripted, shop

# Whoever is killed here is a thread.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

POINTS = ["planned", "ran", "committed", "publishing rows", "publishing counts", "published"]


class Death:
    """Kills at a point of a step, and from then on every thread that reaches any point."""

    def __init__(self, point: str | None = None, step: int = 0) -> None:
        self._at = (point, step)
        self._dead = threading.Event()
        self.points: list[tuple[str, int]] = []

    def __call__(self, point: str, step: int) -> None:
        self.points.append((point, step))
        if (point, step) == self._at:
            self._dead.set()
        if self._dead.is_set():
            raise Killed(point)


class Shop:
    """A shop in a directory, to be started again and again."""

    def __init__(self, directory: Path, source: Any = None) -> None:
        self.directory = directory
        self.rows = MemorySink()
        self.program = make_program(directory, self.rows, source)
        self.clock = itertools.count(1000)

    def engine(
        self,
        *,
        reached: Callable[[str, int], None] = lambda point, step: None,
        workers: int = 2,
        code: str = "code",
        program: Program | None = None,
        plane: MemoryPlane | None = None,
    ) -> Engine:
        return Engine(
            program or self.program,
            self.directory / "state",
            plane=plane,
            code=code,
            settings=Settings(workers=workers),
            reached=reached,
            clock_ns=lambda: next(self.clock) * 10**9,
        )

    def run(self, **more: Any) -> list[StepDone]:
        """Run until the input ends or something fails; leaves no thread behind."""
        return self.engine(**more).run()

    def run_and_die(self, point: str, step: int, **more: Any) -> None:
        with pytest.raises(Killed):
            self.run(reached=Death(point, step), **more)

    @property
    def journal(self) -> Journal:
        return Journal(FileDirectory(self.directory / "state" / "journal"))

    def commits(self) -> list[Commit]:
        return [decode_commit(self.journal.read(n).body) for n in self.journal.commits()]

    def plan(self, step: int, revision: int) -> Plan:
        return decode_plan(self.journal.read(PlanName(step, revision)).body)

    def state(self, operator: str) -> dict[Any, Any]:
        kept = next(s for s in self.commits()[-1].states if s.operator == operator)
        state = RegionState(
            operator,
            self.program.layouts[operator],
            kept.runs,
            self.directory / "state",
            BINS,
            BinSet.every(BINS),
            kept.live,
        )
        rows = state.scan().to_pylist()
        assert len(rows) == sum(kept.live)
        return {row["k_customer" if operator == "seen" else "k_times"]: row for row in rows}

    def check(self, story: Story | None = None) -> None:
        """Everything is as if nothing had ever happened: no step twice, none missing."""
        story = story or Story()
        steps = list(story.rows)
        assert [commit.step for commit in self.commits()] == steps
        published = {
            step: sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
            for step, table in self.rows.steps().items()
        }
        assert published == {s: sorted(rows, key=repr) for s, rows in story.rows.items()}
        assert counted_files(self.directory / "counts") == story.counted
        seen = self.state("seen")
        assert {
            customer: msgspec.msgpack.decode(row["v_state"]) for customer, row in seen.items()
        } == story.seen
        counts = self.state("times")
        assert {t: (row["v_n"], row["v_last"]) for t, row in counts.items()} == story.counts


def counted_files(directory: Path) -> dict[int, dict[int, tuple[int, str]]]:
    found: dict[int, dict[int, tuple[int, str]]] = {}
    for path in sorted(directory.glob("step-*.json")):
        step = found.setdefault(int(path.name.split("-")[1]), {})
        for line in path.read_text().splitlines():
            row = json.loads(line)
            assert row["times"] not in step
            step[row["times"]] = (row["n"], row["last"])
    return found


def test_a_run_without_trouble_gives_what_the_story_gives(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    reached = Death()
    done = shop.run(reached=reached)
    shop.check()
    assert [(step.step, step.rows) for step in done] == [(1, 4), (2, 3), (3, 4), (4, 1)]
    assert done[-1].keys == len(Story().seen) + len(Story().counts)
    mine = [point for point, step in reached.points if step == 2]
    assert [p for p in mine if p in POINTS[:3]] == POINTS[:3]
    *publishing, published = [p for p in mine if p in POINTS[3:]]
    # No sink waits for another one.
    assert sorted([*publishing, published]) == sorted(POINTS[3:])
    assert published == "published"


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_r9_the_number_of_workers_does_not_change_the_result(tmp_path: Path, workers: int) -> None:
    one, other = Shop(tmp_path / "one"), Shop(tmp_path / "other")
    one.run(workers=2)
    other.run(workers=workers)
    other.check()
    # What is counted for a replay does not know of workers either.
    assert [c.counts for c in one.commits()] == [c.counts for c in other.commits()]


@pytest.mark.parametrize("step", [1, 3, 4])
@pytest.mark.parametrize("point", POINTS)
def test_r6_killed_at_any_point_it_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, point: str, step: int
) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die(point, step)
    shop.run()
    shop.check()


@pytest.mark.parametrize("point", ["planned", "ran", "publishing rows"])
def test_killed_twice_in_one_step_it_goes_on(tmp_path: Path, point: str) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die(point, 2)
    shop.run_and_die(point if point != "planned" else "ran", 2)
    shop.run_and_die("published", 2)
    shop.run()
    shop.check()


def test_r6_committed_steps_that_were_not_published_are_published_once_in_the_end(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    far = threading.Event()

    def slow_sink(point: str, step: int) -> None:
        if (point, step) == ("committed", 3):
            far.set()
        if (point, step) in (("publishing rows", 1), ("planned", 4)):
            assert far.wait(20)
            raise Killed(point)

    with pytest.raises(Killed):
        shop.run(reached=slow_sink)
    assert [c.published["rows"] for c in shop.commits()] == [0, 0, 0]
    assert shop.rows.steps() == {}
    shop.run()
    shop.check()


def test_a_plan_without_a_commit_runs_again_as_it_was_planned(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die("ran", 2)
    before = shop.plan(2, 0)
    plane = MemoryPlane(shop.program, tmp_path / "state")
    shop.run(plane=plane)
    assert plane.ran[0] == before
    assert shop.commits()[1].revision == 0
    assert shop.journal.latest_plan(2) == PlanName(2, 0)
    shop.check()


def test_r3_files_that_no_commit_names_are_not_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die("ran", 3)
    named = {listed.run.name for s in shop.commits()[-1].states for listed in s.runs}
    strays = [
        path
        for path in (tmp_path / "state/run").rglob("*.arrow")
        if str(path.relative_to(tmp_path / "state")) not in named
    ]
    assert strays
    for path in strays:
        path.write_bytes(b"not a run at all")
    shop.run()
    shop.check()


def test_another_number_of_workers_revises_the_placement_and_nothing_else(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die("planned", 3)
    shop.run(workers=3)
    before, after = shop.plan(3, 0), shop.plan(3, 1)
    assert (before.inputs, before.clock_ns, before.code) == (
        after.inputs,
        after.clock_ns,
        after.code,
    )
    assert [(a.generation, a.count) for a in before.placement] == [(1, 2), (1, 2), (1, 1)]
    assert [(a.generation, a.count) for a in after.placement] == [(2, 3), (2, 3), (1, 1)]
    assert (before.unkeyed_workers, after.unkeyed_workers) == (2, 3)
    assert [c.revision for c in shop.commits()] == [0, 0, 1, 0]
    shop.check()


def test_generations_only_grow_over_revisions_of_one_plan(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die("planned", 2)
    shop.run_and_die("ran", 2, workers=3)
    shop.run_and_die("ran", 2, workers=5)
    shop.run(workers=5)
    placed = [shop.plan(2, r).placement for r in range(3)]
    found = [[a.generation for a in each if not a.source] for each in placed]
    assert found == [[1, 1], [2, 2], [3, 3]]
    assert shop.commits()[1].placement == shop.plan(2, 2).placement
    assert shop.commits()[3].placement == shop.plan(2, 2).placement
    shop.check()


def test_changed_code_revises_the_plan(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_and_die("planned", 2)
    shop.run(code="mended")
    assert msgspec.structs.replace(shop.plan(2, 0), revision=1, code="mended") == shop.plan(2, 1)
    assert [c.code for c in shop.commits()] == ["code", "mended", "mended", "mended"]
    shop.check()


def test_after_a_function_is_mended_nothing_is_lost(tmp_path: Path) -> None:
    broken = Shop(tmp_path)

    def breaks(key: Any, row: Any, seen: Any) -> Any:
        if key.customer == "dee":
            raise ValueError("dee is not served")
        return remember(key, row, seen)

    counts = FileSink(tmp_path / "counts", format="json")
    bad = program(shop(scripted(), broken.rows, counts, function=breaks))
    with pytest.raises(UserFunctionFailed, match="dee is not served"):
        broken.run(program=bad, code="bad")
    assert [c.step for c in broken.commits()] == [1, 2]
    # What was committed before the failure is published.
    assert list(broken.rows.steps()) == [1, 2]
    broken.run()
    broken.check()
    assert broken.commits()[2].revision == 1


def test_input_that_cannot_be_read_stops_the_step_until_it_can(tmp_path: Path) -> None:
    pages: list[object] = [PAGES[0], Fail("no", times=2), *PAGES[1:]]
    shop = Shop(tmp_path, scripted(pages, scratch=tmp_path / "scratch"))
    for _ in range(2):
        with pytest.raises(ReadFailed, match="no"):
            shop.run()
    shop.run()
    shop.check()


def test_tasks_that_disagree_run_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    plane = MemoryPlane(shop.program, tmp_path / "state", mixed=2)
    reached = Death()
    shop.run(plane=plane, reached=reached)
    shop.check()
    assert [plan.step for plan in plane.ran] == [1, 1, 1, 2, 3, 4]
    why = "disagreed: worker 0 of orders (level 0) was used in 2 different attempts"
    assert [point for point in reached.points if point[1] == 1][:4] == [
        ("planned", 1),
        (why, 1),
        (why, 1),
        ("ran", 1),
    ]


def test_tasks_that_never_agree_fail_the_step_which_stays_planned(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    plane = MemoryPlane(shop.program, tmp_path / "state", mixed=3)
    with pytest.raises(AttemptsDisagree, match=r"Step 1 ran 3 times .* 2 different attempts"):
        shop.run(plane=plane)
    assert shop.commits() == []
    shop.run()
    shop.check()
    assert [plan.step for plan in plane.ran] == [1, 1, 1]


def test_a_pause_is_no_step(tmp_path: Path) -> None:
    shop = Shop(tmp_path, scripted([PAGES[0], PAUSE, PAUSE, *PAGES[1:]]))
    shop.run()
    shop.check()


def test_a_commit_that_somebody_else_made_is_adopted(tmp_path: Path) -> None:
    one, other = Shop(tmp_path / "one"), Shop(tmp_path / "other")
    other.run()
    theirs = other.journal.read(CommitName(1)).body

    def overtaken(point: str, step: int) -> None:
        if (point, step) == ("ran", 1):
            # Somebody else ran the same step in the same store, and commits it first.
            for room in ("run", "stage"):
                shutil.copytree(
                    tmp_path / "other/state" / room,
                    tmp_path / "one/state" / room,
                    dirs_exist_ok=True,
                )
            one.journal.create(CommitName(1), theirs, "theirs")

    one.run(reached=overtaken)
    one.check()
    assert one.journal.read(CommitName(1)).body == theirs
    mine, their = one.commits()[0].states, decode_commit(theirs).states
    assert mine == their


def two_sources(rows: MemorySink, numbers: MemorySink) -> Program:
    """A source that ends after a page, and one that goes on for two more, with pauses."""
    flow = shop(scripted([PAGES[0]]), rows, MemorySink())
    later = ScriptedSource("n bigint", [PAUSE, PAUSE, [(1,)], [(2,)]])
    keyed = flow.source("later", later).key_distribute("by-n", "n")
    keyed.aggregate("ns", c="count(*)").sink("numbers", numbers)
    return program(flow)


def test_one_source_that_ends_neither_ends_the_pipeline_nor_is_read_again(tmp_path: Path) -> None:
    rows, numbers = MemorySink(), MemorySink()
    made = two_sources(rows, numbers)
    steps = 0
    for _ in range(3):
        engine = Engine(made, tmp_path).start()
        engine.until(lambda status: status.phase is Phase.RUNNING and status.step >= 3)
        engine.pipeline.wait(0.1)
        assert engine.pipeline.status().phase is Phase.RUNNING
        engine.pipeline.shutdown()
        steps += len(engine.done)
    assert steps == 3
    assert [row["n"] for row in numbers.rows()] == [1, 2]
    assert sum(table.num_rows for table in rows.steps().values()) == len(PAGES[0])


def test_a_generator_runs_to_its_end_over_restarts(tmp_path: Path) -> None:
    def numbers(partition: int, start: int, end: int) -> dict[str, list[Any]]:
        places = range(start, end)
        return {
            "customer": [f"c{(partition + i) % 3}" for i in places],
            "amount": [1 + partition] * len(places),
        }

    source = GeneratorSource(
        numbers, "customer string, amount bigint", partitions=2, rows_per_step=6, rows=20
    )
    shop = Shop(tmp_path, source)
    for step in (1, 2, 4):
        shop.run_and_die("ran", step)
    shop.run()
    assert [c.step for c in shop.commits()] == [1, 2, 3, 4]
    pages = []
    for first in range(0, 20, 6):
        page = []
        for partition in range(2):
            start, end = (first + 1 - partition) // 2, (min(first + 6, 20) + 1 - partition) // 2
            made = numbers(partition, start, end)
            page += list(zip(made["customer"], made["amount"], strict=True))
        pages.append(page)
    shop.check(Story(pages))


# ------------------------------------------------------------------------ whose directory is it


def test_the_clock_never_goes_back(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.clock = itertools.count(5000)
    shop.run_and_die("committed", 2)
    shop.clock = itertools.count(10)
    shop.run()
    clocks = [c.clock_ns for c in shop.commits()]
    assert clocks == sorted(clocks)
    shop.check()


def test_another_dataflow_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    mine = Shop(tmp_path)
    mine.run()
    other = program(shop(scripted(), MemorySink(), MemorySink(), name="market"))
    before = files_of(tmp_path)
    with pytest.raises(OtherDataflow, match="'shop', not 'market'"):
        mine.run(program=other)
    assert files_of(tmp_path) == before
    mine.check()


def test_a_source_that_is_gone_is_refused_also_when_only_a_plan_names_it(tmp_path: Path) -> None:
    mine = Shop(tmp_path)
    mine.run_and_die("planned", 1)
    flow = Dataflow("shop")
    flow.source("sales", scripted()).sink("rows", MemorySink())
    made = program(flow)
    with pytest.raises(ChangedDataflow, match="Source 'orders' is gone"):
        mine.run(program=made)
    mine.run()
    mine.check()


@pytest.mark.parametrize("kind", ["plan", "commit"])
def test_a_damaged_entry_is_named_and_nothing_is_changed(tmp_path: Path, kind: str) -> None:
    mine = Shop(tmp_path)
    mine.run_and_die("planned", 3)
    path = tmp_path / "state/journal" / str(CommitName(2) if kind == "commit" else PlanName(3, 0))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(CorruptEntry, match=path.name):
        mine.run()
    path.write_bytes(whole)
    mine.run()
    mine.check()
