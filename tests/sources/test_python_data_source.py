"""What is said about a Python data source, before Spark is asked."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import ChangedDataflow, InvalidSchema, SourceUnavailable
from anabranch.sources.positions import Position, decode_position, encode_position
from anabranch.sources.python_data_source import KIND, OffsetPosition, PythonDataSource
from tests.sources.memory_log import MemoryLog


class Readable:
    """As far as it is looked at before it is made."""

    def __init__(self, options: Any) -> None:
        raise AssertionError("made too early")

    def streamReader(self, schema: Any) -> Any: ...

    def simpleStreamReader(self, schema: Any) -> Any: ...


def test_it_keeps_what_was_said_and_makes_nothing() -> None:
    source = PythonDataSource(Readable, {"path": "x", "n": 3}, max_rows_per_step=7)
    assert source.options == (("n", "3"), ("path", "x"))
    assert (source.watch, source.max_rows_per_step, source.given) == (True, 7, None)
    assert pickle.loads(pickle.dumps(source)) == source


def test_the_schema_is_the_given_one_or_unknown() -> None:
    with pytest.raises(InvalidSchema):
        _ = PythonDataSource(Readable).schema
    schema = pa.schema([("k", pa.string())])
    assert PythonDataSource(Readable, schema="k string").schema == schema
    source = PythonDataSource(Readable)
    assert source.with_schema(schema).schema == schema
    assert source.given is None


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"source": "rate"}, TypeError),
        ({"source": object()}, TypeError),
        ({"source": Readable, "max_rows_per_step": 0}, ValueError),
        ({"source": Readable, "options": {"a": [1]}}, TypeError),
        ({"source": Readable, "schema": ""}, ValueError),
        ({"source": object.__new__(Readable), "options": {"a": 1}}, TypeError),
    ],
)
def test_refused(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises((kind, InvalidSchema)):
        PythonDataSource(**arguments)


def test_spark_alone_opens_it() -> None:
    with pytest.raises(SourceUnavailable):
        PythonDataSource(Readable, schema="k string").open(None, MemoryLog())


def test_a_position_survives_and_a_foreign_one_is_refused() -> None:
    position = OffsetPosition(source=KIND, name="numbers", offset='{"n": 3}')
    assert decode_position(encode_position(position), OffsetPosition, KIND) == position
    with pytest.raises(ChangedDataflow):
        decode_position(encode_position(Position(source="files")), OffsetPosition, KIND)
