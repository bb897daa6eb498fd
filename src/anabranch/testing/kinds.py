"""A scenario with every kind of source and sink that a node treats in its own way.

Files that Spark reads and a Python data source; rows of a union of both, and of the files alone;
a callback, files that Spark writes, files as they were staged, and one in memory. It depends on the
schedule in which step something is read, so rows are compared over all steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from anabranch.dataflow.flow import Dataflow
from anabranch.sinks.callback import CallbackSink
from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink
from anabranch.sources.files import FileSource
from anabranch.sources.python_data_source import PythonDataSource
from anabranch.testing.plane.plain_frames import Recorder
from anabranch.testing.scenario import Outcome, Row, Scenario

FILES = 8
OFFSETS = 12
ROWS = "k string, n bigint"


def kinds(script: int = 0) -> Scenario:
    """Rows of a few keys, by files and by offsets, the same for the same ``script``."""
    random = Random(script)
    files = [_drawn(random) for _ in range(FILES)]
    spans = [_drawn(random) for _ in range(OFFSETS)]

    def make(directory: Path) -> Dataflow:
        flow = Dataflow("kinds")
        inputs = _written(directory.with_name("input"), files)
        found = flow.source(
            "files", FileSource(inputs, "json", ROWS, watch=False, max_files_per_step=2)
        )
        told = flow.source("spans", PythonDataSource(Spans(spans), None, ROWS, watch=False))
        sums = found.key_distribute("by-k", "k").stateful_map(
            "sums", running_sum, state="total bigint", output="k string, total bigint"
        )
        sums.sink("called", CallbackSink(Recorder()))
        sums.sink("written", FileSink(directory / "written", format="csv"))
        both = flow.union("both", file=found, span=told)
        both.where("n > 0").sink("rows", FileSink(directory / "rows", format="json"))
        (
            both.key_distribute("by-key", "k")
            .aggregate("most", n="count(*)", most="max(n)")
            .sink("mosts", MemorySink())
        )
        return flow

    def check(outcome: Outcome) -> None:
        wanted, totals = _sums(files)
        for sink in ("called", "written"):
            _compare(sink, outcome, wanted)
        every = [("file", *row) for page in files for row in page]
        every += [("span", *row) for page in spans for row in page]
        _compare("rows", outcome, [row for row in every if row[2] > 0])
        state = {row["k"]: row["total"] for row in outcome.state["sums"]}
        assert state == totals, f"R9: state of 'sums' is {state}, not {totals}"
        most = {row["k"]: (row["n"], row["most"]) for row in outcome.state["most"]}
        rows = {k: [n for _, key, n in every if key == k] for k in {row[1] for row in every}}
        counted = {k: (len(numbers), max(numbers)) for k, numbers in rows.items()}
        assert most == counted, f"R9: state of 'most' is {most}, not {counted}"

    return Scenario(make, check)


def running_sum(key: Any, row: Any, total: int | None) -> Any:  # noqa: ANN401
    """The sum of a key so far."""
    total = (total or 0) + row.n
    return (key.k, total), total


class Spans:
    """A Python data source: rows between offsets, in two partitions, one offset at a time."""

    def __init__(self, pages: Sequence[Sequence[Row]]) -> None:
        """``pages`` are the rows from each offset to the next."""
        self._pages = pages

    @classmethod
    def name(cls) -> str:
        """What offsets are known by."""
        return "spans"

    def streamReader(self, schema: object) -> Spans:
        """It is its own reader."""
        return self

    def simpleStreamReader(self, schema: object) -> Spans:
        """Never asked for."""
        raise NotImplementedError

    def initialOffset(self) -> dict[str, int]:
        """Before the first page."""
        return {"page": 0}

    def latestOffset(self, start: Mapping[str, int], limit: object) -> dict[str, int]:
        """One page further."""
        return {"page": min(start["page"] + 1, len(self._pages))}

    def getDefaultReadLimit(self) -> None:
        """It has none."""

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[list[Row]]:
        """Every other row of the pages."""
        rows = [row for page in self._pages[start["page"] : end["page"]] for row in page]
        return [rows[::2], rows[1::2]]

    def read(self, partition: list[Row]) -> Iterator[Row]:
        """The rows of a partition."""
        return iter(partition)

    def commit(self, end: Mapping[str, int]) -> None:
        """Keep everything."""

    def stop(self) -> None:
        """Let go of nothing."""


def _drawn(random: Random) -> list[Row]:
    return [(random.choice("abcde"), random.randint(-2, 9)) for _ in range(random.randint(1, 4))]


def _written(directory: Path, files: Sequence[Sequence[Row]]) -> Path:
    """The directory with the input files, as old as their numbers."""
    directory.mkdir(exist_ok=True)
    for number, rows in enumerate(files):
        path = directory / f"{number:03d}.json"
        path.write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows))
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    return directory


def _sums(files: Sequence[Sequence[Row]]) -> tuple[list[Row], dict[str, int]]:
    totals: dict[str, int] = {}
    given: list[Row] = []
    for page in files:
        for k, n in page:
            totals[k] = totals.get(k, 0) + n
            given.append((k, totals[k]))
    return given, totals


def _compare(sink: str, outcome: Outcome, wanted: Sequence[Row]) -> None:
    rows = sorted(row for step in outcome.output[sink].values() for row in step)
    rule = "R9" if {*rows} - {*wanted} else "R6"
    assert rows == sorted(wanted), f"{rule}: sink {sink!r} has {rows}, not {sorted(wanted)}"
