"""docs/tour.md is taken as a new user takes it: every command, in order, in an empty directory.

A block of the language ``console`` has commands after a ``$`` and what they print. Numbers, times,
paths and the width of columns may differ: everything else must be as the page says.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from scripts.check_docs import parse
from tests.docs.test_pages import ROOT, read_page

PAGE = ROOT / "docs" / "tour.md"
PROMPT = "$ "


@dataclass(frozen=True)
class Command:
    """A command of the page, with what it prints there."""

    line: int
    text: str
    output: str


def commands(path: Path) -> list[Command]:
    found: list[Command] = []
    for block in parse(path).blocks:
        if block.language != "console":
            continue
        for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
            if line.startswith(PROMPT):
                found.append(Command(number, line.removeprefix(PROMPT), ""))
            else:
                last = found[-1]
                found[-1] = Command(last.line, last.text, f"{last.output}{line}\n")
    return found


def shape(text: str) -> list[str]:
    """What must not differ from run to run."""
    lines = []
    for line in text.splitlines():
        plain = re.sub(r"[─━═]+|[╭╮╰╯│┃║]", " ", line)
        plain = re.sub(r"(/[\w.-]+)+/(?=[\w.-]+)", "", plain)
        plain = re.sub(r"\d[\d,.:-]*( \d\d:\d\d:\d\d)?", "N", plain)
        plain = re.sub(r"\bN (B|KiB|MiB)", "SIZE", plain)
        plain = re.sub(r"(?<= )-(?= |$)", "N s", plain)
        lines.append(" ".join(plain.split()))
    return [line for line in lines if line]


class Shell:
    """One bash, whose commands come one after the other."""

    def __init__(self, directory: Path) -> None:
        scripts = Path(sys.executable).parent
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env={
                **os.environ,
                "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "80",
                "TERM": "dumb",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, text: str) -> str:
        """What a command prints. The code it ends with is there for the next one."""
        mark = uuid.uuid4().hex
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{text}\nended=$?; echo; echo {mark}; (exit $ended)\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.strip() == mark:
                return "".join(printed)
            if not line.startswith("bash: line "):  # of a job that was killed, at any time
                printed.append(line)
        raise AssertionError(f"the shell has ended in {text!r}: {''.join(printed)}")

    def end(self) -> None:
        """Leave nothing behind that a command has started."""
        left = psutil.Process(self._bash.pid).children(recursive=True)
        with self._bash:  # closes its pipes
            self._bash.kill()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    for name, text in read_page(PAGE).files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = Shell(tmp_path)
    yield found
    found.end()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_tour_can_be_taken(shell: Shell) -> None:
    printed: dict[str, list[str]] = {}
    for command in commands(PAGE):
        output = shell.run(command.text)
        print(f"$ {command.text}\n{output.rstrip()}", flush=True)
        place = (command.line, command.text)
        assert (place, shape(output)) == (place, shape(command.output)), output
        printed.setdefault(command.text, []).append(output)
    # The coordinator was killed, the node was not.
    before, after = printed["cat orders.state/node.lock"]
    assert before == after
    # Numbers may differ from run to run, but these not.
    for text, outputs in printed.items():
        if text.startswith(("anabranch query", "cat out/")):
            expected = [c.output.strip() for c in commands(PAGE) if c.text == text]
            assert [output.strip() for output in outputs] == expected


def test_shapes_leave_out_what_differs_and_nothing_else() -> None:
    assert shape("running  step 12  0.25 s\n") == shape("running    step 3  1.50 s\n")
    assert shape("╭─ orders ───╮\n│ a  1.0 KiB │") == shape("╭─ orders ─╮\n│ a 12 B │")
    assert shape("directory /home/you/orders.state") == shape("directory /tmp/x/orders.state")
    assert shape("2026-01-02 03:04:05") == shape("2027-11-12 13:14:15")
    assert shape("running step 1") != shape("paused step 1")
    assert shape("a\nb") != shape("a")
