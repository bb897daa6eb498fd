"""Where the time of a step goes: our own clocks and Spark's event log put together."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext

import anabranch as ab
from anabranch.run import start_pipeline
from benchmarks import event_log
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.flows import check_sums, keyed_sums
from benchmarks.measure import Batch, Outcome
from benchmarks.recorder import Recorder
from benchmarks.step_parts import parts


def measure(spec: Spec) -> Outcome:
    """Run the stream with the event log on."""
    data = Path(spec.data)
    flow = keyed_sums(data, Path(spec.work) / "out", spec.text("operator"))
    return profiled(spec, flow, lambda pipeline: check_sums(pipeline, data))


def profiled(
    spec: Spec, flow: ab.Dataflow, check: Callable[[ab.Pipeline], object] | None = None
) -> Outcome:
    """Run a dataflow to its end, or until time is up; every step with all its parts."""
    work = Path(spec.work)
    log = work / "events"
    log.mkdir(parents=True)
    recorder = Recorder()
    started = time.perf_counter()
    pipeline = start_pipeline(
        flow,
        work / "state",
        ab.Settings(workers=WORKERS),
        master=MASTER,
        spark_conf={**COMMON_CONF, **event_log.CONF, "spark.eventLog.dir": log.as_uri()},
        watch=recorder.watch,
        reached=recorder.reached,
    )
    status = pipeline.wait(spec.seconds)
    cut = status.phase is ab.Phase.RUNNING
    if cut:
        pipeline.shutdown()
    seconds = time.perf_counter() - started
    if check is not None:
        check(pipeline)
    _stop_spark()
    found = event_log.jobs(_lines(log))
    batches = []
    for done, batch in zip(recorder.steps, recorder.batches(), strict=True):
        job = event_log.job_between(found, *recorder.window(done.step))
        if job is not None and done.rows:
            batches.append(Batch(batch.rows, batch.seconds, parts(batch, job, WORKERS)))
    return Outcome(tuple(batches), seconds, cut)


def _lines(log: Path) -> list[str]:
    return [line for path in sorted(log.iterdir()) for line in path.read_text("utf-8").splitlines()]


def _stop_spark() -> None:
    """End Spark, so that the log is whole."""
    context = SparkContext._active_spark_context
    assert context is not None
    context.stop()


if __name__ == "__main__":
    case(measure)
