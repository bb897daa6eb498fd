"""What is found before Spark starts: typical mistakes, their messages, and their remedies."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import anabranch as ab
from anabranch.dataflow.stream import Stream
from anabranch.errors import DirectoryInUse, SourceUnavailable, StoreUnavailable, TargetTaken
from anabranch.node.preflight import check_before_spark
from anabranch.run import _leadership
from anabranch.spark.code import dump_code

LOCK = threading.Lock()
SCHEMA = "k string, n bigint"

Mistake = Callable[[Stream], Stream]


def flow_of(place: Path, build: Mistake, sink: ab.FileSink | None = None) -> ab.Dataflow:
    (place / "in").mkdir(exist_ok=True)
    flow = ab.Dataflow("shop")
    rows = flow.source("orders", ab.FileSource(place / "in", "json", SCHEMA))
    build(rows.key_distribute("by-k", "k")).sink("out", sink or ab.FileSink(place / "out"))
    return flow


def count(rows: Stream) -> Stream:
    return rows.aggregate("count", n="count(*)")


def javas() -> set[int]:
    """The Java processes that this one has started, directly or not."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if "java" in child.name()}


def refusal(flow: ab.Dataflow, place: Path) -> str:
    """What ``ab.run`` says of a dataflow; nothing was started for it."""
    before = javas()
    with pytest.raises(ab.AnabranchError) as error:
        ab.run(flow, directory=place / "state")
    assert javas() == before
    assert not (place / "state").exists()
    return str(error.value)


def check(flow: ab.Dataflow, place: Path) -> None:
    check_before_spark(flow.graph(), place / "state", dump_code)


# Each mistake, what the message says of it, and the program after the message was followed.


def locked(key: Any, row: Any, state: Any) -> Any:
    with LOCK:
        return None, 1


def calls_locked(key: Any, row: Any, state: Any) -> Any:
    return locked(key, row, state)


def locked_inside(key: Any, row: Any, state: Any) -> Any:
    lock = threading.Lock()
    with lock:
        return None, 1


def captures(lock: Any) -> Any:
    def captured(key: Any, row: Any, state: Any) -> Any:
        with lock["first"][0]:
            return None, 1

    return captured


class Keeps:
    def __init__(self) -> None:
        self.connection = LOCK

    def method(self, key: Any, row: Any, state: Any) -> Any:
        return None, 1


def default(key: Any, row: Any, state: Any, lock: Any = LOCK) -> Any:
    return None, 1


