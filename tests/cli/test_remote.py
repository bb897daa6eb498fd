"""The commands that talk to a running pipeline, each against a real server."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from anabranch.cli import app as cli
from anabranch.cli import connect, remote
from anabranch.cli.exits import Exit
from anabranch.cli.run_view import RunView, line, picture
from anabranch.cli.spinner import checkpoint_with_progress
from anabranch.cli.tables import status_line, status_picture
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.operations import (
    LoadCheckpoint,
    PausePipeline,
    PauseSource,
    ShutDownPipeline,
    StartPipeline,
    StartSource,
)
from anabranch.errors import UserFunctionFailed
from anabranch.http.address import Address, write_address
from anabranch.http.app import Application
from anabranch.http.client import Client
from anabranch.http.feed import TimedStep
from anabranch.http.profile_text import NOT_YET
from anabranch.http.schemas import ProfileAnswer
from anabranch.http.server import Server
from anabranch.protocol.node import Failure, SinkRetry
from anabranch.protocol.status import (
    CheckpointUnderWay,
    NoStep,
    NoStepReason,
    OperatorStatus,
    Phase,
    SinkStatus,
    SourceStatus,
    Status,
    StepUnderWay,
)
from tests.http.little import Little
from tests.http.raw import until


@dataclass(frozen=True)
class Running:
    """A pipeline that is served, found by its directory."""

    little: Little
    directory: Path
    url: str

    def __call__(self, *arguments: str, code: int = 0) -> str:
        return invoke(*arguments, "--directory", str(self.directory), code=code)


def invoke(*arguments: str, code: int = 0) -> str:
    """What a command prints on stdout, after it has ended with this code."""
    ran = CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    assert ran.exit_code == code, ran.output + repr(ran.exception)
    return ran.stdout


@contextmanager
def served(little: Little, directory: Path, token: str | None = "s3cret") -> Iterator[Running]:
    with Server(Application(little.begin(), token)) as server:
        write_address(directory, Address(server.address, os.getpid(), 3, token))
        until(lambda: little.step >= 3)
        yield Running(little, directory, server.address)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with served(Little(), tmp_path) as found:
        yield found


def failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    """How the program ends, and what it says on stderr; stdout stays empty."""
    monkeypatch.setattr(sys, "argv", ["anabranch", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.err


def test_status_as_text_and_json(running: Running) -> None:
    running.little.ask(PausePipeline(), 0)
    text = running("status")
    assert "paused" in text
    assert f"step {running.little.step:,} committed" in text
    for name in ("totals", "by-step", "numbers", "out", "waiting for a start"):
        assert name in text
    found = msgspec.json.decode(running("status", "--json"), type=Status)
    assert found == running.little.status()


def test_a_worker_is_looked_at(running: Running) -> None:
    assert "adding_up" in running("profile", "1")
    assert "resident" in running("profile", "--heap", "--region", "by-step")
    found = msgspec.json.decode(running("profile", "--json"), type=ProfileAnswer)
    assert [each.group for each in found.profiles] == ["by-step"]
    assert running("profile", "--seconds", "0", code=5) == NOT_YET


def test_by_address_and_token(running: Running) -> None:
    given = ("--url", running.url, "--token", "s3cret", "--json")
    assert json.loads(invoke("status", *given))["dataflow"] == "little"


def test_watch_prints_until_the_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WATCH_SECONDS", 0.05)
    status, report = running.little.status, 0

    def counted() -> Status:
        nonlocal report
        report += 1
        if report == 3:
            threading.Thread(target=running.little.ask, args=(ShutDownPipeline(), 0)).start()
        return status()

    monkeypatch.setattr(running.little, "status", counted)
    lines = running("status", "--watch").splitlines()
    assert lines[0].startswith("running ")
    assert lines[-1].startswith("stopped ")
    found = [json.loads(line) for line in running("status", "--watch", "--json").splitlines()]
    assert [one["phase"] for one in found] == ["stopped"]


def test_pause_and_start(running: Running) -> None:
    assert running("pause") == f"Paused at step {running.little.step}.\n"
    assert running("start").startswith("Running at step ")
    found = json.loads(running("pause", "--json"))
    assert (found["operation"], found["done"]) == ("pause", True)
    assert running.little.asked == [PausePipeline(), StartPipeline(), PausePipeline()]


def test_pause_and_start_of_a_source(running: Running) -> None:
    text = running("pause", "--source", "numbers")
    assert text.startswith("Source numbers is paused. The pipeline is running, at step ")
    assert "7 waiting  paused" in running("status")
    status = running.little.status()
    assert "lag 7 (paused: numbers)" in status_line(status)
    seen = [TimedStep(StepDone(1, 1, 1, 0.5, {}), 1.0)]
    assert "lag 7 (paused: numbers)" in line(status, seen, 2.0)
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(picture(status, seen, 2.0, "http://x:1"))
    assert "numbers (paused)" in console.export_text()
    found = json.loads(running("start", "--source", "numbers", "--json"))
    assert (found["operation"], found["done"]) == ("source start", True)
    assert found["status"]["sources"][0]["paused"] is False
    assert "paused" not in running("status") + status_line(running.little.status())
    assert running("start", "--source", "numbers").startswith("Source numbers is resumed. ")
    asked = [PauseSource("numbers"), StartSource("numbers"), StartSource("numbers")]
    assert running.little.asked == asked


@pytest.mark.parametrize("name", ["number", "", "a/b", "../pause", "?x"])
def test_a_source_that_is_not_there_ends_with_the_code_of_a_refusal(
    running: Running, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--directory", str(running.directory), "--source", name)
    for verb in ("pause", "start"):
        code, said = failure(monkeypatch, capsys, verb, *given)
        assert (code, "Sources: 'numbers'." in said) == (Exit.REFUSED, True)
    assert running.little.phase is Phase.RUNNING
    assert not running.little.source_paused


def test_checkpoints_and_load(running: Running) -> None:
    assert running("checkpoints") == "No checkpoint is kept yet.\n"
    running("pause")
    step = running.little.step
    assert running("checkpoint") == f"Step {step} is kept.\n"
    assert str(step) in running("checkpoints")
    kept = json.loads(running("checkpoints", "--json"))["checkpoints"]
    assert [one["step"] for one in kept] == [step]
    running("start")
    until(lambda: running.little.step > step)
    assert running("load", str(step), "--accept-duplicates") == f"At step {step}, in branch 1.\n"
    assert running.little.asked[-1] == LoadCheckpoint(step, accept_duplicates=True)


def test_a_checkpoint_that_takes_longer_ends_with_5(tmp_path: Path) -> None:
    with served(Little(pace=0.001, file_seconds=0.3), tmp_path) as running:
        running("pause")
        text = running("checkpoint", "--seconds", "0.1", code=5)
        assert text == "The checkpoint is still in progress: see `anabranch status`.\n"
        found = json.loads(running("checkpoint", "--seconds", "0", "--json", code=5))
        assert found["done"] is False


def test_a_checkpoint_shows_its_files_on_a_terminal(tmp_path: Path) -> None:
    with served(Little(file_seconds=0.2), tmp_path) as running:
        running("pause")
        console = Console(force_terminal=True, record=True, width=80, file=io.StringIO())
        client = Client.of_directory(running.directory)
        answer = checkpoint_with_progress(client, 30, console)
        assert answer.step == running.little.step
        shown = console.export_text()
        assert f"/{running.little.step}" in shown
        assert "Checkpoint" in shown


@pytest.mark.parametrize("at_once", [False, True])
def test_shutdown(running: Running, at_once: bool) -> None:
    text = running("shutdown", *(["--at-once"] if at_once else []))
    assert text == f"Ended after step {running.little.step}.\n"
    assert running.little.asked == [ShutDownPipeline(at_once=at_once)]
    assert running.little.phase is Phase.STOPPED


def test_query_as_text_and_json(running: Running) -> None:
    sql = "select step, rows from totals where step <= 2 order by step"
    assert running("query", sql) == "step  rows\n----  ----\n   1    10\n   2    20\n"
    assert json.loads(running("query", sql, "--json"))["rows"] == [[1, 10], [2, 20]]


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("load", "1000000"), 3, "[operation.refused] Step 1000000 is not kept"),
        (
            ("query", "select 1", "--seconds", "300"),
            2,
            "[request.invalid] A query of this pipeline may take 60 seconds, not 300",
        ),
        (("query", "selec"), 1, '[query.invalid] near "selec": syntax error'),
        (("query", "select * from totals", "--rows", "1"), 1, "[query.too_large] More than 1 rows"),
        (("status", "--token", "wrong"), 3, "[request.unauthorized]"),
    ],
)
def test_errors_are_one_paragraph_with_a_code(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    given = (*arguments, "--directory", str(running.directory))
    ended, text = failure(monkeypatch, capsys, *given)
    assert (ended, text.count("\n")) == (code, 1)
    assert text.startswith(f"error: {said}")


def test_nobody_there_ends_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, text = failure(monkeypatch, capsys, "status", "--directory", str(tmp_path))
    assert ended == 4
    assert text.startswith("error: [coordinator.unreachable] No pipeline runs in this directory")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    ended, text = failure(monkeypatch, capsys, "pause", "--url", url)
    assert (ended, "Traceback" in text) == (4, False)


def test_debug_prints_the_traceback_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("status", "--directory", str(tmp_path))
    for given in (("--debug", *command), (*command, "--debug")):
        ended, text = failure(monkeypatch, capsys, *given)
        assert ended == 4
        assert "Traceback" in text
        assert "error: [coordinator.unreachable]" in text


def test_a_bug_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> Client:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(connect, "client_of", broken)
    ended, text = failure(monkeypatch, capsys, "status", "--url", "http://127.0.0.1:1")
    assert (ended, "Traceback" in text) == (1, False)
    assert "ZeroDivisionError: by zero" in text


HOSTILE = "no [/INST] :apple: \x1b[2J \x9b"
HARMLESS = "no [/INST] :apple: \\x1b[2J \\x9b"


def test_texts_of_others_are_shown_as_they_are(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = msgspec.structs.replace(
        running.little.status(),
        dataflow=HOSTILE,
        waiting_for=HOSTILE,
        failure=Failure("step.user_function", f"{HOSTILE}\nsecond line"),
        checkpoint=CheckpointUnderWay(4, 10, 3, HOSTILE),
        operators=(OperatorStatus(HOSTILE, HOSTILE, 1, 1, 1),),
        sources=(SourceStatus(HOSTILE, 7),),
        sinks=(SinkStatus(HOSTILE, 1, 0, SinkRetry(Failure("sink", HOSTILE), 1, 1.0, 1.0)),),
        node_lost=Failure("node.jvm_died", HOSTILE),
        queued=(HOSTILE,),
    )
    monkeypatch.setattr(running.little, "status", lambda: status)
    shown = running("status")
    assert (shown.count(HARMLESS), "\x1b" in shown, "\x9b" in shown) == (11, False, False)
    assert HARMLESS in status_line(status)
    console = Console(force_terminal=True, width=200, file=io.StringIO())
    console.print(picture(status, [TimedStep(StepDone(1, 1, 1, 0.5, {}), 1.0)], 2.0, "http://x:1"))
    view = RunView(Console(width=200, file=io.StringIO()), "http://x:1")
    view.say(HOSTILE)
    drawn = cast("io.StringIO", console.file).getvalue()
    assert (drawn.count(HARMLESS), "\x1b[2J" in drawn) == (3, False)
    # An error's text may have lines.
    monkeypatch.setattr(
        connect, "client_of", lambda *_: (_ for _ in ()).throw(UserFunctionFailed(f"{HOSTILE}\nb"))
    )
    _, said = failure(monkeypatch, capsys, "status", "--url", "http://127.0.0.1:1")
    assert said == f"error: [step.user_function] {HARMLESS}\nb.\n"


def test_a_bar_shows_what_a_checkpoint_waits_for_as_it_is(tmp_path: Path) -> None:
    with served(Little(file_seconds=0.2), tmp_path) as running:
        running("pause")
        console = Console(force_terminal=True, width=200, file=io.StringIO())
        client = Client.of_directory(running.directory)
        found = CheckpointUnderWay(4, 10, 3, HOSTILE)
        running.little.status = lambda: msgspec.structs.replace(  # type: ignore[method-assign]
            Little(step=4).status(), checkpoint=found
        )
        checkpoint_with_progress(client, 30, console)
        drawn = cast("io.StringIO", console.file).getvalue()
        assert HARMLESS in drawn
        assert HOSTILE not in drawn


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--directory", "d", "--url", "http://127.0.0.1:1"),
        ("load", "--directory", "d"),
        ("load", "0", "--directory", "d"),
        ("load", "one", "--directory", "d"),
        ("checkpoint", "--directory", "d", "--seconds", "601"),
        ("load", str(1 << 53), "--directory", "d"),
        ("query", "--directory", "d"),
        ("query", "select 1", "--directory", "d", "--seconds", "0"),
        ("query", "select 1", "--directory", "d", "--seconds", "nan"),
        ("query", "select 1", "--directory", "d", "--seconds", "601"),
        ("query", "select 1", "--directory", "d", "--rows", "2000000"),
        ("query", "select 1", "--directory", "d", "--bytes", "999999999999"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    invoke(*arguments, code=2)


def test_everything_that_keeps_a_pipeline_waiting_is_shown() -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    status = msgspec.structs.replace(
        Little(step=4).status(),
        under_way=StepUnderWay(5, 0, "running", 12.5),
        replaying=9,
        checkpoint=CheckpointUnderWay(4, 10, 3, "the step under way"),
        queued=("load 2",),
        failure=Failure("store.disk_full", "No space", do="Make room."),
        node_lost=Failure("node.jvm_died", "The JVM has ended"),
        sinks=(
            SinkStatus("away", 3, 1, SinkRetry(Failure("sink.callback", "No"), 11, 95.2, 21.4)),
            SinkStatus("over", 2, 2, SinkRetry(Failure("sink.callback", "Never"), 1, 0.0, None)),
        ),
    )
    console.print(status_picture(status))
    shown = console.export_text()
    for text in (
        "step 5: running for 12.5 s",
        "replaying up to step 9",
        "checkpoint: 3 of 10 files, waits for the step under way",
        "queued: load 2",
        "[store.disk_full] No space. Make room.",
        "the node was replaced: [node.jvm_died] The JVM has ended",
        "failing for 95 s (11 tries), next try in 21 s: [sink.callback] No",
        "failing for 0 s (1 try), given up: [sink.callback] Never",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("phase", "reason", "shown"),
    [
        (Phase.RUNNING, NoStepReason.INPUT, True),
        (Phase.RECOVERING, NoStepReason.REPLAY, True),
        (Phase.PAUSED, NoStepReason.PAUSED, False),
        (Phase.COMPLETED, NoStepReason.ENDED, False),
    ],
)
def test_why_no_step_runs_is_shown_unless_the_phase_says_it(
    phase: Phase, reason: NoStepReason, shown: bool
) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    found = NoStep(reason, "A [reason] of its own")
    console.print(
        status_picture(msgspec.structs.replace(Little().status(), phase=phase, no_step=found))
    )
    assert ("no step: A [reason] of its own" in console.export_text()) == shown
