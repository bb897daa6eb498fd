"""Every type that can be a key, through a real pipeline; and those that cannot."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.dataflow.stream import Stream
from anabranch.errors import InvalidDataflow
from tests.spark.running import bag, completed, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

AT = dt.datetime(2024, 2, 29, 23, 59, 59, 999999, dt.UTC)
OLD = dt.datetime(1582, 10, 10, tzinfo=dt.UTC)
LONG = "straße " * 40

KEYS: dict[str, tuple[str, list[Any]]] = {
    "tiny": ("tinyint", [-128, 127, 0]),
    "small": ("smallint", [-(2**15), 2**15 - 1, 0]),
    "whole": ("int", [-(2**31), 2**31 - 1, 0]),
    "big": ("bigint", [-(2**63), 2**63 - 1, 0]),
    "text": ("string", ["", "a", "A", "ä", "a\u0308", "a\x00", LONG]),
    "bytes": ("binary", [b"", b"\x00", b"\xff\x00", b"a" * 300]),
    "flag": ("boolean", [True, False]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "at": ("timestamp", [AT, dt.datetime(1, 1, 1, tzinfo=dt.UTC)]),
    "local": ("timestamp_ntz", [AT.replace(tzinfo=None), OLD.replace(tzinfo=None)]),
    "price": ("decimal(10,2)", [Decimal("0.00"), Decimal("-99999999.99"), Decimal("1.10")]),
    "wide": ("decimal(38,10)", [Decimal("1E-10"), Decimal("-" + "9" * 28 + ".1234567890")]),
    "pair": (
        "struct<a:int,b:string>",
        [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": None}],
    ),
    "deep": (
        "struct<d:date,s:struct<p:decimal(5,1),f:boolean>>",
        [
            {"d": dt.date(2024, 1, 1), "s": {"p": Decimal("1.5"), "f": True}},
            {"d": dt.date(2024, 1, 1), "s": None},
            {"d": None, "s": {"p": None, "f": None}},
        ],
    ),
}
"""A column for each key type: its type and values. NULL is a value of every one."""

SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in KEYS.items()) + ", v bigint"
COUNT = 20
PER_FLOW = 5


def row(number: int) -> tuple[Any, ...]:
    """The row of that number: each column goes round its values and NULL at its own pace."""
    picked = []
    for _, values in KEYS.values():
        every = [*values, None]
        picked.append(every[number * 7 % 11 % len(every)])
    return (*picked, number)


def running(key: Any, row: Any, state: Any) -> Any:
    """Keeps what it saw, in order; emits the key as it was given."""
    seen = "" if state is None else state
    return (*key, row.v), f"{seen}{row.v},"


def batched(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same over tables."""
    places, values = rows.column("_key"), rows.column("v")
    seen = [text or "" for text in state.column("seen").to_pylist()]
    for place, v in zip(places.to_pylist(), values.to_pylist(), strict=True):
        seen[place] += f"{v},"
    keys = [state.column(name).take(places) for name in state.column_names[:-2]]
    output = {f"k{i}": key for i, key in enumerate(keys)}
    return pa.table({**output, "v": values, "_ord": rows.column("_ord")}), pa.table({"seen": seen})


