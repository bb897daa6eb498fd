"""Runs cases one after the other, each in a process of its own, within a budget of time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.cases import Case
from benchmarks.child import WORKERS, Spec
from benchmarks.core_speed import core_speed
from benchmarks.measure import Outcome, stretches
from benchmarks.results import Result

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".bench"
KEPT = ROOT / "benchmarks" / "kept"
"""The numbers behind the document, so that some of them can be measured anew on any checkout."""
START_AND_END_SECONDS = 120.0
LEAST_SECONDS = 30.0


def conduct(
    cases: Sequence[Case],
    data: Path,
    work: Path,
    deadline: float,
    tell: Callable[[Result, float], None],
) -> list[Result]:
    """Run the cases; those for which no time is left before the deadline are left out."""
    results = []
    for case in cases:
        started = time.monotonic()
        left = deadline - started
        if left < LEAST_SECONDS:
            result = _failed(case, "left out: the time budget was used up")
        else:
            before = core_speed()
            result = run_case(case, data, work, min(case.seconds, left))
            result = msgspec.structs.replace(result, speed=(before + core_speed()) / 2)
        tell(result, time.monotonic() - started)
        results.append(result)
    return results


def run_case(case: Case, data: Path, work: Path, seconds: float) -> Result:
    """Run one case to its end, or end it when it takes far longer than it may."""
    command = _command(case)
    if not Path(command[0]).exists():
        return _failed(case, f"left out: {case.peer} is not installed in {ENVIRONMENTS.name}/")
    home = work / case.name.replace("/", "-")
    home.mkdir(parents=True)
    spec = Spec(
        str(data / case.data), str(home / "work"), str(home / "result"), seconds, case.options
    )
    told = home / "spec.json"
    told.write_bytes(msgspec.json.encode(spec))
    try:
        failure = _run([*command, str(told)], home / "log", seconds + START_AND_END_SECONDS)
        return _failed(case, failure) if failure else _read(case, Path(spec.result))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _command(case: Case) -> list[str]:
    if case.peer is None:
        return [sys.executable, "-m", case.program]
    return [str(ENVIRONMENTS / case.peer / "bin" / "python"), str(ROOT / case.program)]


def _run(command: list[str], log: Path, seconds: float) -> str:
    """Run a program; gives what went wrong, or nothing."""
    environment = {**os.environ, "PATHWAY_THREADS": str(WORKERS)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:.0f} s without a result"
        finally:
            _end(process)
    return f"failed: {_last_line(log)}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and the JVM that it started; Spark's Python workers end with their JVM."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return told[-1][:300] if told else "nothing was said"


def _read(case: Case, path: Path) -> Result:
    try:
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except (OSError, msgspec.MsgspecError) as error:
        return _failed(case, f"no result: {error}")
    if case.peer is not None:
        outcome = msgspec.structs.replace(outcome, batches=stretches(outcome.batches))
    return Result(case.workload, case.subject, case.warm, outcome)


def _failed(case: Case, why: str) -> Result:
    return Result(case.workload, case.subject, case.warm, failure=why)
