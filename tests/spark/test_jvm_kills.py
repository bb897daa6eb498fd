"""Spark's JVM is killed while the node lives: the node says so, ends, and another one goes on.

In the process of ``ab.run`` nobody can replace it: the pipeline ends with the reason, and the same
process can run it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from anabranch.protocol.status import Phase, Status
from tests.spark.killable import SHORT_LIVED
from tests.spark.killing import Site, until
from tests.spark.test_kill import committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

APP = Path(__file__).with_name("jvm_death_app.py")
DIED = "node.jvm_died"


def kill_jvm(site: Site) -> None:
    """SIGKILL to the JVM of the node, and to nothing else."""
    step = committed(site.base)
    site.repeated |= {step + 1, step + 2}
    children = psutil.Process(site.node().pid).children()
    (jvm,) = [each for each in children if each.name() == "java"]
    jvm.kill()


def replaced(site: Site, boot: str) -> Status:
    """Another node is there, and the pipeline says why."""
    until(lambda: site.node().boot != boot, "another node")
    status = site.running()
    assert status.node_lost is not None
    assert status.node_lost.code == DIED
    assert "killed by SIGKILL" in status.node_lost.what
    return status


def test_a_node_whose_jvm_dies_is_replaced(tmp_path: Path) -> None:
    site = Site(tmp_path, seed=24)
    try:
        site.run()
        site.running(2)
        boot = site.node().boot
        with site.held() as step:
            kill_jvm(site)
            until(lambda: site.executed()[step] > 1, "the step on another node")
        boot, _ = site.node().boot, replaced(site, boot)
        site.more(2)
        site.check()
        # Nothing runs now: only the node itself can notice.
        site.client().pause()
        until(lambda: (site.status() or site.running()).phase is Phase.PAUSED, "a pause")
        kill_jvm(site)
        until(lambda: site.node().boot != boot, "another node")
        site.client().start()
        replaced(site, boot)
        site.more(2)
        site.check()
        log = (site.state / "node.log").read_text()
        assert log.count(f"[{DIED}]") >= 2
    finally:
        site.end()


@pytest.mark.parametrize("when", ["step", "idle"])
def test_a_pipeline_in_the_users_process_ends_with_the_reason_and_can_be_run_again(
    tmp_path: Path, when: str
) -> None:
    ran = subprocess.run(
        [sys.executable, str(APP), str(tmp_path), when, json.dumps(SHORT_LIVED)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith(f"JvmDied {DIED} Spark's Java virtual machine (process ")
    assert first.endswith("killed by SIGKILL")
    assert second == "[('a', 1), ('a', 3), ('a', 6), ('b', 10), ('b', 30)]"
