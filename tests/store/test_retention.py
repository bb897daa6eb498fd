"""What is removed from a store, and what never is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from anabranch.errors import StoreUnavailable
from anabranch.node.source_log import StoreLog
from anabranch.records.bins import BinSet
from anabranch.records.placed import OperatorShape, OperatorState
from anabranch.records.run_list import BlobInfo, Listed, RunInfo
from anabranch.records.staged_file import StagedFile
from anabranch.store.retention import Sweeper, needed_files

GRACE = 60.0


def name(room: str, step: int, attempt: str, revision: int = 0) -> str:
    extension = "arrow" if room == "run" else "parquet"
    return f"{room}/totals/{step:012d}-{revision}-by-key-1-0-{attempt}.{extension}"


def listing(*runs: str) -> OperatorState:
    shape = OperatorShape("totals", "Aggregate", "by-key", "k string", "n bigint")
    listed = tuple(Listed(RunInfo(run, "totals", 1, 1, "00000000"), BinSet.of([0])) for run in runs)
    return OperatorState(shape, listed, (1,))


def staged(file: str) -> StagedFile:
    return StagedFile(name=file, sink="totals", rows=1, bytes=1, checksum="00000000")


class Store:
    """A store on disk with its sweeper."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sweeper = Sweeper(root, GRACE)

    def write(self, *names: str) -> None:
        for file in names:
            path = self.root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")

    def sweep(
        self,
        now: float,
        step: int,
        *states: OperatorState,
        staged: Sequence[StagedFile] = (),
        log: Sequence[str] = (),
    ) -> int:
        """Sweep after a step, when these states are all that is kept."""
        needed = needed_files(
            [[state] for state in states], staged, [f"log/{name}" for name in log]
        )
        return self.sweeper.sweep(step, needed, now)

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
    assert store.sweeper.due() is None
    assert store.sweep(100.0, 5, listing(mine)) == 0
    assert store.sweeper.due() == 100.0 + GRACE
    assert store.sweep(100.0 + GRACE - 1, 5, listing(mine)) == 0
    assert store.files() == {mine, late}
    assert store.sweep(100.0 + GRACE, 5, listing(mine)) == 1
    assert store.files() == {mine}
    assert store.sweeper.due() is None
    # One that comes later still has its own time, and goes too.
    later = name("stage", 4, "cc")
    store.write(later)
    assert store.sweep(500.0, 5, listing(mine)) == 0
    assert store.sweep(500.0 + GRACE, 5, listing(mine)) == 1
    assert store.files() == {mine}


def test_nothing_of_an_uncommitted_step_is_removed(store: Store) -> None:
    coming = [name("run", 6, "aa"), name("run", 6, "bb", revision=1), name("stage", 7, "cc")]
    store.write(*coming)
    for now in (0.0, GRACE, 10 * GRACE):
        assert store.sweep(now, 5) == 0
    assert store.files() == set(coming)
    # Once the step is committed without them, their time begins.
    assert store.sweep(20 * GRACE, 6) == 0
    assert store.sweep(21 * GRACE, 6) == 2


def test_runs_of_kept_states_and_staged_files_that_wait_stay(store: Store) -> None:
    kept, last = name("run", 1, "aa"), name("run", 5, "bb")
    waiting, done = name("stage", 4, "aa"), name("stage", 3, "aa")
    store.write(kept, last, waiting, done)
    for now, removed in ((0.0, 0), (GRACE, 1)):
        found = store.sweep(now, 5, listing(kept), listing(last), staged=[staged(waiting)])
        assert found == removed
    assert store.files() == {kept, last, waiting}


def test_a_blob_stays_as_long_as_a_run_is_listed_for_its_bin(store: Store) -> None:
    run = name("run", 3, "aa")
    kept, gone = f"{run}-0.blob", f"{run}-1.blob"
    store.write(run, kept, gone)
    blobs = tuple(BlobInfo(file, 1, "00000000", number) for number, file in enumerate((kept, gone)))
    state = listing(run)
    info = msgspec.structs.replace(state.runs[0].run, blobs=blobs)
    state = msgspec.structs.replace(state, runs=(Listed(info, BinSet.of([0])),))
    for now in (0.0, GRACE):
        store.sweep(now, 5, state)
    assert store.files() == {run, kept}
    for now in (GRACE, 2 * GRACE):
        store.sweep(now, 6)
    assert store.files() == set()


def test_a_file_that_is_needed_again_begins_anew(store: Store) -> None:
    run = name("run", 1, "aa")
    store.write(run)
    store.sweep(0.0, 5)
    store.sweep(GRACE, 5, listing(run))
    store.sweep(GRACE + 1, 5)
    assert store.sweep(2 * GRACE, 5) == 0
    assert store.sweep(2 * GRACE + 1, 5) == 1


def test_files_of_the_source_log_stay_as_long_as_a_position_names_them(store: Store) -> None:
    log = StoreLog(store.root)
    kept, gone = log.write("seen", b"one"), log.write("seen", b"two")
    assert kept != gone
    assert store.sweep(0.0, 1, log=[kept]) == 0
    assert store.sweep(GRACE, 1, log=[kept]) == 1
    assert store.files() == {f"log/{kept}"}
    assert log.read(kept) == b"one"
    with pytest.raises(StoreUnavailable, match=gone):
        log.read(gone)


def test_code_goes_at_once_but_for_what_is_named(store: Store) -> None:
    store.write("code/old", "code/running", "code/committed", "code/.half.1.2.aside")
    assert store.sweeper.sweep_code({"running", "committed", "never-there"}) == 2
    assert sorted(path.name for path in (store.root / "code").iterdir()) == ["committed", "running"]


def test_a_store_without_files_is_swept_too(store: Store) -> None:
    assert store.sweep(0.0, 1) == 0
    assert store.sweeper.sweep_code(()) == 0


def test_a_file_that_somebody_removed_is_no_trouble(store: Store) -> None:
    late = name("run", 1, "aa")
    store.write(late)
    store.sweep(0.0, 5)
    (store.root / late).unlink()
    assert store.sweep(GRACE, 5) == 0
