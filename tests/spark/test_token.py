"""The token of ``anabranch run`` stays in the process that checks it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from anabranch.http.client import Client
from anabranch.http.token import TOKEN_VARIABLE
from tests.spark.killing import CONF, until

pytestmark = pytest.mark.spark

FLOW = """
import os
from pathlib import Path

import anabranch as ab


def rows(partition, start, end):
    return {"i": range(start, end)}


def seen(key, row, state):
    return (os.environ.get("ANABRANCH_TOKEN", "nothing"),), 0


flow = ab.Dataflow("seen")
keyed = flow.source("rows", ab.GeneratorSource(rows, "i bigint", rows_per_step=2))
keyed = keyed.key_distribute("by-i", "i")
keyed.stateful_map("seen", seen, output="token string", state="n int").sink(
    "out", ab.FileSink(Path(__file__).with_name("out"), format="json")
)
"""


@pytest.mark.parametrize("node", ["process", "inline"])
def test_neither_the_jvm_nor_user_functions_see_the_token(tmp_path: Path, node: str) -> None:
    out, program, state = tmp_path / "out", tmp_path / "flow.py", tmp_path / "state"
    program.write_text(FLOW)
    command = [sys.executable, "-m", "anabranch.cli.app", "run", f"{program}:flow"]
    command += ["--directory", str(state), "--master", "local[2]", "--node", node]
    command += [part for setting in CONF for part in ("--conf", setting)]
    given = {**os.environ, TOKEN_VARIABLE: "s3cret"}
    with (tmp_path / "log").open("wb") as log:
        coordinator = subprocess.Popen(command, stdout=log, stderr=log, env=given)
    try:
        lines = until(
            lambda: [line for file in out.glob("*.json") for line in file.read_text().split()],
            "output",
        )
        assert set(lines) == {'{"token":"nothing"}'}
        started = psutil.Process(coordinator.pid).children(recursive=True)
        assert any("java" in process.name() for process in started)
        for process in started:
            with suppress(psutil.NoSuchProcess):  # or a zombie
                assert TOKEN_VARIABLE not in process.environ(), process.cmdline()
        # It is still asked for.
        assert Client.of_directory(state).token == "s3cret"
        Client.of_directory(state).shutdown(seconds=60)
        coordinator.wait(60)
    finally:
        coordinator.kill()
        coordinator.wait()
