"""The JVM: quiet unless it has something to say, and a clear error where there is none."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from anabranch.spark import jvm, session
from anabranch.spark.jvm import JAVA_OPTIONS, with_java_options


def test_our_logging_and_stack_are_there_and_the_users_options_come_after_them() -> None:
    ours = with_java_options({})[JAVA_OPTIONS]
    logging, stack = ours.split()
    assert stack == "-Xss8m"
    name, _, address = logging.partition("=")
    assert name == "-Dlog4j2.configurationFile"
    assert Path(address.removeprefix("file://")).read_text().count("rootLogger.level") == 1
    assert with_java_options({JAVA_OPTIONS: "-Dx=1", "a": "b"}) == {
        JAVA_OPTIONS: f"{ours} -Dx=1",
        "a": "b",
    }


def relayed(text: bytes, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO) -> str:
    reading, writing = os.pipe()

    def say() -> None:
        with open(writing, "wb") as file:
            file.write(text)

    threading.Thread(target=say).start()
    monkeypatch.setattr(sys, "stderr", stderr)
    jvm._relay(reading)
    return "" if stderr.closed else stderr.getvalue()


def test_what_the_jvm_says_is_passed_on_but_for_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = b"WARNING: Using incubator modules: jdk.incubator.vector\nprinted by a task\n\xff!\n"
    report = relayed(said, monkeypatch, io.StringIO())
    assert report == "printed by a task\n\N{REPLACEMENT CHARACTER}!\n"


def test_a_closed_stderr_does_not_stop_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    assert relayed(b"one\ntwo\n" * 50_000, monkeypatch, closed) == ""


def test_without_java_one_error_says_what_to_do() -> None:
    # In a process of its own, because pyspark leaves a pipe open when the JVM does not start.
    program = "from anabranch.spark.jvm import start_jvm; start_jvm({})"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 1
    error = ran.stderr.splitlines()[-1]
    assert error.startswith("anabranch.errors.SparkUnavailable: [spark.unavailable] ")
    assert "Java 17 or newer" in error
    assert "/nonexistent/bin/java: No such file" in ran.stderr


def test_ctrl_c_is_the_programs_after_spark_has_started() -> None:
    def pysparks(number: int, frame: FrameType | None) -> None:
        """Stand in for the handler that cancels all jobs."""

    before = signal.getsignal(signal.SIGINT)
    with session._keep_interrupt_handler():
        signal.signal(signal.SIGINT, pysparks)
    assert signal.getsignal(signal.SIGINT) is before
