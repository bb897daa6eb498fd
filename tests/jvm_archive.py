"""Java classes that Spark loads, kept in an archive: the tests start Spark dozens of times.

With ``python -m tests.jvm_archive PATH`` a small pipeline runs once and its JVM writes the archive
as it ends. Every JVM that a test starts then maps the classes instead of reading, checking and
laying them out again, which takes a third of a start. A JVM whose jars or release differ says
nothing and reads its classes as ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

SECONDS = 240.0
STACK = "-Xss8m"
SHORT_RUNS = f"{STACK} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Most tests are short: compiling for long runs costs more than it brings.

With that compiler alone, Java would keep a fifth as much compiled code as usual, which is not
enough for Spark: in a session of many tests it throws code away and compiles it again, for a
quarter of the time.
"""

_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def options(*, short: bool) -> str:
    """What a JVM of the tests is started with. As long as there is no archive, it does without."""
    return f"{SHORT_RUNS if short else STACK} -XX:SharedArchiveFile={_archive()} {_SILENT}"


def begin() -> Callable[[], None]:
    """Make the archive beside the first tests, if there is none; gives how to wait for it."""
    archive = _archive()
    if archive.exists():
        return lambda: None
    making = threading.Thread(target=_make, args=(archive,), name="jvm-archive")
    making.start()
    return making.join


def _archive() -> Path:
    return Path(sys.prefix) / "share" / "anabranch" / f"spark-{version('pyspark')}.jsa"


def _make(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    # A JVM given half an archive crashes: it appears whole or not at all.
    aside = archive.with_suffix(f".{os.getpid()}")
    writing = f"{SHORT_RUNS} -XX:ArchiveClassesAtExit={aside} {_SILENT}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": writing}
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [sys.executable, "-m", "tests.jvm_archive", scratch],
            env=environment,
            cwd=Path(__file__).parents[1],
            timeout=SECONDS,
            check=True,
            capture_output=True,
        )
    aside.rename(archive)


def _run(base: Path) -> None:
    """A pipeline over most of what the tests use: JSON, Parquet, both kinds of state, a query."""
    import anabranch as ab  # noqa: PLC0415  (only the run that makes the archive needs it)

    (base / "in").mkdir()
    for number in range(3):
        lines = "".join(f'{{"name": "n{i % 7}", "value": {i}}}\n' for i in range(50))
        (base / "in" / f"{number}.json").write_text(lines)

    def chained(key: object, row: object, state: int | None) -> tuple[tuple[int], int]:
        new = (state or 0) + row.value  # type: ignore[attr-defined]  # a row has its columns
        return (new,), new

    flow = ab.Dataflow("archive")
    schema = "name string, value bigint"
    source = ab.FileSource(
        base / "in", format="json", schema=schema, watch=False, max_files_per_step=1
    )
    region = flow.source("rows", source).where("value >= 0").key_distribute("by-name", "name")
    region.aggregate("counted", n="count(*)", total="sum(value)").sink(
        "out-counted", ab.FileSink(base / "counted", format="parquet")
    )
    region.stateful_map("chained", chained, state="total bigint", output="total bigint").sink(
        "out-chained", ab.FileSink(base / "chained", format="json")
    )
    pipeline = ab.run(flow, directory=base / "state", master="local[2]")
    pipeline.wait()
    pipeline.query("select count(*) as n from counted")
    pipeline.shutdown()


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
