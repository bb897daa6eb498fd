"""``anabranch run``: its options, its view and how it ends, over a little coordinator."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.run import Serving, register
from anabranch.cli.run_view import RunView, line, picture
from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.operations import Operation, ShutDownPipeline
from anabranch.coordinator.port import Answered, Coordinator
from anabranch.coordinator.settings import Settings
from anabranch.errors import UserFunctionFailed
from anabranch.http.app import Application
from anabranch.http.client import Client
from anabranch.http.feed import TimedStep
from anabranch.http.server import Server
from anabranch.protocol.node import Failure
from anabranch.protocol.status import ENDED, Phase, Status
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from tests.http.little import Little
from tests.http.raw import until


class LittleServing:
    """A little coordinator with its server, as the command wants it."""

    def __init__(self, little: Little, given: dict[str, Any]) -> None:
        self.little = little
        self._steps = little.steps(0.05)
        threading.Thread(target=self._listen, args=(given["watch"],), daemon=True).start()
        token: str | None = given["token"]
        application = Application(little.begin(), token)
        self._server = Server(application, given["host"], given["port"], token).start()
        self.closed = False

    def _listen(self, tell: Callable[[StepDone], None]) -> None:
        for done in self._steps:
            if done is not None:
                tell(done)

    @property
    def coordinator(self) -> Coordinator:
        return self.little

    @property
    def url(self) -> str:
        return self._server.address

    def wait(self, seconds: float) -> bool:
        late = time.monotonic() + min(seconds, 0.05)
        while self.little.phase not in ENDED and time.monotonic() < late:
            time.sleep(0.005)
        return self.little.phase in ENDED

    def close(self) -> None:
        self._server.stop()
        self.closed = True


class Stuck(Little):
    """A pipeline whose step under way does not end."""

    def ask(self, operation: Operation, seconds: float | None) -> Answered:
        if operation == ShutDownPipeline():
            self.asked.append(operation)
            return Answered(waiting=True)
        return super().ask(operation, seconds)


class Brief(Little):
    """A pipeline that is shut down once it was seen to make steps."""

    def status(self) -> Status:
        found = super().status()
        if found.phase is Phase.RUNNING and found.step:
            self.ask(ShutDownPipeline(), 0)
        return found


Given = tuple[dict[str, Any], LittleServing]


def application(little: Little, served: list[Given] | None = None) -> typer.Typer:
    def serve(flow: str, **given: Any) -> Serving:
        serving = LittleServing(little, given)
        if served is not None:
            served.append(({"flow": flow, **given}, serving))
        return serving

    return application_of(serve)


def application_of(serve: Callable[..., Serving]) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app, serve)
    return app


def run(app: typer.Typer, arguments: Sequence[str]) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["run", *arguments], catch_exceptions=False)
    return ran.exit_code, ran.output


def test_options_are_read(tmp_path: Path) -> None:
    served: list[Given] = []
    little = Little()
    threading.Timer(0.3, little.ask, (ShutDownPipeline(), 0)).start()
    options = {
        "--directory": str(tmp_path / "state"),
        "--workers": "3",
        "--master": "local[4]",
        "--conf": "spark.driver.memory=2g",
        "--token": "t",
        "--target-latency": "0.2",
        "--checkpoint-seconds": "10",
        "--keep-checkpoints": "5",
        "--rewind": "7",
        "--node": "inline",
        "--bins": "64",
        "--move": "fluid",
        "--move-ms": "20",
        "--move-bytes": "1000",
        "--step-seconds": "7200",
        "--query-seconds": "300",
    }
    flags = ("--take-over", "--accept-duplicates", "--accept-divergence")
    given = ["orders.py:flow", *(part for pair in options.items() for part in pair), *flags]
    code, text = run(application(little, served), given)
    assert code == 0, text
    ((given_on, serving),) = served
    del given_on["watch"]
    assert given_on == dict(
        flow="orders.py:flow",
        directory=tmp_path / "state",
        settings=Settings(
            workers=3,
            target_latency_seconds=0.2,
            checkpoint_seconds=10,
            keep_checkpoints=5,
            accept_divergence=True,
            rescale=RescaleSettings(MovePolicy.FLUID, budget_bytes=1000, budget_ms=20),
            deadlines=ab.Deadlines(step=7200),
            query_seconds=300,
            grace_seconds=360,
        ),
        bins=64,
        master="local[4]",
        spark_conf={"spark.driver.memory": "2g"},
        host="127.0.0.1",
        port=0,
        token="t",
        take_over=True,
        rewind=7,
        accept_duplicates=True,
        inline=True,
    )
    assert serving.closed


def chosen(directory: Path, *options: str) -> Settings:
    """The settings that a pipeline is served with when ``anabranch run`` has these options."""
    settings: list[Settings] = []

    def serve(flow: str, **given: Any) -> Serving:
        settings.append(given["settings"])
        raise UserFunctionFailed("not served")

    with pytest.raises(UserFunctionFailed):
        run(application_of(serve), ["f.py:flow", "--directory", str(directory), *options])
    return settings[0]


def test_the_usual_options_are_the_usual_settings(tmp_path: Path) -> None:
    assert chosen(tmp_path) == Settings()


def test_a_step_may_take_as_long_as_told(tmp_path: Path) -> None:
    found = chosen(tmp_path, "--step-seconds", "7200")
    assert found == Settings(deadlines=ab.Deadlines(step=7200))


@pytest.mark.parametrize(("seconds", "grace"), [("0", 120), ("30", 120), ("60", 120), ("300", 360)])
def test_files_stay_for_as_long_as_a_query_may_take(
    tmp_path: Path, seconds: str, grace: float
) -> None:
    found = chosen(tmp_path, "--query-seconds", seconds)
    assert found == Settings(query_seconds=float(seconds), grace_seconds=grace)


def test_bins_that_are_no_power_of_two_are_refused_before_anything_starts(tmp_path: Path) -> None:
    served: list[Given] = []
    given = ["f.py:flow", "--directory", str(tmp_path), "--bins", "100"]
    code, text = run(application(Little(), served), given)
    assert (code, served) == (2, [])
    assert "power of two, not 100" in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--token", ""), {}),
        (("--token", "two words"), {}),
        ((), {"ANABRANCH_TOKEN": ""}),
        ((), {"ANABRANCH_TOKEN": "Tök3n"}),
    ],
)
def test_a_token_that_no_call_could_bring_is_wrong_usage(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    served: list[Given] = []
    given = ["run", "f.py:flow", "--directory", str(tmp_path), "--host", "0.0.0.0", *arguments]
    ran = CliRunner().invoke(application(Little(), served), given, env=environment)
    assert (ran.exit_code, served) == (2, [])
    assert "printable ASCII" in " ".join(ran.output.replace("│", " ").split())


def test_a_token_of_the_command_line_goes_before_that_of_the_environment(tmp_path: Path) -> None:
    served: list[Given] = []
    little = Little()
    threading.Timer(0.3, little.ask, (ShutDownPipeline(), 0)).start()
    given = ["run", "f.py:flow", "--directory", str(tmp_path), "--token", "t"]
    ran = CliRunner().invoke(application(little, served), given, env={"ANABRANCH_TOKEN": ""})
    assert ran.exit_code == 0, ran.output
    assert [given["token"] for given, _ in served] == ["t"]


def test_it_shows_lines_and_its_address_and_ends_with_the_pipeline(tmp_path: Path) -> None:
    little = Brief()
    code, text = run(application(little), ["f.py:flow", "--directory", str(tmp_path)])
    lines = text.splitlines()
    assert code == 0
    assert re.match(r"Serving at http://127\.0\.0\.1:\d+; directory ", lines[0])
    assert re.match(r"running +step +\d+ .* rows/s .* keys .*lag 7 ", lines[1])
    assert lines[-1].startswith(f"Stopped after step {little.step}: ")


def test_a_failure_is_raised_as_it_was(tmp_path: Path) -> None:
    little = Little()
    failure = Failure("step.user_function", "add raised", "orders.py:7", "Mend it.")
    threading.Timer(0.3, little.fail, (failure,)).start()
    with pytest.raises(UserFunctionFailed, match="add raised"):
        run(application(little), ["f.py:flow", "--directory", str(tmp_path)])


@pytest.mark.parametrize(
    "arguments",
    [
        ("f.py:flow",),
        ("--directory", "d"),
        ("f.py:flow", "--directory", "d", "--workers", "0"),
        ("f.py:flow", "--directory", "d", "--node", "elsewhere"),
        ("f.py:flow", "--directory", "d", "--port", "70000"),
        ("f.py:flow", "--directory", "d", "--step-seconds", "0"),
        ("f.py:flow", "--directory", "d", "--query-seconds", "601"),
        ("f.py:flow", "--directory", "d", "--query-seconds", "-1"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert run(application(Little()), arguments)[0] == 2


PROGRAM = """
import signal, sys
from tests.cli.test_run import Little, Stuck, application
signal.signal(signal.SIGTERM, signal.default_int_handler)
application({kind}())(["run", "f.py:flow", "--directory", "state"])
"""


@pytest.mark.parametrize(
    ("kind", "signals", "code", "last"),
    [
        ("Little", [signal.SIGINT], 0, "Stopped after step "),
        ("Little", [signal.SIGTERM], 0, "Stopped after step "),
        ("Stuck", [signal.SIGINT, signal.SIGINT], 130, "Stopped after step "),
    ],
)
def test_signals_end_it_in_order_and_a_second_one_at_once(
    tmp_path: Path, kind: str, signals: list[signal.Signals], code: int, last: str
) -> None:
    root = Path(__file__).resolve().parents[2]
    known = os.pathsep.join([str(root / "src"), str(root), *filter(None, sys.path)])
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(kind=kind)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": known, "PYTHONUNBUFFERED": "1"},
    )
    with program as process:
        try:
            said, rest = interrupted(process, signals)
            assert process.wait(30) == code
        finally:
            process.kill()
    assert said[0] == "Stopping; Ctrl-C again to stop at once\n"
    assert said[1:] == ["Stopping at once\n"] * (len(signals) - 1)
    assert rest.splitlines()[-1].startswith(last)


def interrupted(
    process: subprocess.Popen[str], signals: list[signal.Signals]
) -> tuple[list[str], str]:
    """Send signals to a pipeline that runs: what it says of each, and after the last one."""
    assert process.stdout is not None
    url = process.stdout.readline().split()[2].rstrip(";")
    until(lambda: Client(url).status().step > 2)
    said: list[str] = []
    for number in signals:
        process.send_signal(number)
        said.append(next(text for text in process.stdout if text.startswith("Stopping")))
    return said, process.stdout.read()


# -------------------------------------------------------------------------------------------- view


def test_the_picture_has_all_numbers() -> None:
    little = Little(step=40, phase=Little().phase)
    steps = [
        TimedStep(StepDone(number, 1000, number, 0.5, {}), 100 + 0.5 * number)
        for number in range(1, 41)
    ]
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(picture(little.status(), steps, 120.0, "http://x:1"))
    shown = console.export_text()
    for text in ("little", "http://x:1", "2,000", "0.50 s", "numbers", "over 2 workers", "█"):
        assert text in shown
    assert "2,000 rows/s" in line(little.status(), steps, 120.0)


def test_before_the_first_step_patience_is_asked_for() -> None:
    console = Console(force_terminal=True, record=True, width=100, file=io.StringIO())
    with RunView(console, "http://x:1") as view:
        view.show(Little().status())
    assert "The first step takes longest" in console.export_text()
