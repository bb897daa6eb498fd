"""``anabranch state``: what is printed and written, and how errors end it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch.cli import app as cli
from anabranch.dataflow.flow import Dataflow
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.sinks.memory import MemorySink
from anabranch.sources.scripted import EOF, ScriptedSource
from tests.node.finished import finished
from tests.node.shop import PAGES, Story, program


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory of a pipeline that has made four steps."""
    finished(tmp_path / "shop")
    return tmp_path / "shop"


def invoke(*arguments: str | Path) -> str:
    ran = CliRunner().invoke(
        cli.app, ["state", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"}
    )
    assert ran.exit_code == 0, ran.output
    return ran.output


def failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> str:
    """What is said on stderr by a command that ends with 1."""
    monkeypatch.setattr(sys, "argv", ["anabranch", "state", *map(str, arguments)])
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (1, "")
    return printed.err


def test_the_operators_and_the_steps_are_listed(shop: Path) -> None:
    found = json.loads(invoke("list", "--directory", shop, "--json"))
    assert (found["step"], found["steps"]) == (4, [1, 2, 3, 4])
    by_name = {row["operator"]: row for row in found["operators"]}
    story = Story()
    assert by_name["seen"]["keys"] == len(story.seen)
    assert (by_name["times"]["keys"], by_name["times"]["region"]) == (len(story.counts), "by-times")
    assert by_name["seen"]["key"] == "customer string"
    text = invoke("list", "--directory", shop, "--step", "2")
    assert text.startswith("Step 2; steps 1 to 4 can be read.\n")
    assert "seen" in text


def test_rows_are_shown_at_a_step(shop: Path) -> None:
    found = json.loads(
        invoke("show", "--directory", shop, "--operator", "seen", "--step", "2", "--json")
    )
    rows = {row["customer"]: json.loads(row["state"]) for row in found["rows"]}
    assert (found["step"], rows) == (2, Story(PAGES[:2]).seen)
    assert found["columns"] == "customer string, state string, _worker int, _bin int"
    text = invoke("show", "--directory", shop, "--operator", "times", "--limit", "1")
    assert text.startswith(f"Step 4; 1 of {len(Story().counts)} rows.\n")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("[error] disk", "[error] disk"),
        ("[/INST]", "[/INST]"),
        ("[bold]loud", "[bold]loud"),
        (":apple:", ":apple:"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\r\nb\x9bc", "a\\x0d\\x0ab\\x9bc"),
    ],
)
def test_what_users_keep_is_shown_as_it_is(tmp_path: Path, key: str, text: str) -> None:
    finished(tmp_path, [[(key, 3)]])
    shown = invoke("show", "--directory", tmp_path, "--operator", "seen")
    assert shown.splitlines()[-1].startswith(f"{text}  ")


def test_names_of_columns_are_shown_as_they_are(tmp_path: Path) -> None:
    flow = Dataflow("names")
    source = ScriptedSource("k string, amount bigint", [[("a", 1)], EOF])
    keyed = flow.source("in", source).key_distribute("r", "k")
    keyed.aggregate("totals", **{"[red]n": "count(*)"}).sink("out", MemorySink())
    finished(tmp_path, made=program(flow))
    assert "[red]n" in invoke("show", "--directory", tmp_path, "--operator", "totals")
    assert "`[red]n` bigint" in invoke("list", "--directory", tmp_path)


@pytest.mark.parametrize("step", [None, 3])
def test_state_is_exported(shop: Path, tmp_path: Path, step: int | None) -> None:
    output = tmp_path / "times.parquet"
    more: list[Any] = [] if step is None else ["--step", step]
    said = invoke("export", "--directory", shop, "--operator", "times", "--output", output, *more)
    table = pq.read_table(output)
    story = Story(PAGES[:step])
    assert said == f"{len(story.counts)} rows of times after step {step or 4}: {output}\n"
    rows = {row["times"]: (row["n"], row["last"]) for row in table.to_pylist()}
    assert rows == story.counts
    assert table.schema.names[-2:] == ["_worker", "_bin"]


def test_an_export_says_in_json_what_it_wrote(shop: Path, tmp_path: Path) -> None:
    output = tmp_path / "seen.parquet"
    said = json.loads(
        invoke(*("export", "--directory", shop, "--operator", "seen"), "--output", output, "--json")
    )
    assert said == {
        "operator": "seen",
        "step": 4,
        "rows": len(Story().seen),
        "bytes": output.stat().st_size,
        "output": str(output),
    }


