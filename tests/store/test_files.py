"""Durable files on the real file system, with real races and every error."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NoReturn, TypeAlias

import pyarrow as pa
import pytest

from anabranch.errors import DiskFull, NameTaken, StoreError, StoreUnavailable
from anabranch.store import files
from anabranch.store.disk import use_disk
from anabranch.store.files import (
    Data,
    create_bulk,
    create_bulk_many,
    create_file,
    ensure_directory,
    list_names,
    move_file,
    put_file,
    read_file,
    remove_directory,
    remove_file,
    remove_leftovers,
    store_errors,
)
from anabranch.testing.faulty_disk import FaultyDisk

Create: TypeAlias = Callable[..., None]


def everything_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


class Syncs:
    """Notes what is synced, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        self.synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        self._fsync(handle)


@pytest.mark.parametrize("create", [create_file, create_bulk])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        bytearray(b"abc"),
        memoryview(b"xabcx")[1:4],
        pa.py_buffer(b"abc"),
        b"x" * 3_000_000,
    ],
    ids=["empty", "bytes", "bytearray", "view", "arrow", "large"],
)
def test_a_created_file_holds_the_bytes_and_nothing_else_is_left(
    tmp_path: Path, create: Create, data: Data
) -> None:
    create(tmp_path / "a" / "b" / "file", data)
    assert (tmp_path / "a/b/file").read_bytes() == bytes(data)
    assert everything_below(tmp_path) == ["a", "a/b", "a/b/file"]


@pytest.mark.parametrize("create", [create_file, create_bulk])
def test_a_taken_name_is_refused_and_left_as_it_is(tmp_path: Path, create: Create) -> None:
    path = tmp_path / "file"
    create(path, b"first")
    with pytest.raises(NameTaken, match=str(path)):
        create(path, b"second")
    assert path.read_bytes() == b"first"
    assert everything_below(tmp_path) == ["file"]


def test_create_file_writes_aside_so_the_name_never_shows_a_torn_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    seen: list[bytes | None] = []
    write, fsync, link = os.write, os.fsync, os.link

    def look() -> None:
        seen.append(path.read_bytes() if path.exists() else None)

    def slow_write(handle: int, data: memoryview) -> int:
        look()
        return write(handle, data[:3])

    def looking_fsync(handle: int) -> None:
        look()
        fsync(handle)

    def looking_link(source: Path, target: Path) -> None:
        look()
        link(source, target)
        look()

    monkeypatch.setattr(os, "write", slow_write)
    monkeypatch.setattr(os, "fsync", looking_fsync)
    monkeypatch.setattr(os, "link", looking_link)
    create_file(path, b"0123456789")
    # four short writes, the sync of the file, before the link; after it, the sync of the directory
    assert seen == [None] * 6 + [b"0123456789"] * 2


def test_file_is_synced_before_its_name_and_each_new_directory_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    create_file(tmp_path / "a" / "b" / "file", b"abc")
    assert syncs.synced[:2] == [str(tmp_path), str(tmp_path / "a")]
    assert ".file." in syncs.synced[2]
    assert syncs.synced[3:] == [str(tmp_path / "a/b")]


def test_bulk_files_sync_each_file_once_and_each_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    syncs = Syncs(monkeypatch)
    names = ["a/1", "b/1", "a/2", "a/3"]
    create_bulk_many([(tmp_path / name, name.encode()) for name in names])
    assert sorted(syncs.synced) == sorted(str(tmp_path / name) for name in [*names, "a", "b"])
    assert [(tmp_path / name).read_bytes() for name in names] == [b"a/1", b"b/1", b"a/2", b"a/3"]


def test_bulk_files_of_a_failed_call_are_all_removed(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"old")
    with pytest.raises(NameTaken):
        create_bulk_many([(tmp_path / "new", b"1"), (tmp_path / "taken", b"2")])
    assert everything_below(tmp_path) == ["taken"]
    assert (tmp_path / "taken").read_bytes() == b"old"


@pytest.mark.parametrize("create", [create_file, create_bulk])
@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize(
    "fault",
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.EROFS, StoreUnavailable),
        (errno.EACCES, StoreUnavailable),
        (errno.EIO, StoreUnavailable),
    ],
)
def test_a_failing_disk_leaves_no_file_and_names_the_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    create: Create,
    call: str,
    fault: tuple[int, type[StoreError]],
) -> None:
    number, expected = fault
    path = tmp_path / "file"

    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(expected) as caught:
        create(path, b"abc")
    assert str(path) in str(caught.value)
    assert os.strerror(number) in str(caught.value)
    assert everything_below(tmp_path) == []


