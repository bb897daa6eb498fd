"""The port: who fits it, and what of it stands in the journal."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.protocol.sources import PythonSource, Source, SourceLog
from anabranch.records.slices import FileSlice, LogSlice, OffsetSlice, RangeSlice, Slice
from anabranch.sources.files import FileSource
from anabranch.sources.generator import GeneratorSource
from anabranch.sources.scripted import ScriptedSource
from tests.sources.memory_log import MemoryLog

LOG: SourceLog = MemoryLog()
BY_SPARK: Source = FileSource("in", "json", "v bigint")
BY_PYTHON: tuple[PythonSource[RangeSlice], ...] = (
    GeneratorSource(lambda partition, start, end: {"v": range(start, end)}, "v bigint"),
    ScriptedSource("v bigint", [[(0,), (1,)]]),
)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (FileSlice("/in/é", 3, 5), '{"type":"file","path":"/in/é","size":3,"mtime_ns":5}'),
        (RangeSlice(1, 2, 3), '{"type":"range","partition":1,"start":2,"end":3}'),
        (LogSlice(1, 2, 3), '{"type":"log","partition":1,"start":2,"end":3}'),
        (OffsetSlice("1", "2"), '{"type":"offsets","start":"1","end":"2"}'),
    ],
)
def test_slices_are_journalled_as_json(part: Slice, text: str) -> None:
    assert msgspec.json.encode(part).decode() == text
    decoded: Slice = msgspec.json.decode(text, type=Slice)
    assert decoded == part


@pytest.mark.parametrize("source", BY_PYTHON, ids=lambda source: type(source).__name__)
def test_a_slice_is_read_the_same_again(source: PythonSource[RangeSlice]) -> None:
    batch = source.open(None, LOG).next()
    (part,) = batch.slices
    assert isinstance(part, RangeSlice)
    source.check(batch.slices)
    assert source.log_files(batch.position) == frozenset()
    read = [list(source.read(part)) for _ in range(2)]
    assert read[0] == read[1]
    assert sum(rows.num_rows for rows in read[0]) == batch.rows == part.end - part.start
    assert read[0][0].schema == source.schema
