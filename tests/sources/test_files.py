"""A file source on real directories: each file once, bounded steps, restarts anywhere."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import (
    ChangedDataflow,
    CorruptEntry,
    FileChanged,
    FileGone,
    FutureFormat,
    SourceUnavailable,
)
from anabranch.protocol.sources import Batch, Limit, PythonSource
from anabranch.records.slices import FileSlice
from anabranch.sources import files as files_module
from anabranch.sources import ledger as ledger_module
from anabranch.sources.discovery import FoundFile, Known, Place, find
from anabranch.sources.file_uri import file_tag
from anabranch.sources.files import FileSource
from tests.sources.memory_log import MemoryLog

SCHEMA = pa.schema([("v", pa.int64())])
#: Two names whose CRC-32 are equal, whatever stands before and after them.
TWINS = ("acnre-151", "adwdj-923")


def put(path: Path, *, size: int = 1, mtime_ns: int = 1_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, ns=(0, mtime_ns))
    return path


def source(root: Path, **arguments: object) -> FileSource:
    return FileSource(root, "json", SCHEMA, **arguments)  # type: ignore[arg-type]


def names(batch: Batch) -> list[str]:
    return [Path(part.path).name for part in batch.slices if isinstance(part, FileSlice)]


# ------------------------------------------------------------------------------------ exactly once


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Words with two numbers each: what happens to a directory and its reader."""
    arrive = st.tuples(st.just("arrive"), st.integers(0, 30), st.integers(0, 5))
    read = st.tuples(st.just("read"), st.integers(1, 6), st.just(0))
    restart = st.tuples(st.just("restart"), st.integers(0, 4), st.just(0))
    remove = st.tuples(st.just("remove"), st.integers(0, 30), st.just(0))
    return draw(st.lists(st.one_of(arrive, arrive, read, restart, remove), max_size=30))


