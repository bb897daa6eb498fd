"""A pipeline that is scaled from the shell while its node starts, killed, and run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.protocol.status import Phase, Status
from tests.spark.killing import Site, until
from tests.spark.test_kill import rows_of

pytestmark = pytest.mark.spark


def starting(site: Site) -> Status | None:
    assert site.coordinator.process.poll() is None, site.coordinator.printed()
    return site.status()


def owners(status: Status) -> dict[str, int]:
    """How many workers each region has."""
    return {each.region: len(set(each.bins)) for each in status.regions}


def test_a_scale_while_the_node_starts_outlives_a_restart_without_a_number(
    tmp_path: Path, seed: int
) -> None:
    site = Site(tmp_path, seed)
    try:
        site.run("--workers", "3")
        status = until(lambda: starting(site), "a coordinator")
        assert (status.phase, status.step, status.node) == (Phase.STARTING, 0, None)
        command = [sys.executable, "-m", "anabranch.cli.app", "scale", "4"]
        asked = subprocess.run([*command, "--directory", str(site.state)], check=False)
        assert asked.returncode == 0
        scaled = owners(site.more())
        assert set(scaled.values()) == {4}
        site.coordinator.kill()
        site.kill_node()
        site.run()
        assert owners(site.more()) == scaled
        site.client().shutdown()
        assert site.coordinator.ended() == 0
        # Steps that only move bins read no file: rows are compared without their step.
        found = [row[1:-1] for row in rows_of(site.base, "first")]
        expected = [row[1:] for row in site.feed.expected(len(site.feed.files))[0]]
        assert len(found) > 0
        assert sorted(found) == sorted(expected[: len(found)])
    finally:
        site.end()