def test_a_disk_that_fills_up_in_the_middle_leaves_no_file(tmp_path: Path) -> None:
    # A real limit of the operating system on the size of a file: the second half is refused.
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        told, left = pool.apply(_create_beyond_the_limit, (str(tmp_path),))
    assert told == ["DiskFull", "DiskFull"]
    assert left == []


def _create_beyond_the_limit(directory: str) -> tuple[list[str], list[str]]:
    import resource  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    told = []
    for create in (create_file, create_bulk):
        try:
            create(Path(directory) / create.__name__, b"x" * 2000)
        except StoreError as error:
            told.append(type(error).__name__)
    return told, os.listdir(directory)


@pytest.mark.parametrize("create", [create_file, create_bulk])
def test_a_file_in_the_way_of_a_directory_is_unavailable(tmp_path: Path, create: Create) -> None:
    (tmp_path / "a").write_bytes(b"")
    for path in (tmp_path / "a" / "file", tmp_path / "a" / "b" / "file"):
        with pytest.raises(StoreUnavailable, match=str(path)):
            create(path, b"abc")
    assert everything_below(tmp_path) == ["a"]


@pytest.mark.parametrize("create", [create_file, create_bulk])
def test_a_store_that_vanished_does_not_come_back_empty(tmp_path: Path, create: Create) -> None:
    store = tmp_path / "store"
    with pytest.raises(StoreUnavailable, match="missing"):
        create(store / "a" / "file", b"abc", within=store)
    assert everything_below(tmp_path) == []
    store.mkdir()
    create(store / "a" / "file", b"abc", within=store)
    assert everything_below(store) == ["a", "a/file"]


def test_a_file_system_without_hard_links_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(StoreUnavailable, match="no hard links"):
        create_file(tmp_path / "file", b"abc")
    assert everything_below(tmp_path) == []


def test_a_failed_sync_of_the_directory_raises_but_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sync_directory", fail)
    with pytest.raises(StoreUnavailable):
        create_file(tmp_path / "file", b"abc")
    with pytest.raises(NameTaken):
        create_file(tmp_path / "file", b"other")
    assert read_file(tmp_path / "file") == b"abc"


def test_asides_of_a_killed_process_with_the_same_id_are_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_asides", iter([0, 1, 2, 3]))
    for number in (0, 1):
        (tmp_path / f".file.{os.getpid()}.{number}.aside").write_bytes(b"to")
    create_file(tmp_path / "file", b"abc")
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert remove_leftovers(tmp_path) == 2
    assert everything_below(tmp_path) == ["file"]


def test_sweep_takes_asides_only(tmp_path: Path) -> None:
    for name in (".file.1.2.aside", "file.aside", ".hidden", "file"):
        (tmp_path / name).write_bytes(b"")
    assert remove_leftovers(tmp_path) == 1
    assert everything_below(tmp_path) == [".hidden", "file", "file.aside"]
    assert remove_leftovers(tmp_path / "missing") == 0


