"""Unions, splits and functions over batches on a real Spark, against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from tests.spark.running import bag, commits, completed, counted, jobs, write_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ORDERS = "customer string, amount bigint"
PAYMENTS = "client string, paid bigint"
Page = list[tuple[str | None, int]]


def pages(seed: int, count: int, rows: int) -> list[Page]:
    chosen = random.Random(seed)
    return [
        [
            (chosen.choice(["ann", "bob", "cid", "dan", None]), chosen.randint(-9, 99))
            for _ in range(rows)
        ]
        for _ in range(count)
    ]


def remember(key: Any, row: Any, seen: Any) -> Any:
    """Order shows: everything a key has seen, as one text."""
    seen = [*(seen or []), row.amount]
    return (key.customer, ",".join(map(str, seen))), seen


def remembered(rows: list[tuple[Any, Any]]) -> list[tuple[Any, str]]:
    """What ``remember`` gives for rows in this order."""
    seen: dict[Any, list[Any]] = {}
    found = []
    for customer, amount in rows:
        seen.setdefault(customer, []).append(amount)
        found.append((customer, ",".join(map(str, seen[customer]))))
    return found


def got(sink: ab.MemorySink) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in sink.rows()]


def write_pages(directory: Path, given: list[Page]) -> None:
    for number, page in enumerate(given):
        rows = [{"customer": customer, "amount": amount} for customer, amount in page]
        write_json(directory / f"{number:03d}.json", rows)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_split_and_a_union_of_its_parts_keep_every_keys_order(
    tmp_path: Path, workers: int
) -> None:
    given = pages(1, 4, 40)
    write_pages(tmp_path / "in", given)
    outputs = {name: ab.MemorySink() for name in ("all", "big", "rest", "both")}
    flow = ab.Dataflow("parts")
    rows = flow.source(
        "orders", ab.FileSource(tmp_path / "in", "json", ORDERS, watch=False, max_files_per_step=2)
    )
    parts = rows.split(big="amount > 50", odd="amount % 2 <> 0", rest="true")
    parts["big"].sink("big", outputs["big"])
    parts["rest"].sink("rest", outputs["rest"])
    again = parts["rest"].union(parts["big"], parts["odd"])
    again.sink("both", outputs["both"])
    again.key_distribute("by-customer", "customer").stateful_map(
        "remember", remember, output="customer string, seen string"
    ).sink("all", outputs["all"])
    completed(flow, tmp_path / "state", workers=workers)
    everything = [row for page in given for row in page]
    assert bag(got(outputs["big"])) == bag(row for row in everything if row[1] > 50)
    assert bag(got(outputs["rest"])) == bag(
        row for row in everything if row[1] <= 50 and row[1] % 2 == 0
    )
    assert bag(got(outputs["both"])) == bag(everything)
    assert bag(got(outputs["all"])) == bag(remembered(everything))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_keyed_union_of_two_sources_is_tagged_before_one_exchange(
    tmp_path: Path, workers: int
) -> None:
    orders, payments = pages(2, 3, 25), pages(3, 3, 25)
    out = ab.MemorySink()
    flow = ab.Dataflow("accounts")
    one = flow.source("orders", ab.ScriptedSource(ORDERS, [*orders, ab.EOF]))
    other = flow.source("payments", ab.ScriptedSource(PAYMENTS, [*payments, ab.EOF]))
    both = flow.union(
        "input",
        order=one.key_by("customer"),
        payment=other.where("paid is not null").key_by(customer="client"),
    )

    def balance(key: Any, row: Any, owed: int | None) -> Any:
        change = row.amount if row.input == "order" else -row.paid
        owed = (owed or 0) + change
        return (key.customer, row.input, row.client, owed), owed

    both.distribute_by_key("by-customer").stateful_map(
        "balance",
        balance,
        state="owed bigint",
        output="customer string, input string, client string, owed bigint",
    ).sink("out", out)
    directory = tmp_path / "state"
    pipeline = completed(flow, directory, workers=workers)
    wanted: Counter[Any] = Counter()
    for customer, amount in (row for page in orders for row in page):
        wanted[customer] += amount
    for client, paid in (row for page in payments for row in page):
        wanted[client] -= paid
    kept = pipeline.state_table("balance")
    assert dict(zip(*kept.to_pydict().values(), strict=True)) == dict(wanted)
    assert Counter(row[1] for row in got(out)) == {"order": 75, "payment": 75}
    for customer, kind, client, _ in got(out):
        assert client == (None if kind == "order" else customer)
    assert sum(sum(counted(commit).values()) for commit in commits(directory)) == 150 + 150


def doubled(table: pa.Table) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index("amount"), "amount", pc.multiply(table.column("amount"), 2)
    )


def repeated(table: pa.Table) -> pa.Table:
    """Drops what is not positive; what ends in 7 comes twice."""
    amount = table.column("amount").to_numpy()
    times = np.where(amount <= 0, 0, np.where(amount % 10 == 7, 2, 1))
    return table.take(pa.array(np.repeat(np.arange(len(amount)), times)))


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kind", ["files", "script"])
def test_functions_over_batches_anywhere_keep_key_and_order(
    tmp_path: Path, workers: int, kind: str
) -> None:
    given = pages(4, 3, 40)
    write_pages(tmp_path / "in", given)
    source: Any = ab.ScriptedSource(ORDERS, [*given, ab.EOF])
    if kind == "files":
        source = ab.FileSource(tmp_path / "in", "json", ORDERS, watch=False, max_files_per_step=2)
    outputs = {name: ab.MemorySink() for name in ("raw", "first", "second")}
    flow = ab.Dataflow("batches")
    rows = flow.source("orders", source)
    cleaned = rows.map_batches("clean", repeated, output=ORDERS)
    cleaned.sink("raw", outputs["raw"])
    first = (
        cleaned.where("amount < 90")
        .map_batches("double", doubled, output=ORDERS)
        .key_distribute("by-customer", "customer")
        .map_batches("in-region", repeated, output=ORDERS)
        .stateful_map("remember", remember, output="customer string, seen string")
    )
    first.sink("first", outputs["first"])
    second = (
        first.map_batches(
            "lengths",
            lambda t: t.append_column("amount", pc.cast(pc.utf8_length(t.column("seen")), "int64")),
            output="customer string, amount bigint",
        )
        .stateful_map("remember-lengths", remember, output="customer string, seen string")
        .select("customer", "length(seen) as amount")
        .key_distribute("anew", "customer")
        .stateful_map("again", remember, output="customer string, seen string")
    )
    second.sink("second", outputs["second"])
    completed(flow, tmp_path / "state", workers=workers)

    def by_hand(rows: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        return [row for row in rows for _ in range(2 if row[1] % 10 == 7 else 1) if row[1] > 0]

    everything = by_hand([row for page in given for row in page])
    assert bag(got(outputs["raw"])) == bag(everything)
    seen = remembered(by_hand([(c, 2 * a) for c, a in everything if a < 90]))
    assert bag(got(outputs["first"])) == bag(seen)
    lengths = remembered([(customer, len(text)) for customer, text in seen])
    final = remembered([(customer, len(text)) for customer, text in lengths])
    assert bag(got(outputs["second"])) == bag(final)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_union_of_streams_of_different_depth_is_complete_and_one_job(
    tmp_path: Path, workers: int, spark: Any
) -> None:
    """A source, one region and two regions meet in a third: relays carry what is early."""
    given = pages(5, 3, 30)
    write_pages(tmp_path / "in", given)
    out, plain = ab.MemorySink(), ab.MemorySink()
    flow = ab.Dataflow("depths")
    rows = flow.source(
        "orders", ab.FileSource(tmp_path / "in", "json", ORDERS, watch=False, max_files_per_step=1)
    )
    one = rows.key_distribute("one", "customer").aggregate("counts", amount="count(*)")
    two = one.key_distribute("two", "amount").aggregate("how-many", n="count(*)")
    everything = rows.union(one, two.select("cast(amount as string) as customer", "n as amount"))
    everything.sink("plain", plain)
    everything.key_distribute("three", "customer").aggregate(
        "sums", n="count(*)", total="sum(amount)"
    ).sink("out", out)
    before = jobs(spark)
    pipeline = completed(flow, tmp_path / "state", workers=workers)
    assert jobs(spark) - before == 3
    seen: Counter[Any] = Counter()
    levels: Counter[Any] = Counter()
    met: list[tuple[Any, int]] = []
    for page in given:
        met += page
        seen.update(customer for customer, _ in page)
        changed = {customer: seen[customer] for customer, _ in page}
        met += changed.items()
        levels.update(changed.values())
        met += [(str(level), levels[level]) for level in set(changed.values())]
    assert bag(got(plain)) == bag(met)
    wanted = {
        customer: (
            sum(c == customer for c, _ in met),
            sum(amount for c, amount in met if c == customer),
        )
        for customer, _ in met
    }
    kept = pipeline.state_table("sums").to_pylist()
    assert {row["customer"]: (row["n"], row["total"]) for row in kept} == wanted
