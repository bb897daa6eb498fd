from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.dataflow.types.keys import key_findings
from anabranch.dataflow.types.schema import parse_schema

ALLOWED = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(38,18)", "string collate UTF8_BINARY"),
    "struct<a:int,b:struct<c:string,d:decimal(4,1)>>",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_types_with_exact_equality_are_keys(text: str) -> None:
    assert key_findings(parse_schema(f"k {text}").field("k")) == []


@pytest.mark.parametrize(
    ("text", "whats"),
    [
        ("float", ['key "k" has type float, which cannot be a key']),
        ("double", ['key "k" has type double, which cannot be a key']),
        ("array<int>", ['key "k" has type array<int>, which cannot be a key']),
        ("map<string,int>", ['key "k" has type map<string,int>, which cannot be a key']),
        ("void", ['key "k" has type void, which cannot be a key']),
        (
            "string collate UNICODE_CI",
            ['key "k" is a string with collation UNICODE_CI, which cannot be a key'],
        ),
        (
            "struct<a:int,b:struct<c:double,d:string collate UNICODE>>",
            [
                'key "k.b.c" has type double, which cannot be a key',
                'key "k.b.d" is a string with collation UNICODE, which cannot be a key',
            ],
        ),
        ("struct<>", ['key "k" is a struct without fields']),
    ],
)
def test_other_types_are_refused_with_advice(text: str, whats: list[str]) -> None:
    findings = key_findings(parse_schema(f"k {text}").field("k"))
    assert [finding.what for finding in findings] == whats
    assert all(finding.do for finding in findings)


@pytest.mark.parametrize("type_", [pa.duration("us"), pa.time64("ns"), pa.uint32(), pa.float16()])
def test_arrow_types_beyond_spark_are_no_keys(type_: pa.DataType) -> None:
    (finding,) = key_findings(pa.field("k", type_))
    assert finding.what == f'key "k" has type {type_}, which cannot be a key'
