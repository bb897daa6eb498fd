"""The command line, from the outside and from the inside."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from anabranch.cli import app as cli
from anabranch.cli.demo import command as demo
from anabranch.cli.demo import flow as demo_flow
from anabranch.cli.demo.command import DemoOptions, run_demo
from anabranch.cli.demo.view import Frame, LineView
from anabranch.errors import DiskFull

COMMAND = Path(sys.executable).with_name("anabranch")


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    return result.exit_code, result.output


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version") == (0, f"anabranch {version('anabranch')}\n")


def test_without_a_command_the_help_lists_what_there_is() -> None:
    _, text = invoke()
    assert "demo" in text
    assert "--version" in text


@pytest.mark.parametrize(
    "arguments",
    [("--rows", "0"), ("--steps", "0"), ("--workers", "0"), ("--rows", "many"), ("--nonsense",)],
)
def test_wrong_options_are_refused_with_2(arguments: tuple[str, ...]) -> None:
    assert invoke("demo", *arguments)[0] == 2


def test_a_directory_with_something_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    code, text = invoke("demo", "--keep", str(tmp_path))
    assert code == 2
    assert "must be a new or an empty directory" in text
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_an_error_is_printed_with_its_code_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(request: DemoOptions, console: Console) -> int:
        raise DiskFull("There is no space left", where="/x", do="Make room.")

    monkeypatch.setattr("anabranch.cli.demo.command.run_demo", full)
    monkeypatch.setattr(sys, "argv", ["anabranch", "demo"])
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "error: [store.disk_full] There is no space left (/x). Make room." in (
        capsys.readouterr().err
    )


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories go, to see that none stays."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.mark.spark
def test_the_demo_by_its_command(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    arguments = ("demo", "--rows", "3000", "--steps", "3", "--workers", "3", "--keep", str(kept))
    ran = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=250, check=False
    )
    # Nothing of Spark's start, no log line, no progress bar.
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0] == "Starting Spark"
    steps = [line for line in lines if line.startswith("step ")]
    assert re.search(r"\b3,000 so far\b", steps[-1])
    assert re.search(r"bins by-customer 64, by-tier 64$", steps[-1])
    settled = [line for line in lines if line.startswith("At ")]
    assert [line.split(":")[0] for line in settled] == ["At 6 workers", "At 1 worker"]
    assert all(re.search(r" [1-9]\d* bins, [\d,]+ keys, .* moved, ", line) for line in settled)
    assert "Finished" in lines
    assert "running totals written" in ran.stdout
    assert ran.stdout.count(" equal") == 4
    assert "The result is right" in lines[-1]
    assert sorted(os.listdir(kept)) == ["orders", "state", "tiers", "totals"]
    assert len(list((kept / "orders").iterdir())) == 3


@pytest.mark.spark
def test_a_wrong_result_is_found_told_loudly_and_ends_with_1(
    spark: SparkSession, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(key: Any, order: Any, before: Any) -> Any:
        orders, spent = before if before is not None else (0, 0)
        now = (orders + 1, spent + order.amount if orders != 1 else spent)
        return (key.customer, *now, order.amount), now

    monkeypatch.setattr(demo_flow, "add_order", forgetful)
    out = io.StringIO()
    code = run_demo(DemoOptions(2_000, 1, 2, None), Console(file=out, width=200))
    assert code == 1
    assert "THE RESULT IS WRONG" in out.getvalue()
    assert re.search(r"running totals written +2,000 rows +[\d,]+ missing, such as", out.getvalue())
    assert os.listdir(scratch) == []


@pytest.mark.spark
def test_an_interrupted_demo_ends_politely_and_leaves_nothing(
    spark: SparkSession, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(LineView):
        """A user who has seen enough after the first step."""

        def show(self, frame: Frame) -> None:
            before, self._seen = getattr(self, "_seen", 0), len(frame.history)
            super().show(frame)
            if self._seen and not before:
                raise KeyboardInterrupt

    monkeypatch.setattr(demo, "view_for", Impatient)
    out = io.StringIO()
    code = run_demo(DemoOptions(1_000, 100, 2, None), Console(file=out, width=200))
    assert code == 130
    assert re.search(r"^Stopped after step \d+; nothing was checked\.$", out.getvalue(), re.M)
    assert "Checking" not in out.getvalue()
    assert os.listdir(scratch) == []
