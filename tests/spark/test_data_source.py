"""Python data sources as sources: offsets, partitions, limits, forms of rows, and restarts."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, ReadMaxRows

import anabranch as ab
from anabranch.coordinator.parts.sources import positions_of
from anabranch.errors import ChangedDataflow, ReadFailed, UserFunctionFailed
from anabranch.journal.entry_names import PlanName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.protocol.sources import Limit
from anabranch.records.plan import Plan, decode_plan
from anabranch.records.slices import OffsetSlice
from anabranch.spark.sources.data_source import DataSourceEnumerator
from tests.spark.data_sources import (
    EndingNumbers,
    Numbers,
    NumbersReader,
    OldNumbers,
    SimpleNumbers,
    TypedNumbers,
    UnreadableNumbers,
    acknowledged,
    key_of,
    make_available,
)
from tests.spark.running import bag, commits, completed, failure, stopped_after

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

MODULUS = 2**61 - 1


def mix(key: Any, row: Any, state: Any) -> Any:
    """Another order of a key's rows gives another result."""
    mixed = ((state or 7) * 31 + row.n + 1) % MODULUS
    return (row.n, mixed), mixed


def expected(count: int) -> list[tuple[int, int]]:
    """What ``mix`` gives over the numbers in order, in plain Python."""
    states: dict[str, int] = defaultdict(lambda: 7)
    found = []
    for n in range(count):
        states[key_of(n)] = (states[key_of(n)] * 31 + n + 1) % MODULUS
        found.append((n, states[key_of(n)]))
    return found


def flow_of(source: Any, sink: ab.MemorySink, function: Any = mix) -> ab.Dataflow:
    flow = ab.Dataflow("numbers")
    flow.source("numbers", source).key_distribute("by-k", "k").stateful_map(
        "mix", function, state="mixed bigint", output="n bigint, mixed bigint"
    ).sink("out", sink)
    return flow


def read_rows(sink: ab.MemorySink) -> list[tuple[int, int]]:
    return [(row["n"], row["mixed"]) for row in sink.rows()]


def home_with(tmp_path: Path, count: int) -> Path:
    home = tmp_path / "home"
    make_available(home, count)
    return home


@pytest.mark.parametrize("form", ["tuple", "list", "row", "arrow"])
def test_every_form_of_rows(tmp_path: Path, form: str) -> None:
    home = home_with(tmp_path, 100)
    options = {"HOME": str(home), "parts": 3, "form": form}
    source = ab.PythonDataSource(Numbers, options, watch=False, max_rows_per_step=40)
    sink = ab.MemorySink()
    pipeline = completed(flow_of(source, sink), tmp_path / "state")
    assert pipeline.status().step == 3
    assert bag(read_rows(sink)) == bag(expected(100))
    assert acknowledged(home) == [40, 80, 100]
    assert (home / "stopped").exists()


def test_the_journal_has_offsets_and_nothing_that_runs(tmp_path: Path) -> None:
    home = home_with(tmp_path, 30)
    source = ab.PythonDataSource(Numbers, {"home": str(home)}, watch=False, max_rows_per_step=20)
    completed(flow_of(source, ab.MemorySink()), tmp_path / "state")
    assert [plan_of(tmp_path / "state", step).inputs[0].slices for step in (1, 2)] == [
        (OffsetSlice('{"n": 0}', '{"n": 20}'),),
        (OffsetSlice('{"n": 20}', '{"n": 30}'),),
    ]
    position = json.loads(bytes(positions_of(commits(tmp_path / "state")[-1])[0].position))
    assert json.loads(position["offset"]) == {"n": 30}


def plan_of(state: Path, step: int) -> Plan:
    return decode_plan(Journal(FileDirectory(state / "journal")).read(PlanName(step, 0)).body)


@pytest.mark.parametrize(
    ("source", "options", "steps"),
    [
        (Numbers, {}, 1),
        (Numbers, {"default": 25}, 4),
        (OldNumbers, {}, 1),
        (SimpleNumbers, {}, 10),
        (TypedNumbers, {"default": 50}, 2),
    ],
)
def test_the_readers_own_limits(
    tmp_path: Path, source: type, options: dict[str, Any], steps: int
) -> None:
    home = home_with(tmp_path, 100)
    sink = ab.MemorySink()
    described = ab.PythonDataSource(source, {"home": str(home), **options}, watch=False)
    pipeline = completed(flow_of(described, sink), tmp_path / "state")
    assert pipeline.status().step == steps
    assert bag(read_rows(sink)) == bag(expected(100))


@pytest.mark.parametrize(
    ("given", "own", "wanted", "report"),
    [
        (None, ReadMaxFiles(3), 10, ReadMaxFiles(3)),
        (None, ReadAllAvailable(), 10, ReadAllAvailable()),
        (None, ReadMaxRows(50), 10, ReadMaxRows(10)),
        (None, ReadMaxRows(50), None, ReadMaxRows(50)),
        (40, ReadMaxFiles(3), 10, ReadMaxRows(10)),
        (40, ReadMaxRows(50), None, ReadMaxRows(40)),
    ],
)
def test_a_reader_is_told_of_rows_only_where_it_is_used_to_them(
    tmp_path: Path, given: int | None, own: ReadLimit, wanted: int | None, report: ReadLimit
) -> None:
    heard: list[ReadLimit] = []

    class Reader(NumbersReader):
        def getDefaultReadLimit(self) -> ReadLimit:
            return own

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
            heard.append(limit)
            return start

    class Source(Numbers):
        def streamReader(self, schema: Any) -> NumbersReader:
            return Reader(self.options)

    options = {"home": str(home_with(tmp_path, 100))}
    source = ab.PythonDataSource(Source, options, "k string, n bigint", max_rows_per_step=given)
    DataSourceEnumerator("numbers", source, None).next(Limit(rows=wanted))
    assert [(type(each), vars(each)) for each in heard] == [(type(report), vars(report))]


