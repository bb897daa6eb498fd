"""Which schemas the file sink refuses, and how it says so."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.sinks.file import FileSink
from anabranch.sinks.memory import MemorySink

FINE = pa.schema(
    {
        "b": pa.bool_(),
        "i8": pa.int8(),
        "i64": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "dec": pa.decimal128(38, 18),
        "s": pa.string(),
        "bin": pa.binary(),
        "day": pa.date32(),
        "ts": pa.timestamp("us", tz="UTC"),
        "ntz": pa.timestamp("us"),
        "l": pa.list_(pa.struct({"x": pa.map_(pa.string(), pa.int32())})),
    }
)


@pytest.mark.parametrize("sink", [FileSink("o"), FileSink("o", "json"), MemorySink()])
def test_sparks_types_are_accepted(sink: FileSink | MemorySink) -> None:
    assert sink.refuses(FINE) is None


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (pa.null(), "'c'"),
        (pa.uint8(), "'c'"),
        (pa.duration("us"), "'c'"),
        (pa.timestamp("ns"), "'c'"),
        (pa.decimal256(50, 2), "'c'"),
        (pa.list_(pa.float16()), "'c.element'"),
        (pa.struct({"x": pa.time64("us")}), "'c.x'"),
        (pa.map_(pa.string(), pa.null()), "'c.value'"),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name(kind: pa.DataType, place: str) -> None:
    for form in ("parquet", "json"):
        text = FileSink("o", form).refuses(pa.schema({"a": pa.int32(), "c": kind}))
        assert text is not None
        assert f"column {place} has type" in text
        assert "cast it or leave it out" in text


def test_json_wants_text_as_keys_of_maps() -> None:
    schema = pa.schema({"m": pa.list_(pa.map_(pa.int32(), pa.int32()))})
    assert FileSink("o", "parquet").refuses(schema) is None
    text = FileSink("o", "json").refuses(schema)
    assert text == "map 'm.element' has keys of type int32: cast its keys to string"


def test_all_problems_are_told_together() -> None:
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("A", pa.null()),
            ("s", pa.struct([("x", pa.int8()), ("X", pa.int8())])),
        ]
    )
    assert FileSink("o").refuses(schema) == (
        "column names that Spark cannot tell apart: 'A', 'a': rename them; "
        "column 'A' has type null, which files cannot hold: cast it or leave it out; "
        "column names that Spark cannot tell apart: 's.X', 's.x': rename them"
    )
    assert FileSink("o").refuses(pa.schema({"e": pa.struct([])})) == (
        "struct 'e' has no fields: leave it out"
    )
