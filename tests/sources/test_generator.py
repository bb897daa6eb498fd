"""A generator source: even, exact, the same after every restart."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ChangedDataflow, ReadFailed
from anabranch.protocol.sources import Limit, PythonSource
from anabranch.records.slices import RangeSlice
from anabranch.sources.generator import GeneratorSource
from tests.sources.memory_log import MemoryLog

SCHEMA = pa.schema([("p", pa.int32()), ("i", pa.int64())])


def numbered(partition: int, start: int, end: int) -> dict[str, object]:
    return {"p": np.full(end - start, partition), "i": np.arange(start, end)}


@given(
    partitions=st.integers(1, 7),
    per_step=st.integers(1, 20),
    rows=st.integers(0, 60),
    limits=st.lists(st.none() | st.integers(0, 25), min_size=70, max_size=70),
    restarts=st.sets(st.integers(0, 70)),
)
def test_rows_are_dealt_out_evenly_whatever_the_steps(
    partitions: int, per_step: int, rows: int, limits: list[int | None], restarts: set[int]
) -> None:
    """All steps together are the rows 0 to n of each partition, n differing by at most one."""
    source = GeneratorSource(numbered, SCHEMA, partitions, per_step, rows)
    enumerator = source.open(None, MemoryLog())
    read: dict[int, list[int]] = {p: [] for p in range(partitions)}
    for number, limit in enumerate(limits):
        batch = enumerator.next(Limit(rows=limit))
        assert batch.rows is not None
        assert batch.rows <= min(per_step, max(limit, 1) if limit is not None else per_step)
        total = 0
        for part in batch.slices:
            assert isinstance(part, RangeSlice)
            total += part.end - part.start
            read[part.partition] += range(part.start, part.end)
        assert total == batch.rows
        counts = [len(indices) for indices in read.values()]
        assert max(counts) - min(counts) <= 1
        assert batch.ended == (sum(counts) == rows)
        if number in restarts:
            enumerator = source.open(batch.position, MemoryLog())
    assert sum(map(len, read.values())) == rows
    assert all(indices == list(range(len(indices))) for indices in read.values())


def test_a_step_has_the_rows_asked_for() -> None:
    enumerator = GeneratorSource(numbered, SCHEMA, 3, rows_per_step=4).open(None, MemoryLog())
    first, second = enumerator.next(), enumerator.next()
    assert first.slices == (RangeSlice(0, 0, 2), RangeSlice(1, 0, 1), RangeSlice(2, 0, 1))
    assert second.slices == (RangeSlice(0, 2, 3), RangeSlice(1, 1, 3), RangeSlice(2, 1, 2))
    assert (first.rows, first.ended) == (4, False)
    assert all(not enumerator.next().ended for _ in range(20))


def test_a_tight_limit_never_stops_it() -> None:
    enumerator = GeneratorSource(numbered, SCHEMA, 3).open(None, MemoryLog())
    assert [enumerator.next(Limit(rows=0)).slices for _ in range(2)] == [
        (RangeSlice(0, 0, 1),),
        (RangeSlice(1, 0, 1),),
    ]


def test_a_larger_total_goes_on_where_a_smaller_one_ended() -> None:
    ended = GeneratorSource(numbered, SCHEMA, rows=3).open(None, MemoryLog()).next()
    assert ended.ended
    more = GeneratorSource(numbered, SCHEMA, rows=5).open(ended.position, MemoryLog()).next()
    assert more.slices == (RangeSlice(0, 3, 5),)
    fewer = GeneratorSource(numbered, SCHEMA, rows=2).open(more.position, MemoryLog()).next()
    assert (fewer.slices, fewer.rows, fewer.ended) == ((), 0, True)


def test_reading_gives_the_rows_of_the_slice() -> None:
    source = pickle.loads(pickle.dumps(GeneratorSource(numbered, SCHEMA, 3)))
    assert isinstance(source, PythonSource)
    (batch,) = source.read(RangeSlice(2, 5, 8))
    assert batch.schema == SCHEMA
    assert batch.to_pydict() == {"p": [2, 2, 2], "i": [5, 6, 7]}


def too_few(partition: int, start: int, end: int) -> dict[str, object]:
    return numbered(partition, start, end - 1)


def raising(partition: int, start: int, end: int) -> dict[str, object]:
    raise KeyError("no such colour")


def other_type(partition: int, start: int, end: int) -> dict[str, object]:
    return {"p": ["x"] * (end - start), "i": range(start, end)}


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (too_few, "column p has 2 rows instead of 3"),
        (raising, "KeyError: 'no such colour'"),
        (other_type, "column p does not fit int32"),
        (lambda partition, start, end: None, "not NoneType"),
    ],
)
def test_a_failure_names_function_and_slice(function: object, text: str) -> None:
    source = GeneratorSource(function, SCHEMA, 3)  # type: ignore[arg-type]
    with pytest.raises(ReadFailed) as caught:
        list(source.read(RangeSlice(2, 5, 8)))
    assert text in str(caught.value)
    assert "partition 2, rows 5 to 8" in str(caught.value)
    assert function.__qualname__ in str(caught.value)  # type: ignore[attr-defined]
    assert f"{__file__}:" in str(caught.value)


def test_a_callable_object_is_named_by_its_class() -> None:
    class Maker:
        def __call__(self, partition: int, start: int, end: int) -> object:
            return None

    with pytest.raises(ReadFailed, match="Maker"):
        list(GeneratorSource(Maker(), SCHEMA).read(RangeSlice(0, 0, 1)))


def test_another_number_of_partitions_is_refused() -> None:
    position = GeneratorSource(numbered, SCHEMA, 2).open(None, MemoryLog()).next().position
    with pytest.raises(ChangedDataflow, match="Set partitions=2"):
        GeneratorSource(numbered, SCHEMA, 3).open(position, MemoryLog())


def test_it_is_a_value() -> None:
    one, two = (GeneratorSource(numbered, "p int, i bigint", 2, 10, 100) for _ in range(2))
    assert one == two == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"function": 3}, TypeError, "function must be callable"),
        ({"partitions": 0}, ValueError, "partitions must be at least 1"),
        ({"rows_per_step": 0}, ValueError, "rows_per_step must be at least 1"),
        ({"rows": -1}, ValueError, "rows must be at least 0"),
        ({"rows": 1.0}, TypeError, "rows must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    right: dict[str, object] = {"function": numbered, "schema": SCHEMA}
    with pytest.raises(error, match=text):
        GeneratorSource(**(right | arguments))  # type: ignore[arg-type]