@settings(max_examples=120, deadline=None)
@given(stories(), st.booleans())
def test_each_file_is_read_once_from_any_position(
    story: list[tuple[str, int, int]], recursive: bool
) -> None:
    """Whatever arrives, leaves and restarts, a position knows exactly what was read before it."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "INLINE", 3)
        root = Path(name)
        log = MemoryLog()
        reader = source(root, recursive=recursive, max_files_per_step=6)
        enumerator = reader.open(None, log)
        history: list[tuple[bytes | None, frozenset[str]]] = [(None, frozenset())]

        def path_of(number: int) -> Path:
            return root / ("sub" if recursive and number % 3 == 0 else ".") / f"{number}.json"

        def read(limit: Limit) -> Batch:
            batch = enumerator.next(limit)
            seen = history[-1][1]
            handed_out = [part.path for part in batch.slices if isinstance(part, FileSlice)]
            assert len(handed_out) == len(set(handed_out))
            assert not seen & set(handed_out)
            sizes = [os.stat(path).st_size for path in handed_out]
            assert len(sizes) <= 1 or sum(sizes) <= (limit.bytes or 0)
            assert enumerator.files() == reader.log_files(batch.position) <= set(log.files)
            history.append((batch.position, seen | set(handed_out)))
            return batch

        for word, number, more in story:
            match word:
                case "arrive":
                    path = path_of(number)
                    # A name that was read must not come back: it would rightly be ignored.
                    if not any(str(path) in seen for _, seen in history):
                        put(path, size=1 + more, mtime_ns=more)
                case "read":
                    read(Limit(bytes=number))
                case "restart":
                    position, seen = history[max(0, len(history) - 1 - number)]
                    enumerator = pickle.loads(pickle.dumps(reader)).open(position, log)
                    history.append((position, seen))
                case "remove":
                    path_of(number).unlink(missing_ok=True)
        # One that finds only files that went away lists the directory the next time.
        while read(Limit(bytes=4)).slices or read(Limit(bytes=4)).slices:
            pass
        there = {str(path) for path in root.glob("**/*.json")}
        assert there <= history[-1][1]


def test_files_come_in_order_of_time_then_path_and_late_ones_when_they_come(tmp_path: Path) -> None:
    put(tmp_path / "b", mtime_ns=5)
    put(tmp_path / "a", mtime_ns=5)
    put(tmp_path / "c", mtime_ns=3)
    enumerator = source(tmp_path).open(None, MemoryLog())
    first = enumerator.next()
    assert names(first) == ["c", "a", "b"]
    assert first.slices[0] == FileSlice(str(tmp_path / "c"), 1, 3)
    assert (first.rows, first.ended) == (None, False)
    put(tmp_path / "older", mtime_ns=1)
    assert names(enumerator.next()) == ["older"]
    nothing = enumerator.next()
    assert (nothing.slices, nothing.ended) == ((), False)


def test_a_file_that_changes_after_its_step_is_not_read_again(tmp_path: Path) -> None:
    path = put(tmp_path / "a")
    enumerator = source(tmp_path).open(None, MemoryLog())
    enumerator.next()
    put(path, size=7, mtime_ns=9)
    assert names(enumerator.next()) == []


# ------------------------------------------------------------------------------------ bounds


def test_a_step_is_bounded_by_files_and_bytes(tmp_path: Path) -> None:
    for number, size in enumerate([4, 4, 4, 30, 1, 1, 1, 1]):
        put(tmp_path / f"{number}", size=size)
    bounded = source(tmp_path, max_files_per_step=3, max_bytes_per_step=10)
    enumerator = bounded.open(None, MemoryLog())
    steps = [names(enumerator.next()) for _ in range(6)]
    assert steps == [["0", "1"], ["2"], ["3"], ["4", "5", "6"], ["7"], []]


def test_a_limit_only_tightens(tmp_path: Path) -> None:
    for number in range(6):
        put(tmp_path / f"{number}", size=2)
    enumerator = source(tmp_path, max_bytes_per_step="4b").open(None, MemoryLog())
    assert names(enumerator.next(Limit(bytes=100))) == ["0", "1"]
    assert names(enumerator.next(Limit(bytes=3))) == ["2"]
    assert names(enumerator.next(Limit(bytes=0))) == ["3"]
    assert names(enumerator.next(Limit(rows=1))) == ["4", "5"]


def test_what_waits_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        put(tmp_path / f"{number}")
    listings = []

    def counting(place: Place, known: Known) -> list[FoundFile]:
        listings.append(place)
        return find(place, known)

    monkeypatch.setattr(files_module, "find", counting)
    enumerator = source(tmp_path, max_files_per_step=2).open(None, MemoryLog())
    assert [len(enumerator.next().slices) for _ in range(3)] == [2, 2, 1]
    assert len(listings) == 1


def test_a_waiting_file_is_planned_as_it_is_when_its_turn_comes(tmp_path: Path) -> None:
    for name in "abcd":
        put(tmp_path / name)
    enumerator = source(tmp_path, max_files_per_step=1).open(None, MemoryLog())
    enumerator.next()
    put(tmp_path / "b", size=9, mtime_ns=77)
    assert enumerator.next().slices == (FileSlice(str(tmp_path / "b"), 9, 77),)
    (tmp_path / "c").unlink()
    assert names(enumerator.next()) == ["d"]


def test_an_empty_file_is_read_when_it_has_grown(tmp_path: Path) -> None:
    put(tmp_path / "a", size=0)
    enumerator = source(tmp_path).open(None, MemoryLog())
    assert names(enumerator.next()) == []
    put(tmp_path / "a", size=1)
    assert names(enumerator.next()) == ["a"]


@pytest.mark.parametrize("watch", [True, False])
def test_files_with_the_same_tag_never_share_a_step(tmp_path: Path, watch: bool) -> None:
    one, two = (put(tmp_path / f"{name}.json") for name in TWINS)
    assert file_tag(str(one)) == file_tag(str(two))
    put(tmp_path / "z.json")
    enumerator = source(tmp_path, watch=watch).open(None, MemoryLog())
    first = enumerator.next()
    assert names(first) == [one.name, "z.json"]
    assert not first.ended
    second = enumerator.next()
    assert names(second) == [two.name]
    assert second.ended is not watch


def test_the_one_that_waits_for_its_twin_goes_first_next_time(tmp_path: Path) -> None:
    for name in (*TWINS, "b", "c"):
        put(tmp_path / name)
    enumerator = source(tmp_path, max_files_per_step=2).open(None, MemoryLog())
    assert [names(enumerator.next()) for _ in range(3)] == [[TWINS[0], "b"], [TWINS[1], "c"], []]


# ------------------------------------------------------------------------------------ not watching


def test_without_watching_it_ends_with_what_was_there(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path / name)
    enumerator = source(tmp_path, watch=False, max_files_per_step=2).open(None, MemoryLog())
    put(tmp_path / "later")
    first, second, third = (enumerator.next() for _ in range(3))
    assert (names(first), first.ended) == (["a", "b"], False)
    assert (names(second), second.ended) == (["c"], True)
    assert (names(third), third.ended) == ([], True)


def test_without_watching_an_empty_directory_ends_at_once(tmp_path: Path) -> None:
    batch = source(tmp_path, watch=False).open(None, MemoryLog()).next()
    assert (batch.slices, batch.ended) == ((), True)


@pytest.mark.parametrize("count", [5, 300])
def test_what_was_there_is_decided_once_for_all_restarts(tmp_path: Path, count: int) -> None:
    for number in range(count):
        put(tmp_path / f"{number:04}")
    log = MemoryLog()
    reader = source(tmp_path, watch=False, max_files_per_step=count // 2)
    read: list[str] = []
    position: bytes | None = None
    for number in range(4):
        batch = reader.open(position, log).next()
        read += names(batch)
        position = batch.position
        assert batch.ended == (len(read) == count)
        put(tmp_path / f"later-{number}")
    assert read == [f"{number:04}" for number in range(count)]


def test_without_watching_a_file_that_was_there_is_missed(tmp_path: Path) -> None:
    put(tmp_path / "a")
    path = put(tmp_path / "b")
    enumerator = source(tmp_path, watch=False, max_files_per_step=1).open(None, MemoryLog())
    enumerator.next()
    path.unlink()
    with pytest.raises(FileGone, match=str(path)):
        enumerator.next()


def test_an_ended_source_needs_its_directory_no_more(tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "a")
    log = MemoryLog()
    reader = source(tmp_path / "in", watch=False)
    position = reader.open(None, log).next().position
    path.unlink()
    path.parent.rmdir()
    assert reader.open(position, log).next().ended


def test_watching_may_be_switched_on_and_off(tmp_path: Path) -> None:
    log = MemoryLog()
    put(tmp_path / "a")
    put(tmp_path / "b")
    still = source(tmp_path, watch=False, max_files_per_step=1).open(None, log).next()
    assert names(still) == ["a"]
    put(tmp_path / "c")
    watching = source(tmp_path).open(still.position, log).next()
    assert (names(watching), watching.ended) == (["b", "c"], False)
    put(tmp_path / "d")
    ended = source(tmp_path, watch=False).open(watching.position, log).next()
    assert (names(ended), ended.ended) == (["d"], True)
    put(tmp_path / "e")
    assert names(source(tmp_path).open(ended.position, log).next()) == ["e"]


# ------------------------------------------------------------------------------------ refusals


def test_open_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match=str(tmp_path / "absent")):
        source(tmp_path / "absent").open(None, MemoryLog())


def test_a_directory_that_vanishes_is_an_error(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    enumerator = source(directory).open(None, MemoryLog())
    directory.rmdir()
    with pytest.raises(SourceUnavailable, match=str(directory)):
        enumerator.next()


def test_another_place_is_refused_and_a_part_of_it_is_not(tmp_path: Path) -> None:
    put(tmp_path / "in" / "sub" / "a")
    put(tmp_path / "other" / "a")
    log = MemoryLog()
    position = source(tmp_path / "in", recursive=True).open(None, log).next().position
    with pytest.raises(ChangedDataflow, match="would be read again"):
        source(tmp_path / "other").open(position, log)
    assert names(source(tmp_path / "in" / "sub").open(position, log).next()) == []
    above = source(tmp_path, recursive=True).open(position, log).next()
    assert [part.path for part in above.slices if isinstance(part, FileSlice)] == [
        str(tmp_path / "other" / "a")
    ]


def test_a_place_whose_name_only_starts_the_same_is_another(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in2").mkdir()
    position = source(tmp_path / "in").open(None, MemoryLog()).next().position
    with pytest.raises(ChangedDataflow):
        source(tmp_path / "in2").open(position, MemoryLog())


@pytest.mark.parametrize(
    ("position", "error"),
    [
        (b'{"source":"generator","format":1,"partitions":1,"rows":3}', ChangedDataflow),
        (b'{"source":"files","format":2}', FutureFormat),
        (b'{"source":"files","format":1}', CorruptEntry),
        (b'{"source":"files"', CorruptEntry),
        (b"[]", CorruptEntry),
    ],
)
def test_a_position_that_does_not_fit_is_refused(
    tmp_path: Path, position: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        source(tmp_path).open(position, MemoryLog())


def test_check_notices_a_change_and_a_removal(tmp_path: Path) -> None:
    path = put(tmp_path / "a", size=3, mtime_ns=5)
    reader = source(tmp_path)
    slices = reader.open(None, MemoryLog()).next().slices
    reader.check(slices)
    put(path, size=4, mtime_ns=5)
    with pytest.raises(FileChanged, match=r"had 3 bytes .* and has 4 .*move them into place"):
        reader.check(slices)
    put(path, size=3, mtime_ns=6)
    with pytest.raises(FileChanged, match=str(path)):
        reader.check(slices)
    put(path, size=3, mtime_ns=5)
    reader.check(slices)
    path.unlink()
    with pytest.raises(FileGone, match=str(path)):
        reader.check(slices)


# ------------------------------------------------------------------------------------ arguments


def test_it_is_a_value(tmp_path: Path) -> None:
    one = FileSource("in", "csv", "v bigint", {"sep": ";", "header": True}, watch=False)
    two = FileSource("in", "csv", SCHEMA, {"header": "true", "sep": ";"}, watch=False)
    assert one == two == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(two)
    assert one.options == (("header", "true"), ("sep", ";"))
    assert one != FileSource("in", "csv", SCHEMA)
    assert not isinstance(one, PythonSource)


def test_a_relative_path_becomes_absolute_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in" / "a")
    reader = source(Path("in"))
    monkeypatch.chdir(tmp_path)
    assert reader.open(None, MemoryLog()).next().slices == (
        FileSlice(str(tmp_path / "in" / "a"), 1, 1_000),
    )


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": ""}, ValueError, "path must not be empty"),
        ({"path": b"in"}, TypeError, "path must be text"),
        ({"path": "s3://bucket/in"}, ValueError, "local or mounted"),
        ({"format": " "}, ValueError, "format must not be empty"),
        ({"format": None}, TypeError, "format must be text"),
        ({"schema": 7}, TypeError, "schema must be DDL text"),
        ({"schema": pa.schema([])}, ValueError, "at least one column"),
        ({"schema": "v bigint, _Metadata string"}, ValueError, "a column named _Metadata"),
        ({"schema": pa.schema([("a", pa.int8())] * 2)}, ValueError, "more than one column named a"),
        ({"max_files_per_step": 0}, ValueError, "max_files_per_step must be at least 1"),
        ({"max_files_per_step": True}, TypeError, "max_files_per_step must be a whole number"),
        ({"max_bytes_per_step": "64 parsecs"}, ValueError, "such as '64m' or '1g'"),
        ({"max_bytes_per_step": 1.5}, TypeError, "max_bytes_per_step must be a whole number"),
        ({"options": {"pathGlobFilter": "*.x"}}, ValueError, "use a pattern in path="),
        ({"options": {"recursiveFileLookup": True}}, ValueError, "use recursive="),
        ({"options": {"sep": ";", "SEP": ","}}, ValueError, "twice"),
        ({"options": {"sep": None}}, TypeError, "option 'sep' must be text"),
        ({"options": {7: "x"}}, TypeError, "text as names"),
        ({"options": ["sep"]}, TypeError, "options must be a mapping"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    right: dict[str, object] = {"path": "in", "format": "json", "schema": SCHEMA}
    with pytest.raises(error, match=text):
        FileSource(**(right | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("1k", 1024), ("64m", 67108864), ("1G", 2**30), ("2 TiB", 2**41), ("5b", 5)],
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert source(Path("in"), max_bytes_per_step=text).max_bytes_per_step == size


# Malformed rows.


def test_a_separated_source_has_two_columns_more_and_is_otherwise_the_same(tmp_path: Path) -> None:
    source = FileSource(tmp_path, "json", "k string, _RAW string", malformed="drop")
    parted = source.separated()
    assert parted.schema.names == ["k", "_RAW", "_raw_", "_file"]
    assert source.schema.names == ["k", "_RAW"]
    assert (parted.separates, source.separates) == (True, False)
    assert (parted.path, parted.malformed) == (source.path, "drop")


@pytest.mark.parametrize(
    ("format", "options", "malformed"),
    [
        ("json", None, "ignore"),
        ("parquet", None, "drop"),
        ("text", None, "dead-letter"),
        ("csv", {"Mode": "PERMISSIVE"}, "drop"),
        ("json", {"columnNameOfCorruptRecord": "x"}, "dead-letter"),
    ],
)
def test_a_policy_for_malformed_rows_that_cannot_be(
    tmp_path: Path, format: str, options: dict[str, object] | None, malformed: str
) -> None:
    with pytest.raises(ValueError, match="malformed"):
        FileSource(tmp_path, format, "k string", options, malformed=malformed)


# ----------------------------------------------------------------------------------------- growing


def test_a_step_grows_within_the_bounds_of_the_source(tmp_path: Path) -> None:
    put(tmp_path / "a", size=3, mtime_ns=1)
    reader = source(tmp_path, max_files_per_step=3, max_bytes_per_step=10).open(None, MemoryLog())
    first = reader.next()
    assert (names(first), first.full) == (["a"], False)
    assert names(reader.more()) == []
    put(tmp_path / "b", size=4, mtime_ns=2)
    put(tmp_path / "c", size=4, mtime_ns=3)
    added = reader.more()
    assert (names(added), added.full) == (["b"], True)
    assert names(reader.more()) == []
    after = reader.next()
    assert (names(after), after.full) == (["c"], False)


def test_a_step_grows_by_no_more_files_than_fit(tmp_path: Path) -> None:
    for name in "abcd":
        put(tmp_path / name, mtime_ns=ord(name))
    reader = source(tmp_path, max_files_per_step=3).open(None, MemoryLog())
    assert names(reader.next(Limit(bytes=1))) == ["a"]
    assert names(reader.more(Limit(bytes=1))) == ["b"]
    assert names(reader.more()) == ["c"]
    assert names(reader.more()) == []
    assert names(reader.next()) == ["d"]


def test_twins_never_come_into_one_step_by_growing(tmp_path: Path) -> None:
    put(tmp_path / TWINS[0], mtime_ns=1)
    reader = source(tmp_path).open(None, MemoryLog())
    assert names(reader.next()) == [TWINS[0]]
    put(tmp_path / TWINS[1], mtime_ns=2)
    put(tmp_path / "other", mtime_ns=3)
    assert names(reader.more()) == ["other"]
    assert names(reader.next()) == [TWINS[1]]


def test_what_a_step_has_grown_by_is_in_the_position(tmp_path: Path) -> None:
    put(tmp_path / "a", mtime_ns=1)
    log = MemoryLog()
    reader = source(tmp_path).open(None, log)
    reader.next()
    put(tmp_path / "b", mtime_ns=2)
    position = reader.more().position
    put(tmp_path / "c", mtime_ns=3)
    assert names(source(tmp_path).open(position, log).next()) == ["c"]
