"""What the file sink publishes, read back by Spark with nothing but the path."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.protocol.sinks import SinkContext, StagedStep
from anabranch.sinks.file import FileSink
from anabranch.sinks.staging import RowsToStage, stage

DDL = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, "
    "dec decimal(38,10), s string, bin binary, day date, ts timestamp, ntz timestamp_ntz, "
    "l array<struct<x:int,t:timestamp>>, m map<string,double>, st struct<x:int,y:string>"
)
UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "b": pa.bool_(),
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "dec": pa.decimal128(38, 10),
        "s": pa.string(),
        "bin": pa.binary(),
        "day": pa.date32(),
        "ts": UTC,
        "ntz": pa.timestamp("us"),
        "l": pa.list_(pa.struct({"x": pa.int32(), "t": UTC})),
        "m": pa.map_(pa.string(), pa.float64()),
        "st": pa.struct({"x": pa.int32(), "y": pa.string()}),
    }
)
AT = dt.datetime(2024, 1, 2, 3, 4, 5, 123456, dt.UTC)
FULL: dict[str, Any] = {
    "b": True,
    "i8": -128,
    "i16": 32767,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f": 0.10000000149011612,
    "d": float("inf"),
    "dec": Decimal("-1234567890123456789012345678.0123456789"),
    "s": 'a"\n\u2028\U0001f600',
    "bin": b"\xff\x00a",
    "day": dt.date(1, 1, 1),
    "ts": AT,
    "ntz": AT.replace(tzinfo=None),
    "l": [{"x": 1, "t": AT}, None, {"x": None, "t": None}],
    "m": {"k": 1e-7, "none": None},
    "st": {"x": None, "y": ""},
}
EMPTY: dict[str, Any] = {**dict.fromkeys(FULL), "l": [], "m": {}, "st": {"x": None, "y": None}}
NULLS: dict[str, Any] = dict.fromkeys(FULL)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_plain_read_sees_the_published_rows_only(
    spark: SparkSession, tmp_path: Path, form: Literal["parquet", "json"]
) -> None:
    sink = FileSink(tmp_path / "out", form)
    publisher = sink.open(SinkContext(tmp_path, "p", "out"))
    for step, rows in ((1, [FULL, NULLS]), (2, [EMPTY])):
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        files = stage(tmp_path, [RowsToStage(f"staged/{step}", "out", sink, table)])
        publisher.publish(StagedStep(0, step, tuple(files)))
    # Something a killed publisher might have left.
    (tmp_path / "out" / ".step-000000000003-0.parquet.1.2.aside").write_bytes(b"half")
    reader = spark.read if form == "parquet" else spark.read.schema(DDL)
    read = reader.format(form).load(str(tmp_path / "out"))
    assert read.schema.simpleString() == spark.createDataFrame([], DDL).schema.simpleString()
    found = read.toArrow().to_pylist(maps_as_pydicts="strict")
    assert sorted(found, key=repr) == sorted([FULL, NULLS, EMPTY], key=repr)
