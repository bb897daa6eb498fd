"""R9: placement does not change the result, to the last bit.

The same files go through the same dataflow with other numbers of workers, other splits and another
format. State and output must be those of a plain computation that takes the files in planned order
and their rows as they stand in them.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.session import open_session
from tests.spark.running import bag, completed, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = "k string, g int, v double"
FILES_PER_STEP = 6
STEPS = 2
SIZES = (90, 41, 160, 47, 120, 64, 43, 200, 51, 75, 48, 110)
WHOLE_FILES = 128 << 20
PLACEMENTS = {1: WHOLE_FILES, 2: 420, 3: 340, 7: 400}
"""Workers, and the largest split in bytes."""

Row = tuple[str | None, int, float | None]


def spread(key: Any, row: Any, state: Any) -> Any:
    """Region 1: none to three rows a call, each dependent on all calls before."""
    n, mix = (0, 0.0) if state is None else state
    v = row.v if row.v is not None else 0.125
    mix = mix * 0.5 + v
    made = [(row.g + i // 2, i, mix / (i + 1)) for i in range(n % 4)]
    return made, (n + 1, mix)


def trail(key: Any, row: Any, state: Any) -> Any:
    """Region 2: what it keeps and emits tells the order of every row before."""
    n, digits, total = (0, 7, 0.0) if state is None else state
    digits = (digits * 1_000_003 + hash(row.value) % 9973 + row.i) % (1 << 61)
    total += row.value
    return (key.g, n, digits, total), (n + 1, digits, total)


def after(key: Any, row: Any, state: Any) -> Any:
    """Behind an aggregate, whose rows have the order of the first row of their group."""
    return None, (state or "") + f"{row.k}:{row.n} "


def flow_over(source: ab.FileSource, out: Path, memory: ab.MemorySink) -> ab.Dataflow:
    flow = ab.Dataflow("r9")
    by_k = flow.source("rows", source).where("g >= 0").key_distribute("by-k", "k")
    made = by_k.stateful_map(
        "spread", spread, state="n bigint, mix double", output="g int, i int, value double"
    )
    by_g = made.where("value is not null").key_distribute("by-g", g="g % 5")
    by_g.stateful_map(
        "trail",
        trail,
        state="n bigint, digits bigint, total double",
        output="g int, n bigint, digits bigint, total double",
    ).sink("trail-out", ab.FileSink(out / "trail", "parquet"))
    by_g.aggregate("sums-by-g", total="sum(value)", mean="avg(value)", n="count(*)").sink(
        "sums-by-g-out", ab.FileSink(out / "sums", "json")
    )
    sums = by_k.aggregate("sums-by-k", total="sum(v)", top="max(v)", n="count(v)")
    sums.sink("sums-by-k-out", memory)
    sums.key_distribute("by-n", thirds="n % 3").stateful_map(
        "after", after, state="seen string", output="k string"
    ).sink("nothing", ab.MemorySink())
    return flow


@dataclass
class Model:
    """The same in plain Python, one row after the other."""

    spread: dict[Any, Any] = field(default_factory=dict)
    trail: dict[Any, Any] = field(default_factory=dict)
    after: dict[Any, Any] = field(default_factory=dict)
    values: dict[Any, list[float]] = field(default_factory=dict)
    made: dict[Any, list[float]] = field(default_factory=dict)
    trails: list[tuple[Any, ...]] = field(default_factory=list)

    def step(self, rows: Sequence[Row]) -> None:
        touched: dict[Any, None] = {}
        for k, g, v in rows:
            if g < 0:
                continue
            touched[k] = None
            self.values.setdefault(k, [])
            if v is not None:
                self.values[k].append(v)
            made, self.spread[k] = spread(Key(k=k), Key(g=g, v=v), self.spread.get(k))
            for g2, i, value in made:
                key = g2 % 5
                self.made.setdefault(key, []).append(value)
                row = Key(g=g2, i=i, value=value)
                emitted, self.trail[key] = trail(Key(g=key), row, self.trail.get(key))
                self.trails.append(emitted)
        for k in touched:
            n = len(self.values[k])
            _, self.after[n % 3] = after(None, Key(k=k, n=n), self.after.get(n % 3))


class Key:
    """A key or a row by its columns' names."""

    def __init__(self, **columns: Any) -> None:
        self.__dict__ = columns


