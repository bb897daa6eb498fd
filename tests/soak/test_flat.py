"""Ten minutes of small steps, a rescale every eight seconds, a slow sink, and a JVM that is killed.

Memory, descriptors, threads and files are at the end what they were before the middle.
``ANABRANCH_FLAT_SECONDS`` is the length; two minutes show that the test itself works.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from anabranch.errors import AnabranchError
from anabranch.http.client import Client
from anabranch.http.schemas import ScaleRequest
from anabranch.node.address import read_node_address
from anabranch.protocol.status import Phase, Status
from tests.spark.killing import until

FLOW = Path(__file__).with_name("restless_flow.py")
SECONDS = float(os.environ.get("ANABRANCH_FLAT_SECONDS", "600"))
RESCALE_SECONDS = 8.0
SAMPLE_SECONDS = 5.0
MIB = 1 << 20

# By what a sample ends with: how much more there may be at the end, a factor and something on top.
ALLOWED = {
    "memory": (1.10, 48 * MIB),
    "descriptors": (1.10, 16),
    "threads": (1.10, 12),
    "files": (1.25, 60),
    "bytes": (1.25, 4 * MIB),
}


@contextlib.contextmanager
def pipeline(base: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``anabranch run`` as a process, with a node of its own."""
    command = [sys.executable, "-m", "anabranch.cli.app", "run", f"{FLOW}:flow"]
    command += ["--directory", str(base / "state"), "--workers", "2", "--master", "local[2]"]
    with (base / "run.log").open("wb") as log:
        environment = {**os.environ, "RESTLESS_OUT": str(base / "out")}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


def sample(coordinator: int, node: int, state: Path) -> dict[str, float]:
    """What there is now, by process and in the directory."""
    found: dict[str, float] = {}
    for name, pid in (("coordinator", coordinator), ("node", node)):
        found |= _of_processes(name, [psutil.Process(pid)])
    children = psutil.Process(node).children(recursive=True)
    found |= _of_processes("JVM", [each for each in children if each.name() == "java"])
    files = [path for path in state.rglob("*") if path.is_file()]
    found["directory: files"] = len(files)
    sizes = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
    found["directory: bytes"] = sizes
    return found


def _of_processes(name: str, processes: list[psutil.Process]) -> dict[str, float]:
    return {
        f"{name}: memory": sum(each.memory_info().rss for each in processes),
        f"{name}: descriptors": sum(each.num_fds() for each in processes),
        f"{name}: threads": sum(each.num_threads() for each in processes),
    }


def running(state: Path) -> Status | None:
    """What the pipeline says, if it runs and has committed a step."""
    with contextlib.suppress(AnabranchError):
        status = Client.of_directory(state).status()
        return status if status.phase is Phase.RUNNING and status.step > 0 else None
    return None


def kill_jvm(state: Path) -> None:
    """SIGKILL to the node's JVM; another node goes on."""
    address = read_node_address(state)
    assert address is not None
    for each in psutil.Process(address.pid).children():
        if each.name() == "java":
            each.kill()

    def replaced() -> bool:
        found = read_node_address(state)
        return found is not None and found.pid != address.pid and running(state) is not None

    until(replaced, "another node")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_grows_under_rescales_a_killed_jvm_and_a_slow_sink(tmp_path: Path) -> None:
    state, samples, rescales = tmp_path / "state", [], 0
    with pipeline(tmp_path) as process:
        until(lambda: running(state), "the first step")
        kill_jvm(state)
        client, began = Client.of_directory(state), time.monotonic()
        first = client.status().step
        next_rescale = next_sample = began
        while (now := time.monotonic()) < began + SECONDS:
            assert process.poll() is None, (tmp_path / "run.log").read_text()[-3000:]
            if now >= next_rescale:
                next_rescale = now + RESCALE_SECONDS
                rescales += 1
                client.scale(ScaleRequest(workers=4 if rescales % 2 else 2))
            if now >= next_sample:
                next_sample = now + SAMPLE_SECONDS
                address = read_node_address(state)
                assert address is not None
                samples.append(sample(process.pid, address.pid, state))
            time.sleep(0.2)
        status = client.status()
    print(f"{status.step - first} steps, {rescales} rescales, {len(samples)} samples")
    third = len(samples) // 3
    grown = []
    for name in samples[0]:
        early = statistics.median(each[name] for each in samples[third : third + third // 2])
        late = statistics.median(each[name] for each in samples[-(third // 2) :])
        print(f"{name}: {early:,.0f} after a third, {late:,.0f} at the end")
        factor, slack = ALLOWED[name.split(": ")[1]]
        if late > early * factor + slack:
            grown.append(name)
    assert grown == []
    assert status.step - first > rescales
