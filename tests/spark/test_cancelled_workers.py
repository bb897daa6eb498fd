"""A step that fails: what is printed is its error, not how the workers beside it were cancelled."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import time
import anabranch as ab

def rows(partition, start, end):
    return {"k": [number % 64 for number in range(start, end)]}

def add(key, row, seen):
    if key.k == 0:
        raise ValueError("the one that fails")
    time.sleep(0.05)
    return (key.k,), True

flow = ab.Dataflow("failing")
source = ab.GeneratorSource(rows, "k int", rows=1000)
keyed = flow.source("rows", source).key_distribute("by-k", "k")
keyed.stateful_map("seen", add, state="seen boolean", output="k int").sink("out", ab.MemorySink())
ab.run(flow, directory="state", workers=4, master="local[2]").wait()
"""


@pytest.mark.spark
def test_a_worker_whose_task_is_cancelled_prints_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 1
    assert "ValueError: the one that fails" in ran.stderr.splitlines()[-1]
    assert ran.stderr.count("Traceback") == 1
    assert "BrokenPipe" not in ran.stderr


def test_a_worker_whose_socket_is_reset_as_it_is_forked_prints_nothing() -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "anabranch.spark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "secret"},
    )
    assert daemon.stdout
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    for _ in range(20):
        asked = socket.create_connection(("127.0.0.1", port))
        # Without lingering, closing resets the connection.
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asked.close()
    _, printed = daemon.communicate(timeout=60)
    assert printed.decode() == ""