def make_rows() -> list[list[Row]]:
    """Rows of each file, in planned order; sums of such values depend on the order."""
    chance = random.Random(20)
    files = []
    for size in SIZES:
        rows: list[Row] = []
        for _ in range(size):
            k = chance.choice([None, *"abcdefghijklmnopqrs"])
            v = chance.choice([None, 1e9, -1e9, 1e-6, 0.1])
            if v is not None:
                v *= chance.random() + 0.5
            rows.append((k, chance.randrange(-1, 20), v))
        files.append(rows)
    return files


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows as JSON lines and as Parquet; the planned order is not that of the names."""
    home = tmp_path_factory.mktemp("r9")
    names = random.Random(3).sample(range(100), len(SIZES))
    for form in ("json", "parquet"):
        (home / form).mkdir()
        for number, (name, rows) in enumerate(zip(names, make_rows(), strict=True)):
            path = home / form / f"f{name:02}.{form}"
            if form == "json":
                lines = [json.dumps(dict(zip("kgv", row, strict=True))) + "\n" for row in rows]
                path.write_text("".join(lines))
            else:
                columns = dict(zip("kgv", zip(*rows, strict=True), strict=True))
                table = pa.table(columns, pa.schema({"k": "string", "g": "int32", "v": "double"}))
                # With little beside the rows, so that splits are splits of rows.
                pq.write_table(
                    table,
                    path,
                    row_group_size=8,
                    use_dictionary=False,
                    write_statistics=False,
                    compression="none",
                    store_schema=False,
                )
            os.utime(path, ns=(10**18 + number, 10**18 + number))
    return {form: home / form for form in ("json", "parquet")}


@pytest.fixture(scope="module")
def model() -> Model:
    plain = Model()
    files = make_rows()
    for step in range(STEPS):
        chosen = files[step * FILES_PER_STEP : (step + 1) * FILES_PER_STEP]
        plain.step([row for rows in chosen for row in rows])
    return plain


@dataclass(frozen=True)
class Result:
    """Everything a run gave, without its order: rows by their exact text."""

    state: dict[str, Counter[str]]
    trail: Counter[str]
    lines: Counter[bytes]
    sums: dict[int, Counter[str]]


def result_of(
    inputs: dict[str, Path], form: str, workers: int, home: Path
) -> tuple[Result, ab.Pipeline]:
    memory = ab.MemorySink()
    source = ab.FileSource(
        inputs[form], form, SCHEMA, watch=False, max_files_per_step=FILES_PER_STEP
    )
    pipeline = completed(
        flow_over(source, home, memory),
        home / "state",
        workers=workers,
        spark_conf={"spark.sql.files.maxPartitionBytes": str(PLACEMENTS[workers])},
    )
    assert pipeline.status().step == STEPS
    operators = ("spread", "trail", "sums-by-g", "sums-by-k", "after")
    state = {name: bag(rows_of(pipeline.state_table(name))) for name in operators}
    trails = [row for p in (home / "trail").glob("*.parquet") for row in rows_of(pq.read_table(p))]
    lines = [
        f"{path.name[:17]} ".encode() + line
        for path in (home / "sums").glob("*.json")
        for line in path.read_bytes().splitlines()
    ]
    sums = {step: bag(rows_of(table)) for step, table in memory.steps().items()}
    return Result(state, bag(trails), Counter(lines), sums), pipeline


@pytest.fixture(scope="module")
def reference(
    inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, _started_spark: SparkSession
) -> tuple[Result, ab.Pipeline]:
    """One worker, whole files."""
    return result_of(inputs, "json", 1, tmp_path_factory.mktemp("reference"))


def test_r9_the_order_matters_for_these_rows() -> None:
    """What the other tests rely on: in another order, other bits."""
    values = [v for rows in make_rows() for k, _, v in rows if k == "a" and v is not None]
    assert reduce(add, values) != reduce(add, values[::-1])
    straight, turned = Model(), Model()
    rows = [row for rows in make_rows() for row in rows]
    straight.step(rows)
    turned.step([row for rows in make_rows()[::-1] for row in rows])
    assert straight.trail != turned.trail


def test_r9_one_worker_gives_what_plain_python_gives(
    reference: tuple[Result, ab.Pipeline], model: Model
) -> None:
    result, pipeline = reference
    assert result.state["spread"] == bag((k, *state) for k, state in model.spread.items())
    assert result.state["trail"] == bag((g, *state) for g, state in model.trail.items())
    assert result.state["after"] == bag(model.after.items())
    assert result.trail == bag(model.trails)
    for operator, known in (("sums-by-k", model.values), ("sums-by-g", model.made)):
        state = {row["k" if "k" in row else "g"]: row for row in rows_by_name(pipeline, operator)}
        assert set(state) == set(known)
        for key, values in known.items():
            exact = math.fsum(values)
            size = math.fsum(map(abs, values))
            assert abs(state[key]["total"] - exact) <= 1e-12 * size
    for row in rows_by_name(pipeline, "sums-by-k"):
        values = model.values[row["k"]]
        assert (row["n"], row["top"]) == (len(values), max(values))


def rows_by_name(pipeline: ab.Pipeline, operator: str) -> list[dict[str, Any]]:
    table = pipeline.state_table(operator)
    names = [name.split("/")[0] for name in table.schema.names]
    return [dict(zip(names, row, strict=True)) for row in rows_of(table)]


@pytest.mark.parametrize(
    ("form", "workers"),
    [*(("json", n) for n in PLACEMENTS if n > 1), *(("parquet", n) for n in PLACEMENTS)],
)
def test_r9_placement_splits_and_format_do_not_change_the_result(
    form: str,
    workers: int,
    inputs: dict[str, Path],
    reference: tuple[Result, ab.Pipeline],
    tmp_path: Path,
) -> None:
    result, _ = result_of(inputs, form, workers, tmp_path)
    assert result == reference[0]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_r9_the_files_are_really_split(form: str, inputs: dict[str, Path]) -> None:
    """At least three splits with rows in every file, also where splits are largest."""
    largest = max(size for size in PLACEMENTS.values() if size < WHOLE_FILES)
    session = open_session(None, {"spark.sql.files.maxPartitionBytes": str(largest)})
    rows = session.read.format(form).schema(SCHEMA).load(str(inputs[form]))
    found = rows.selectExpr(
        "_metadata.file_name as file", "_metadata.file_block_start as start"
    ).distinct()
    splits = Counter(row.file for row in found.collect())
    assert len(splits) == len(SIZES)
    assert min(splits.values()) >= 3, sorted(splits.values())