def test_threads_race_for_a_name_and_one_wins(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    won: list[tuple[int, int]] = []

    def race(me: int) -> None:
        for round_ in range(20):
            barrier.wait()
            try:
                create_file(tmp_path / "sub" / str(round_), b"%d" % me * 1000)
            except NameTaken:
                continue
            won.append((round_, me))

    threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(round_ for round_, _ in won) == list(range(20))
    for round_, me in won:
        assert (tmp_path / "sub" / str(round_)).read_bytes() == b"%d" % me * 1000
    assert sorted(list_names(tmp_path / "sub")) == sorted(map(str, range(20)))


def test_processes_race_for_names_and_each_is_won_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        wins = pool.starmap(_race_for_all, [(str(tmp_path), me) for me in range(3)], chunksize=1)
    assert sorted(name for won in wins for name in won) == list(range(30))
    for me, won in enumerate(wins):
        assert all((tmp_path / "deep" / str(n)).read_bytes() == b"%d" % me * 999 for n in won)


def _race_for_all(directory: str, me: int) -> list[int]:
    won = []
    for name in range(30):
        try:
            create_file(Path(directory) / "deep" / str(name), b"%d" % me * 999)
        except NameTaken:
            continue
        won.append(name)
    return won


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_it_does_not_have(tmp_path: Path) -> None:
    create_file(tmp_path / "parent", b"abc")  # starts the threads that sync
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # a child that hangs is killed, which the parent sees
        create_file(tmp_path / "child", b"abc")
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert read_file(tmp_path / "child") == b"abc"


def test_files_are_durable_also_while_the_interpreter_ends(tmp_path: Path) -> None:
    program = (
        "import atexit, sys; from pathlib import Path; from anabranch.store.files import *;"
        "atexit.register(create_bulk, Path(sys.argv[1]), b'late');"
        "atexit.register(print, 'ending')"
    )
    source = str(Path(files.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("ending\n", "")
    assert read_file(tmp_path / "file") == b"late"


def test_put_file_replaces_whole_files(tmp_path: Path) -> None:
    put_file(tmp_path / "file", b"first")
    put_file(tmp_path / "file", b"second")
    assert read_file(tmp_path / "file") == b"second"
    assert everything_below(tmp_path) == ["file"]
    with pytest.raises(StoreUnavailable):
        put_file(tmp_path / "missing" / "file", b"abc")


def test_put_file_onto_a_directory_fails_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(StoreUnavailable):
        put_file(tmp_path / "file", b"abc")
    assert everything_below(tmp_path) == ["file"]


def test_reading_listing_and_removing_what_is_not_there(tmp_path: Path) -> None:
    assert read_file(tmp_path / "file") is None
    assert list_names(tmp_path / "missing") == []
    assert remove_file(tmp_path / "file") is False
    create_file(tmp_path / "file", b"abc")
    assert remove_file(tmp_path / "file") is True
    assert list_names(tmp_path) == []


def test_ensure_directory_may_be_called_again_and_stops_at_within(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b")
    ensure_directory(tmp_path / "a" / "b")
    assert everything_below(tmp_path) == ["a", "a/b"]
    with pytest.raises(StoreUnavailable):
        ensure_directory(tmp_path / "x" / "y", within=tmp_path / "x")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        ensure_directory(tmp_path / "file" / "below")


@pytest.mark.parametrize("seed", range(8))
def test_directories_that_another_process_failed_to_sync_are_synced(
    tmp_path: Path, seed: int
) -> None:
    (tmp_path / "graves").mkdir()
    (tmp_path / "data").mkdir()
    faulty = FaultyDisk(tmp_path / "graves", Random(seed))
    deep = tmp_path / "data" / "a" / "b" / "c"
    with use_disk(faulty):
        faulty.fail_syncs(1)
        with faulty.acting("first"), pytest.raises(StoreUnavailable):
            ensure_directory(deep)
        with faulty.acting("second"):
            ensure_directory(deep)
            create_file(deep / "file", b"kept")
        faulty.power_cut()
    assert (deep / "file").read_bytes() == b"kept"


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    texts = {}
    for number in (errno.ENOSPC, errno.EACCES, errno.EEXIST):
        with pytest.raises(StoreError) as caught, store_errors(Path("/s/file"), "create"):
            raise OSError(number, os.strerror(number))
        texts[number] = str(caught.value)
    assert texts == {
        errno.ENOSPC: "[store.disk_full] Cannot create: No space left on device (/s/file). Free "
        "some space and start again; the unfinished file was removed and the pipeline continues "
        "where it was.",
        errno.EACCES: "[store.unavailable] Cannot create: Permission denied (/s/file). Check that "
        "the directory exists, that its disk is mounted and writable and that this user may write "
        "there, then start again; nothing was committed.",
        errno.EEXIST: "[store.name_taken] Cannot create: the name exists already, and files are "
        "never overwritten (/s/file). Nothing was changed. If this is not a retry, look at what "
        "made that file.",
    }


# ------------------------------------------------------------------------------ written aside


def test_a_file_is_written_in_the_directory_given_and_linked_from_there(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    create_file(tmp_path / "a" / "b" / "c", b"x", within=tmp_path, aside=aside)
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"
    assert list(aside.iterdir()) == []
    with pytest.raises(NameTaken):
        create_file(tmp_path / "a" / "b" / "c", b"y", within=tmp_path, aside=aside)
    assert list(aside.iterdir()) == []


def test_without_the_directory_nothing_is_created_and_it_is_not_made(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    with pytest.raises(StoreUnavailable):
        create_file(tmp_path / "a", b"x", within=tmp_path, aside=aside)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_directory_that_was_removed_cannot_be_linked(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "written").write_bytes(b"x")
    handle = os.open(aside, os.O_RDONLY)
    assert remove_directory(aside, tmp_path / "other")
    assert list(tmp_path.iterdir()) == []
    # Whoever still holds the directory open finds nothing in it to link, either.
    try:
        with pytest.raises(FileNotFoundError):
            os.link("written", tmp_path / "a", src_dir_fd=handle)
    finally:
        os.close(handle)
    assert not remove_directory(aside, tmp_path / "other")


def test_a_file_is_moved_if_there_is_one_and_never_without_a_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(StoreUnavailable):
        move_file(tmp_path / "a", tmp_path / "gone" / "a")
    assert move_file(tmp_path / "a", tmp_path / "b")
    assert not move_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x"
