"""What is removed from a store, and what never is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from anabranch.errors import StoreUnavailable
from anabranch.node.retention import KEPT_COMMITS, Retention
from anabranch.node.store_log import StoreLog
from anabranch.plan.step import Commit, OperatorShape, OperatorState
from anabranch.sinks.port import StagedFile
from anabranch.state.bins import BinSet
from anabranch.state.journal import CommitName, Journal, PlanName, PublishedName
from anabranch.state.run_list import BlobInfo, Listed, RunInfo

GRACE = 60.0


def name(room: str, step: int, attempt: str, revision: int = 0) -> str:
    extension = "arrow" if room == "run" else "parquet"
    return f"{room}/totals/{step:012d}-{revision}-by-key-1-0-{attempt}.{extension}"


def commit(step: int, *runs: str) -> Commit:
    shape = OperatorShape("totals", "Aggregate", "by-key", "k string", "n bigint")
    listed = tuple(Listed(RunInfo(run, "totals", 1, 1, "00000000"), BinSet.of([0])) for run in runs)
    state = OperatorState(shape, listed, (1,))
    return Commit(step, 0, 0, "code", (), (), (state,), (), (), {})


def staged(file: str) -> StagedFile:
    return StagedFile(name=file, sink="totals", rows=1, bytes=1, checksum="00000000")


class Store:
    """A store on disk with its retention."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = Journal(root / "journal")
        self.journal.prepare()
        self.retention = Retention(root, self.journal, GRACE)

    def write(self, *names: str) -> None:
        for file in names:
            path = self.root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    def files(self) -> set[str]:
        rooms = [self.root / room for room in ("run", "stage", "log")]
        return {
            str(path.relative_to(self.root))
            for room in rooms
            for path in room.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_late_attempt_of_a_committed_step_goes_after_the_grace(store: Store) -> None:
    mine, late = name("run", 5, "aa"), name("run", 5, "bb")
    store.write(mine, late)
    last = commit(5, mine)
    assert store.retention.sweep(last, (), (), now=100.0) == 0
    assert store.retention.sweep(last, (), (), now=100.0 + GRACE - 1) == 0
    assert store.files() == {mine, late}
    assert store.retention.sweep(last, (), (), now=100.0 + GRACE) == 1
    assert store.files() == {mine}
    # One that comes later still has its own time, and goes too.
    later = name("stage", 4, "cc")
    store.write(later)
    assert store.retention.sweep(last, (), (), now=500.0) == 0
    assert store.retention.sweep(last, (), (), now=500.0 + GRACE) == 1
    assert store.files() == {mine}


def test_nothing_of_an_uncommitted_step_is_removed(store: Store) -> None:
    coming = [name("run", 6, "aa"), name("run", 6, "bb", revision=1), name("stage", 7, "cc")]
    store.write(*coming)
    for now in (0.0, GRACE, 10 * GRACE):
        assert store.retention.sweep(commit(5), (), (), now) == 0
    assert store.files() == set(coming)
    # Once the step is committed without them, their time begins.
    assert store.retention.sweep(commit(6), (), (), 20 * GRACE) == 0
    assert store.retention.sweep(commit(6), (), (), 21 * GRACE) == 2


def test_runs_of_the_last_commit_and_staged_files_that_wait_stay(store: Store) -> None:
    runs = [name("run", 1, "aa"), name("run", 5, "bb")]
    waiting, done = name("stage", 4, "aa"), name("stage", 3, "aa")
    store.write(*runs, waiting, done)
    last = commit(5, *runs)
    store.retention.sweep(last, [staged(waiting)], (), 0.0)
    assert store.retention.sweep(last, [staged(waiting)], (), GRACE) == 1
    assert store.files() == {*runs, waiting}


def test_a_blob_stays_as_long_as_a_run_is_listed_for_its_bin(store: Store) -> None:
    run = name("run", 3, "aa")
    kept, gone = f"{run}-0.blob", f"{run}-1.blob"
    store.write(run, kept, gone)
    blobs = tuple(BlobInfo(file, 1, "00000000", number) for number, file in enumerate((kept, gone)))
    last = commit(5, run)
    (state,) = last.states
    info = msgspec.structs.replace(state.runs[0].run, blobs=blobs)
    listed = msgspec.structs.replace(state, runs=(Listed(info, BinSet.of([0])),))
    last = msgspec.structs.replace(last, states=(listed,))
    for now in (0.0, GRACE):
        store.retention.sweep(last, [], (), now)
    assert store.files() == {run, kept}
    for now in (GRACE, 2 * GRACE):
        store.retention.sweep(commit(6), [], (), now)
    assert store.files() == set()


def test_a_file_that_is_needed_again_begins_anew(store: Store) -> None:
    run = name("run", 1, "aa")
    store.write(run)
    store.retention.sweep(commit(5), (), (), 0.0)
    store.retention.sweep(commit(5, run), (), (), GRACE)
    store.retention.sweep(commit(5), (), (), GRACE + 1)
    assert store.retention.sweep(commit(5), (), (), 2 * GRACE) == 0
    assert store.retention.sweep(commit(5), (), (), 2 * GRACE + 1) == 1


def test_files_of_the_source_log_stay_as_long_as_a_position_names_them(store: Store) -> None:
    log = StoreLog(store.root)
    kept, gone = log.write("seen", b"one"), log.write("seen", b"two")
    assert kept != gone
    store.retention.sweep(commit(1), (), {kept}, 0.0)
    assert store.retention.sweep(commit(1), (), {kept}, GRACE) == 1
    assert store.files() == {f"log/{kept}"}
    assert log.read(kept) == b"one"
    with pytest.raises(StoreUnavailable, match=gone):
        log.read(gone)


def test_code_goes_at_once_but_for_what_is_named(store: Store) -> None:
    store.write("code/old", "code/running", "code/committed", "code/.half.1.2.aside")
    assert store.retention.sweep_code({"running", "committed", "never-there"}) == 2
    assert sorted(path.name for path in (store.root / "code").iterdir()) == ["committed", "running"]


def test_a_store_without_files_is_swept_too(store: Store) -> None:
    assert store.retention.sweep(commit(1), (), (), 0.0) == 0
    assert store.retention.sweep_code(()) == 0


def test_a_file_that_somebody_removed_is_no_trouble(store: Store) -> None:
    late = name("run", 1, "aa")
    store.write(late)
    store.retention.sweep(commit(5), (), (), 0.0)
    (store.root / late).unlink()
    assert store.retention.sweep(commit(5), (), (), GRACE) == 0


@pytest.mark.parametrize(
    ("step", "published", "first"),
    [(10, 10, 1), (40, 40, 40 - KEPT_COMMITS), (40, 30, 31 - KEPT_COMMITS), (40, 0, 1)],
)
def test_the_journal_keeps_what_a_restart_and_publishing_need(
    store: Store, step: int, published: int, first: int
) -> None:
    for number in range(1, step + 1):
        store.journal.create(PlanName(number, 0), b"{}", "n")
        store.journal.create(CommitName(number), b"{}", "n")
        store.journal.create(PublishedName(number), b"", "n")
    store.journal.create(PlanName(step + 1, 0), b"{}", "n")
    store.retention.trim(step, published)
    said = [number for number in range(1, step + 1) if store.journal.find(PublishedName(number))]
    assert said == list(range(first, step + 1))
    assert [n.step for n in store.journal.commits()] == list(range(first, step + 1))
    assert [n.step for n in store.journal.plans()] == list(range(first, step + 2))
