"""``anabranch run`` with a node process on other masters than ``local``: workers are elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.spark.cluster_app import local_cluster, standalone

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FLOW = """
from pathlib import Path
import anabranch as ab

HERE = Path(__file__).parent


def numbers(partition, start, end):
    return {"value": list(range(start, end))}


def add(key, row, total):
    total = (total or 0) + row.value
    return (key.k, total), total


flow = ab.Dataflow("masters")
source = ab.GeneratorSource(numbers, "value bigint", partitions=2, rows_per_step=100, rows=500)
sums = (
    flow.source("numbers", source)
    .key_distribute("by-key", k="value % 7")
    .stateful_map("sums", add, state="total bigint", output="k bigint, total bigint")
)
sums.sink("out", ab.FileSink(HERE / "out", "json"))
"""


def wanted() -> dict[int, int]:
    """The sums of both partitions, which hold the same numbers."""
    return {k: 2 * sum(v for v in range(250) if v % 7 == k) for k in range(7)}


@pytest.mark.parametrize("cluster", ["local-cluster", "standalone"])
def test_a_pipeline_runs_to_its_end_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    found: AbstractContextManager[str] = (
        local_cluster(2, 1) if cluster == "local-cluster" else standalone()
    )
    with found as master:
        done = anabranch(
            "run",
            f"{tmp_path / 'flow.py'}:flow",
            "--directory",
            str(tmp_path / "state"),
            "--master",
            master,
            "--workers",
            "3",
            "--conf",
            "spark.executor.memory=1g",
            "--conf",
            "spark.cores.max=2",
        )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    place = ("--directory", str(tmp_path / "state"), "--operator", "sums", "--limit", "1000")
    shown = anabranch("state", "show", *place, "--json")
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)["rows"]
    assert {row["k"]: row["total"] for row in rows} == wanted()
    published = [
        json.loads(line)
        for path in (tmp_path / "out").glob("step-*")
        for line in path.read_text().splitlines()
    ]
    assert len(published) == 500
    assert {row["k"]: max(r["total"] for r in published if r["k"] == row["k"]) for row in rows} == (
        wanted()
    )


def anabranch(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of the shell."""
    return subprocess.run(
        [sys.executable, "-m", "anabranch.cli.app", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
