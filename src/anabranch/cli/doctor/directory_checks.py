"""Checks of a pipeline's directory: access, free space, speed of durable writes, hard links.

They remove what they write and do not create the directory. If it does not exist, they check its
nearest ancestor, which is on the same disk.
"""

from __future__ import annotations

import os
import shutil
import stat
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
    """All checks of the directory, up to the first that makes the others pointless."""
    place = nearest(directory)
    if not place.is_dir():
        yield failed_check("directory", f"{place} is not a directory", "Choose another directory.")
        return
    if (directory / "journal").is_dir():
        yield access_check(directory)
    yield room_check(place, shutil.disk_usage(place).free)
    try:
        with tempfile.TemporaryDirectory(prefix=".anabranch-doctor-", dir=place) as scratch:
            yield sync_check(Path(scratch))
            yield link_check(Path(scratch))
    except OSError as error:
        yield failed_check(
            "directory",
            f"cannot write to {place}: {error.strerror or error}",
            "Let this user write there, or choose another directory.",
        )


def nearest(directory: Path) -> Path:
    """The directory itself or, if it does not exist, its nearest ancestor that does."""
    return next(place for place in (directory, *directory.parents) if place.exists())


def access_check(directory: Path) -> Check:
    """What everybody on this machine may do in a pipeline's directory."""
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:
        do = f"No pipeline starts there. Take the right away: chmod o-w {directory}"
        return failed_check("access", f"everybody may write to {directory}", do)
    if mode & (stat.S_IROTH | stat.S_IXOTH):
        do = f"If the state is not for everybody: chmod o-rx {directory}"
        return warn("access", f"everybody may look into {directory}", do)
    return ok("access", f"{directory} is closed to others")


def room_check(place: Path, free: int) -> Check:
    """Free space for state, staged output and checkpoints."""
    what = f"{size(free)} free in {place}"
    if free < GIB // 4:
        return failed_check("room", what, "Free some space: pipelines stop when the disk is full.")
    if free < 5 * GIB:
        return warn("room", what, "State, staged output and checkpoints must fit.")
    return ok("room", what)


def sync_check(scratch: Path) -> Check:
    """The time of a durable write: a step makes a few, one after the other."""
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
        return warn("sync", what, "Every step waits for a few: use a local SSD.")
    return ok("sync", what)


def link_check(scratch: Path) -> Check:
    """Hard links: a commit links a name, which only one process can do."""
    (scratch / "linked").write_bytes(b"")
    try:
        os.link(scratch / "linked", scratch / "link")
    except OSError as error:
        do = "Use a file system with hard links: ext4, xfs, btrfs, NFS; not FAT or exFAT."
        return failed_check("hard links", error.strerror or str(error), do)
    return ok("hard links", "work")
