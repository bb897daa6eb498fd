"""Many tiny steps: what a pipeline holds, in memory and on disk, soon after the start and later.

A window after a tenth of the steps is compared with one at the end, by the most in each. The heap
is touched whole when the JVM starts, so that its memory shows what grows beside the heap; what
lives in the heap is counted after a collection, at the end of each window.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import psutil
from pyspark import SparkContext

import anabranch as ab
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.measure import Batch, Fact, Outcome

ROWS = 20
KEYS = 500
SAMPLES_PER_WINDOW = 20
LIVE_HEAP = "live heap of the JVM"


class Sample(msgspec.Struct, frozen=True):
    """What was held after a step; bytes by name."""

    step: int
    held: dict[str, float]


@dataclass(frozen=True, slots=True)
class Windows:
    """The steps in which to look: after a tenth, and at the end."""

    steps: int

    @property
    def width(self) -> int:
        """A twentieth of all steps."""
        return max(self.steps // 20, SAMPLES_PER_WINDOW)

    @property
    def early_end(self) -> int:
        """Where the early window ends."""
        return self.steps // 10 + self.width

    def wanted(self, step: int) -> bool:
        """Whether to look after this step."""
        inside = self.early_end - self.width < step <= self.early_end
        inside |= self.steps - self.width < step <= self.steps
        return inside and step % max(self.width // SAMPLES_PER_WINDOW, 1) == 0

    def last_of_window(self, step: int) -> bool:
        """Whether a window ends here."""
        return step in (self.early_end, self.steps)

    def compared(self, samples: Sequence[Sample]) -> dict[str, Fact]:
        """The most of everything in both windows."""
        early = [each.held for each in samples if each.step <= self.early_end]
        late = [each.held for each in samples if each.step > self.early_end]
        return {**_most("early", early), **_most("late", late)}


def _most(window: str, samples: Sequence[dict[str, float]]) -> dict[str, Fact]:
    names = dict.fromkeys(name for held in samples for name in held)
    return {f"{window}: {n}": max(held[n] for held in samples if n in held) for n in names}


@dataclass
class Sampler:
    """Looks at processes and directories in the windows."""

    windows: Windows
    directory: Path
    scratch: Path
    samples: list[Sample] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def step(self, done: ab.StepDone) -> None:
        """A step is over."""
        if self.windows.wanted(done.step) or self.windows.last_of_window(done.step):
            now = time.perf_counter()
            held = {**_memory(), **_on_disk(self.directory, self.scratch)}
            if self.windows.last_of_window(done.step):
                held[LIVE_HEAP] = _live_heap()
            self.samples.append(Sample(done.step, held))
            self.seconds.append(now - self._last)
        self._last = time.perf_counter()


def _memory() -> dict[str, float]:
    driver = psutil.Process()
    jvm = next(child for child in driver.children() if "java" in child.name())
    workers = sum(_own_bytes(child) for child in jvm.children(recursive=True))
    return {
        "driver": float(_own_bytes(driver)),
        "JVM": float(_own_bytes(jvm)),
        "Python workers": float(workers),
    }


def _own_bytes(process: psutil.Process) -> int:
    """Memory that would be free without the process; forked workers share the rest."""
    try:
        return int(process.memory_full_info().uss)
    except psutil.NoSuchProcess:
        return 0


def _on_disk(directory: Path, scratch: Path) -> dict[str, float]:
    return {
        "pipeline directory": float(sum(_sizes(directory))),
        "Spark's local directory": float(sum(_sizes(scratch))),
    }


def _sizes(directory: Path) -> Iterator[int]:
    """Bytes on disk of every file; those that go while we look do not count."""
    for path in directory.rglob("*"):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        yield found.st_blocks * 512


def _live_heap() -> float:
    context = SparkContext._active_spark_context
    assert context is not None
    jvm = context._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory())


def rows(partition: int, start: int, end: int) -> dict[str, object]:
    """Rows over a fixed set of keys."""
    numbers = np.arange(start, end)
    return {"key": numbers * 7919 % KEYS, "amount": numbers % 100}


def add(key: tuple[int], row: tuple[int, int], total: int | None) -> tuple[tuple[int, int], int]:
    """A running sum that never grows long."""
    total = ((total or 0) + row[1]) % 1_000_000
    return (key[0], total), total


def tiny(output: Path, steps: int) -> ab.Dataflow:
    """A region with both kinds of stateful operator, and a sink for each."""
    flow = ab.Dataflow("tiny-steps")
    source = ab.GeneratorSource(
        rows, "key bigint, amount bigint", rows_per_step=ROWS, rows=steps * ROWS
    )
    keyed = flow.source("rows", source).key_distribute("by-key", "key")
    counted = keyed.aggregate("counted", n="count(*)", total="sum(amount)")
    counted.sink("counted-out", ab.FileSink(output / "counted", format="json"))
    summed = keyed.stateful_map(
        "summed", add, state="total bigint", output="key bigint, total bigint"
    )
    summed.sink("summed-out", ab.FileSink(output / "summed", format="json"))
    return flow


def measure(spec: Spec) -> Outcome:
    """Run the steps and compare the windows."""
    work, steps = Path(spec.work), spec.number("steps")
    scratch = work / "scratch"
    scratch.mkdir(parents=True)
    windows = Windows(steps)
    sampler = Sampler(windows, work / "state", scratch)
    conf = {
        **COMMON_CONF,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
        "spark.local.dir": str(scratch),
        "spark.cleaner.periodicGC.interval": spec.text("gc_interval"),
    }
    started = time.perf_counter()
    pipeline = ab.run(
        tiny(work / "out", steps),
        directory=work / "state",
        workers=WORKERS,
        master=MASTER,
        spark_conf=conf,
        settings=ab.Settings(grace_seconds=spec.number("grace_seconds"), query_seconds=0),
        watch=sampler.step,
    )
    status = pipeline.wait()
    if status.step != steps or set(status.keys.values()) != {KEYS}:
        raise AssertionError(f"{steps} steps over {KEYS} keys came to {status}")
    seconds = time.perf_counter() - started
    batches = tuple(Batch(ROWS, took) for took in sampler.seconds)
    return Outcome(batches, seconds, False, windows.compared(sampler.samples))


if __name__ == "__main__":
    case(measure)
