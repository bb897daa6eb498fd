"""``python -m benchmarks``: run the cases, print the report and write it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil

from benchmarks.cases import NEXMARK, Case, cases, rescaled
from benchmarks.conductor import ENVIRONMENTS, KEPT, ROOT, conduct
from benchmarks.data import write_held, write_stream
from benchmarks.measure import Fact
from benchmarks.nexmark.data import write_events
from benchmarks.report import render
from benchmarks.rescale_report import PICTURE, picture
from benchmarks.results import Result, Results
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.text import milliseconds, per_second

DOCUMENT = ROOT / "docs" / "benchmarks.md"
OWN = (
    *("benchmarks.ours", "benchmarks.held", "benchmarks.profile", "benchmarks.rescale"),
    *(f"{NEXMARK}.{name}" for name in ("ours", "closing_ours", "due", "profile")),
)
"""The programs that must not fail."""
SOAK = KEPT / "tiny_steps.json"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CASE",
        help="only cases whose name (workload/subject) begins so; may be repeated",
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="RESULTS",
        help="put the results in the place of the same cases of an earlier run, and write it anew",
    )
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--budget-minutes", type=float, default=75.0)
    parser.add_argument(
        "--output", type=Path, help="where to write; a partial or quick run goes to .bench/"
    )
    parser.add_argument(
        "--work", type=Path, help="where data and state live meanwhile; made if missing"
    )
    parser.add_argument(
        "--render", type=Path, metavar="RESULTS", help="write the report of an earlier run anew"
    )
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Run; 1 when a case of ours failed."""
    asked = arguments(given)
    sizes = QUICK if asked.quick else FULL
    wanted = chosen(cases(sizes), asked.only)
    if asked.list:
        print("\n".join(case.name for case in wanted))
        return 0
    output = asked.output or _default_output(asked)
    if asked.render:
        results = msgspec.json.decode(asked.render.read_bytes(), type=Results)
    else:
        results = _run(sizes, wanted, asked)
        if asked.into:
            earlier = msgspec.json.decode(asked.into.read_bytes(), type=Results)
            results = earlier.with_new(results)
        _keep(results, output.with_suffix(".json") if output != DOCUMENT else None)
    text = render(results, _soak())
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    drawn = picture(results)
    if drawn:
        output.with_name(PICTURE).write_text(drawn, encoding="utf-8")
    print(text)
    print(f"written to {output}")
    own = {case.name for case in wanted if case.program in OWN}
    return int(any(result.failure for result in results.results if result.name in own))


def chosen(every: Iterable[Case], only: list[str]) -> list[Case]:
    """The cases whose names begin with one of these; all where none is given."""
    return [case for case in every if not only or case.name.startswith(tuple(only))]


def _default_output(asked: argparse.Namespace) -> Path:
    if asked.quick or (asked.only and not asked.into):
        return ENVIRONMENTS / ("quick.md" if asked.quick else "partial.md")
    return DOCUMENT


def work_directory(parent: Path) -> Path:
    """A new directory in ``parent``, which is made if it is missing."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="work-", dir=parent))


def _run(sizes: Sizes, wanted: list[Case], asked: argparse.Namespace) -> Results:
    deadline = time.monotonic() + asked.budget_minutes * 60
    ENVIRONMENTS.mkdir(exist_ok=True)
    work = work_directory(asked.work or ENVIRONMENTS)
    load = os.getloadavg()[0]
    try:
        _write_data(sizes, wanted, work / "data")
        done = 0

        def tell(result: Result, seconds: float) -> None:
            nonlocal done
            done += 1
            print(f"[{done}/{len(wanted)}] {_said(result)} ({seconds:.0f} s)", flush=True)

        found = conduct(wanted, work / "data", work, deadline, tell)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Results(sizes.name, machine(load), tuple(found))


def _write_data(sizes: Sizes, wanted: list[Case], data: Path) -> None:
    print("writing the input", flush=True)
    needed = {case.data for case in wanted}
    for stream in sizes.streams():
        if stream.name in needed:
            write_stream(data / stream.name, stream)
    if "held" in needed:
        write_held(data / "held" / "many", sizes.held, sizes.held.many)
        write_held(data / "held" / "few", sizes.held, sizes.held.few)
    for name, base in rescaled(sizes.rescale).items():
        if name in needed:
            write_held(data / name, base, base.many)
    for events in (sizes.nexmark, sizes.closing):
        if events.name in needed:
            write_events(data / events.name, events)


def _said(result: Result) -> str:
    rate, took = result.rates(), result.times()
    if rate is None or took is None:
        return f"{result.name}: {result.failure}"
    per_batch = f"{milliseconds(took.median)} ms a batch"
    return f"{result.name}: {per_second(rate.median)} rows/s, {per_batch}"


def machine(load: float) -> dict[str, str]:
    """Where and when: what a reader needs to judge the numbers."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": f"{load:.1f}",
        "Python": platform.python_version(),
        "Spark": version("pyspark"),
        "Arrow": version("pyarrow"),
        "Java": (java.stderr.splitlines() or ["unknown"])[0],
    }


def _processor() -> str:
    names = Path("/proc/cpuinfo")
    if names.exists():
        for line in names.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _keep(results: Results, path: Path | None) -> None:
    """Keep the numbers, so that the report can be written anew."""
    kept = path or KEPT / "results.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def _soak() -> dict[str, Fact] | None:
    """What the last long run found out, if there was one."""
    if not SOAK.exists():
        return None
    return msgspec.json.decode(SOAK.read_bytes(), type=dict[str, Fact])


if __name__ == "__main__":
    sys.exit(main())
