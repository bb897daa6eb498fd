"""Every type that can be a key, through a real pipeline; and those that cannot."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
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


def check(keys: dict[str, list[str]], directory: Path) -> None:
    """An aggregate and a stateful_map over each key, against groups made in plain Python.

    All values come in the first of the two steps, so the second one finds every key.
    """
    pages = [[row(n) for n in range(start, start + COUNT)] for start in (0, COUNT)]
    flow = ab.Dataflow("keys")
    source = flow.source("rows", ab.ScriptedSource(SCHEMA, [*pages, ab.EOF]))
    emitted = {name: ab.MemorySink() for name in keys}
    for name, columns in keys.items():
        keyed = source.key_distribute(f"by-{name}", *columns)
        keyed.aggregate(f"sums-{name}", total="sum(v)", n="count(*)").sink(
            f"sums-out-{name}", ab.MemorySink()
        )
        output = ", ".join(f"k{i} {KEYS[column][0]}" for i, column in enumerate(columns))
        keyed.stateful_map(
            f"seen-{name}", running, state="seen string", output=f"{output}, v bigint"
        ).sink(f"seen-out-{name}", emitted[name])
    pipeline = completed(flow, directory, bins=8)
    assert pipeline.status().step == 2
    every = [each for page in pages for each in page]
    for name, columns in keys.items():
        places = [list(KEYS).index(column) for column in columns]
        groups: dict[str, tuple[tuple[Any, ...], list[int]]] = {}
        for each in every:
            key = tuple(each[place] for place in places)
            groups.setdefault(repr(key), (key, []))[1].append(each[-1])
        assert bag(rows_of(pipeline.state_table(f"sums-{name}"))) == bag(
            (*key, sum(values), len(values)) for key, values in groups.values()
        ), name
        assert bag(rows_of(pipeline.state_table(f"seen-{name}"))) == bag(
            (*key, "".join(f"{v}," for v in values)) for key, values in groups.values()
        ), name
        assert bag(tuple(r.values()) for r in emitted[name].rows()) == bag(
            (*(each[place] for place in places), each[-1]) for each in every
        ), name


@pytest.mark.parametrize("first", range(0, len(KEYS), PER_FLOW))
def test_every_key_type(first: int, tmp_path: Path) -> None:
    """Each in a region of its own, a few regions in a dataflow."""
    check({name: [name] for name in list(KEYS)[first : first + PER_FLOW]}, tmp_path / "state")


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
