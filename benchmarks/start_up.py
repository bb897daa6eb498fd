"""From a cold start to the last line: ``python -m benchmarks.start_up``.

The README's program, the same in Structured Streaming, Spark alone and commands of the shell, in
turn. Seconds are those until a program has ended, CPU seconds those of everything that it started,
Spark's JVM included, until all of that has ended too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.spark.class_archive import SWITCH, archive_path, make_archive

ROOT = Path(__file__).resolve().parents[1]
ANABRANCH = (sys.executable, "-m", "anabranch.cli.app")
SUBREAPER = 36
"""Of prctl: descendants whose parent has ended become children of this process."""

ORDERS = {
    "monday.json": """{"customer": "ada", "amount": 12.5}
{"customer": "bob", "amount": 3.0}
{"customer": "ada", "amount": 7.5}
""",
    "tuesday.json": """{"customer": "bob", "amount": 4.25}
{"customer": "cyd", "amount": 100.0}
{"customer": "bob", "amount": -4.25}
""",
}

# A running total per customer that a Python function keeps; then what it has kept. Two partitions
# are as many as the README's program has workers: with the usual 200 it takes three times as long.
STRUCTURED_PYTHON = """
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

def add(key, batches, state):
    total = state.get[0] if state.exists else 0.0
    for batch in batches:
        totals = total + batch["amount"].cumsum()
        total = float(totals.iloc[-1])
        yield pd.DataFrame({"customer": key[0], "total": totals})
    state.update((total,))

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
orders = spark.readStream.schema("customer string, amount double").json("in").where("amount > 0")
totals = orders.groupBy("customer").applyInPandasWithState(
    add, "customer string, total double", "total double", "append", GroupStateTimeout.NoTimeout
)
query = totals.writeStream.format("json").option("checkpointLocation", "state")
query.option("path", "out").trigger(availableNow=True).start().awaitTermination()
kept = spark.read.format("statestore").load("state")
for row in kept.selectExpr("key.customer", "value.*").orderBy("customer").collect():
    print(row)
"""

# The same sums by native aggregation, which keeps its state in the JVM.
STRUCTURED_NATIVE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
orders = spark.readStream.schema("customer string, amount double").json("in").where("amount > 0")
totals = orders.groupBy("customer").sum("amount")
query = totals.writeStream.outputMode("update").option("checkpointLocation", "state")
query = query.foreachBatch(lambda rows, step: rows.write.mode("append").json("out"))
query.trigger(availableNow=True).start().awaitTermination()
kept = spark.read.format("statestore").load("state")
for row in kept.selectExpr("key.customer", "value.*").orderBy("customer").collect():
    print(row)
"""

SPARK_ALONE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(1000).repartition(2).groupBy().count().collect())
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program that is measured: its command line and environment."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    starts_spark: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took."""

    seconds: float
    cpu_seconds: float


def measure(subject: Subject, directory: Path) -> Taken:
    """Run a program to its end, and wait for all that it has started."""
    log = directory / "log"
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            subject.command,
            cwd=directory,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **subject.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{subject.name} failed: {log.read_text(errors='replace')[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime + (_cpu_of_orphans() if subject.starts_spark else 0.0)
    return Taken(seconds, cpu)


def _cpu_of_orphans() -> float:
    """Wait for the JVM and its workers, which outlive their program for a moment."""
    cpu = 0.0
    with contextlib.suppress(ChildProcessError):
        while True:
            _, _, usage = os.wait4(-1, 0)
            cpu += usage.ru_utime + usage.ru_stime
    return cpu


def programs() -> list[Subject]:
    """What starts Spark."""
    python = (sys.executable, "-c")
    readme = (sys.executable, str(ROOT / "examples" / "orders.py"))
    return [
        Subject("README program", readme, {}),
        Subject("README program, without the archive", readme, {SWITCH: "off"}),
        Subject("Structured Streaming, a Python function", (*python, STRUCTURED_PYTHON), {}),
        Subject("Structured Streaming, native sums", (*python, STRUCTURED_NATIVE), {}),
        Subject("Spark alone", (*python, SPARK_ALONE), {}),
    ]


def commands(state: Path) -> list[Subject]:
    """What starts no Spark."""
    return [
        Subject("anabranch --help", (*ANABRANCH, "--help"), {}, False),
        Subject("anabranch status", (*ANABRANCH, "status", "--directory", str(state)), {}, False),
    ]


def orders_in(directory: Path) -> Path:
    """A directory with the README's input and nothing else."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "in").mkdir(parents=True)
    for name, text in ORDERS.items():
        (directory / "in" / name).write_text(text, encoding="utf-8")
    return directory


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Path]:
    """A pipeline that is served; gives its directory."""
    program = (ROOT / "examples" / "orders.py").read_text(encoding="utf-8")
    endless = program.split("pipeline =")[0].replace(", watch=False", "")
    (orders_in(directory) / "flow.py").write_text(endless, encoding="utf-8")
    state = directory / "state"
    line = [*ANABRANCH, "run", "flow.py:flow", "--directory", str(state), "--node", "inline"]
    with subprocess.Popen(line, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            next(text for text in process.stdout if "published 1" in text)
            yield state
        finally:
            process.terminate()
            process.stdout.read()


def report(taken: dict[str, list[Taken]], tell: Callable[[str], None] = print) -> None:
    """The medians, with the extremes of the seconds."""
    tell(f"{'':42}{'seconds':>9}{'from – to':>18}{'CPU seconds':>13}")
    for name, runs in taken.items():
        seconds = sorted(each.seconds for each in runs)
        middle = statistics.median(seconds)
        cpu = statistics.median(each.cpu_seconds for each in runs)
        extremes = f"{seconds[0]:.2f} – {seconds[-1]:.2f}"
        tell(f"{name:42}{middle:9.2f}{extremes:>18}{cpu:13.2f}")


def main() -> None:
    """Measure all subjects in turn, as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.start_up")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--only", default="", help="only programs whose name begins so")
    asked = parser.parse_args()
    rounds: int = asked.rounds
    only: str = asked.only
    archive = archive_path()
    if archive is None or not make_archive(archive):
        print("There is no archive of Java classes: see anabranch doctor.", file=sys.stderr)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    taken: dict[str, list[Taken]] = {}

    def run(subject: Subject, directory: Path) -> None:
        found = measure(subject, directory)
        taken.setdefault(subject.name, []).append(found)
        print(f"{subject.name}: {found.seconds:.2f} s, {found.cpu_seconds:.2f} s CPU", flush=True)

    with tempfile.TemporaryDirectory(prefix="start-up-") as work:
        place = Path(work)
        for _ in range(rounds):
            for subject in programs():
                if subject.name.startswith(only):
                    run(subject, orders_in(place / "program"))
        if "anabranch".startswith(only[:9]):
            with running(place / "served") as state:
                for _ in range(rounds):
                    for subject in commands(state):
                        run(subject, place)
    print()
    report(taken)


if __name__ == "__main__":
    main()
