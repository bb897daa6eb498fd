"""Pipelines run to their end, and what they leave behind: for the tests on Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.journal.entry_names import CommitName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.records.commit import Commit, decode_commit
from anabranch.run import Reached, start_pipeline

PATIENCE = 120.0


def _started(
    flow: ab.Dataflow,
    directory: Path,
    *,
    workers: int,
    settings: ab.Settings | None = None,
    reached: Reached | None = None,
    **options: Any,
) -> ab.Pipeline:
    """``ab.run``; with ``reached`` what is inside it, which calls that at the points of a step."""
    if reached is None:
        return ab.run(flow, directory=directory, workers=workers, settings=settings, **options)
    chosen = replace(settings or ab.Settings(), workers=workers)
    return start_pipeline(flow, directory, chosen, reached=reached, **options)


def completed(
    flow: ab.Dataflow,
    directory: Path,
    *,
    workers: int = 2,
    bins: int = 16,
    patience: float = PATIENCE,
    **options: Any,
) -> ab.Pipeline:
    """Run until every source has ended; gives the pipeline, for its state."""
    pipeline = _started(flow, directory, workers=workers, bins=bins, **options)
    status = pipeline.wait(patience)
    assert status.phase is ab.Phase.COMPLETED
    assert status.published == status.step
    return pipeline


def failure(
    flow: ab.Dataflow, directory: Path, *, workers: int = 2, bins: int = 16, **options: Any
) -> ab.AnabranchError:
    """Run until it fails; gives the error, wherever it was raised."""
    try:
        pipeline = _started(flow, directory, workers=workers, bins=bins, **options)
        status = pipeline.wait(PATIENCE)
    except ab.AnabranchError as error:
        return error
    raise AssertionError(f"the pipeline did not fail: {status}")


def stopped_after(
    step: int,
    flow: ab.Dataflow,
    directory: Path,
    *,
    workers: int = 2,
    bins: int = 16,
    **options: Any,
) -> ab.Pipeline:
    """Run until a step is committed, then shut down; the input must not have more than that."""
    there = threading.Event()

    def watch(done: ab.StepDone) -> None:
        if done.step == step:
            there.set()

    pipeline = ab.run(flow, directory=directory, workers=workers, bins=bins, watch=watch, **options)
    while not there.wait(0.05):
        if pipeline.status().phase is not ab.Phase.RUNNING:
            raise AssertionError(f"it ended before step {step}: {pipeline.wait()}")
    status = pipeline.shutdown()
    assert (status.phase, status.step) == (ab.Phase.STOPPED, step)
    return pipeline


def eventually(wanted: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def commits(directory: Path) -> list[Commit]:
    """The commits that the journal has, in step order; some may go while they are read."""
    names = sorted(os.listdir(directory / "journal" / "commit" / "0"))
    journal = Journal(FileDirectory(directory / "journal"))
    found = [journal.find(CommitName(int(name))) for name in names]
    return [decode_commit(entry.body) for entry in found if entry is not None]


def counted(commit: Commit) -> dict[str, int]:
    """How many rows passed each place in a step."""
    return {count.place: count.rows for count in commit.counts}


def state_of(pipeline: ab.Pipeline, operator: str) -> dict[Any, Any]:
    """An operator's state: key → value, with one column as the plain value."""
    kept = pipeline.state_table(operator)
    return {row[0]: row[1] for row in rows_of(kept)}


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """A table's rows as tuples."""
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in table.columns]
    return list(zip(*columns, strict=True))


def bag(rows: Iterable[Any]) -> Counter[str]:
    """Rows without their order; two are the same when their text is, NaN and -0.0 included."""
    return Counter(repr(exact(row)) for row in rows)


def exact(value: Any) -> Any:
    """A value whose text tells everything about it: there are several UTCs."""
    match value:
        case dt.datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(dt.UTC)
        case tuple():
            return tuple(exact(part) for part in value)
        case list():
            return [exact(part) for part in value]
        case dict():
            return {name: exact(part) for name, part in value.items()}
        case _:
            return value


def write_json(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put a file of JSON lines in place, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}"
    aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
    aside.rename(path)


def published(directory: Path) -> list[dict[str, Any]]:
    """All rows that a file sink has published, files in step order; without Spark."""
    rows: list[dict[str, Any]] = []
    for path in sorted(directory.iterdir()):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist(maps_as_pydicts="strict")
        elif path.suffix == ".json":
            rows += [json.loads(line) for line in path.read_text().splitlines()]
    return rows


def jobs(spark: SparkSession) -> int:
    """How many jobs Spark has ever started."""
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    return int(scheduler.numTotalJobs())
