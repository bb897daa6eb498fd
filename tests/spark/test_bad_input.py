"""Bad input, bad code, bad disks: one clear error each, nothing damaged, and a way on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import (
    ChangedDataflow,
    CorruptEntry,
    CorruptRun,
    CorruptStaged,
    DirectoryInUse,
    DiskFull,
    FileChanged,
    FileGone,
    FutureFormat,
    MissingRun,
    OtherDataflow,
    OutputMismatch,
    ReadFailed,
    SourceUnavailable,
    StepFailed,
    StoreUnavailable,
    UserFunctionFailed,
)
from tests.spark.running import (
    bag,
    commits,
    completed,
    failure,
    published,
    rows_of,
    state_of,
    write_json,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "k string, v bigint"
PAGES = [
    [("a", 1), ("b", 2), ("a", 3)],
    [("c", 4), ("b", 5)],
    [("a", 6), ("d", 7), ("a", 8), ("c", 9)],
]
EMITTED = [
    ("a", 1), ("b", 2), ("a", 4), ("c", 4), ("b", 7), ("a", 10), ("d", 7), ("a", 18), ("c", 13)
]  # fmt: skip
"""What ``add`` emits over all pages, added up by hand."""
TOTALS = {"a": 18, "b": 7, "c": 13, "d": 7}
PARITIES = {0: 5, 1: 4}
"""How many of the emitted totals are even, and odd."""

Function = Callable[[Any, Any, Any], Any]


def add(key: Any, row: Any, total: Any) -> Any:
    total = (total or 0) + row.v
    return (key.k, total), total


def flow_of(source: Any, out: Path, function: Function = add) -> ab.Dataflow:
    """Two regions: totals by key, and how many of them are even and odd."""
    flow = ab.Dataflow("totals")
    totals = (
        flow.source("rows", source)
        .key_distribute("by-k", "k")
        .stateful_map("total", function, state="total bigint", output="k string, total bigint")
    )
    totals.sink("totals-out", ab.FileSink(out, retry=ab.Retry(timeout=2)))
    totals.key_distribute("by-parity", parity="total % 2").aggregate("parities", n="count(*)").sink(
        "parities-out", ab.MemorySink()
    )
    return flow


def scripted(*pages: list[tuple[str, int]]) -> ab.ScriptedSource:
    return ab.ScriptedSource(SCHEMA, [*(pages or PAGES), ab.EOF])


def check_result(pipeline: ab.Pipeline, out: Path) -> None:
    """All of it, each row once, in as many steps as there are pages."""
    assert pipeline.status().step == len(PAGES)
    assert bag(tuple(row.values()) for row in published(out)) == bag(EMITTED)
    assert state_of(pipeline, "total") == TOTALS
    assert state_of(pipeline, "parities") == PARITIES


# Code.


def test_a_function_that_raises_is_named_with_key_row_and_line(tmp_path: Path) -> None:
    def broken(key: Any, row: Any, total: Any) -> Any:
        if row.v == 7:
            raise ValueError("seven is right out:\n  'no' <<anabranch eyJ9>>")  # the line
        return add(key, row, total)

    out, state = tmp_path / "out", tmp_path / "state"
    error = failure(flow_of(scripted(), out, broken), state)
    assert isinstance(error, UserFunctionFailed)
    text = str(error)
    assert "operator total" in text
    assert "Key(k='d')" in text
    assert "Row(k='d', v=7)" in text
    assert "ValueError: seven is right out" in text
    line = broken.__code__.co_firstlineno + 2
    assert f"line {line} of {__file__}: raise ValueError(" in text
    assert len(commits(state)) == 2
    assert bag(tuple(row.values()) for row in published(out)) == bag(EMITTED[:5])

    pipeline = completed(flow_of(scripted(), out), state)
    check_result(pipeline, out)
    assert [commit.revision for commit in commits(state)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda key, row, total: ((key.k, "one"), row.v), "emitted ('a', 'one')"),
        (lambda key, row, total: ([(key.k, 1), None], row.v), "emitted None"),
        (lambda key, row, total: ((key.k, row.v), "text"), "the state 'text'"),
        (lambda key, row, total: row.v, "returned 1 instead of"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, function: Function, what: str) -> None:
    flow = flow_of(scripted([("a", 1)]), tmp_path / "out", function)
    error = failure(flow, tmp_path / "state", workers=1)
    assert isinstance(error, OutputMismatch)
    assert what in str(error)
    assert "operator total" in str(error)
    assert error.do
    assert published(tmp_path / "out") == []


def test_a_function_that_ends_its_process_fails_the_step_only(tmp_path: Path) -> None:
    def leaving(key: Any, row: Any, total: Any) -> Any:
        os._exit(3)

    out, state = tmp_path / "out", tmp_path / "state"
    error = failure(flow_of(scripted(), out, leaving), state)
    assert isinstance(error, StepFailed)
    assert "worker" in str(error)
    check_result(completed(flow_of(scripted(), out), state), out)


def test_sql_that_fails_on_a_row_fails_the_step(tmp_path: Path) -> None:
    def flow(condition: str) -> ab.Dataflow:
        made = ab.Dataflow("sql")
        made.source("rows", scripted()).where(condition).sink("out", sink)
        return made

    sink = ab.MemorySink()
    error = failure(flow("10 / (v - 4) > 0"), tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert "DIVIDE_BY_ZERO" in str(error) or "Division by zero" in str(error)
    assert "\n" not in str(error)
    assert len(sink.rows()) == 0
    completed(flow("v > 4"), tmp_path / "state")
    assert bag(row["v"] for row in sink.rows()) == bag([5, 6, 7, 8, 9])


# Input.


def files_in(directory: Path) -> ab.FileSource:
    """A file for each page, and a source that reads one a step."""
    for number, page in enumerate(PAGES):
        path = directory / f"{number}.json"
        write_json(path, [dict(zip("kv", row, strict=True)) for row in page])
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    return source_in(directory)


def source_in(directory: Path, **options: Any) -> ab.FileSource:
    return ab.FileSource(
        directory, "json", SCHEMA, watch=False, max_files_per_step=1, options=options
    )


def test_a_malformed_line_names_its_file(tmp_path: Path) -> None:
    source = files_in(tmp_path / "in")
    bad = tmp_path / "in" / "1.json"
    bad.write_text('{"k": "c", "v": 4}\n{"k": "b", "v"\n{"k": "b", "v": 5}\n')
    os.utime(bad, ns=(10**18 + 1, 10**18 + 1))
    out, state = tmp_path / "out", tmp_path / "state"
    error = failure(flow_of(source, out), state)
    assert isinstance(error, ReadFailed)
    assert "/in/1.json" in str(error)
    assert "\n" not in str(error)
    assert len(commits(state)) == 1
    # Spark's own way to leave such rows out works too: the same file is read again, otherwise.
    lenient = source_in(tmp_path / "in", mode="DROPMALFORMED")
    check_result(completed(flow_of(lenient, out), state), out)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    for number, page in enumerate(PAGES):
        table = pa.table({"k": [k for k, _ in page], "v": [v for _, v in page]})
        pq.write_table(table, directory / f"{number}.parquet")
    damaged = directory / "3.parquet"
    damaged.write_bytes((directory / "0.parquet").read_bytes()[:-30])
    out, state = tmp_path / "out", tmp_path / "state"

    def flow(**options: object) -> ab.Dataflow:
        source = ab.FileSource(
            directory, "parquet", SCHEMA, watch=False, max_files_per_step=1, options=options
        )
        return flow_of(source, out)

    error = failure(flow(), state)
    assert isinstance(error, ReadFailed)
    assert "/in/3.parquet" in str(error)
    assert "\n" not in str(error)
    assert error.do is not None
    assert "ignoreCorruptFiles" in error.do
    pipeline = completed(flow(ignoreCorruptFiles=True), state)
    assert state_of(pipeline, "total") == TOTALS


def test_a_value_of_the_wrong_type_names_its_file(tmp_path: Path) -> None:
    write_json(tmp_path / "in" / "x.json", [{"k": "a", "v": "many"}])
    error = failure(flow_of(source_in(tmp_path / "in"), tmp_path / "out"), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "/in/x.json" in str(error)


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_is_not_as_it_was_planned(tmp_path: Path, removed: bool) -> None:
    source = files_in(tmp_path / "in")
    path = tmp_path / "in" / "1.json"
    kept = path.read_text()

    def reached(point: str, step: int) -> None:
        if (point, step) == ("planned", 2):
            if removed:
                path.unlink()
            else:
                path.write_text(kept + '{"k": "z", "v": 100}\n')

    out, state = tmp_path / "out", tmp_path / "state"
    error = failure(flow_of(source, out), state, reached=reached)
    assert isinstance(error, FileGone if removed else FileChanged)
    assert str(path) in str(error)
    assert len(commits(state)) == 1
    # It stays an error as long as the file is not the planned one.
    assert type(failure(flow_of(source, out), state)) is type(error)
    path.write_text(kept)
    os.utime(path, ns=(10**18 + 1, 10**18 + 1))
    check_result(completed(flow_of(source, out), state), out)


def test_a_file_that_changes_while_its_step_runs_is_not_committed(tmp_path: Path) -> None:
    source = files_in(tmp_path / "in")
    path = tmp_path / "in" / "1.json"

    def changing(key: Any, row: Any, total: Any) -> Any:
        if row.v == 4:
            path.write_text('{"k": "z", "v": 100}\n')
        return add(key, row, total)

    error = failure(flow_of(source, tmp_path / "out", changing), tmp_path / "state")
    assert isinstance(error, FileChanged)
    assert len(commits(tmp_path / "state")) == 1


def test_a_missing_input_directory(tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    error = failure(flow_of(source_in(tmp_path / "in"), out), state)
    assert isinstance(error, SourceUnavailable)
    assert str(tmp_path / "in") in str(error)
    source = files_in(tmp_path / "in")
    check_result(completed(flow_of(source, out), state), out)


# Output.


def test_an_output_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    out, state = tmp_path / "file" / "out", tmp_path / "state"
    error = failure(flow_of(scripted(), out), state)
    assert isinstance(error, StoreUnavailable)
    assert str(tmp_path / "file") in str(error)
    (tmp_path / "file").unlink()
    check_result(completed(flow_of(scripted(), out), state), out)


def test_an_output_directory_that_goes_away(tmp_path: Path) -> None:
    """What is committed waits in the store, and is published when the directory is back."""
    out, state = tmp_path / "out", tmp_path / "state"

    def reached(point: str, step: int) -> None:
        if (point, step) == ("committed", 2):
            out.rename(tmp_path / "away")
            out.write_text("in the way")

    error = failure(flow_of(scripted(), out), state, reached=reached)
    assert isinstance(error, StoreUnavailable)
    assert str(out) in str(error)
    out.unlink()
    (tmp_path / "away").rename(out)
    check_result(completed(flow_of(scripted(), out), state), out)


# Disks.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command to make a small disk with")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_fills_up_with_state(small_disk: Path, tmp_path: Path) -> None:
    def growing(key: Any, row: Any, total: Any) -> Any:
        return (key.k, row.v), (total or "") + random_text(row.v, 200_000)

    def flow() -> ab.Dataflow:
        made = ab.Dataflow("growing")
        made.source("rows", scripted()).key_distribute("by-k", "k").stateful_map(
            "grow", growing, state="text string", output="k string, v bigint"
        ).sink("out", ab.FileSink(tmp_path / "out"))
        return made

    state = small_disk / "state"
    error = failure(flow(), state)
    assert isinstance(error, DiskFull)
    assert str(state / "run") in str(error)
    assert "space" in str(error).lower()
    committed = len(commits(state))
    assert committed < len(PAGES)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    pipeline = completed(flow(), state)
    assert bag(tuple(row.values()) for row in published(tmp_path / "out")) == (
        bag(row for page in PAGES for row in page)
    )
    assert {k: len(text) for k, text in rows_of(pipeline.state_table("grow"))} == {
        "a": 800_000,
        "b": 400_000,
        "c": 400_000,
        "d": 200_000,
    }


def random_text(seed: int, size: int) -> str:
    return (f"{seed} " * size)[:size]


@pytest.mark.parametrize("point", ["planned", "ran"])
def test_a_disk_that_is_full_at_a_point(small_disk: Path, tmp_path: Path, point: str) -> None:
    """A full disk before the runs of step 2 are written, and before its commit is."""
    filler = small_disk / "filler"

    def reached(at: str, step: int) -> None:
        if (at, step) == (point, 2):
            with open(filler, "wb", buffering=0) as file:
                while True:
                    try:
                        file.write(b"x" * 512)
                    except OSError:
                        return

    out, state = tmp_path / "out", small_disk / "state"
    error = failure(flow_of(scripted(), out), state, reached=reached)
    assert isinstance(error, DiskFull)
    assert str(state) in str(error)
    assert len(commits(state)) == 1
    filler.unlink()
    check_result(completed(flow_of(scripted(), out), state), out)


# The pipeline's directory.


@pytest.fixture(scope="module")
def half_done(
    tmp_path_factory: pytest.TempPathFactory, _started_spark: SparkSession
) -> tuple[Path, Path]:
    """Two steps committed, the third planned: its function raised."""

    def broken(key: Any, row: Any, total: Any) -> Any:
        if row.v > 5:
            raise RuntimeError("not yet")
        return add(key, row, total)

    home = tmp_path_factory.mktemp("half-done")
    assert isinstance(
        failure(flow_of(scripted(), home / "out", broken), home / "state"), UserFunctionFailed
    )
    return home / "state", home / "out"


@pytest.fixture
def copied(half_done: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """State and output of ``half_done``, to be damaged."""
    for path in half_done:
        shutil.copytree(path, tmp_path / path.name)
    return tmp_path / "state", tmp_path / "out"


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        # Who has led, and the pickled dataflows, are not what a pipeline is made of.
        if path.is_file() and {"leader", "code"}.isdisjoint(path.parts)
    }


def refused(flow: ab.Dataflow, state: Path) -> ab.AnabranchError:
    """The error of a run that must not change a file; it may only add some."""
    before = contents(state)
    error = failure(flow, state)
    after = contents(state)
    assert {name: after.get(name) for name in before} == before
    return error


def newest(directory: Path, pattern: str) -> Path:
    return max(directory.glob(pattern))


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :]


def damaged(path: Path, damage: Callable[[bytes], bytes] | None) -> None:
    """Damage a file, or remove it."""
    whole = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(whole))


def tomorrow(data: bytes) -> bytes:
    """An entry that a newer version wrote, of which this one knows only how it begins."""
    assert data.startswith(b"anabranch 3 ")
    return data.replace(b"anabranch 3 ", b"anabranch 4 ", 1) + b"more"


@pytest.mark.parametrize(
    ("pattern", "damage", "kind"),
    [
        ("run/total/000000000002-*", truncate, CorruptRun),
        ("run/total/000000000002-*", flip, CorruptRun),
        ("run/total/000000000002-*", None, MissingRun),
        ("journal/commit/0/000000000002", truncate, CorruptEntry),
        ("journal/commit/0/000000000002", flip, CorruptEntry),
        ("journal/commit/0/000000000002", tomorrow, FutureFormat),
        ("journal/plan/0/000000000003.0", truncate, CorruptEntry),
        ("journal/plan/0/000000000003.0", flip, CorruptEntry),
        ("journal/plan/0/000000000003.0", tomorrow, FutureFormat),
        ("journal/identity", truncate, CorruptEntry),
        ("journal/identity", flip, CorruptEntry),
        ("journal/identity", tomorrow, FutureFormat),
    ],
)
def test_a_damaged_file_is_named_and_harmless_once_it_is_restored(
    copied: tuple[Path, Path],
    pattern: str,
    damage: Callable[[bytes], bytes] | None,
    kind: type[ab.AnabranchError],
) -> None:
    state, out = copied
    path = newest(state, pattern)
    whole = path.read_bytes()
    damaged(path, damage)
    if pattern.startswith("run/"):
        # Else the state would be computed again, from the first step on.
        (state / "journal/plan/0/000000000001.0").unlink()
    error = refused(flow_of(scripted(), out), state)
    assert type(error) is kind
    assert str(path) in str(error)
    assert error.do
    path.write_bytes(whole)
    check_result(completed(flow_of(scripted(), out), state), out)


@pytest.mark.parametrize("damage", [truncate, flip, None])
def test_state_that_is_lost_is_computed_again(
    copied: tuple[Path, Path], damage: Callable[[bytes], bytes] | None
) -> None:
    state, out = copied
    damaged(newest(state, "run/total/000000000002-*"), damage)
    check_result(completed(flow_of(scripted(), out), state), out)
    assert [path.name for path in (state / "journal/repair/0").iterdir()] == ["000000000002.1"]


@pytest.mark.parametrize("damage", [truncate, flip])
def test_damaged_output_is_not_published(
    copied: tuple[Path, Path], damage: Callable[[bytes], bytes]
) -> None:
    """Step 2 as if the process had ended between its commit and its publishing."""
    state, out = copied
    shutil.rmtree(state / "journal" / "published")
    (out / "_manifest" / "step-000000000002.json").unlink()
    for path in out.glob("step-000000000002-*"):
        path.unlink()
    staged = newest(state, "stage/totals-out/000000000002-*")
    whole = staged.read_bytes()
    staged.write_bytes(damage(whole))
    error = refused(flow_of(scripted(), out), state)
    assert isinstance(error, CorruptStaged)
    assert str(staged) in str(error)
    staged.write_bytes(whole)
    check_result(completed(flow_of(scripted(), out), state), out)


def test_damaged_code_is_written_anew(copied: tuple[Path, Path]) -> None:
    state, out = copied
    flow = flow_of(scripted(), out)
    assert failure(flow, state, reached=_end_at("planned")) is not None
    for path in (state / "code").iterdir():
        path.write_bytes(flip(path.read_bytes()))
    check_result(completed(flow, state), out)


class _Ended(ab.AnabranchError):
    """A run that a test ends at some point."""


def _end_at(wanted: str) -> Callable[[str, int], None]:
    def reached(point: str, step: int) -> None:
        if point == wanted:
            raise _Ended("as the test wants it")

    return reached


def test_the_directory_of_another_dataflow(copied: tuple[Path, Path]) -> None:
    state, out = copied
    other = ab.Dataflow("other")
    other.source("rows", scripted()).sink("totals-out", ab.MemorySink())
    error = refused(other, state)
    assert isinstance(error, OtherDataflow)
    assert re.search(r"'totals'.*'other'", str(error))
    assert str(state) in str(error)
    check_result(completed(flow_of(scripted(), out), state), out)


def changed_flow(
    out: Path,
    *,
    source: str = "rows",
    region: str = "by-k",
    key: str = "k",
    operator: str | None = "total",
    state: str = "total bigint",
    aggregate: str | None = "count(*)",
) -> ab.Dataflow:
    """The dataflow of ``flow_of`` with something changed."""
    flow = ab.Dataflow("totals")
    rows = flow.source(source, scripted()).key_distribute(region, k=key)
    totals = rows
    if operator is not None:
        totals = rows.stateful_map(operator, add, state=state, output="k string, total bigint")
    totals.sink("totals-out", ab.FileSink(out, retry=ab.Retry(timeout=2)))
    if operator is not None and aggregate is not None:
        totals.key_distribute("by-parity", parity="total % 2").aggregate(
            "parities", n=aggregate
        ).sink("parities-out", ab.MemorySink())
    return flow


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"operator": None}, "'total' is gone"),
        ({"operator": "sum"}, "'total' is gone"),
        ({"aggregate": None}, "'parities' is gone"),
        ({"state": "total int"}, "another state"),
        ({"state": "sum bigint"}, "another state"),
        ({"state": "total bigint, n bigint"}, "another state"),
        ({"key": "cast(k as binary)"}, "another key "),
        ({"region": "per-k"}, "another region"),
        ({"aggregate": "max(total)"}, "another kind"),
        ({"source": "lines"}, "'rows' is gone"),
    ],
)
def test_a_changed_dataflow(
    half_done: tuple[Path, Path], changes: dict[str, Any], what: str
) -> None:
    """Refused before anything runs, so nothing needs to be copied."""
    state, out = half_done
    error = refused(changed_flow(out, **changes), state)
    assert isinstance(error, ChangedDataflow)
    assert what in str(error)
    assert str(state) in str(error)
    assert error.do


def test_another_number_of_bins(half_done: tuple[Path, Path]) -> None:
    state, out = half_done
    error = failure(flow_of(scripted(), out), state, bins=32)
    assert isinstance(error, ChangedDataflow)
    assert "bins=16" in str(error)
    assert str(state) in str(error)


def test_a_directory_that_a_live_process_uses(copied: tuple[Path, Path]) -> None:
    state, out = copied
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, pathlib\n"
            "from anabranch.journal.file_directory import FileDirectory\n"
            "from anabranch.journal.leadership import Leadership\n"
            "leader = Leadership(FileDirectory(pathlib.Path(sys.argv[1]) / 'journal'))\n"
            "leader.lead(False, 'host', os.getpid(), 0)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
            str(state),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        error = refused(flow_of(scripted(), out), state)
        assert isinstance(error, DirectoryInUse)
        assert str(holder.pid) in str(error)
        assert str(state) in str(error)
        holder.kill()
        holder.wait()
    check_result(completed(flow_of(scripted(), out), state), out)


def test_a_directory_that_this_process_uses(tmp_path: Path) -> None:
    flow = flow_of(ab.ScriptedSource(SCHEMA, [ab.PAUSE]), tmp_path / "out")
    first = ab.run(flow, directory=tmp_path / "state", bins=16)
    try:
        assert isinstance(failure(flow, tmp_path / "state"), DirectoryInUse)
    finally:
        assert first.shutdown().phase is ab.Phase.STOPPED


def _amounts(base: Path, amount: str) -> ab.Dataflow:
    flow = ab.Dataflow("amounts")
    source = ab.FileSource(base / "in", format="json", schema="k string, v string", watch=False)
    rows = flow.source("in", source).where("k <> 'x'").select("*", "upper(k) as big")
    rows = rows.with_columns(amount=amount)
    rows.key_distribute("by-k", "k").aggregate("sums", total="sum(amount)").sink(
        "out", ab.MemorySink()
    )
    return flow


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("cast(v as bigint) * 2", "try_cast(v as bigint) * 2"), ("10 / (v - 3)", "10 / (v - 4)")],
)
def test_an_expression_without_a_value_names_operator_file_and_row(
    tmp_path: Path, wrong: str, right: str
) -> None:
    bad = "three" if "cast" in wrong else "3"
    (tmp_path / "in").mkdir()
    write_json(tmp_path / "in" / "1.json", [{"k": "a", "v": "1"}, {"k": "b"}])
    write_json(tmp_path / "in" / "2.json", [{"k": "a", "v": "2"}, {"k": "c", "v": bad}])
    error = failure(_amounts(tmp_path, wrong), tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert error.what.startswith("A SQL expression has no value for a row: [")
    assert error.where is not None
    assert f'with_columns(amount="{wrong}") after source "in", file ' in error.where
    assert "/in/2.json" in error.where
    assert f"row {{'k': 'c', 'v': '{bad}', 'big': 'C'}}" in error.where
    # What it tells to do works.
    pipeline = completed(_amounts(tmp_path, right), tmp_path / "state")
    assert {row["k"] for row in pipeline.state_table("sums").to_pylist()} == {"a", "b", "c"}


def test_an_expression_without_a_value_names_the_operator_if_there_is_no_file(
    tmp_path: Path,
) -> None:
    flow = ab.Dataflow("amounts")
    source = ab.ScriptedSource("k string, v string", [[("a", "1"), ("b", "two")], ab.EOF])
    rows = flow.source("in", source).key_distribute("by-v", v="cast(v as bigint)")
    rows.aggregate("counts", n="count(*)").sink("out", ab.MemorySink())
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, StepFailed)
    assert error.where == 'key of distribution "by-v"'
    assert "'two'" in error.what
