"""Scripts: pages, pauses, failures that count across processes, the end."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import ChangedDataflow, ReadFailed
from anabranch.protocol.sources import Batch, PythonSource
from anabranch.records.slices import RangeSlice
from anabranch.sources.scripted import ABORT, EOF, PAUSE, Fail, ScriptedSource
from tests.sources.memory_log import MemoryLog

SCHEMA = "k string, v bigint"


def play(source: ScriptedSource, calls: int) -> list[Batch]:
    """Call `next` that often, with a restart before every call."""
    batches = []
    position: bytes | None = None
    for _ in range(calls):
        batches.append(source.open(position, MemoryLog()).next())
        position = batches[-1].position
    return batches


def read(source: ScriptedSource, slice: RangeSlice) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in source.read(slice) for row in batch.to_pylist()]


def test_a_story(tmp_path: Path) -> None:
    source = ScriptedSource(
        SCHEMA,
        [[("a", 1), ("b", 2)], PAUSE, Fail("boom", times=1), [("a", 3)], EOF],
        scratch=tmp_path,
    )
    batches = play(source, 4)
    assert [batch.slices for batch in batches] == [
        (RangeSlice(0, 0, 2),),
        (),
        (RangeSlice(0, 2, 3),),
        (),
    ]
    assert [batch.rows for batch in batches] == [2, 0, 1, 0]
    assert [batch.ended for batch in batches] == [False, False, True, True]
    assert read(source, RangeSlice(0, 0, 2)) == [("a", 1), ("b", 2)]
    with pytest.raises(ReadFailed, match=r"boom .*rows 2 to 3"):
        read(source, RangeSlice(0, 2, 3))
    assert read(source, RangeSlice(0, 2, 3)) == [("a", 3)]


def test_one_enumerator_and_restarts_tell_the_same_story() -> None:
    source = ScriptedSource(SCHEMA, [PAUSE, [("a", 1)], PAUSE, PAUSE, ABORT, [("b", 2)], EOF])
    enumerator = source.open(None, MemoryLog())
    assert [enumerator.next() for _ in range(7)] == play(source, 7)


def test_without_eof_it_stays_open() -> None:
    batches = play(ScriptedSource(SCHEMA, [[("a", 1)]]), 3)
    assert [batch.ended for batch in batches] == [False, False, False]
    assert [len(batch.slices) for batch in batches] == [1, 0, 0]


@pytest.mark.parametrize("script", [[EOF], [PAUSE, EOF]])
def test_a_script_without_rows_ends(script: list[object]) -> None:
    batch = ScriptedSource(SCHEMA, script).open(None, MemoryLog()).next()
    assert (batch.slices, batch.ended) == ((), True)


def test_rows_may_be_dictionaries_or_lists() -> None:
    source = ScriptedSource(SCHEMA, [[{"v": 1, "k": "a"}, {"k": "b"}, ["c", 3]]])
    assert read(source, RangeSlice(0, 0, 3)) == [("a", 1), ("b", None), ("c", 3)]


def test_nested_values() -> None:
    source = ScriptedSource("k string, s struct<x:int, l:array<string>>", [[("a", {"x": 1})]])
    assert read(source, RangeSlice(0, 0, 1)) == [("a", {"x": 1, "l": None})]
    assert hash(source) == hash(pickle.loads(pickle.dumps(source)))


def attempt(source: ScriptedSource) -> bool:
    """Whether reading the first page fails."""
    try:
        list(source.read(RangeSlice(0, 0, 1)))
    except ReadFailed:
        return True
    return False


def test_failures_are_counted_across_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = ScriptedSource(SCHEMA, [Fail("boom", times=2), [("a", 1)], ABORT, [("b", 2)]])
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sorted(pool.map(attempt, [source] * 5, chunksize=1)) == [False] * 3 + [True] * 2
    assert not attempt(source)
    with pytest.raises(ReadFailed, match="ABORT"):
        read(source, RangeSlice(0, 1, 2))


def test_a_turn_to_fail_is_taken_by_one_attempt_only(tmp_path: Path) -> None:
    source = ScriptedSource(SCHEMA, [Fail("boom", times=7), [("a", 1)]], scratch=tmp_path / "new")
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, [source] * 40)) == 7


def test_a_page_may_fail_always(tmp_path: Path) -> None:
    source = ScriptedSource(SCHEMA, [Fail("boom", times=None), [("a", 1)]], scratch=tmp_path)
    assert all(attempt(source) for _ in range(10))


def make_and_fail() -> str:
    source = ScriptedSource(SCHEMA, [ABORT, [("a", 1)]])
    assert attempt(source)
    assert Path(str(source.scratch)).exists()
    return str(source.scratch)


def test_a_made_up_directory_goes_with_the_process_that_made_it_up() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        scratch = processes.submit(make_and_fail).result()
        assert Path(scratch).exists()
    assert not Path(scratch).exists()


def test_it_is_a_python_source_and_a_value() -> None:
    one, two = (ScriptedSource(SCHEMA, [[("a", 1)], EOF]) for _ in range(2))
    assert isinstance(one, PythonSource)
    assert one.partitions == 1
    assert one == two == pickle.loads(pickle.dumps(one))
    assert one != ScriptedSource(SCHEMA, [[("a", 2)], EOF])
    assert one.schema == pa.schema([("k", pa.string()), ("v", pa.int64())])
    assert one.scratch is None


def test_an_unknown_slice_is_refused() -> None:
    with pytest.raises(ReadFailed, match="no such page"):
        read(ScriptedSource(SCHEMA, [[("a", 1), ("b", 2)]]), RangeSlice(0, 0, 1))


def test_a_position_of_another_source_is_refused() -> None:
    with pytest.raises(ChangedDataflow, match="'files'"):
        ScriptedSource(SCHEMA, [EOF]).open(b'{"source":"files","format":1}', MemoryLog())


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ([[]], ValueError, "line 1 of the script is a page without rows"),
        ([PAUSE, "rows"], TypeError, "line 2 of the script must be a list of rows"),
        ([["a"]], TypeError, "line 1 of the script: a row must be a tuple or a dictionary"),
        ([[("a",)]], ValueError, "a row has 1 values and the schema 2 columns"),
        ([[{"x": 1}]], ValueError, "the schema has no column x"),
        ([[("a", "one")]], ValueError, "line 1 of the script: column v does not fit int64"),
        ([[("a", 1.5)]], ValueError, "column v does not fit int64"),
        ([EOF, [("a", 1)]], ValueError, "line 1 of the script is EOF and more follows"),
        ([Fail("boom")], ValueError, "the page that fails must follow"),
        ([Fail("boom"), PAUSE, [("a", 1)]], ValueError, "the page that fails must follow"),
        ([ABORT, ABORT, [("a", 1)]], ValueError, "the page that fails must follow"),
    ],
)
def test_a_slip_in_a_script_is_refused_at_once(
    script: list[object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ScriptedSource(SCHEMA, script)


def test_a_failure_that_never_happens_is_refused() -> None:
    with pytest.raises(ValueError, match="times must be at least 1"):
        Fail("boom", times=0)
