"""Steps on a real Spark: what each kind of dataflow gives, and what its commits say."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ReadFailed
from tests.spark.running import (
    bag,
    commits,
    completed,
    counted,
    failure,
    jobs,
    published,
    rows_of,
    state_of,
    stopped_after,
    write_json,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ORDERS = "customer string, amount bigint"
PAGES: list[list[tuple[str | None, int | None]]] = [
    [("ann", 3), ("bob", 10), ("ann", -1), ("cid", 5)],
    [("bob", 1), ("dan", 7), (None, 4)],
    [("ann", 8), ("ann", 2), ("eve", None), ("bob", -3), (None, 6)],
]


def orders(script: list[Any]) -> ab.ScriptedSource:
    return ab.ScriptedSource(ORDERS, script)


def running_total(key: Any, row: Any, total: int | None) -> Any:
    total = (total or 0) + row.amount
    return (key.customer, row.amount, total), total


def totals_by_hand(pages: list[list[tuple[Any, Any]]]) -> list[tuple[Any, Any, Any]]:
    """What ``running_total`` emits, row by row, over the rows with an amount."""
    kept: dict[Any, int] = {}
    emitted = []
    for customer, amount in (row for page in pages for row in page):
        if amount is not None:
            kept[customer] = kept.get(customer, 0) + amount
            emitted.append((customer, amount, kept[customer]))
    return emitted


class Outputs:
    """The sinks of ``shop``, all made anew."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names = ("parquet", "json")
        self.memory = {
            name: ab.MemorySink() for name in ("totals", "again", "large", "spread", "raw")
        }


def shop(script: list[Any], outputs: Outputs) -> ab.Dataflow:
    """Two regions, a chain after each, and seven sinks: most of what a graph can be."""
    flow = ab.Dataflow("shop")
    rows = flow.source("orders", orders(script))
    rows.sink("raw", outputs.memory["raw"])
    totals = (
        rows.where("amount is not null")
        .key_distribute("by-customer", "customer")
        .stateful_map(
            "running-total",
            running_total,
            state="total bigint",
            output="customer string, amount bigint, total bigint",
        )
    )
    totals.sink("totals", outputs.memory["totals"])
    totals.sink("again", outputs.memory["again"])
    totals.sink("files", ab.FileSink(outputs.directory / "parquet"))
    totals.where("total >= 10").select("upper(customer) as name", "total").sink(
        "large", outputs.memory["large"]
    )
    spread = totals.key_distribute("by-tens", tens="total div 10").aggregate(
        "tens", n="count(*)", least="min(amount)"
    )
    spread.with_columns(twice="n * 2").sink("spread", outputs.memory["spread"])
    spread.local().sink("lines", ab.FileSink(outputs.directory / "json", "json"))
    return flow


def tens_by_hand(pages: list[list[tuple[Any, Any]]]) -> dict[int, tuple[int, int]]:
    kept: dict[int, tuple[int, int]] = {}
    for _, amount, total in totals_by_hand(pages):
        tens = int(total / 10)  # div rounds towards zero
        n, least = kept.get(tens, (0, amount))
        kept[tens] = (n + 1, min(least, amount))
    return kept


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, _started_spark: SparkSession
) -> tuple[Path, Outputs, ab.Pipeline, int]:
    """``shop`` over all pages, with the number of Spark jobs that it took."""
    home = tmp_path_factory.mktemp("shop")
    outputs = Outputs(home)
    before = jobs(_started_spark)
    pipeline = completed(shop([*PAGES, ab.EOF], outputs), home / "state")
    return home / "state", outputs, pipeline, jobs(_started_spark) - before


Ran = tuple[Path, Outputs, ab.Pipeline, int]


def test_a_step_is_one_spark_job(ran: Ran) -> None:
    _, _, pipeline, jobs_made = ran
    assert jobs_made == pipeline.status().step == len(PAGES)


def test_several_sinks_of_one_stream_get_the_same_rows(ran: Ran) -> None:
    _, outputs, _, _ = ran
    wanted = totals_by_hand(PAGES)
    for name in ("totals", "again"):
        assert bag(tuple(r.values()) for r in outputs.memory[name].rows()) == bag(wanted)
    assert bag(tuple(r.values()) for r in published(outputs.directory / "parquet")) == bag(wanted)
    assert bag(tuple(r.values()) for r in outputs.memory["raw"].rows()) == bag(
        row for page in PAGES for row in page
    )


def test_each_steps_output_is_that_steps_rows(ran: Ran) -> None:
    _, outputs, _, _ = ran
    steps = outputs.memory["totals"].steps()
    before = 0
    for number in (1, 2, 3):
        emitted = totals_by_hand(PAGES[:number])
        assert bag(rows_of(steps[number])) == bag(emitted[before:])
        before = len(emitted)


