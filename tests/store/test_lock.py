"""The lock of a directory: held by one process, by another, or nothing to be had."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.errors import DirectoryInUse, StoreUnavailable
from anabranch.store.lock import DirectoryLock


def test_one_has_it_at_a_time_and_is_named(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    assert second.holder() is None
    first.acquire()
    assert second.holder() == os.getpid()
    with pytest.raises(DirectoryInUse, match=f"Process {os.getpid()} runs this pipeline"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_what_is_no_process_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("somebody\n")
    assert DirectoryLock(tmp_path).holder() is None


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StoreUnavailable, match="has no locks"):
        DirectoryLock(tmp_path).acquire()