@pytest.mark.parametrize("source", [OldNumbers, SimpleNumbers])
def test_a_limit_for_a_reader_that_takes_none(tmp_path: Path, source: type) -> None:
    home = home_with(tmp_path, 100)
    described = ab.PythonDataSource(source, {"home": str(home)}, max_rows_per_step=10)
    error = failure(flow_of(described, ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "'numbers'" in str(error)
    assert "max_rows_per_step" in str(error)


def test_a_source_that_fixes_its_end(tmp_path: Path) -> None:
    home = home_with(tmp_path, 50)
    source = ab.PythonDataSource(
        EndingNumbers, {"home": str(home)}, watch=False, max_rows_per_step=20
    )
    sink = ab.MemorySink()
    assert completed(flow_of(source, sink), tmp_path / "state").status().step == 3
    assert bag(read_rows(sink)) == bag(expected(50))


def test_an_instance_and_a_given_schema(tmp_path: Path) -> None:
    home = home_with(tmp_path, 20)
    source = ab.PythonDataSource(
        Numbers({"home": str(home)}), schema="k string, n bigint not null", watch=False
    )
    sink = ab.MemorySink()
    completed(flow_of(source, sink), tmp_path / "state")
    assert bag(read_rows(sink)) == bag(expected(20))


def test_it_goes_on_where_it_stopped_with_other_workers(tmp_path: Path) -> None:
    home = home_with(tmp_path, 50)
    sink = ab.MemorySink()
    options = {"home": str(home), "parts": 4, "form": "arrow"}
    live = ab.PythonDataSource(Numbers, options, max_rows_per_step=20)
    stopped_after(3, flow_of(live, sink), tmp_path / "state")
    make_available(home, 117)
    ending = ab.PythonDataSource(Numbers, options, max_rows_per_step=20, watch=False)
    completed(flow_of(ending, sink), tmp_path / "state", workers=3)
    assert bag(read_rows(sink)) == bag(expected(117))


def test_r5_only_what_is_committed_is_acknowledged(tmp_path: Path) -> None:
    """Step 3 fails: its end is planned and must not be acknowledged before it has run again."""

    def broken(key: Any, row: Any, state: Any) -> Any:
        if row.n == 45:
            raise ValueError("not yet")
        return mix(key, row, state)

    home = home_with(tmp_path, 100)
    sink = ab.MemorySink()
    source = ab.PythonDataSource(Numbers, {"home": str(home)}, watch=False, max_rows_per_step=20)
    assert isinstance(
        failure(flow_of(source, sink, broken), tmp_path / "state"), UserFunctionFailed
    )
    assert acknowledged(home) == [20, 40]
    completed(flow_of(source, sink), tmp_path / "state")
    # The last committed one again after the restart, then the rest.
    assert acknowledged(home) == [20, 40, 40, 60, 80, 100]
    assert bag(read_rows(sink)) == bag(expected(100))


def test_a_read_that_fails_names_source_and_partition(tmp_path: Path) -> None:
    home = home_with(tmp_path, 40)
    (home / "broken").write_text("35")
    sink = ab.MemorySink()
    options = {"home": str(home), "parts": 4}
    source = ab.PythonDataSource(Numbers, options, watch=False)
    error = failure(flow_of(source, sink), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "'numbers'" in str(error)
    assert "partition 3" in str(error)
    assert "number 35 cannot be read" in str(error)
    (home / "broken").unlink()
    completed(flow_of(source, sink), tmp_path / "state")
    assert bag(read_rows(sink)) == bag(expected(40))


@pytest.mark.parametrize("form", ["short", "wrong"])
def test_rows_that_do_not_fit(tmp_path: Path, form: str) -> None:
    home = home_with(tmp_path, 10)
    source = ab.PythonDataSource(Numbers, {"home": str(home), "form": form}, watch=False)
    error = failure(flow_of(source, ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "'numbers'" in str(error)
    assert "partition 0" in str(error)


def test_code_that_fails_on_the_driver(tmp_path: Path) -> None:
    home = home_with(tmp_path, 10)
    unknown = ab.PythonDataSource(UnreadableNumbers, {"home": str(home)})
    error = failure(flow_of(unknown, ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "no schema today" in str(error)
    known = ab.PythonDataSource(UnreadableNumbers, {"home": str(home)}, "k string, n bigint")
    error = failure(flow_of(known, ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "nobody is there" in str(error)
    assert "streamReader" in str(error)


def test_another_data_source_does_not_get_the_position(tmp_path: Path) -> None:
    home = home_with(tmp_path, 10)
    completed(
        flow_of(ab.PythonDataSource(Numbers, {"home": str(home)}, watch=False), ab.MemorySink()),
        tmp_path / "state",
    )
    other = ab.PythonDataSource(SimpleNumbers, {"home": str(home)}, watch=False)
    error = failure(flow_of(other, ab.MemorySink()), tmp_path / "state")
    assert isinstance(error, ChangedDataflow)
    assert "simple-numbers" in str(error)