def test_where_and_select_after_a_stateful_operator(ran: Ran) -> None:
    _, outputs, _, _ = ran
    wanted = [
        (None if customer is None else customer.upper(), total)
        for customer, _, total in totals_by_hand(PAGES)
        if total >= 10
    ]
    assert bag(tuple(r.values()) for r in outputs.memory["large"].rows()) == bag(wanted)


def test_an_aggregate_in_the_second_region(ran: Ran) -> None:
    _, outputs, pipeline, _ = ran
    assert {row[0]: row[1:] for row in rows_of(pipeline.state_table("tens"))} == tens_by_hand(PAGES)
    wanted = []
    for number in (1, 2, 3):
        now, then = tens_by_hand(PAGES[:number]), tens_by_hand(PAGES[: number - 1])
        wanted += [(k, *v, v[0] * 2) for k, v in now.items() if then.get(k) != v]
    assert bag(tuple(r.values()) for r in outputs.memory["spread"].rows()) == bag(wanted)
    assert bag((r["tens"], r["n"], r["least"]) for r in published(outputs.directory / "json")) == (
        bag(row[:3] for row in wanted)
    )


def test_commits_count_the_rows_that_passed(ran: Ran) -> None:
    directory, outputs, _, _ = ran
    for number, commit in enumerate(commits(directory), start=1):
        emitted = totals_by_hand(PAGES[:number])[len(totals_by_hand(PAGES[: number - 1])) :]
        counts = counted(commit)
        wanted = {
            "sink raw": len(PAGES[number - 1]),
            "sink totals": len(emitted),
            "sink again": len(emitted),
            "sink files": len(emitted),
            "sink large": sum(total >= 10 for _, _, total in emitted),
            "sink spread": outputs.memory["spread"].steps()[number].num_rows,
            "sink lines": outputs.memory["spread"].steps()[number].num_rows,
        }
        assert {place: n for place, n in counts.items() if place.startswith("sink")} == wanted
        by_sink: dict[str, int] = {}
        for file in commit.staged:
            by_sink[file.sink] = by_sink.get(file.sink, 0) + file.rows
        assert by_sink == {p.removeprefix("sink "): n for p, n in wanted.items() if n}
        arriving = [n for place, n in counts.items() if place.startswith("edge")]
        assert len(emitted) in arriving
        assert len(PAGES[number - 1]) in arriving
        for count in commit.counts:
            assert sum(count.bin_rows) == count.rows


def test_a_plain_read_of_the_output_sees_each_row_once(ran: Ran, spark: SparkSession) -> None:
    _, outputs, _, _ = ran
    rows = spark.read.parquet(str(outputs.directory / "parquet")).collect()
    assert bag(tuple(row) for row in rows) == bag(totals_by_hand(PAGES))


def test_a_restart_with_other_workers_continues(ran: Ran, tmp_path: Path) -> None:
    _, outputs, pipeline, _ = ran
    again = Outputs(tmp_path)
    state = tmp_path / "state"
    stopped_after(1, shop(PAGES[:1], again), state, workers=2)
    stopped_after(2, shop(PAGES[:2], again), state, workers=3)
    last = completed(shop([*PAGES, ab.EOF], again), state, workers=1)
    for operator in ("running-total", "tens"):
        assert bag(rows_of(last.state_table(operator))) == bag(
            rows_of(pipeline.state_table(operator))
        )
    for name, sink in outputs.memory.items():
        for step, rows in sink.steps().items():
            assert bag(rows_of(again.memory[name].steps()[step])) == bag(rows_of(rows))
    for name in outputs.names:
        assert bag(published(tmp_path / name)) == bag(published(outputs.directory / name))
    placed = [(c.placement[0].generation, c.placement[0].count) for c in commits(state)]
    assert placed == [(1, 2), (2, 3), (3, 1)]


def test_running_a_completed_pipeline_again_does_nothing(ran: Ran) -> None:
    directory, outputs, _, _ = ran
    before = published(outputs.directory / "parquet")
    again = completed(shop([*PAGES, ab.EOF], outputs), directory)
    assert again.status().step == 3
    assert published(outputs.directory / "parquet") == before


