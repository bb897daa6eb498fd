"""Python data sources to read from: numbers in partitions, in every form that readers may take.

How many numbers there are stands in a file, so that a test can let more arrive. What the engine
acknowledges is written to another one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructType

SCHEMA = "k string, n bigint"


def key_of(n: int) -> str:
    return f"k{n % 7}"


class Span(InputPartition):
    """The numbers from ``first`` to ``last``, exclusive."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class NumbersReader(DataSourceStreamReader):
    """Reads numbers; ``form`` says as what, ``parts`` in how many partitions."""

    def __init__(self, options: Any) -> None:
        self.home = Path(options["home"])
        self.parts = int(options.get("parts", "1"))
        self.form = options.get("form", "tuple")
        self.default = options.get("default")
        self.stopped = 0

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.default is None else ReadMaxRows(int(self.default))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        there = available(self.home)
        if isinstance(limit, ReadMaxRows):
            there = min(there, start["n"] + limit.max_rows)
        return {"n": there}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Span]:
        first, count = start["n"], end["n"] - start["n"]
        cuts = [first + count * i // self.parts for i in range(self.parts + 1)]
        return [Span(a, b) for a, b in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Span)
        broken = self.home / "broken"
        for n in range(partition.first, partition.last):
            if broken.exists() and n == int(broken.read_text()):
                raise RuntimeError(f"number {n} cannot be read")
        return FORMS[self.form](partition)

    def commit(self, end: dict[str, int]) -> None:
        with open(self.home / "acknowledged", "a", encoding="utf-8") as file:
            file.write(json.dumps(end) + "\n")

    def stop(self) -> None:
        (self.home / "stopped").touch()


def as_tuples(part: Span) -> Iterator[Any]:
    yield from ((key_of(n), n) for n in range(part.first, part.last))


def as_lists(part: Span) -> Iterator[Any]:
    yield from ([key_of(n), n] for n in range(part.first, part.last))


def as_rows(part: Span) -> Iterator[Any]:
    """Named, and not in the order of the schema."""
    yield from (Row(n=n, k=key_of(n)) for n in range(part.first, part.last))


def as_batches(part: Span) -> Iterator[Any]:
    """Two batches, with the columns in another order and numbers that are narrower."""
    middle = (part.first + part.last) // 2
    for numbers in (range(part.first, middle), range(middle, part.last)):
        yield pa.RecordBatch.from_pydict(
            {"n": pa.array(numbers, pa.int32()), "k": [key_of(n) for n in numbers]}
        )


def as_short_rows(part: Span) -> Iterator[Any]:
    yield from ((n,) for n in range(part.first, part.last))


def as_wrong_batches(part: Span) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"k": ["a"], "m": [1]})


FORMS = {
    "tuple": as_tuples,
    "list": as_lists,
    "row": as_rows,
    "arrow": as_batches,
    "short": as_short_rows,
    "wrong": as_wrong_batches,
}


class Numbers(DataSource):
    """The numbers, with a schema as text."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str | StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        assert schema.fieldNames() == ["k", "n"]
        return NumbersReader(self.options)


class TypedNumbers(Numbers):
    """The numbers, with a schema of Spark's classes."""

    def schema(self) -> StructType:
        return StructType().add("k", StringType()).add("n", LongType(), nullable=False)


class OldReader(NumbersReader):
    """As readers were before limits."""

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"n": available(self.home)}


class OldNumbers(Numbers):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return OldReader(self.options)


class EndingReader(NumbersReader, SupportsTriggerAvailableNow):
    """Fixes its end when it is told to."""

    target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = available(self.home)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        # It grows with every look, and would never end by itself.
        make_available(self.home, available(self.home) + 1)
        there = super().latestOffset(start, limit)["n"]
        return {"n": there if self.target is None else min(there, self.target)}


class EndingNumbers(Numbers):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EndingReader(self.options)


class SimpleReader(SimpleDataSourceStreamReader):
    """Reads at most ten numbers at a time."""

    def __init__(self, options: Any) -> None:
        self.home = Path(options["home"])

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = min(start["n"] + 10, available(self.home))
        return as_tuples(Span(start["n"], end)), {"n": end}

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        return as_tuples(Span(start["n"], end["n"]))

    def commit(self, end: dict[str, int]) -> None:
        with open(self.home / "acknowledged", "a", encoding="utf-8") as file:
            file.write(json.dumps(end) + "\n")


class SimpleNumbers(Numbers):
    @classmethod
    def name(cls) -> str:
        return "simple-numbers"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DataSource.streamReader(self, schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader(self.options)


class UnreadableNumbers(Numbers):
    """Can neither be read as a stream nor say its schema."""

    def schema(self) -> str:
        raise LookupError("no schema today")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise ConnectionError("nobody is there")


def make_available(home: Path, count: int) -> None:
    """Let so many numbers be there."""
    home.mkdir(exist_ok=True)
    aside = home / "available.aside"
    aside.write_text(str(count))
    aside.rename(home / "available")


def available(home: Path) -> int:
    return int((home / "available").read_text())


def acknowledged(home: Path) -> list[int]:
    """The offsets that were committed to the source, in order."""
    path = home / "acknowledged"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["n"] for line in lines]
