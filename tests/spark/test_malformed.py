"""Malformed rows of files: failed at, dropped and counted, or sent to a dead letter sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.dataflow.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.errors import ReadFailed
from tests.spark.running import bag, commits, completed, counted, failure, published, state_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "k string, v bigint"

JSON_GOOD = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": None}, {"k": "it's", "v": 5}]
JSON_BAD = ['{"k": "b", "v"', '{"k": "b", "v": "many"}', "not json"]
CSV_GOOD = [("a", 1), ("b", 2), ("a", None), ("it's", 5)]
CSV_BAD = ["b,many", "b,1,2", "lonely"]


def write_input(directory: Path, format: str) -> None:
    """Two files, each with some lines of both kinds."""
    directory.mkdir()
    if format == "json":
        good, bad = [json.dumps(row) for row in JSON_GOOD], JSON_BAD
    else:
        good = [f"{k},{'' if v is None else v}" for k, v in CSV_GOOD]
        bad = CSV_BAD
    (directory / f"x.{format}").write_text("\n".join([good[0], bad[0], good[1]]) + "\n")
    (directory / f"y.{format}").write_text("\n".join([bad[1], *good[2:], bad[2]]) + "\n")


def good_rows() -> list[tuple[str, int | None]]:
    return CSV_GOOD


def bad_lines(format: str) -> list[str]:
    return JSON_BAD if format == "json" else CSV_BAD


def source_in(directory: Path, format: str, malformed: str = "fail", **more: Any) -> ab.FileSource:
    return ab.FileSource(directory, format, SCHEMA, watch=False, malformed=malformed, **more)


def flow_of(source: ab.FileSource, out: ab.MemorySink, **options: Any) -> ab.Dataflow:
    flow = ab.Dataflow("malformed")
    rows = flow.source("rows", source, **options)
    rows.sink("out", out)
    rows.key_distribute("by-k", "k").aggregate("counts", n="count(*)", total="sum(v)").sink(
        "counts-out", ab.MemorySink()
    )
    return flow


def counts_of(rows: list[tuple[str, int | None]]) -> dict[str, int]:
    return {key: sum(k == key for k, _ in rows) for key, _ in rows}


@pytest.mark.parametrize("format", ["json", "csv"])
def test_fail_names_file_and_raw_text_and_its_advice_works(tmp_path: Path, format: str) -> None:
    write_input(tmp_path / "in", format)
    out = ab.MemorySink()
    error = failure(flow_of(source_in(tmp_path / "in", format), out), tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert f"/in/x.{format}" in str(error) or f"/in/y.{format}" in str(error)
    assert any(line in str(error) for line in bad_lines(format))
    assert "'rows'" in str(error)
    assert "\n" not in str(error)
    assert 'malformed="drop"' in str(error.do)
    assert out.rows() == []
    pipeline = completed(
        flow_of(source_in(tmp_path / "in", format, "drop"), out), tmp_path / "state"
    )
    assert bag(tuple(row.values()) for row in out.rows()) == bag(good_rows())
    assert state_of(pipeline, "counts") == counts_of(good_rows())


@pytest.mark.parametrize("format", ["json", "csv"])
def test_drop_leaves_out_and_counts(tmp_path: Path, format: str) -> None:
    write_input(tmp_path / "in", format)
    out = ab.MemorySink()
    source = source_in(tmp_path / "in", format, "drop", max_files_per_step=1)
    completed(flow_of(source, out), tmp_path / "state")
    assert bag(tuple(row.values()) for row in out.rows()) == bag(good_rows())
    counts = [counted(commit) for commit in commits(tmp_path / "state")]
    assert [count["sink rows-malformed"] for count in counts] == [1, 2]
    assert [count["sink out"] for count in counts] == [2, 2]
    assert not (tmp_path / "state" / "stage" / "rows-malformed").exists()


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("workers", [1, 3])
def test_dead_letters_have_source_raw_text_file_and_reason(
    tmp_path: Path, format: str, workers: int
) -> None:
    write_input(tmp_path / "in", format)
    out = ab.MemorySink()
    flow = flow_of(
        source_in(tmp_path / "in", format, "dead-letter"),
        out,
        dead_letter=ab.FileSink(tmp_path / "bad", format="json"),
    )
    completed(flow, tmp_path / "state", workers=workers)
    assert bag(tuple(row.values()) for row in out.rows()) == bag(good_rows())
    letters = published(tmp_path / "bad")
    assert bag(letter["row"] for letter in letters) == bag(bad_lines(format))
    files = {letter["row"]: letter["place"].rpartition("/")[2] for letter in letters}
    first, *rest = bad_lines(format)
    assert files == {first: f"x.{format}", **dict.fromkeys(rest, f"y.{format}")}
    assert {letter["operator"] for letter in letters} == {"rows"}
    assert all(letter["error"] for letter in letters)
    assert [
        letter["error"] for letter in letters if "many" in letter["row"] and format == "csv"
    ] == ["no value for v"] * (format == "csv")


def refuse_bob(key: Any, row: Any, n: Any) -> Any:
    if key.k == "b":
        raise LookupError("not b")
    return (key.k, row.v), (n or 0) + 1


@pytest.mark.parametrize("workers", [1, 3])
def test_one_sink_takes_what_sources_and_functions_cannot(tmp_path: Path, workers: int) -> None:
    """Of two sources and an operator, a step at a time, all with one schema."""
    write_input(tmp_path / "json", "json")
    write_input(tmp_path / "csv", "csv")
    flow = ab.Dataflow("shared")
    sources = {
        name: flow.source(
            name, source_in(tmp_path / name, name, "dead-letter", max_files_per_step=1)
        )
        for name in ("json", "csv")
    }
    flow.dead_letters("letters", ab.FileSink(tmp_path / "letters"))
    sources["json"].union(sources["csv"]).key_distribute("by-k", "k").stateful_map(
        "calls", refuse_bob, state="n bigint", output=SCHEMA, on_error="dead-letter"
    ).sink("out", ab.MemorySink())
    completed(flow, tmp_path / "state", workers=workers)
    letters = published(tmp_path / "letters")
    assert {tuple(letter) for letter in letters} == {tuple(DEAD_LETTER_SCHEMA.names)}
    wanted: list[tuple[Any, ...]] = [("calls", "function", '{"k":"b","v":2}', None, 1)] * 2
    for format in ("json", "csv"):
        # The file x is the first step's, y the second's.
        first, *rest = bad_lines(format)
        wanted += [(format, "malformed", first, f"x.{format}", 1)]
        wanted += [(format, "malformed", line, f"y.{format}", 2) for line in rest]
    shown = [
        (each["operator"], each["kind"], each["row"], file_name(each["place"]), each["step"])
        for each in letters
    ]
    assert bag(shown) == bag(wanted)
    counts = [counted(commit) for commit in commits(tmp_path / "state")]
    for name in ("json", "csv"):
        assert [count[f"sink {name}-malformed"] for count in counts] == [1, 2]
    assert sum(count["sink letters"] for count in counts) == len(wanted)


def file_name(place: str | None) -> str | None:
    return None if place is None else place.rpartition("/")[2]


@pytest.mark.parametrize("malformed", ["drop", "dead-letter"])
def test_a_flow_that_needs_no_column_of_the_file(tmp_path: Path, malformed: str) -> None:
    """Which rows are malformed does not depend on the columns that are used."""
    write_input(tmp_path / "in", "csv")
    bad, out = ab.MemorySink(), ab.MemorySink()
    flow = ab.Dataflow("few")
    options = {"dead_letter": bad} if malformed == "dead-letter" else {}
    rows = flow.source("rows", source_in(tmp_path / "in", "csv", malformed), **options)
    rows.select("1 as one").sink("out", out)
    completed(flow, tmp_path / "state")
    assert len(out.rows()) == len(CSV_GOOD)
    assert bag(row["row"] for row in bad.rows()) == bag(
        CSV_BAD if malformed == "dead-letter" else []
    )


def test_xml(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.xml").write_text(
        "<rows><row><k>a</k><v>1</v></row><row><k>b</k><v>many</v></row></rows>\n"
    )
    bad, out = ab.MemorySink(), ab.MemorySink()
    source = source_in(tmp_path / "in", "xml", "dead-letter", options={"rowTag": "row"})
    flow = ab.Dataflow("xml")
    flow.source("rows", source, dead_letter=bad).sink("out", out)
    completed(flow, tmp_path / "state")
    assert [tuple(row.values()) for row in out.rows()] == [("a", 1)]
    # Spark gives the text of the whole file as that of its malformed row.
    (letter,) = bad.rows()
    assert "<row><k>b</k><v>many</v></row>" in letter["row"]
    assert letter["error"] == "no value for v"


def test_columns_that_have_the_names_of_ours(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_text(
        '{"_raw": "r", "_file": "f", "source": "s"}\n{"_raw": "r"\n'
    )
    bad, out = ab.MemorySink(), ab.MemorySink()
    source = ab.FileSource(
        tmp_path / "in", "json", "_raw string, _file string, source string", watch=False,
        malformed="dead-letter",
    )  # fmt: skip
    flow = ab.Dataflow("named")
    flow.source("it", source, dead_letter=bad).sink("out", out)
    completed(flow, tmp_path / "state")
    assert out.rows() == [{"_raw": "r", "_file": "f", "source": "s"}]
    assert [(row["operator"], row["row"]) for row in bad.rows()] == [("it", '{"_raw": "r"')]
