"""The machine: cores, memory, loopback, room for scratch files."""

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
    """All of them."""
    yield cores_check(len(os.sched_getaffinity(0)))
    yield memory_check(psutil.virtual_memory().available)
    yield loopback_check()
    place = tempfile.gettempdir()
    yield scratch_check(place, shutil.disk_usage(place).free)


def cores_check(cores: int) -> Check:
    """Steps and queries share the cores."""
    if cores < 2:
        return warn("cores", "1", "Steps and queries take turns; two or more are better.")
    return ok("cores", str(cores))


def memory_check(available: int) -> Check:
    """The JVM takes a gigabyte, each Python worker some hundred megabytes."""
    if available < GIB // 2:
        return failed_check(
            "memory", f"{size(available)} free", "Spark needs 1 GiB at least: free some."
        )
    if available < 2 * GIB:
        return warn("memory", f"{size(available)} free", "2 GiB or more are better.")
    return ok("memory", f"{size(available)} free")


def loopback_check() -> Check:
    """Spark, the node and the coordinator talk over loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            with socket.create_connection(server.getsockname(), timeout=5):
                server.accept()[0].close()
    except OSError as error:
        do = "Allow connections to 127.0.0.1: a firewall or a sandbox forbids them."
        return failed_check("loopback", f"no port can be opened: {error.strerror or error}", do)
    return ok("loopback", "ports can be opened")


def scratch_check(place: str, free: int) -> Check:
    """Spark shuffles through files in the temporary directory."""
    if free < GIB:
        do = "Make room, or set spark.local.dir or TMPDIR to a larger disk."
        return warn("scratch", f"{size(free)} free in {place}", do)
    return ok("scratch", f"{size(free)} free in {place}")