class Locked(ab.Process):
    seen = ab.ValueState("n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        with LOCK:
            return None


class HasLock(ab.Process):
    seen = ab.ValueState("n bigint")
    lock = LOCK

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        return None


class MakesLock(ab.Process):
    seen = ab.ValueState("n bigint")

    def __init__(self) -> None:
        self.LOCK = threading.Lock()

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        with self.LOCK:
            return None


def mapped(function: Any) -> Mistake:
    return lambda rows: rows.stateful_map("map", function, state="n bigint", output="n bigint")


def processed(process: type[ab.Process]) -> Mistake:
    return lambda rows: rows.process("process", process, output="n bigint")


def by_value(made: Any) -> Any:
    """A copy that is pickled with all it holds, as the code of a program is that Python runs."""
    members = vars(made).items() if isinstance(made, type) else ()
    for function in (made, *(value for _, value in members)):
        if callable(function) and hasattr(function, "__code__"):
            function.__module__ = "__main__"
    made.__module__ = "__main__"
    return made


PLACE = f"({__file__}:"
UNPICKLABLE = [
    (mapped, locked, f'stateful_map "map": function locked {PLACE}', '"LOCK"', "inside locked"),
    (mapped, calls_locked, "function calls_locked", f'"LOCK" in locked {PLACE}', "inside locked"),
    (
        *(mapped, captures({"first": [LOCK]}), "captures.<locals>.captured"),
        *("\"lock['first'][0]\"", "inside captured"),
    ),
    (mapped, Keeps().method, "function Keeps.method", '"self.connection"', "inside method"),
    (mapped, functools.partial(default, lock=LOCK), "default", '"lock"', "inside default"),
    (mapped, default, "function default", '"lock"', "inside default"),
    (
        *(processed, Locked, 'process "process": class Locked'),
        *(f'"LOCK" in Locked.on_rows {PLACE}', "in __init__, as self.LOCK"),
    ),
    (processed, HasLock, "class HasLock", '"lock"', "in HasLock.__init__"),
]


@pytest.mark.parametrize(
    ("add", "made", "where", "variable", "do"), UNPICKLABLE, ids=range(len(UNPICKLABLE))
)
def test_code_that_cannot_be_pickled_is_named_with_the_variable(
    add: Callable[[Any], Mistake], made: Any, where: str, variable: str, do: str, tmp_path: Path
) -> None:
    for value in (locked, calls_locked, default, Keeps.method, Keeps, Locked, HasLock):
        by_value(value)
    text = refusal(flow_of(tmp_path, add(made)), tmp_path)
    assert where in text
    assert f"uses {variable}" in text
    assert "a _thread.lock, which cannot be sent to tasks: TypeError: cannot pickle" in text
    assert f"Create it {do}" in text


@pytest.mark.parametrize(
    ("add", "made"), [(mapped, locked_inside), (processed, MakesLock)], ids=["function", "class"]
)
def test_what_is_created_where_the_message_says_can_be_sent(
    add: Callable[[Any], Mistake], made: Any, tmp_path: Path
) -> None:
    check(flow_of(tmp_path, add(by_value(made))), tmp_path)


def test_a_callback_stays_on_the_driver_and_may_hold_anything(tmp_path: Path) -> None:
    flow = ab.Dataflow("shop")
    (tmp_path / "in").mkdir()
    orders = flow.source("orders", ab.FileSource(tmp_path / "in", "json", SCHEMA))
    orders.sink("out", ab.CallbackSink(lambda df, step: LOCK.acquire()))
    check(flow, tmp_path)
    other = ab.CallbackSink(lambda df, step: LOCK.release())
    assert dump_code(flow.graph().sinks()[0].sink) != dump_code(other)


PLAIN: list[tuple[Mistake, str, Mistake]] = [
    (
        lambda rows: rows.aggregate("out", n="count(*)"),
        'sink "out": its name is taken by aggregate "out". Give it another name',
        count,
    ),
    (
        lambda rows: rows.aggregate("orders", n="count(*)"),
        'its name is taken by source "orders"',
        count,
    ),
    (
        lambda rows: rows.aggregate("a/b", n="count(*)"),
        "the name 'a/b' cannot be a file name. Use only letters, digits",
        lambda rows: rows.aggregate("a-b", n="count(*)"),
    ),
    (
        lambda rows: rows.aggregate("count", k="count(*)"),
        'column "k" has the name of a key column, which the output already has',
        count,
    ),
    (
        lambda rows: rows.select("k", "m").local(),
        'there is no column "m"',
        lambda rows: rows.select("k", "n").local(),
    ),
    (
        lambda rows: rows.stateful_map("m", locked_inside, state="n long_", output="n bigint"),
        'state: the schema cannot be read: column "n" has type "long_", which is not supported',
        lambda rows: rows.stateful_map("m", locked_inside, state="n long", output="n bigint"),
    ),
    (
        lambda rows: rows.select("k as k", "n as K").local(),
        'columns "k" and "K" differ only in case',
        lambda rows: rows.select("k as k", "n as m").local(),
    ),
    (
        lambda rows: rows.local().aggregate("count", n="count(*)"),
        'Call .key_distribute("name", "column") between local() and it',
        lambda rows: rows.local().key_distribute("again", "k").aggregate("count", n="count(*)"),
    ),
]


@pytest.mark.parametrize(("mistake", "text", "remedy"), PLAIN, ids=range(len(PLAIN)))
def test_names_clashes_and_schemas_are_checked_without_spark(
    mistake: Mistake, text: str, remedy: Mistake, tmp_path: Path
) -> None:
    assert text in refusal(flow_of(tmp_path, mistake), tmp_path)
    check(flow_of(tmp_path, remedy), tmp_path)


def test_all_of_it_is_told_at_once(tmp_path: Path) -> None:
    by_value(locked)
    flow = flow_of(tmp_path, lambda rows: mapped(locked)(count(rows)).select("nothing"))
    text = refusal(flow, tmp_path)
    assert "has 2 problems" in text
    assert 'there is no column "nothing"' in text
    assert 'uses "LOCK"' in text


def test_what_only_spark_knows_is_left_to_it(tmp_path: Path) -> None:
    flow = flow_of(
        tmp_path,
        lambda rows: (
            rows.where("n > nothing(3)")
            .select("n + 1 as m", "m as same", "*")
            .transform("joined", lambda df: df)
            .select("whatever")
        ),
    )
    check(flow, tmp_path)


def test_a_missing_input_directory_is_found_and_can_be_created(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, count)
    (tmp_path / "in").rmdir()
    with pytest.raises(SourceUnavailable) as error:
        ab.run(flow, directory=tmp_path / "state")
    assert f'source "orders": there is no file or directory {tmp_path}/in' in str(error.value)
    assert "Create it before the pipeline starts" in str(error.value)
    (tmp_path / "in").mkdir()
    check(flow, tmp_path)


def test_an_input_that_was_read_and_has_ended_may_be_gone(tmp_path: Path) -> None:
    flow = ab.Dataflow("shop")
    source = ab.FileSource(tmp_path / "in", "json", SCHEMA, watch=False)
    flow.source("orders", source).sink("out", ab.FileSink(tmp_path / "out"))
    with pytest.raises(SourceUnavailable):
        check(flow, tmp_path)
    (tmp_path / "state" / "journal" / "leader").mkdir(parents=True)
    with pytest.raises(SourceUnavailable):
        check(flow, tmp_path)
    (tmp_path / "state" / "journal" / "commit").mkdir()
    check(flow, tmp_path)


def test_a_file_in_the_way_of_the_output_is_found_and_can_be_removed(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, count, ab.FileSink(tmp_path / "file" / "out"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r'sink "out": .*a file is in the way') as error:
        ab.run(flow, directory=tmp_path / "state")
    assert f"({tmp_path}/file). Remove the file" in str(error.value)
    (tmp_path / "file").unlink()
    check(flow, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_directory_that_may_not_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(StoreUnavailable, match="may not write to its directory"):
        check(flow_of(tmp_path, count), tmp_path)


def test_the_output_of_another_pipeline_is_found_by_a_fresh_one(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, count)
    owner = tmp_path / "out" / "_manifest" / "owner.json"
    owner.parent.mkdir(parents=True)
    owner.write_text('{"pipeline": "another", "sink": "out"}')
    with pytest.raises(TargetTaken, match='sink "out": its directory holds the output of another'):
        ab.run(flow, directory=tmp_path / "state")
    (tmp_path / "state" / "journal" / "commit").mkdir(parents=True)
    check(flow, tmp_path)


def test_a_directory_in_use_is_refused_at_once(tmp_path: Path) -> None:
    leader = _leadership(tmp_path / "state")
    leader.lead(False, "here", os.getpid(), 0)
    before = javas()
    with pytest.raises(DirectoryInUse, match="runs this pipeline"):
        ab.run(flow_of(tmp_path, count), directory=tmp_path / "state")
    assert javas() == before
    leader.release()


PROGRAM = """
    import threading
    import anabranch as ab

    LOCK = threading.Lock()
    flow = ab.Dataflow("shop")
    rows = flow.source("orders", ab.FileSource("in", "json", "k string, n bigint"))
    keyed = rows.key_distribute("by-k", "k")
    mapped = keyed.stateful_map(
        "map", lambda key, row, state: LOCK.acquire() and None, state="n int", output="n int"
    )
    mapped.sink("orders", ab.FileSink("out"))
"""


@pytest.mark.parametrize("node", ["process", "inline"])
def test_the_shell_command_says_it_before_java_is_called(node: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "in").mkdir()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/java-was-called\nexit 1\n")
    java.chmod(0o700)
    command = [sys.executable, "-m", "anabranch.cli.app", "run", "shop.py:flow"]
    done = subprocess.run(
        [*command, "--directory", "state", "--node", node],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "java"), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert 'sink "orders": its name is taken by source "orders"' in done.stdout + done.stderr
    assert f"(in {tmp_path}/shop.py" in done.stdout + done.stderr or 'uses "LOCK"' in (
        done.stdout + done.stderr
    )
    assert not (tmp_path / "java-was-called").exists()
