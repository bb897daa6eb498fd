"""The directory of a pipeline: room, speed of durable writes, hard links.

What is written is removed again. A directory that is not there yet is not made: the nearest one
above it, which is on the same disk, is looked at.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from anabranch.cli.doctor.checks import Check, failed_check, ok, warn
from anabranch.cli.sizes import size

GIB = 1 << 30
SYNCS = 9
SLOW_SECONDS = 0.03


def directory_checks(directory: Path) -> Iterator[Check]:
    """All of them; none after one that makes the others pointless."""
    place = nearest(directory)
    if not place.is_dir():
        yield failed_check("directory", f"{place} is no directory", "Name another directory.")
        return
    yield room_check(place, shutil.disk_usage(place).free)
    try:
        with tempfile.TemporaryDirectory(prefix=".anabranch-doctor-", dir=place) as scratch:
            yield sync_check(Path(scratch))
            yield link_check(Path(scratch))
    except OSError as error:
        yield failed_check(
            "directory",
            f"cannot write to {place}: {error.strerror or error}",
            "Let this user write there, or name another directory.",
        )


def nearest(directory: Path) -> Path:
    """The directory itself or, if it is not there, the nearest thing above it that is."""
    return next(place for place in (directory, *directory.parents) if place.exists())


def room_check(place: Path, free: int) -> Check:
    """State, staged output and checkpoints live there."""
    what = f"{size(free)} free in {place}"
    if free < GIB // 4:
        return failed_check("room", what, "Make room: a pipeline stops when the disk is full.")
    if free < 5 * GIB:
        return warn("room", what, "State, staged output and checkpoints must fit.")
    return ok("room", what)


def sync_check(scratch: Path) -> Check:
    """How long a durable write takes: a step makes a few, one after the other."""
    seconds = []
    for number in range(SYNCS):
        handle = os.open(scratch / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, b"x" * 4096)
            began = time.perf_counter()
            os.fsync(handle)
            seconds.append(time.perf_counter() - began)
        finally:
            os.close(handle)
    usual = median(seconds)
    what = f"a durable write takes {usual * 1000:.1f} ms"
    if usual > SLOW_SECONDS:
        return warn("sync", what, "Every step waits for some: a local SSD is better.")
    return ok("sync", what)


def link_check(scratch: Path) -> Check:
    """Commits are made by linking a name, which only one can do."""
    (scratch / "linked").write_bytes(b"")
    try:
        os.link(scratch / "linked", scratch / "link")
    except OSError as error:
        do = "Use a file system with hard links: ext4, xfs, btrfs, NFS; not FAT or exFAT."
        return failed_check("hard links", error.strerror or str(error), do)
    return ok("hard links", "work")
