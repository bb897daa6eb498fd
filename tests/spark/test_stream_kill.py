"""A streaming query and its pipeline are killed together: the log has every batch once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.spark import killable

pytestmark = pytest.mark.spark

MODULUS = 2**61 - 1
FILES, ROWS = 10, 7
DEADLINE = 240.0


def write_files(base: Path) -> None:
    (base / "in").mkdir()
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        path = base / "in" / f"{number:03d}.json"
        path.write_text("".join(json.dumps({"k": f"k{n % 3}", "n": n}) + "\n" for n in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def expected() -> list[tuple[int, int]]:
    states: dict[str, int] = defaultdict(lambda: 7)
    found = []
    for n in range(FILES * ROWS):
        states[f"k{n % 3}"] = (states[f"k{n % 3}"] * 31 + n + 1) % MODULUS
        found.append((n, states[f"k{n % 3}"]))
    return found


def start(base: Path) -> subprocess.Popen[bytes]:
    with (base / "log.txt").open("ab") as log:
        command = killable.command("stream_kill_app", base)
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=killable.ROOT)


def kill_when(base: Path, condition: Callable[[], bool]) -> None:
    """SIGKILL to the whole tree as soon as the condition holds."""
    process = start(base)
    until = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, (base / "log.txt").read_text()[-3000:]
        assert time.monotonic() < until, (base / "log.txt").read_text()[-3000:]
        time.sleep(0.002)
    tree = [psutil.Process(process.pid)]
    tree += tree[0].children(recursive=True)
    for each in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
    psutil.wait_procs(tree, timeout=10)


def logged(base: Path, pattern: str) -> bool:
    return any((base / "state" / "input").glob(f"rows/*/{pattern}"))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_between_log_and_step(tmp_path: Path) -> None:
    write_files(tmp_path)
    # A batch's marker is there and its step is not planned; a batch's files are and no marker is.
    kill_when(tmp_path, lambda: logged(tmp_path, f"{2:012d}.json"))
    kill_when(tmp_path, lambda: logged(tmp_path, f"{5:012d}-*.parquet"))
    process = start(tmp_path)
    assert process.wait(DEADLINE) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    assert json.loads((tmp_path / "result.json").read_text()) == {"step": FILES}
    files = sorted((tmp_path / "out").glob("step-*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["n"], row["mixed"]) for row in rows) == expected()