def test_two_keyed_consumers_of_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Two regions at the same depth, of different keys and sizes, share one exchange."""
    flow = ab.Dataflow("fork")
    rows = flow.source("orders", orders([*PAGES, ab.EOF])).where("amount is not null")
    by_customer, by_sign, firsts = ab.MemorySink(), ab.MemorySink(), ab.MemorySink()
    customers = rows.key_distribute("by-customer", "customer")
    customers.aggregate("totals", total="sum(amount)").sink("totals-out", by_customer)
    customers.stateful_map(
        "firsts",
        lambda key, row, seen: (None if seen else row, True),
        state="s boolean",
        output=ORDERS,
    ).sink("firsts-out", firsts)
    rows.key_distribute("by-sign", up="amount > 0").aggregate("signs", n="count(*)").sink(
        "signs-out", by_sign
    )
    before = jobs(spark)
    pipeline = completed(flow, tmp_path / "state", workers=3)
    assert jobs(spark) - before == 3
    known = [(c, a) for page in PAGES for c, a in page if a is not None]
    totals: dict[Any, int] = {}
    for customer, amount in known:
        totals[customer] = totals.get(customer, 0) + amount
    assert state_of(pipeline, "totals") == totals
    signs = [amount > 0 for _, amount in known]
    assert state_of(pipeline, "signs") == {True: sum(signs), False: len(signs) - sum(signs)}
    first: dict[Any, int] = {}
    for customer, amount in known:
        first.setdefault(customer, amount)
    assert bag(tuple(r.values()) for r in firsts.rows()) == bag(first.items())
    assert by_customer.rows()
    assert by_sign.rows()


def test_a_region_may_be_called_anything(tmp_path: Path) -> None:
    """Names of regions and of the places that rows without a key go to do not meet."""
    flow = ab.Dataflow("names")
    raw = ab.MemorySink()
    rows = flow.source("orders", orders([*PAGES, ab.EOF]))
    rows.sink("raw", raw)
    rows.key_distribute("unkeyed", "customer").aggregate("n", n="count(*)").sink(
        "n-out", ab.MemorySink()
    )
    pipeline = completed(flow, tmp_path / "state", workers=2)
    assert len(raw.rows()) == sum(map(len, PAGES))
    counts: dict[Any, int] = {}
    for page in PAGES:
        for customer, _ in page:
            counts[customer] = counts.get(customer, 0) + 1
    assert state_of(pipeline, "n") == counts


def test_a_source_straight_to_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    """No region, no exchange: as many tasks as Spark reads with, each stages what it has."""
    for number in range(3):
        write_json(tmp_path / "in" / f"{number}.json", [{"v": number * 10 + i} for i in range(9)])
    flow = ab.Dataflow("copy")
    source = ab.FileSource(tmp_path / "in", "json", "v bigint", watch=False, max_files_per_step=2)
    rows = flow.source("rows", source)
    rows.where("v % 2 = 0").select("v", "v * v as square").sink(
        "even", ab.FileSink(tmp_path / "even")
    )
    rows.sink("all", ab.FileSink(tmp_path / "all", "json"))
    before = jobs(spark)
    completed(
        flow, tmp_path / "state", workers=3, spark_conf={"spark.sql.files.maxPartitionBytes": "30"}
    )
    assert jobs(spark) - before == 2
    values = [n * 10 + i for n in range(3) for i in range(9)]
    assert bag(published(tmp_path / "all")) == bag({"v": v} for v in values)
    assert bag(published(tmp_path / "even")) == bag(
        {"v": v, "square": v * v} for v in values if v % 2 == 0
    )
    made = commits(tmp_path / "state")
    assert [counted(c)["sink all"] for c in made] == [18, 9]
    assert all(len(c.staged) > 2 for c in made), "the files were to be split"


def test_many_files_are_still_one_job(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(50):
        write_json(tmp_path / "in" / f"{number:02}.json", [{"k": number % 7, "v": number}])
    flow = ab.Dataflow("many")
    source = ab.FileSource(tmp_path / "in", "json", "k int, v bigint", watch=False)
    flow.source("rows", source).key_distribute("by-k", "k").aggregate("t", t="sum(v)").sink(
        "t-out", ab.MemorySink()
    )
    before = jobs(spark)
    pipeline = completed(flow, tmp_path / "state")
    assert jobs(spark) - before == 1
    assert state_of(pipeline, "t") == {k: sum(range(k, 50, 7)) for k in range(7)}


def numbers(partition: int, start: int, end: int) -> dict[str, list[int]]:
    return {"p": [partition] * (end - start), "n": list(range(start, end))}


def test_generator_file_and_script_in_one_flow(tmp_path: Path) -> None:
    """Three sources into regions of their own, and their order by source, partition, position."""
    write_json(tmp_path / "in" / "a.json", [{"p": 9, "n": n} for n in range(40)])
    flow = ab.Dataflow("three")

    def joined(key: Any, row: Any, seen: str | None) -> Any:
        return None, (seen or "") + f"{row.p}.{row.n} "

    made = flow.source("made", ab.GeneratorSource(numbers, "p int, n bigint", 3, 40, 100))
    report = flow.source(
        "told", ab.ScriptedSource("p int, n bigint", [[(7, 1)], ab.PAUSE, [(7, 2), (7, 3)], ab.EOF])
    )
    read = flow.source(
        "read", ab.FileSource(tmp_path / "in", "json", "p int, n bigint", watch=False)
    )
    for name, stream in (("made", made), ("told", report), ("read", read)):
        stream.key_distribute(f"by-p-{name}", "p").stateful_map(
            f"joined-{name}", joined, state="s string", output="p int"
        ).sink(f"nothing-{name}", ab.MemorySink())
    pipeline = completed(flow, tmp_path / "state", workers=2)
    assert pipeline.status().step == 3
    shares = {0: 34, 1: 33, 2: 33}
    assert state_of(pipeline, "joined-made") == {
        p: "".join(f"{p}.{n} " for n in range(count)) for p, count in shares.items()
    }
    assert state_of(pipeline, "joined-told") == {7: "7.1 7.2 7.3 "}
    assert state_of(pipeline, "joined-read") == {9: "".join(f"9.{n} " for n in range(40))}
    assert [d for d in map(counted, commits(tmp_path / "state"))][2]["sink nothing-made"] == 0


def test_a_source_without_input_does_not_end_the_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flow = ab.Dataflow("empty-and-late")
    sink, other = ab.MemorySink(), ab.MemorySink()
    flow.source("empty", ab.FileSource(tmp_path / "in", "json", "v int", watch=False)).sink(
        "nothing", other
    )
    late = orders([ab.PAUSE, ab.PAUSE, PAGES[0], ab.PAUSE, PAGES[1], ab.EOF])
    flow.source("late", late).sink("rows", sink)
    pipeline = completed(flow, tmp_path / "state")
    assert pipeline.status().step == 2
    assert bag(tuple(r.values()) for r in sink.rows()) == bag(PAGES[0] + PAGES[1])
    assert other.rows() == []


def test_nothing_to_read_at_all_completes_without_a_step(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flow = ab.Dataflow("empty")
    rows = flow.source("empty", ab.FileSource(tmp_path / "in", "csv", "v int", watch=False))
    rows.key_distribute("by-v", "v").aggregate("n", n="count(*)").sink("n-out", ab.MemorySink())
    pipeline = completed(flow, tmp_path / "state")
    assert pipeline.status().step == 0
    assert pipeline.state_table("n").num_rows == 0


def test_a_step_whose_rows_are_all_filtered_away_is_committed(tmp_path: Path) -> None:
    """Catalyst can prove this input empty; the workers run all the same."""
    for number in range(2):
        write_json(tmp_path / "in" / f"{number}.json", [{"v": number}])
    flow = ab.Dataflow("nothing-left")
    sink = ab.MemorySink()
    source = ab.FileSource(tmp_path / "in", "json", "v int", watch=False, max_files_per_step=1)
    rows = flow.source("rows", source)
    rows.where("1 = 0").key_distribute("by-v", "v").aggregate("n", n="count(*)").sink("n-out", sink)
    rows.where("v < 0").sink("negative", sink2 := ab.MemorySink())
    pipeline = completed(flow, tmp_path / "state", workers=2)
    assert pipeline.status().step == 2
    assert (sink.rows(), sink2.rows(), pipeline.state_table("n").num_rows) == ([], [], 0)
    for commit in commits(tmp_path / "state"):
        assert set(counted(commit).values()) == {0}
        assert commit.staged == ()


def test_a_failing_read_fails_the_step_and_a_restart_repeats_it(tmp_path: Path) -> None:
    script = [PAGES[0], ab.Fail("the line is cut"), PAGES[1], PAGES[2], ab.EOF]
    flow = ab.Dataflow("cut")
    sink = ab.MemorySink()
    rows = flow.source("orders", orders(script)).where("amount is not null")
    rows.key_distribute("by-customer", "customer").stateful_map(
        "running-total",
        running_total,
        state="total bigint",
        output="customer string, amount bigint, total bigint",
    ).sink("totals", sink)
    error = failure(flow, tmp_path / "state")
    assert isinstance(error, ReadFailed)
    assert "the line is cut" in str(error)
    assert set(sink.steps()) == {1}, "what is committed is published all the same"
    assert not [t for t in threading.enumerate() if t.name.startswith("anabranch-publish")]
    pipeline = completed(flow, tmp_path / "state")
    assert bag(tuple(r.values()) for r in sink.rows()) == bag(totals_by_hand(PAGES))
    assert pipeline.status().step == 3