def test_errors_are_one_paragraph_with_a_code(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str | Path) -> str:
        return failure(monkeypatch, capsys, *arguments)

    assert "[directory.no_pipeline]" in said("list", "--directory", tmp_path)
    show = ("show", "--directory", shop, "--operator")
    assert "[query.unknown_operator]" in said(*show, "sen")
    assert "[query.unknown_step]" in said(*show, "seen", "--step", "9")
    Journal(FileDirectory(shop / "journal")).trim(2)
    expired = said(*show, "seen", "--step", "1", "--json")
    assert expired == (
        f"error: [query.snapshot_expired] Step 1 is no longer in the journal ({shop}). "
        "The journal has the steps 2 to 4.\n"
    )
    taken = tmp_path / "taken.parquet"
    taken.write_text("mine")
    export = ("export", "--directory", shop, "--operator", "seen", "--output")
    assert "[store.name_taken]" in said(*export, taken)
    assert "[store.unavailable]" in said(*export, tmp_path / "nowhere" / "x.parquet")


def test_spark_is_not_started(shop: Path, tmp_path: Path) -> None:
    """The whole command in a process without Java: it must not even look for it."""
    output = tmp_path / "seen.parquet"
    code = (
        "import sys\nfrom anabranch.cli.app import main\n"
        f"sys.argv = ['anabranch', 'state', 'export', '--directory', {str(shop)!r}, "
        f"'--operator', 'seen', '--output', {str(output)!r}]\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "from pyspark import SparkContext\nassert SparkContext._gateway is None\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert pq.read_table(output).num_rows == len(Story().seen)


def test_the_list_is_readable_at_80_columns(tmp_path: Path) -> None:
    flow = Dataflow("wide")
    source = ScriptedSource("k string, amount bigint", [[("a", 1)], EOF])
    keyed = flow.source("in", source).key_distribute("by-a-long-name", "k")
    keyed.aggregate("totals", n="count(*)", price="last(amount)").sink("out", MemorySink())
    finished(tmp_path, made=program(flow))
    listed = CliRunner().invoke(
        cli.app, ["state", "list", "--directory", str(tmp_path)], env={"COLUMNS": "80"}
    )
    lines = listed.output.splitlines()
    assert re.fullmatch(r"totals: 1 key, 1 run, [\d.]+ KiB, in by-a-long-name", lines[2])
    assert lines[3:] == [
        "  kind   aggregate(n=count, price=last(False))",
        "  key    k string",
        "  state  n bigint, price bigint, `price/seen` boolean",
    ]


def test_show_export_and_copy_take_what_they_act_on_as_arguments(
    shop: Path, tmp_path: Path
) -> None:
    shown = invoke("show", "times", "--directory", shop)
    assert shown == invoke("show", "--directory", shop, "--operator", "times")
    invoke("export", "times", tmp_path / "a.parquet", "--directory", shop)
    invoke(*("export", "--directory", shop, "--operator", "times"), "--output", tmp_path / "b")
    assert pq.read_table(tmp_path / "a.parquet") == pq.read_table(tmp_path / "b")


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(("show",), "OPERATOR"), (("export",), "OPERATOR"), (("export", "seen"), "FILE")],
)
def test_a_missing_argument_is_wrong_usage(
    shop: Path, arguments: tuple[str, ...], missing: str
) -> None:
    ran = CliRunner().invoke(cli.app, ["state", *arguments, "--directory", str(shop)])
    assert ran.exit_code == 2
    assert f"Missing argument '{missing}'" in ran.output


def test_parts_of_an_aggregate_have_names_that_need_no_quotes(tmp_path: Path) -> None:
    flow = Dataflow("parts")
    source = ScriptedSource("k string, amount bigint", [[("a", 1), ("a", 2)], EOF])
    keyed = flow.source("in", source).key_distribute("r", "k")
    keyed.aggregate("totals", price="last(amount)").sink("out", MemorySink())
    finished(tmp_path, made=program(flow))
    output = tmp_path / "totals.parquet"
    invoke("export", "totals", output, "--directory", tmp_path)
    table = pq.read_table(output)
    assert table.schema.names == ["k", "price", "price_seen", "_worker", "_bin"]
    assert table.select(["k", "price", "price_seen"]).to_pylist() == [
        {"k": "a", "price": 2, "price_seen": True}
    ]
