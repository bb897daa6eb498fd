"""Spelling of paths, checked against a real Spark."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession

from anabranch.records.slices import FileSlice
from anabranch.sources.discovery import overlooked
from anabranch.sources.file_uri import file_tag, file_uri, spark_path
from anabranch.sources.files import FileSource
from tests.sources.memory_log import MemoryLog

# Letters in names, most of them with a meaning in URIs, in patterns or in Java.
AWKWARD = [
    *("plain", "a b", "a%20b", "a%b", "a+b", "a#b", "a'b", 'a"b', "a&b=c", "a;b", "a,b", "a~b"),
    *("a|b", "a^b", "a`b", "a<b>", "a@b!$()", "a?b", "a*b", "a[1]", "a{b,c}", "a\\b", "a\tb"),
    *(
        "a\nb",
        "é",
        "e\u0301",
        "日本",
        "😀",
        "a\u00a0b",
        "a\u2028b",
        "a\u3000b",
        "a\x7fb",
        "a\u0085b",
    ),
    *("a\ufeffb", "a\u200bb", "a\u00adb", "d=1/z", "x y/z 1", "10:30/z", "d%20/z"),
]


@pytest.mark.spark
def test_tags_and_paths_are_spelled_as_spark_spells_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every file that is found can be read by its path, alone, and is told by its tag."""
    for number, name in enumerate(AWKWARD):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'{{"v":{number}}}\n')
    enumerator = FileSource(tmp_path, "json", "v bigint", recursive=True).open(None, MemoryLog())
    paths = [part.path for part in enumerator.next().slices if isinstance(part, FileSlice)]
    rows = (
        spark.read.schema("v bigint")
        .json([spark_path(path) for path in paths])
        .selectExpr("v", "_metadata.file_path", "crc32(_metadata.file_path) as tag")
        .collect()
    )
    wanted = [str(tmp_path / f"{name}.json") for name in AWKWARD]
    assert sorted(paths) == sorted(wanted)
    assert {row.v: (row.file_path, row.tag) for row in rows} == {
        number: (file_uri(path), file_tag(path)) for number, path in enumerate(wanted)
    }
    assert len(rows) == len(AWKWARD)


@pytest.mark.spark
def test_every_format_spells_paths_the_same(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"v": ["x"]})
    paths = {name: str(tmp_path / f"50% é [1].{name}") for name in ("csv", "parquet", "orc")}
    Path(paths["csv"]).write_text("x\n")
    pq.write_table(table, paths["parquet"])
    orc.write_table(table, paths["orc"])
    every = [
        spark.read.format(name)
        .schema("v string")
        .load([spark_path(path)])
        .selectExpr("v", f"'{name}' as name", "crc32(_metadata.file_path) as tag")
        for name, path in paths.items()
    ]
    rows = reduce(DataFrame.union, every).collect()
    assert {(row.v, row.name, row.tag) for row in rows} == {
        ("x", name, file_tag(path)) for name, path in paths.items()
    }


@pytest.mark.spark
def test_spark_cannot_open_a_name_with_a_colon(spark: SparkSession, tmp_path: Path) -> None:
    """The reason for refusing such names; when it falls, the refusal may go."""
    (tmp_path / "10:30.json").write_text('{"v":1}\n')
    reader = spark.read.schema("v bigint").json([spark_path(str(tmp_path / "10:30.json"))])
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        reader.collect()


@pytest.mark.spark
def test_spark_reads_nothing_from_names_that_it_overlooks(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [*("a", "_a", ".a", "_day=1", "_metadata", "_metadata.json", "_common_metadata=1")]
    names += ["a._COPYING_", "_day=1._COPYING_", "._a", "a=_b", "a.b"]
    for name in names:
        (tmp_path / name).write_text('{"v":1}\n')
    found = {
        name: spark.read.schema("v bigint").json([spark_path(str(tmp_path / name))]).count()
        for name in names
    }
    assert found == {name: int(not overlooked(name)) for name in names}
