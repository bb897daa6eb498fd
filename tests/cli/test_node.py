"""``anabranch node``, as far as it gets without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app as cli
from anabranch.errors import DirectoryInUse, FlowNotFound
from anabranch.store.lock import DirectoryLock


def invoke(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(cli.app, ["node", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output, result.exception


@pytest.mark.parametrize(
    "options", [("--conf", "spark.x"), ("--conf", "=1"), ("--orphan-seconds", "0"), ("--dance",)]
)
def test_wrong_options_are_refused_with_2(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, _, _ = invoke("x.py:flow", "--directory", str(tmp_path / "state"), *options)
    assert code == 2
    assert not (tmp_path / "state").exists()


def test_a_flow_that_is_not_there_is_told(tmp_path: Path) -> None:
    _, _, error = invoke(f"{tmp_path}/gone.py:flow", "--directory", str(tmp_path / "state"))
    assert isinstance(error, FlowNotFound)


def test_a_second_node_is_refused(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path, "node.lock")
    lock.acquire()
    _, _, error = invoke("x.py:flow", "--directory", str(tmp_path))
    lock.release()
    assert isinstance(error, DirectoryInUse)
