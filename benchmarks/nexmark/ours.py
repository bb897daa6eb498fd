"""Anabranch: the queries of ``examples/nexmark``, Parquet in and Parquet out."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.run import start_pipeline
from benchmarks.child import COMMON_CONF, MASTER, WORKERS, Spec, case
from benchmarks.data import FILES_PER_BATCH
from benchmarks.measure import Batch, Outcome
from benchmarks.nexmark.data import SCHEMAS
from benchmarks.recorder import Recorder
from examples.nexmark.events import LATENESS

COUNTS = {"n": "count(*)", "highest": "max(price)"}


class FileEvents:
    """What ``examples.nexmark.events.Events`` is, out of files: those that a query asks for."""

    def __init__(self, flow: ab.Dataflow, data: Path) -> None:
        """Read the directories of ``data``, each with one kind of events."""
        self.flow = flow
        self._data = data

    @cached_property
    def people(self) -> Any:  # noqa: ANN401 (streams have no public type)
        """Those who have joined."""
        return self._files("person")

    @cached_property
    def auctions(self) -> Any:  # noqa: ANN401
        """The auctions that they have opened."""
        return self._files("auction")

    @cached_property
    def bids(self) -> Any:  # noqa: ANN401
        """What they have bid."""
        return self._files("bid")

    def _files(self, kind: str) -> Any:  # noqa: ANN401
        source = ab.FileSource(
            self._data / kind,
            "parquet",
            SCHEMAS[kind],
            watch=False,
            max_files_per_step=FILES_PER_BATCH,
        )
        return self.flow.source(kind, source).assign_timestamps("at", lateness=LATENESS)


def flow_of(query: str, data: Path, output: Path) -> ab.Dataflow:
    """A query over the files: one of the examples, or counts per auction to see what windows cost.

    ``tumbling`` counts by windows of ten seconds, ``total`` without windows.
    """
    flow = ab.Dataflow("benchmark")
    events = FileEvents(flow, data)
    if query in ("tumbling", "total"):
        bids = events.bids.key_distribute("by-auction", "auction")
        if query == "tumbling":
            bids = bids.window(ab.tumbling("10 seconds"))
        rows = bids.aggregate("counts", **COUNTS)
    else:
        rows = importlib.import_module(f"examples.nexmark.{query}").query(events)
    rows.sink("out", ab.FileSink(output, format="parquet"))
    return flow


def measure(spec: Spec) -> Outcome:
    """Run a query to the end of its input, or until time is up."""
    recorder = Recorder()
    started = time.perf_counter()
    pipeline = run(spec, recorder)
    cut = pipeline.wait(spec.seconds).phase is ab.Phase.RUNNING
    if cut:
        pipeline.shutdown()
    seconds = time.perf_counter() - started
    return Outcome(with_rows(recorder.batches()), seconds, cut, {"steps": len(recorder.steps)})


def run(spec: Spec, recorder: Recorder) -> ab.Pipeline:
    """Start the query of a case."""
    work = Path(spec.work)
    return start_pipeline(
        flow_of(spec.text("query"), Path(spec.data), work / "out"),
        work / "state",
        ab.Settings(workers=WORKERS),
        master=MASTER,
        spark_conf=COMMON_CONF,
        watch=recorder.watch,
        reached=recorder.reached,
    )


def with_rows(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """The batches that read rows; the time of others counts for the batch before them."""
    found: list[Batch] = []
    for batch in batches:
        if batch.rows or not found:
            found.append(batch)
        else:
            last = found[-1]
            found[-1] = Batch(last.rows, last.seconds + batch.seconds, last.parts)
    return tuple(found)


if __name__ == "__main__":
    case(measure)
