"""Checks of the machine: cores, memory, loopback, space for scratch files."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator

import psutil

from anabranch.cli.doctor.checks import Check, failed_check, ok, warn
from anabranch.cli.sizes import size

GIB = 1 << 30


def machine_checks() -> Iterator[Check]:
    """All checks of the machine."""
    yield cores_check(len(os.sched_getaffinity(0)))
    yield memory_check(psutil.virtual_memory().available)
    yield loopback_check()
    place = tempfile.gettempdir()
    yield scratch_check(place, shutil.disk_usage(place).free)


def cores_check(cores: int) -> Check:
    """Enough cores to run steps and queries at the same time."""
    if cores < 2:
        return warn("cores", "1", "Steps and queries take turns; use two or more.")
    return ok("cores", str(cores))


def memory_check(available: int) -> Check:
    """Free memory: the JVM takes a gigabyte, each Python worker a few hundred megabytes."""
    if available < GIB // 2:
        return failed_check(
            "memory", f"{size(available)} free", "Free some: Spark needs at least 1 GiB."
        )
    if available < 2 * GIB:
        return warn("memory", f"{size(available)} free", "2 GiB or more is better.")
    return ok("memory", f"{size(available)} free")


def loopback_check() -> Check:
    """Loopback connections, which Spark, the node and the coordinator use."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            with socket.create_connection(server.getsockname(), timeout=5):
                server.accept()[0].close()
    except OSError as error:
        do = "Allow connections to 127.0.0.1: a firewall or a sandbox blocks them."
        return failed_check("loopback", f"cannot open a port: {error.strerror or error}", do)
    return ok("loopback", "ports can be opened")


def scratch_check(place: str, free: int) -> Check:
    """Free space in the temporary directory, which Spark shuffles through."""
    if free < GIB:
        do = "Free some space, or set spark.local.dir or TMPDIR to a larger disk."
        return warn("scratch", f"{size(free)} free in {place}", do)
    return ok("scratch", f"{size(free)} free in {place}")
