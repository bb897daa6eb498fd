"""What every directory of a journal must do, whatever it is made of."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from anabranch.errors import AnabranchError, DirectoryInUse, Fenced, StoreError, StoreUnavailable
from anabranch.journal.entry_names import CommitName
from anabranch.journal.envelope import Entry
from anabranch.journal.file_directory import FileDirectory, FileLease
from anabranch.journal.journal import Journal, Taken, Trimmed, Won
from anabranch.journal.leadership import Leadership, check_leads, replaced_by
from anabranch.journal.port import JournalDirectory, Lease
from anabranch.store.disk import use_disk
from anabranch.testing.faulty_disk import Crash, FaultyDisk
from tests.journal.memory_directory import MemoryDirectory

LARGE = bytes(range(256)) * 4096


KINDS = ["files", "memory", "files on a simulated disk"]


@pytest.fixture(params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalDirectory]:
    """Each implementation, made and empty."""
    if request.param == "memory":
        yield MemoryDirectory()
        return
    for name in ("journal", "graves"):
        (tmp_path / name).mkdir()
    simulated = request.param != "files"
    faulty = FaultyDisk(tmp_path / "graves", Random(7))
    with use_disk(faulty) if simulated else contextlib.nullcontext():
        yield FileDirectory(tmp_path / "journal")


# A simulation has one thread.
threads_use_it = pytest.mark.parametrize("directory", KINDS[:2], indirect=True)


def claimed(directory: JournalDirectory, number: int) -> Lease:
    lease = directory.claim(number)
    assert lease is not None
    return lease


def entries(directory: JournalDirectory, room: str) -> list[str]:
    return sorted(name for name in directory.list(room) if name.isdigit())


# -------------------------------------------------------------------------------------- entries


@pytest.mark.parametrize("data", [b"", b"{}", LARGE], ids=["nothing", "little", "much"])
@pytest.mark.parametrize("name", ["identity", "leader/3", "commit/0/000000000007"])
def test_what_was_created_is_read(directory: JournalDirectory, name: str, data: bytes) -> None:
    assert directory.read(name) is None
    assert directory.create(name, data)
    assert directory.read(name) == data
    assert directory.where(name) == f"{directory.where()}/{name}"


def test_a_name_is_created_once(directory: JournalDirectory) -> None:
    same = b"{}"
    assert directory.create("commit/0/1", same)
    assert not directory.create("commit/0/1", b"other")
    assert not directory.create("commit/0/1", same)
    assert directory.read("commit/0/1") == same


@threads_use_it
def test_of_many_threads_one_creates_a_name(directory: JournalDirectory) -> None:
    barrier = threading.Barrier(6)
    won: list[tuple[int, bytes]] = []

    def race(me: int) -> None:
        mine = b"%d" % me * 1000
        for number in range(8):
            barrier.wait()
            if directory.create(f"commit/0/{number}", mine):
                won.append((number, mine))

    threads = [threading.Thread(target=race, args=(me,)) for me in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in won) == list(range(8))
    assert all(directory.read(f"commit/0/{number}") == mine for number, mine in won)


@threads_use_it
def test_nobody_reads_a_part_of_an_entry(directory: JournalDirectory) -> None:
    """Nor finds a name in a list that cannot be read whole."""
    done = threading.Event()
    torn: list[object] = []

    def watch() -> None:
        while not done.is_set():
            found = {
                name: directory.read(f"plan/0/{name}") for name in entries(directory, "plan/0")
            }
            torn.extend(name for name, data in found.items() if data != LARGE)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(20):
        directory.create(f"plan/0/{number}", LARGE)
    done.set()
    watcher.join()
    assert torn == []


def test_a_list_has_the_names_of_one_room(directory: JournalDirectory) -> None:
    for name in ("identity", "commit/0/9", "commit/0/10", "commit/1/5", "plan/0/1"):
        directory.create(name, b"{}")
    assert entries(directory, "commit/0") == ["10", "9"]
    assert entries(directory, "commit") == ["0", "1"]
    assert entries(directory, "repair/0") == []
    assert {"identity", "commit", "plan"} <= set(directory.list(""))


def test_removing_is_idempotent_and_frees_the_name(directory: JournalDirectory) -> None:
    directory.create("commit/0/1", b"first")
    assert directory.remove("commit/0/1")
    assert not directory.remove("commit/0/1")
    assert not directory.remove("repair/0/1")
    assert directory.read("commit/0/1") is None
    assert entries(directory, "commit/0") == []
    assert directory.create("commit/0/1", b"second")
    directory.settle("commit/0")


# --------------------------------------------------------------------------------------- leases


def test_a_lease_is_claimed_by_one_until_it_is_let_go(directory: JournalDirectory) -> None:
    assert not directory.is_held(1)
    assert 1 not in directory.leases()
    lease = claimed(directory, 1)
    assert (lease.number, lease.held, lease.stands()) == (1, True, True)
    assert directory.is_held(1)
    assert 1 in directory.leases()
    assert directory.claim(1) is None
    assert claimed(directory, 2).stands()
    lease.release()
    lease.release()
    assert not lease.held
    assert not lease.stands()
    assert not directory.is_held(1)
    assert 1 not in directory.leases()
    assert claimed(directory, 1).stands()


def test_a_lease_creates_and_removes_as_the_directory_does(directory: JournalDirectory) -> None:
    lease = claimed(directory, 1)
    assert lease.create("commit/0/1", b"mine")
    assert not lease.create("commit/0/1", b"again")
    assert not directory.create("commit/0/1", b"again")
    assert directory.read("commit/0/1") == b"mine"
    assert entries(directory, "commit/0") == ["1"]
    assert lease.remove("commit/0/1")
    assert not lease.remove("commit/0/1")
    assert directory.read("commit/0/1") is None


def test_a_killed_holder_is_not_in_the_way_and_its_lease_stays_until_it_is_fenced(
    directory: JournalDirectory,
) -> None:
    dead = claimed(directory, 1)
    dead.abandon()
    assert not dead.held
    assert not directory.is_held(1)
    assert 1 in directory.leases()
    claimed(directory, 2).fence()
    assert 1 not in directory.leases()


def test_nothing_is_written_under_a_lease_that_was_fenced(directory: JournalDirectory) -> None:
    lower, higher = claimed(directory, 1), claimed(directory, 2)
    assert lower.create("commit/0/1", b"before")
    higher.fence()
    higher.fence()
    assert lower.held
    assert not lower.stands()
    assert higher.stands()
    with pytest.raises(StoreUnavailable):
        lower.create("commit/0/2", b"after")
    with pytest.raises(StoreUnavailable):
        lower.remove("commit/0/1")
    assert entries(directory, "commit/0") == ["1"]
    assert higher.create("commit/0/2", b"higher")
    lower.release()
    assert higher.stands()
    assert not directory.is_held(1)


def test_a_lower_lease_fences_no_higher_one(directory: JournalDirectory) -> None:
    higher, lower = claimed(directory, 2), claimed(directory, 1)
    lower.fence()
    assert higher.stands()
    assert lower.stands()


def test_one_who_was_killed_under_the_same_number_is_fenced_too(
    directory: JournalDirectory,
) -> None:
    dead = claimed(directory, 1)
    dead.abandon()
    second = claimed(directory, 1)
    second.fence()
    with pytest.raises(StoreUnavailable):
        dead.create("commit/0/1", b"late")
    assert second.create("commit/0/1", b"in time")


@threads_use_it
def test_after_a_fence_there_is_nothing_more_of_a_writer_at_work(
    directory: JournalDirectory,
) -> None:
    """Whatever it was doing at that moment: what is there stays, and nothing is added."""
    for number in range(1, 6):
        lower, higher = claimed(directory, 2 * number - 1), claimed(directory, 2 * number)
        room, begun = f"commit/{number}", threading.Event()

        def write(lease: Lease = lower, room: str = room, begun: threading.Event = begun) -> None:
            with contextlib.suppress(StoreUnavailable):
                for step in range(10_000):
                    lease.create(f"{room}/{step}", b"{}")
                    begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(30)
        higher.fence()
        seen = entries(directory, room)
        writer.join()
        assert entries(directory, room) == seen
        lower.release()
        higher.release()


# --------------------------------------------------------------------- the journal on any of them


def test_a_journal_is_led_trimmed_and_taken_over(directory: JournalDirectory) -> None:
    first, second = Leadership(directory), Leadership(directory)
    assert first.lead(False, "here", 1, 0) == 1
    for step in (1, 2, 3):
        assert first.journal.create(CommitName(step), b"first", f"a{step}") == Won()
    first.journal.trim(3)
    assert first.journal.create(CommitName(1), b"late", "late") == Trimmed(3)
    with pytest.raises(DirectoryInUse, match="Process 1 on here"):
        second.lead(False, "there", 2, 0)
    assert second.lead(True, "there", 2, 0) == 2
    assert replaced_by(directory, 1) == 2
    check_leads(directory, 2)
    with pytest.raises(Fenced, match="Process 2 on there"):
        first.journal.create(CommitName(4), b"first", "a4")
    theirs = Entry(CommitName(3), b"first", "a3")
    assert second.journal.create(CommitName(3), b"second", "b3") == Taken(theirs)
    assert second.journal.create(CommitName(4), b"second", "b4") == Won()
    second.abandon()
    first.release()
    assert first.lead(False, "here", 1, 0) == 3
    assert Journal(directory).commits() == (CommitName(3), CommitName(4))


def test_who_never_led_creates_nothing(directory: JournalDirectory) -> None:
    leadership = Leadership(directory)
    for attempt in (
        leadership.check,
        lambda: leadership.journal.create(CommitName(1), b"{}", "a"),
        lambda: leadership.journal.trim(1),
    ):
        with pytest.raises(Fenced, match="does not lead"):
            attempt()
    assert leadership.number is None
    assert entries(directory, "commit/0") == []


# ----------------------------------------------------------------------------- what files add to it


def test_of_several_processes_one_creates_a_name(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        won = pool.starmap(_race, [(str(tmp_path / "journal"), me) for me in range(3)], chunksize=1)
    assert sorted(number for mine in won for number in mine) == list(range(30))
    directory = FileDirectory(tmp_path / "journal")
    for me, mine in enumerate(won):
        assert all(directory.read(f"commit/0/{number}") == b"%d" % me for number in mine)


def _race(root: str, me: int) -> list[int]:
    directory = FileDirectory(Path(root))
    return [n for n in range(30) if directory.create(f"commit/0/{n}", b"%d" % me)]


Make = Callable[[FileDirectory], bool]


def _as_anybody(directory: FileDirectory) -> bool:
    return directory.create("commit/0/2", LARGE)


def _as_leader(directory: FileDirectory) -> bool:
    return claimed(directory, 1).create("commit/0/2", LARGE)


@pytest.mark.parametrize("make", [_as_anybody, _as_leader])
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_a_crash_at_any_call_leaves_an_entry_whole_or_not_at_all(
    tmp_path: Path, make: Make, power_cut: bool
) -> None:
    for call in range(60):
        home = tmp_path / str(call)
        for name in ("graves", "journal"):
            (home / name).mkdir(parents=True)
        faulty = FaultyDisk(home / "graves", Random(call))
        directory = FileDirectory(home / "journal")
        with use_disk(faulty):
            directory.create("commit/0/1", LARGE)
            with faulty.acting("creator"):
                faulty.crash_at("creator", call)
                try:
                    made = make(directory)
                except Crash:
                    made = False
            if power_cut:
                faulty.power_cut()
        found = directory.read("commit/0/2")
        assert directory.read("commit/0/1") == LARGE
        assert found in ((LARGE,) if made else (None, LARGE))
        assert entries(directory, "commit/0") == ["1", *["2"] * (found is not None)]
        if made:
            return
    pytest.fail("creating an entry takes more than 60 calls")


def test_a_failed_create_of_files_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir()
    directory = FileDirectory(tmp_path / "journal")
    lease = claimed(directory, 1)
    assert isinstance(lease, FileLease)

    def fail(handle: int) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    for writer in (directory, lease):
        with pytest.raises(StoreError):
            writer.create("identity", b"{}")
    assert list(lease.aside.iterdir()) == []
    assert directory.read("identity") is None
    assert list(directory.list("")) == ["leader"]


def test_errors_of_a_directory_are_our_own(tmp_path: Path) -> None:
    directory = FileDirectory(tmp_path / "missing")
    with pytest.raises(AnabranchError, match="missing"):
        directory.create("identity", b"{}")
    assert directory.read("identity") is None
    assert directory.list("commit/0") == []
