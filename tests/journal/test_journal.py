"""The journal: who wins, what survives, what is told about damage."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import threading
import zlib
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import (
    CorruptEntry,
    DiskFull,
    FutureFormat,
    MissingEntry,
    PastFormat,
    StoreUnavailable,
)
from anabranch.journal import file_directory
from anabranch.journal.entry_names import (
    BranchName,
    CheckpointName,
    CommitName,
    EntryName,
    IdentityName,
    LeaderName,
    PlanName,
    PublishedName,
    RepairName,
    SegmentName,
)
from anabranch.journal.envelope import Entry, seal
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal, Outcome, Taken, Trimmed, Won
from anabranch.journal.segments import Segment
from anabranch.store import files
from anabranch.store.disk import use_disk
from anabranch.testing.faulty_disk import FaultyDisk

NAMES: list[EntryName] = [
    IdentityName(),
    LeaderName(3),
    BranchName(2),
    PlanName(7, 2),
    PlanName(7, 0, branch=3),
    CommitName(7),
    CheckpointName(7, branch=2),
    PublishedName(7),
    RepairName(7, 1),
]


@pytest.fixture
def book(tmp_path: Path) -> Journal:
    (tmp_path / "journal").mkdir()
    return Journal(FileDirectory(tmp_path / "journal"))


def root(book: Journal) -> Path:
    assert isinstance(book.directory, FileDirectory)
    return book.directory.root


def entry_files(book: Journal) -> list[str]:
    found = (path for path in root(book).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(root(book))) for path in found)


@pytest.mark.parametrize("name", NAMES, ids=str)
@pytest.mark.parametrize("body", [b"", b"{}", b'{"a":1}\n\nanabranch 1', bytes(range(256))])
def test_what_was_created_is_read(book: Journal, name: EntryName, body: bytes) -> None:
    assert book.find(name) is None
    assert book.create(name, body, "n-1") == Won()
    assert book.read(name) == Entry(name, body, "n-1")


def test_names_and_envelope_on_disk(book: Journal) -> None:
    for name in NAMES:
        book.create(name, b"{}", "me")
    assert entry_files(book) == [
        "branch/2",
        "checkpoint/2/000000000007",
        "commit/0/000000000007",
        "identity",
        "leader/3",
        "plan/0/000000000007.2",
        "plan/3/000000000007.0",
        "published/0/000000000007",
        "repair/0/000000000007.1",
    ]
    crc = zlib.crc32(b"3 commit/0/000000000007 me {}")
    text = (root(book) / "commit/0/000000000007").read_bytes()
    assert text == b"anabranch 3 commit/0/000000000007 %08x 2 me\n{}" % crc


def test_the_first_creator_wins_and_the_second_is_given_its_entry(book: Journal) -> None:
    assert book.create(CommitName(1), b"first", "a") == Won()
    assert book.create(CommitName(1), b"second", "b") == Taken(Entry(CommitName(1), b"first", "a"))
    assert book.read(CommitName(1)).body == b"first"


def test_a_retry_finds_that_it_had_won(book: Journal) -> None:
    assert book.create(CommitName(1), b"mine", "a") == Won()
    assert book.create(CommitName(1), b"mine", "a") == Won()


def test_a_create_that_failed_after_the_link_is_won_by_its_retry(
    book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = files.sync_directory

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    book.create(CommitName(1), b"{}", "x")
    monkeypatch.setattr(files, "sync_directory", fail)
    with pytest.raises(StoreUnavailable):
        book.create(CommitName(2), b"mine", "a")
    monkeypatch.setattr(files, "sync_directory", sync)
    assert book.create(CommitName(2), b"other", "b") == Taken(Entry(CommitName(2), b"mine", "a"))
    assert book.create(CommitName(2), b"mine", "a") == Won()


@pytest.mark.parametrize("how", ["taken", "latest_commit", "latest_plan"])
def test_what_a_killed_creator_left_is_made_durable_before_it_is_believed(
    book: Journal, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    book.create(CommitName(1), b"{}", "a")
    book.create(PlanName(1, 0), b"{}", "a")
    synced: list[Path] = []
    monkeypatch.setattr(file_directory, "sync_directory", synced.append)
    match how:
        case "taken":
            book.create(CommitName(1), b"{}", "b")
        case "latest_commit":
            book.latest_commit()
        case _:
            book.latest_plan(1)
    kind = "plan" if how == "latest_plan" else "commit"
    assert synced == [root(book) / kind / "0"]


@pytest.mark.parametrize("nonce", ["", "a b", "a\n", "é", "x" * 129])
def test_a_nonce_that_would_break_the_envelope_is_refused(book: Journal, nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        book.create(CommitName(1), b"{}", nonce)
    assert entry_files(book) == []


def test_threads_race_for_a_commit_and_agree_on_the_winner(book: Journal) -> None:
    barrier = threading.Barrier(8)
    told: dict[tuple[int, int], bytes] = {}

    def race(me: int) -> None:
        for step in range(1, 11):
            barrier.wait()
            mine = b"%d" % me
            outcome = book.create(CommitName(step), mine, f"n{me}")
            told[step, me] = outcome.entry.body if isinstance(outcome, Taken) else mine

    threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for step in range(1, 11):
        winner = book.read(CommitName(step)).body
        assert [told[step, me] for me in range(8)] == [winner] * 8


def test_processes_race_for_commits_and_agree_on_the_winners(book: Journal) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        told = pool.starmap(_race, [(str(root(book)), me) for me in range(3)], chunksize=1)
    winners = [book.read(CommitName(step)).body for step in range(1, 21)]
    assert told == [winners] * 3


def _race(directory: str, me: int) -> list[bytes]:
    book, mine, told = Journal(FileDirectory(Path(directory))), b"%d" % me, []
    for step in range(1, 21):
        outcome = book.create(CommitName(step), mine, f"n{me}")
        told.append(outcome.entry.body if isinstance(outcome, Taken) else mine)
    return told


# ------------------------------------------------------------------------------------ damage


def test_any_flipped_bit_is_corrupt_and_never_a_future_format(book: Journal) -> None:
    name = PlanName(7, 2)
    book.create(name, b'{"runs":[]}', "nonce-1")
    path = root(book) / str(name)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(CorruptEntry, match=str(path)):
                book.read(name)
            assert path.read_bytes() == bytes(damaged)


def test_any_truncation_and_any_appended_byte_is_corrupt(book: Journal) -> None:
    book.create(CommitName(7), b'{"runs":[]}', "nonce-1")
    path = root(book) / "commit/0/000000000007"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptEntry):
            book.read(CommitName(7))
    path.write_bytes(whole + b"\0")
    with pytest.raises(CorruptEntry):
        book.read(CommitName(7))


def test_a_truncated_commit_says_what_to_do(book: Journal) -> None:
    book.create(CommitName(7), b'{"runs":[]}', "nonce-1")
    path = root(book) / "commit/0/000000000007"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorruptEntry) as caught:
        book.read(CommitName(7))
    assert str(caught.value) == (
        "[store.corrupt_entry] The journal entry commit/0/000000000007 is damaged: it has 7 bytes "
        f"instead of 11 ({path}). Nothing was changed. Restore the directory from a copy, or open "
        "an older checkpoint."
    )


def test_an_entry_under_another_name_is_corrupt(book: Journal) -> None:
    book.create(CommitName(7), b"{}", "a")
    for name in (CommitName(8), PlanName(7, 0), IdentityName()):
        path = root(book) / str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root(book) / "commit/0/000000000007", path)
        with pytest.raises(CorruptEntry, match="it is the entry commit/0/000000000007"):
            book.read(name)


@pytest.mark.parametrize(
    "text",
    [b"anabranch 4 commit/0/000000000007 00000000 2 a\n{}", b"anabranch 17 anything else\n\xff"],
    ids=["same envelope", "other envelope"],
)
def test_a_newer_format_is_told_apart_from_damage(book: Journal, text: bytes) -> None:
    path = root(book) / "commit/0/000000000007"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    with pytest.raises(FutureFormat, match=r"this version reads up to 3") as caught:
        book.read(CommitName(7))
    assert str(path) in str(caught.value)


def test_an_older_format_is_told_apart_from_damage(book: Journal) -> None:
    path = root(book) / "commit/0/000000000007"
    path.parent.mkdir(parents=True)
    crc = zlib.crc32(b"1 commit/0/000000000007 a {}")
    path.write_bytes(b"anabranch 1 commit/0/000000000007 %08x 2 a\n{}" % crc)
    with pytest.raises(PastFormat, match="format 1; this version reads format 3 only"):
        book.read(CommitName(7))
    path.write_bytes(b"anabranch 1 commit/0/000000000007 %08x 2 a\n{]" % crc)
    with pytest.raises(CorruptEntry):
        book.read(CommitName(7))


def test_creating_over_a_damaged_entry_tells_so_and_leaves_it(book: Journal) -> None:
    path = root(book) / "commit/0/000000000007"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"torn")
    with pytest.raises(CorruptEntry):
        book.create(CommitName(7), b"{}", "a")
    assert path.read_bytes() == b"torn"


def test_a_missing_entry_is_named(book: Journal) -> None:
    with pytest.raises(MissingEntry, match=str(root(book) / "plan/0/000000000007.1")):
        book.read(PlanName(7, 1))


def test_a_full_disk_leaves_no_entry(book: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.write
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(DiskFull, match="commit/0/000000000007"):
        book.create(CommitName(7), b"{}", "a")
    assert book.find(CommitName(7)) is None
    assert entry_files(book) == []
    monkeypatch.setattr(os, "write", write)
    assert book.create(CommitName(7), b"{}", "a") == Won()


def test_a_journal_that_vanished_is_not_started_anew(book: Journal) -> None:
    book.create(CommitName(1), b"{}", "a")
    shutil.rmtree(root(book))
    with pytest.raises(StoreUnavailable):
        book.create(CommitName(2), b"{}", "a")
    assert not root(book).exists()


def test_who_fences_clears_what_killed_creators_left(book: Journal) -> None:
    book.create(CommitName(1), b"{}", "a")
    for place in ("identity", "commit/0/000000000002"):
        path = root(book) / place
        (path.parent / f".{path.name}.1.2.aside").write_bytes(b"half")
    assert book.commits() == (CommitName(1),)
    lease = book.directory.claim(1)
    assert lease is not None
    lease.fence()
    assert entry_files(book) == ["commit/0/000000000001", "leader/1.lock"]
    lease.release()


# ------------------------------------------------------------------------------------ lists


def test_lists_are_in_order_of_number_and_ignore_what_is_not_an_entry(book: Journal) -> None:
    assert book.commits() == ()
    assert book.latest_commit() is None
    assert book.latest_plan(1) is None
    for name in (PlanName(2, 9), PlanName(2, 10), PlanName(10, 0), PlanName(1, 0), PlanName(2, 1)):
        book.create(name, b"{}", "a")
    for step in (10, 9, 1):
        book.create(CommitName(step), b"{}", "a")
    book.create(CommitName(99, branch=1), b"{}", "a")
    for stray in ("commit/0/.nfs0001", "commit/0/12", "plan/0/000000000002.x", "commit/0/copy"):
        (root(book) / stray).write_bytes(b"")
    assert book.commits() == (CommitName(1), CommitName(9), CommitName(10))
    assert book.latest_commit() == CommitName(10)
    assert book.latest_commit(branch=1) == CommitName(99, branch=1)
    assert book.latest_plan(2) == PlanName(2, 10)
    assert book.latest_plan(3) is None
    assert [(p.step, p.revision) for p in book.plans()] == [
        (1, 0),
        (2, 1),
        (2, 9),
        (2, 10),
        (10, 0),
    ]


def test_every_kind_has_its_list(book: Journal) -> None:
    for name in (
        *(LeaderName(10), LeaderName(9), BranchName(1), BranchName(10), BranchName(9)),
        *(CheckpointName(3), CheckpointName(12), CheckpointName(4, branch=1)),
        *(RepairName(3, 1), RepairName(3, 10), RepairName(3, 2), RepairName(2, 1)),
        *(PublishedName(5), PublishedName(4), PlanName(6, 0, branch=2)),
    ):
        book.create(name, b"{}", "a")
    for stray in ("leader/10.lock", "leader/aside-10", "branch/x", "repair/0/000000000003."):
        (root(book) / stray).write_bytes(b"")
    assert [name.number for name in book.leaders()] == [9, 10]
    assert [name.number for name in book.branches()] == [1, 9, 10]
    assert book.checkpoints() == (CheckpointName(3), CheckpointName(12))
    assert book.checkpoints(1) == (CheckpointName(4, branch=1),)
    assert [(name.step, name.revision) for name in book.repairs()] == [
        (2, 1),
        (3, 1),
        (3, 2),
        (3, 10),
    ]
    assert book.published() == (PublishedName(4), PublishedName(5))
    assert book.lines() == (0, 1, 2)
    assert [sorted(book.steps(branch)) for branch in (0, 2, 5)] == [[2, 3, 4, 5], [6], []]


def test_trim_removes_old_steps_but_those_to_keep(book: Journal) -> None:
    for step in range(1, 6):
        book.create(PlanName(step, 0), b"{}", "a")
        book.create(CommitName(step), b"{}", "a")
    assert book.floor() is None
    gone = book.trim(4, keep={2})
    assert set(gone) == {PlanName(1, 0), PlanName(3, 0), CommitName(1), CommitName(3)}
    assert book.floor() == 4
    assert [name.step for name in book.commits()] == [2, 4, 5]
    assert [name.step for name in book.plans()] == [2, 4, 5]
    assert set(book.trim(4)) == {PlanName(2, 0), CommitName(2)}
    assert book.trim(3) == ()
    assert book.floor() == 4


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_that_was_trimmed_does_not_come_back(tmp_path: Path, seed: int) -> None:
    (tmp_path / "graves").mkdir()
    (tmp_path / "journal").mkdir()
    faulty = FaultyDisk(tmp_path / "graves", Random(seed))
    book = Journal(FileDirectory(tmp_path / "journal"))
    with use_disk(faulty):
        for step in (2, 4, 6):
            book.create(CheckpointName(step), b"{}", "a")
        assert book.trim(0, checkpoints={4, 6}) == (CheckpointName(2),)
        faulty.power_cut()
    assert book.checkpoints() == (CheckpointName(4), CheckpointName(6))


def test_a_trimmed_name_is_never_used_again(book: Journal) -> None:
    for step in (1, 2, 3):
        book.create(CommitName(step), b"{}", "a")
    book.trim(3, keep={1})
    assert book.create(CommitName(2), b"late", "b") == Trimmed(3)
    assert book.create(PlanName(2, 0), b"late", "b") == Trimmed(3)
    assert book.create(CommitName(1), b"late", "b") == Taken(Entry(CommitName(1), b"{}", "a"))
    assert book.create(CommitName(2, branch=1), b"{}", "b") == Won()
    assert book.create(IdentityName(), b"{}", "b") == Won()
    assert book.commits() == (CommitName(1), CommitName(3))
    assert book.plans() == ()


def test_the_floor_stands_before_the_first_name_is_free(
    book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        book.create(CommitName(step), b"{}", "a")
    outcomes: list[Outcome | None] = []
    remove = files.remove_file

    def remove_and_race(path: Path) -> bool:
        removed = remove(path)
        if path.name == "000000000001" and not outcomes:
            outcomes.append(None)  # creating removes too
            outcomes.append(book.create(CommitName(1), b"late", "b"))
        return removed

    monkeypatch.setattr(file_directory, "remove_file", remove_and_race)
    book.trim(3)
    assert outcomes == [None, Trimmed(3)]


def test_an_entry_trimmed_while_it_is_being_looked_at_is_told_as_trimmed(
    book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.create(CommitName(1), b"{}", "a")
    monkeypatch.setattr(file_directory, "sync_directory", lambda _: book.trim(2))
    assert book.create(CommitName(1), b"late", "b") == Trimmed(2)


def test_a_long_life_leaves_a_short_list(book: Journal) -> None:
    for step in range(1, 61):
        book.create(PlanName(step, 0), b"{}", "a")
        book.create(CommitName(step), b"{}", "a")
        if step % 10 == 0:
            book.trim(step - 3)
    assert [name.step for name in book.commits()] == [57, 58, 59, 60]
    assert len(entry_files(book)) == 4 + 4 + 2  # commits, plans and the two newest segments


# --------------------------------------------------------------------------------- segments


def committed(step: int, rows: int = 1) -> bytes:
    staged = f'{{"name":"x","sink":"out","rows":{rows},"bytes":1,"checksum":"0"}}'
    return f'{{"step":{step},"clock_ns":{step * 10},"staged":[{staged}],"more":[]}}'.encode()


def test_a_segment_sums_up_what_was_removed(book: Journal) -> None:
    assert book.segment() == Segment()
    for step in range(3, 8):
        book.create(CommitName(step), committed(step, rows=step), "a")
    book.trim(6)
    assert book.segment() == Segment(3, 3, 5, 30, 50, {"out": 3 + 4 + 5})
    book.trim(7)
    assert book.segment() == Segment(4, 3, 6, 30, 60, {"out": 3 + 4 + 5 + 6})
    assert book.segment(branch=1) == Segment()


def test_a_step_that_is_kept_is_counted_once(book: Journal) -> None:
    for step in range(1, 6):
        book.create(CommitName(step), committed(step), "a")
    book.trim(4, keep={2})
    assert book.segment().steps == 3
    book.trim(5)
    assert book.segment() == Segment(4, 1, 4, 10, 40, {"out": 4})


def test_a_step_is_counted_once_though_its_removal_failed(
    book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 6):
        book.create(CommitName(step), committed(step), "a")

    def fail(path: Path) -> bool:
        raise StoreUnavailable("it is gone")

    with monkeypatch.context() as broken:
        broken.setattr(file_directory, "remove_file", fail)
        with pytest.raises(StoreUnavailable):
            book.trim(4)
    assert len(book.commits()) == 5
    book.trim(5)
    assert book.segment() == Segment(4, 1, 4, 10, 40, {"out": 4})
    assert book.commits() == (CommitName(5),)


def test_damaged_entries_are_trimmed_and_counted_without_their_rows(book: Journal) -> None:
    for step in range(1, 5):
        book.create(CommitName(step), committed(step), "a")
    (root(book) / "commit/0/000000000002").write_bytes(b"torn")
    book.trim(4)
    assert book.segment() == Segment(3, 1, 3, 10, 30, {"out": 2})
    assert book.commits() == (CommitName(4),)


def test_a_damaged_segment_still_says_where_the_floor_is(book: Journal) -> None:
    for step in range(1, 5):
        book.create(CommitName(step), committed(step), "a")
    book.trim(2)
    book.trim(4)
    (root(book) / str(SegmentName(4))).write_bytes(b"torn")
    assert book.floor() == 4
    assert book.create(CommitName(3), b"late", "b") == Trimmed(4)
    assert book.segment() == Segment(1, 1, 1, 10, 10, {"out": 1})


def test_checkpoints_go_only_when_they_are_not_to_be_kept(book: Journal) -> None:
    for step in range(1, 7):
        book.create(CommitName(step), committed(step), "a")
        book.create(RepairName(step, 1), b"{}", "a")
        book.create(CheckpointName(step), b"{}", "a")
    book.trim(4)
    assert [name.step for name in book.checkpoints()] == [1, 2, 3, 4, 5, 6]
    assert [name.step for name in book.repairs()] == [4, 5, 6]
    gone = book.trim(4, checkpoints={3, 6})
    assert set(gone) == {CheckpointName(step) for step in (1, 2, 4, 5)}
    assert book.create(CheckpointName(2), b"late", "b") == Trimmed(4)
    assert book.checkpoints() == (CheckpointName(3), CheckpointName(6))


def test_after_many_steps_the_journal_is_as_small_as_ever(book: Journal) -> None:
    (root(book) / "commit/0").mkdir(parents=True)
    (root(book) / "plan/0").mkdir(parents=True)
    sizes = []
    for step in range(1, 1001):
        for name in (PlanName(step, 0), CommitName(step)):  # as if created, without the syncs
            (root(book) / str(name)).write_bytes(seal(name, committed(step), "a"))
        if step % 50 == 0:
            book.trim(step - 10)
            paths = [path for path in root(book).rglob("*") if path.is_file()]
            sizes.append((len(paths), sum(path.stat().st_size for path in paths)))
    assert {files for files, _ in sizes[1:]} == {11 + 11 + 2}
    assert sizes[-1][1] - sizes[1][1] < 200  # a few digits
    assert book.segment() == Segment(989, 1, 989, 10, 9890, {"out": 989})


actions = st.one_of(
    st.tuples(st.just("create"), st.integers(1, 8), st.integers(0, 2)),
    st.tuples(st.just("trim"), st.integers(1, 9), st.integers(0, 9)),
)


@settings(max_examples=40, deadline=None)
@given(story=st.lists(actions, max_size=25))
def test_any_story_of_creates_and_trims_agrees_with_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int, int]]
) -> None:
    book = Journal(FileDirectory(tmp_path_factory.mktemp("journal")))
    held: dict[int, str] = {}
    floor = 0
    for verb, number, other in story:
        if verb == "create":
            nonce = f"n{other}"
            outcome = book.create(CommitName(number), nonce.encode(), nonce)
            if number not in held and number < floor:
                assert outcome == Trimmed(floor)
            elif held.setdefault(number, nonce) == nonce:
                assert outcome == Won()
            else:
                theirs = held[number]
                entry = Entry(CommitName(number), theirs.encode(), theirs)
                assert outcome == Taken(entry)
        else:
            gone = book.trim(number, keep={other})
            expected = {step for step in held if step < number and step != other}
            assert {name.step for name in gone if isinstance(name, CommitName)} == expected
            held = {step: nonce for step, nonce in held.items() if step not in expected}
            floor = max(floor, number)
        assert [name.step for name in book.commits()] == sorted(held)
