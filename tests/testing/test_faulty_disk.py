"""The faulty disk under the real primitives of the store: what they promise holds on it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from anabranch.errors import DiskFull, StoreUnavailable
from anabranch.store.disk import use_disk
from anabranch.store.files import (
    create_bulk,
    create_bulk_many,
    create_file,
    ensure_directory,
    link_file,
    put_file,
    remove_file,
    sync_directory,
)
from anabranch.testing.faulty_disk import Crash, FaultyDisk

Create = Callable[..., None]
WHOLE = bytes(range(1, 101))


def faulty(tmp_path: Path, seed: int = 0) -> tuple[FaultyDisk, Path]:
    for name in ("graves", "store"):
        (tmp_path / name).mkdir()
    return FaultyDisk(tmp_path / "graves", Random(seed)), tmp_path / "store"


def below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("create", [create_file, create_bulk])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_created_survives_a_power_cut(tmp_path: Path, create: Create, seed: int) -> None:
    disk, store = faulty(tmp_path, seed)
    with use_disk(disk), disk.acting("writer"):
        create(store / "a" / "b" / "file", WHOLE)
        disk.power_cut()
    assert (store / "a/b/file").read_bytes() == WHOLE


def test_a_crash_at_any_call_and_a_power_cut_leave_a_file_whole_or_not_there(
    tmp_path: Path,
) -> None:
    seen = set()
    for number in range(200):
        home = tmp_path / str(number)
        home.mkdir()
        disk, store = faulty(home, number)
        disk.crash_at("writer", number % 12)
        with use_disk(disk), disk.acting("writer"):
            try:
                create_file(store / "a" / "file", WHOLE)
                crashed = False
            except Crash:
                crashed = True
            disk.power_cut()
        path = store / "a" / "file"
        seen.add((crashed, path.exists()))
        assert path.read_bytes() == WHOLE if path.exists() else crashed
    assert seen == {(True, True), (True, False), (False, True)}


def test_an_unfinished_bulk_file_is_torn_in_every_way(tmp_path: Path) -> None:
    kinds = set()
    for number in range(200):
        home = tmp_path / str(number)
        home.mkdir()
        disk, store = faulty(home, number)
        disk.crash_at("writer", 2)  # open, write, then the sync
        with use_disk(disk), disk.acting("writer"), pytest.raises(Crash):
            create_bulk(store / "file", WHOLE)
        assert (store / "file").read_bytes() == WHOLE  # a kill alone loses nothing
        disk.power_cut()
        kinds.add(_kind((store / "file").read_bytes() if (store / "file").exists() else None))
    assert kinds == {"gone", "whole", "empty", "beginning", "zeros"}


def _kind(data: bytes | None) -> str:
    if data is None:
        return "gone"
    if data == WHOLE:
        return "whole"
    if not data:
        return "empty"
    assert data.rstrip(b"\0") == WHOLE[: len(data.rstrip(b"\0"))]
    return "beginning" if len(data) < len(WHOLE) else "zeros"


def test_a_write_in_the_middle_of_a_crash_leaves_the_beginning(tmp_path: Path) -> None:
    disk, store = faulty(tmp_path)
    disk.crash_at("writer", 1)
    with use_disk(disk), disk.acting("writer"), pytest.raises(Crash):
        create_bulk(store / "file", WHOLE)
    data = (store / "file").read_bytes()
    assert len(data) < len(WHOLE)
    assert WHOLE.startswith(data)


@pytest.mark.parametrize("create", [create_file, create_bulk])
def test_a_directory_that_a_killed_process_has_made_is_synced_by_the_next(
    tmp_path: Path, create: Create
) -> None:
    for number in range(40):
        home = tmp_path / str(number)
        home.mkdir()
        disk, store = faulty(home, number)
        disk.crash_at("first", number % 8)
        with use_disk(disk):
            with disk.acting("first"), contextlib.suppress(Crash):
                create(store / "a" / "b" / "first", WHOLE, within=store)
            with disk.acting("second"):
                create(store / "a" / "b" / "second", WHOLE, within=store)
            disk.power_cut()
        assert (store / "a" / "b" / "second").read_bytes() == WHOLE


def test_a_directory_is_made_durable_also_where_it_is_there(tmp_path: Path) -> None:
    for number in range(20):
        home = tmp_path / str(number)
        home.mkdir()
        disk, store = faulty(home, number)
        disk.crash_at("first", number % 5)
        with use_disk(disk):
            with disk.acting("first"), contextlib.suppress(Crash):
                ensure_directory(store / "a" / "b")
            with disk.acting("second"):
                ensure_directory(store / "a" / "b")
            disk.power_cut()
        assert (store / "a" / "b").is_dir()


def test_a_removed_file_may_be_back_until_its_directory_is_synced(tmp_path: Path) -> None:
    back = {False: 0, True: 0}
    for number in range(40):
        home = tmp_path / str(number)
        home.mkdir()
        disk, store = faulty(home, number)
        with use_disk(disk), disk.acting("writer"):
            create_bulk_many([(store / "file", WHOLE), (store / "other", WHOLE)])
            assert remove_file(store / "file")
            synced = number % 2 == 0
            if synced:
                sync_directory(store)
            disk.power_cut()
        back[synced] += (store / "file").exists()
        assert (store / "other").read_bytes() == WHOLE
        if (store / "file").exists():
            assert (store / "file").read_bytes() == WHOLE
    assert back[True] == 0
    assert 0 < back[False] < 20


@pytest.mark.parametrize("seed", range(8))
def test_renamed_and_linked_names_are_durable_with_their_directory(
    tmp_path: Path, seed: int
) -> None:
    disk, store = faulty(tmp_path, seed)
    with use_disk(disk), disk.acting("writer"):
        put_file(store / "file", WHOLE)
        link_file(store / "file", store / "linked")
        sync_directory(store)
        disk.power_cut()
    assert below(store) == ["file", "linked"]
    assert (store / "linked").read_bytes() == WHOLE


def test_a_full_disk_takes_a_part_and_refuses_the_rest(tmp_path: Path) -> None:
    disk, store = faulty(tmp_path)
    with use_disk(disk), disk.acting("writer"):
        disk.fill(150)
        create_bulk(store / "fits", WHOLE)
        with pytest.raises(DiskFull):
            create_file(store / "does-not", WHOLE)
        disk.fill(None)
        create_file(store / "does", WHOLE)
    assert below(store) == ["does", "fits"]


def test_a_failed_sync_is_told_and_does_not_make_durable(tmp_path: Path) -> None:
    disk, store = faulty(tmp_path)
    with use_disk(disk), disk.acting("writer"):
        disk.fail_syncs(1)
        with pytest.raises(StoreUnavailable) as caught:
            create_bulk(store / "file", WHOLE)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EIO
        disk.sync_seconds = 0.5
        create_bulk(store / "file", WHOLE)
    assert disk.spent_seconds == 1.0  # the file and its directory


def test_the_dead_do_nothing_until_they_are_revived(tmp_path: Path) -> None:
    disk, store = faulty(tmp_path)
    with use_disk(disk), disk.acting("writer"):
        disk.kill("writer")
        with pytest.raises(Crash):
            create_file(store / "file", WHOLE)
        with disk.acting("another"):
            create_file(store / "another", WHOLE)
        disk.revive("writer")
        create_file(store / "file", WHOLE)
    assert below(store) == ["another", "file"]


def test_the_same_seed_has_the_same_outcome(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        disk, store = faulty(tmp_path / name, 7)
        with use_disk(disk), disk.acting("writer"):
            for number in range(10):
                disk.fail_syncs(number % 3)
                with contextlib.suppress(StoreUnavailable):
                    create_bulk_many([(store / f"{number}-{k}", WHOLE) for k in range(4)])
            disk.power_cut()
        found.append([(path, (store / path).read_bytes()) for path in below(store)])
    assert found[0] == found[1]
