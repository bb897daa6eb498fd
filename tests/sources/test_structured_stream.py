"""What is said about a streaming DataFrame, and how its log is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptEntry, InvalidSchema, SourceUnavailable
from anabranch.sources.structured_stream import (
    LoggedBatch,
    LoggedFile,
    StructuredStreamSource,
    batch_of,
    decode_marker,
    file_name,
    marker_name,
)
from tests.sources.memory_log import MemoryLog


def make(spark: Any) -> Any:
    raise AssertionError("called too early")


def test_it_keeps_what_was_said_and_calls_nothing() -> None:
    source = StructuredStreamSource(make, max_bytes_per_step="2k")
    assert source.max_bytes_per_step == 2048
    with pytest.raises(InvalidSchema):
        _ = source.schema
    schema = pa.schema([("k", pa.string())])
    assert source.with_schema(schema).schema == schema
    with pytest.raises(SourceUnavailable):
        source.open(None, MemoryLog())


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"make": 7}, TypeError),
        ({"make": make, "every": "1 second", "watch": False}, ValueError),
        ({"make": make, "output_mode": "sometimes"}, ValueError),
        ({"make": make, "max_batches_per_step": 0}, ValueError),
        ({"make": make, "max_ahead": 0}, ValueError),
    ],
)
def test_refused(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        StructuredStreamSource(**arguments)


numbers = st.integers(0, 10**9)


@given(st.lists(st.tuples(numbers, st.integers(0, 10**6)), max_size=20))
def test_names_sort_as_batches_and_partitions(places: list[tuple[int, int]]) -> None:
    names = [file_name(batch, partition, "0f") for batch, partition in places]
    assert sorted(names) == [file_name(b, p, "0f") for b, p in sorted(places)]
    assert [batch_of(name) for name in names] == [batch for batch, _ in places]


@given(numbers)
def test_a_markers_name_is_no_files(batch: int) -> None:
    assert batch_of(marker_name(batch)) == batch
    assert marker_name(batch) != file_name(batch, 0, "")


@pytest.mark.parametrize("name", ["", ".000000000001.json.7.0.aside", "x", "0000000001.json"])
def test_foreign_names(name: str) -> None:
    assert batch_of(name) is None


def test_a_marker_survives_and_a_torn_one_is_refused() -> None:
    logged = LoggedBatch("k string", (LoggedFile("a.parquet", 3, 99),))
    data = msgspec.json.encode(logged)
    assert decode_marker(data, "here") == logged
    with pytest.raises(CorruptEntry) as raised:
        decode_marker(data[:-3], "here")
    assert raised.value.where == "here"
