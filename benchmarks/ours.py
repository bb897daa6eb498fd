"""Anabranch: keyed sums by ``aggregate`` or ``stateful_map``, Parquet in and Parquet out."""

from __future__ import annotations

import time
from pathlib import Path

import anabranch as ab
from anabranch.run import start_pipeline
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.flows import check_sums, keyed_sums
from benchmarks.measure import Outcome
from benchmarks.recorder import Recorder


def measure(spec: Spec) -> Outcome:
    """Run the stream to its end, or until time is up."""
    data, work = Path(spec.data), Path(spec.work)
    column = spec.text("column")
    flow = keyed_sums(data, work / "out", spec.text("operator"), column)
    recorder = Recorder()
    started = time.perf_counter()
    pipeline = start_pipeline(
        flow,
        work / "state",
        ab.Settings(workers=WORKERS),
        master=MASTER,
        spark_conf=COMMON_CONF,
        watch=recorder.watch,
        reached=recorder.reached,
    )
    status = pipeline.wait(spec.seconds)
    cut = status.phase is ab.Phase.RUNNING
    if cut:
        pipeline.shutdown()
    seconds = time.perf_counter() - started
    keys = check_sums(pipeline, data, column)
    return Outcome(recorder.batches(), seconds, cut, {"keys": keys})


if __name__ == "__main__":
    case(measure)