class Seen(ab.Process):
    """The same by handles, each of which keeps something else."""

    seen = ab.ListState("v bigint")
    last = ab.ValueState("v bigint")
    odd = ab.MapState("odd boolean", "n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            self.seen.append(row.v)
            self.last.set(row.v)
            self.odd[row.v % 2 == 1] = self.odd.get(row.v % 2 == 1, 0) + 1
            yield (*key, row.v)


Groups = list[tuple[tuple[Any, ...], list[int]]]
KINDS = ("mapped", "batched", "processed")


def add_region(
    source: Stream, name: str, columns: list[str], outputs: dict[str, ab.MemorySink]
) -> None:
    """A region with this key and every kind of state in it; the rows are keyed anew behind it."""
    keys = ", ".join(f"k{i} {KEYS[column][0]}" for i, column in enumerate(columns))
    keyed = source.key_distribute(f"by-{name}", *columns)
    keyed.aggregate(f"sums-{name}", total="sum(v)", n="count(*)").sink(
        f"sums-out-{name}", outputs["sums"]
    )
    output = f"{keys}, v bigint"
    mapped = keyed.stateful_map(f"mapped-{name}", running, state="seen string", output=output)
    batches = keyed.stateful_batches(f"batched-{name}", batched, state="seen string", output=output)
    processed = keyed.process(f"processed-{name}", Seen, output=output)
    for kind, stream in zip(KINDS, (mapped, batches, processed), strict=True):
        stream.sink(f"{kind}-out-{name}", outputs[kind])
    # From hashes that are there already, in any case: the keys have been through state.
    processed.key_distribute(f"again-{name}", *(f"k{i}" for i in range(len(columns)))).aggregate(
        f"totals-{name}", total="sum(v)", n="count(*)"
    )


def grouped(every: list[tuple[Any, ...]], columns: list[str]) -> Groups:
    """The values of each key, in their order: by the text of the key, so that 1 is not True."""
    places = [list(KEYS).index(column) for column in columns]
    groups: dict[str, tuple[tuple[Any, ...], list[int]]] = {}
    for each in every:
        key = tuple(each[place] for place in places)
        groups.setdefault(repr(key), (key, []))[1].append(each[-1])
    return list(groups.values())


def listed(key: tuple[Any, ...], values: list[int]) -> list[tuple[Any, ...]]:
    """A list as it is kept: the step and the place in it beside each value."""
    first = [v for v in values if v < COUNT]
    second = values[len(first) :]
    parts = ((1, first), (2, second))
    return [(*key, step, place, v) for step, part in parts for place, v in enumerate(part)]


def check_state(pipeline: ab.Pipeline, name: str, groups: Groups) -> None:
    """The state of all operators over a key, against the groups."""
    texts = [(*key, "".join(f"{v}," for v in values)) for key, values in groups]
    totals = [(*key, sum(values), len(values)) for key, values in groups]
    odd = [
        (*key, odd, sum(v % 2 == odd for v in values))
        for key, values in groups
        for odd in {v % 2 == 1 for v in values}
    ]
    wanted = {
        f"sums-{name}": totals,
        f"totals-{name}": totals,
        f"mapped-{name}": texts,
        f"batched-{name}": texts,
        f"processed-{name}.seen": [each for key, values in groups for each in listed(key, values)],
        f"processed-{name}.last": [(*key, values[-1]) for key, values in groups],
        f"processed-{name}.odd": odd,
    }
    for operator, rows in wanted.items():
        assert bag(rows_of(pipeline.state_table(operator))) == bag(rows), operator


def check(keys: dict[str, list[str]], directory: Path, workers: int = 2) -> None:
    """Every kind of state over each key, against groups made in plain Python.

    All values come in the first of the two steps, so the second one finds every key.
    """
    pages = [[row(n) for n in range(start, start + COUNT)] for start in (0, COUNT)]
    flow = ab.Dataflow("keys")
    source = flow.source("rows", ab.ScriptedSource(SCHEMA, [*pages, ab.EOF]))
    outputs = {name: {kind: ab.MemorySink() for kind in ("sums", *KINDS)} for name in keys}
    for name, columns in keys.items():
        add_region(source, name, columns, outputs[name])
    pipeline = completed(flow, directory, workers=workers, bins=8)
    assert pipeline.status().step == 2
    every = [each for page in pages for each in page]
    for name, columns in keys.items():
        groups = grouped(every, columns)
        check_state(pipeline, name, groups)
        emitted = [(*key, v) for key, values in groups for v in values]
        for kind in KINDS:
            given = (tuple(r.values()) for r in outputs[name][kind].rows())
            assert bag(given) == bag(emitted), (name, kind)
        # A key that both steps changed is told twice.
        first = grouped(pages[0], columns)
        report = [(*key, sum(values), len(values)) for key, values in first]
        second = {repr(key) for key, _ in grouped(pages[1], columns)}
        report += [(*key, sum(v), len(v)) for key, v in groups if repr(key) in second]
        assert bag(tuple(r.values()) for r in outputs[name]["sums"].rows()) == bag(report), name


@pytest.mark.parametrize(("first", "workers"), [(0, 1), (PER_FLOW, 2), (2 * PER_FLOW, 5)])
def test_every_key_type(first: int, workers: int, tmp_path: Path) -> None:
    """Each in a region of its own, a few regions in a dataflow."""
    names = list(KEYS)[first : first + PER_FLOW]
    check({name: [name] for name in names}, tmp_path / "state", workers)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_key_type_in_one_dataflow(workers: int, tmp_path: Path) -> None:
    check({name: [name] for name in KEYS}, tmp_path / "state", workers)


@pytest.mark.parametrize("workers", [1, 5])
def test_every_key_type_can_be_the_key_of_a_map(workers: int, tmp_path: Path) -> None:
    """But structs, for which several columns stand. NULL may be one of several."""
    plain = {name: kind for name, (kind, _) in KEYS.items() if not kind.startswith("struct")}
    handles: dict[str, Any] = {
        f"m_{name}": ab.MapState(f"k {kind}", "n bigint") for name, kind in plain.items()
    }
    handles["m_both"] = ab.MapState("text string, price decimal(10,2)", "n bigint")

    def on_rows(self: Any, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            for name in plain:
                entries, entry = getattr(self, f"m_{name}"), getattr(row, name)
                if entry is not None:
                    entries[entry] = entries.get(entry, 0) + 1
            both = (row.text, row.price)
            self.m_both[both] = self.m_both.get(both, 0) + 1
        return (key.odd, len(rows))

    counts = type("Counts", (ab.Process,), {**handles, "on_rows": on_rows})
    pages = [[row(n) for n in range(start, start + COUNT)] for start in (0, COUNT)]
    flow = ab.Dataflow("maps")
    flow.source("rows", ab.ScriptedSource(SCHEMA, [*pages, ab.EOF])).key_distribute(
        "by-odd", odd="v % 2"
    ).process("counts", counts, output="odd bigint, n bigint").sink("out", ab.MemorySink())
    pipeline = completed(flow, tmp_path / "state", workers=workers, bins=8)
    every = [each for page in pages for each in page]
    for name in plain:
        place = list(KEYS).index(name)
        found = Counter((each[-1] % 2, each[place]) for each in every if each[place] is not None)
        assert bag(rows_of(pipeline.state_table(f"counts.m_{name}"))) == bag(
            (*pair, n) for pair, n in found.items()
        ), name
    text, price = list(KEYS).index("text"), list(KEYS).index("price")
    pairs = Counter((each[-1] % 2, each[text], each[price]) for each in every)
    assert bag(rows_of(pipeline.state_table("counts.m_both"))) == bag(
        (*pair, n) for pair, n in pairs.items()
    )


def test_the_rows_have_all_values_of_every_key() -> None:
    """What the other tests rely on."""
    for place, (_, values) in enumerate(KEYS.values()):
        assert {repr(row(n)[place]) for n in range(COUNT)} == {repr(v) for v in [*values, None]}


def test_a_key_of_many_columns(tmp_path: Path) -> None:
    check({"all": ["text", "price", "pair", "at", "flag"]}, tmp_path / "state")


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("f", 'key "key" has type float'),
        ("d", 'key "key" has type double'),
        ("m", 'key "key" has type map<string,int>'),
        ("l", 'key "key" has type array<int>'),
        ("c", 'key "key" is a string with collation UNICODE_CI'),
        ("named_struct('a', 1, 'b', d)", 'key "key.b" has type double'),
        ("named_struct('c', c)", 'key "key.c" is a string with collation UNICODE_CI'),
        ("array(1)[0] / 2", 'key "key" has type double'),
        ("null", 'key "key" has type void'),
        ("interval 1 day", "interval day"),
        ("parse_json('1')", "variant"),
    ],
)
def test_types_that_cannot_be_keys_are_refused(tmp_path: Path, key: str, what: str) -> None:
    flow = ab.Dataflow("refused")
    source = ab.ScriptedSource(
        "f float, d double, m map<string,int>, l array<int>, c string collate UNICODE_CI",
        [[(1.0, 1.0, {}, [], "")], ab.EOF],
    )
    flow.source("rows", source).key_distribute("by-key", key=key).aggregate("n", n="count(*)").sink(
        "out", ab.MemorySink()
    )
    with pytest.raises(InvalidDataflow) as caught:
        ab.run(flow, directory=tmp_path / "state")
    problems = caught.value.problems
    assert len(problems) == 1, problems
    assert what in problems[0].what
    assert problems[0].do
