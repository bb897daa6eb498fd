from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidSchema
from anabranch.records.bins import BinSet, bin_of, bin_offsets
from anabranch.records.layout import Layout
from anabranch.runs import sorted_rows
from anabranch.runs.changes import sorted_order, to_rows
from anabranch.runs.keys import same_keys
from anabranch.runs.rows import drop_tombstones, group_keys, lookup, merge_rows
from anabranch.runs.sorted_rows import SortedRows, hash_column
from tests.runs.state_model import (
    KINDS,
    VALUES,
    Key,
    batch_of,
    changed_of,
    chunked,
    frozen,
    hashes_of,
    in_one_buffer,
    key_schema,
    keys_of,
    scanned,
    sorted_query,
    to_dicts,
    weak_hash,
)

SPACES = st.sampled_from([1, 2, 5, 64, 2**32])
BINS = st.sampled_from([1, 4, 256])
VALUE = st.none() | st.tuples(st.integers(-5, 5), st.none() | st.floats(-1, 1))


@st.composite
def key_lists(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Key]]:
    kinds = draw(st.sampled_from(KINDS))
    return kinds, draw(st.lists(keys_of(kinds), max_size=30))


@st.composite
def ages(draw: st.DrawFn) -> tuple[tuple[str, ...], list[dict[Any, Any]], list[list[Key]]]:
    """Key kinds; and per age, newest first, what it says of its keys, and those keys."""
    kinds = draw(st.sampled_from(KINDS))
    said, keys = [], []
    for _ in range(draw(st.integers(0, 4))):
        some = draw(st.lists(keys_of(kinds), max_size=12, unique_by=frozen))
        said.append({frozen(key): draw(VALUE) for key in some})
        keys.append(some)
    return kinds, said, keys


def rows_of(layout: Layout, changes: dict[Any, Any], keys: list[Key], space: int) -> pa.RecordBatch:
    changed = changed_of(layout, changes, keys, space)
    return to_rows(layout, changed, sorted_order(changed))


def newest(said: list[dict[Any, Any]]) -> dict[Any, Any]:
    """What counts: the first of the dicts that speaks of a key."""
    model: dict[Any, Any] = {}
    for older in reversed(said):
        model |= older
    return model


@given(key_lists(), SPACES, st.data())
def test_groups_are_the_keys(
    drawn: tuple[tuple[str, ...], list[Key]], space: int, data: st.DataObject
) -> None:
    kinds, keys = drawn
    hashes = hashes_of(keys, space)
    given_keys = batch_of(keys, key_schema(*kinds))
    if data.draw(st.booleans()):
        given_keys = chunked(given_keys, data.draw(st.integers(0, len(keys))))
    groups = group_keys(hashes, given_keys)

    rows_by_key: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows_by_key.setdefault(frozen(key), []).append(row)
    stops = np.append(groups.starts, len(keys))[1:]
    members = [
        groups.order[start:stop].tolist() for start, stop in zip(groups.starts, stops, strict=True)
    ]
    unique = [frozen(tuple(row.values())) for row in to_dicts(groups.keys)]
    assert dict(zip(unique, members, strict=True)) == rows_by_key
    assert len(groups) == len(unique) == len(rows_by_key)
    assert groups.hashes.tolist() == [hashes[rows[0]] for rows in members]
    assert groups.hashes.tolist() == sorted(groups.hashes.tolist())
    assert [unique[group] for group in groups.group_of_row] == [frozen(key) for key in keys]


@given(key_lists(), SPACES, st.randoms(use_true_random=False))
def test_the_order_of_groups_does_not_depend_on_the_order_of_rows(
    drawn: tuple[tuple[str, ...], list[Key]], space: int, random: Any
) -> None:
    kinds, keys = drawn
    shuffled = random.sample(keys, len(keys))
    one, other = (
        group_keys(hashes_of(some, space), batch_of(some, key_schema(*kinds)))
        for some in (keys, shuffled)
    )
    assert to_dicts(one.keys) == to_dicts(other.keys)


def test_hashes_that_differ_in_the_lowest_bits_are_sorted_apart() -> None:
    hashes = np.array([2**60 + 9, 2**60 + 8, 2**60 + 9, 7, 2**60 + 8], dtype=np.uint64)
    groups = group_keys(hashes, pa.record_batch({"k": [9, 8, 9, 7, 8]}))
    assert groups.order.tolist() == [3, 1, 4, 0, 2]
    assert groups.starts.tolist() == [0, 1, 3]
    assert groups.keys.column(0).to_pylist() == [7, 8, 9]


def test_a_large_batch_is_grouped_as_numpy_would() -> None:
    random = np.random.default_rng(3)
    ids = random.integers(0, 3_000, 20_000)
    hashes = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) & ~np.uint64(3)
    groups = group_keys(hashes, pa.record_batch({"k": ids}))
    unique, counts = np.unique(ids, return_counts=True)
    sizes = np.diff(np.append(groups.starts, len(ids)))
    got = dict(zip(groups.keys.column(0).to_pylist(), sizes.tolist(), strict=True))
    assert got == dict(zip(unique.tolist(), counts.tolist(), strict=True))
    assert (np.diff(hashes[groups.order].astype(np.float64)) >= 0).all()
    for start, stop in pairwise([*groups.starts[:50].tolist()]):
        assert groups.order[start:stop].tolist() == sorted(groups.order[start:stop].tolist())


def test_no_rows_have_no_groups() -> None:
    for keys in (key_schema("struct", "string").empty_table(), batch_of([], key_schema("date"))):
        groups = group_keys(np.array([], dtype=np.uint64), keys)
        assert len(groups) == 0
        assert groups.keys.schema == keys.schema


def test_signed_hashes_are_refused() -> None:
    with pytest.raises(TypeError, match="unsigned"):
        group_keys(np.array([1], dtype=np.int64), pa.record_batch({"k": [1]}))


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array(["a"]).dictionary_encode(), pa.array([[1]])], ids=str
)
def test_keys_that_cannot_be_compared_are_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidSchema, match="'k'"):
        group_keys(np.array([1], dtype=np.uint64), pa.record_batch({"k": column}))


def test_null_is_a_key_of_its_own_at_every_depth() -> None:
    schema = key_schema("struct")
    different: list[Key] = [
        (None,),
        ({"a": None, "b": None},),
        ({"a": 0, "b": None},),
        ({"a": None, "b": {"x": None, "y": None}},),
        ({"a": None, "b": {"x": "", "y": None}},),
        ({"a": None, "b": {"x": None, "y": 0}},),
    ]
    columns = batch_of(different, schema).columns
    for shift in range(len(different)):
        rolled = batch_of(different[shift:] + different[:shift], schema).columns
        same = same_keys(columns, rolled, len(different))
        assert same.tolist() == [shift == 0] * len(different)


def test_what_a_null_struct_hides_does_not_matter() -> None:
    null = pa.array([True])
    one, other = (
        pa.StructArray.from_arrays([pa.array([n])], names=["a"], mask=null) for n in (1, 2)
    )
    assert same_keys([one], [other], 1).tolist() == [True]


@given(ages(), SPACES)
def test_merging_keeps_the_newest_of_every_key(
    drawn: tuple[tuple[str, ...], list[dict[Any, Any]], list[list[Key]]], space: int
) -> None:
    kinds, said, keys = drawn
    layout = Layout(key_schema(*kinds), VALUES)
    parts = [rows_of(layout, *age, space) for age in zip(said, keys, strict=True)]
    merged = merge_rows(layout, parts)
    model = newest(said)
    table = pa.Table.from_batches([merged])
    assert merged.schema == layout.schema
    assert scanned(layout, table) == {key: value or (None, None) for key, value in model.items()}
    gone = [row["tombstone"] for row in to_dicts(merged)]
    assert sum(gone) == sum(value is None for value in model.values())
    groups = group_keys(hash_column(merged), merged.select(layout.key_columns))
    assert groups.order.tolist() == list(range(merged.num_rows)), "sorted by (hash, key)"


@given(ages(), SPACES, BINS, st.data())
def test_tombstones_go_only_where_a_bin_is_at_its_bottom(
    drawn: tuple[tuple[str, ...], list[dict[Any, Any]], list[list[Key]]],
    space: int,
    bins: int,
    data: st.DataObject,
) -> None:
    kinds, said, keys = drawn
    layout = Layout(key_schema(*kinds), VALUES)
    bottom = np.array(data.draw(st.lists(st.booleans(), min_size=bins, max_size=bins)))
    parts = [rows_of(layout, *age, space) for age in zip(said, keys, strict=True)]
    rows = drop_tombstones(layout, merge_rows(layout, parts), bottom, bins)
    every = {frozen(key): key for some in keys for key in some}
    kept = {
        key
        for key, value in newest(said).items()
        if value is not None or not bottom[weak_hash(every[key], space) * bins // 2**64]
    }
    assert set(scanned(layout, pa.Table.from_batches([rows]))) == kept


def as_in_a_file(layout: Layout, batch: pa.RecordBatch, bins: int) -> SortedRows:
    """The same rows in one buffer, each bin in a batch of its own."""
    edges = bin_offsets(hash_column(batch), bins).tolist()
    parts = [batch.slice(start, stop - start) for start, stop in pairwise(edges)]
    whole, batches = in_one_buffer(layout.schema, parts)
    return SortedRows(layout.schema, batches, whole)


@mock.patch.object(sorted_rows, "MANY", 1)
@given(ages(), SPACES, BINS, st.data())
def test_lookup_finds_what_the_newest_listed_run_says(
    drawn: tuple[tuple[str, ...], list[dict[Any, Any]], list[list[Key]]],
    space: int,
    bins: int,
    data: st.DataObject,
) -> None:
    kinds, said, keys = drawn
    layout = Layout(key_schema(*kinds), VALUES)
    stack, counted = [], []
    for age, some in zip(said, keys, strict=True):
        listed = BinSet.of(data.draw(st.sets(st.integers(0, bins - 1)))) | BinSet.of([0])
        batch = rows_of(layout, age, some, space)
        rows = SortedRows(layout.schema, [batch])
        if data.draw(st.booleans()):
            rows = as_in_a_file(layout, batch, bins)
        stack.append((rows, listed.mask(bins)))
        in_bins = {frozen(k) for k in some if weak_hash(k, space) * bins // 2**64 in listed}
        counted.append({key: value for key, value in age.items() if key in in_bins})
    model = newest(counted)

    asked = [key for some in keys for key in some] + data.draw(st.lists(keys_of(kinds), max_size=4))
    hashes, query, names = sorted_query(layout, asked, space)
    held = lookup(layout, stack, bins, hashes, query)
    found, values = held.found, held.values
    assert found.tolist() == [model.get(name) is not None for name in names]
    assert values.schema == layout.values
    got = [tuple(row.values()) for row in to_dicts(values)]
    assert got == [model.get(name) or (None, None) for name in names]


@given(ages(), SPACES, st.sampled_from([1, 2, 16]))
def test_rows_split_by_bin_and_put_together_are_the_same(
    drawn: tuple[tuple[str, ...], list[dict[Any, Any]], list[list[Key]]], space: int, bins: int
) -> None:
    kinds, said, keys = drawn
    layout = Layout(key_schema(*kinds), VALUES)
    whole = merge_rows(
        layout, [rows_of(layout, *age, space) for age in zip(said, keys, strict=True)]
    )
    rows = SortedRows(layout.schema, [whole])
    edges = bin_offsets(hash_column(whole), bins).tolist()
    pieces = [list(rows.slice(start, stop)) for start, stop in pairwise(edges)]
    for number, piece in enumerate(pieces):
        for part in piece:
            assert set(bin_of(hash_column(part), bins).tolist()) == {number}
    together = pa.Table.from_batches([p for piece in pieces for p in piece], schema=layout.schema)
    assert together.combine_chunks() == pa.Table.from_batches([whole]).combine_chunks()


def many_batches() -> SortedRows:
    """Hashes 0, 10, …, 90 with keys of the same number, in batches of 3, 0, 1 and 6 rows."""
    layout = Layout(key_schema("int64"), VALUES)
    keys: list[Key] = [(n,) for n in range(0, 100, 10)]
    changed = changed_of(layout, {key: (key[0], 0.5) for key in keys}, keys, 1)
    rows = to_rows(layout, changed, np.arange(10))
    hashes = pa.array([key[0] for key in keys], pa.uint64())
    whole = rows.set_column(0, layout.schema.field(0), hashes)
    cuts = [(0, 3), (3, 3), (3, 4), (4, 10)]
    return SortedRows(layout.schema, [whole.slice(a, b - a) for a, b in cuts])


@pytest.mark.parametrize("rows", [40, 3000])
def test_the_hash_index_and_binary_searches_find_the_same(rows: int) -> None:
    layout = Layout(key_schema("int64"), VALUES)
    chance = np.random.default_rng(rows)
    keys = chance.permutation(4 * rows)[:rows]
    # Every fifth key has the hash of another one.
    hashes = np.sort(chance.integers(0, 2**64, rows, dtype=np.uint64))
    hashes[1::5] = hashes[::5][: len(hashes[1::5])]
    place = pa.array(np.lexsort((keys, hashes)))
    held = pa.record_batch(
        [
            pa.array(hashes),
            pa.array(keys),
            pa.array(keys, mask=keys % 7 == 0),
            pa.array(keys / 2),
            pa.array(keys % 3 == 0),
        ],
        schema=layout.schema,
    ).take(place)
    query = held.take(pa.array(np.arange(0, rows, 2)))
    others = pc.add(query.column(1), pa.scalar(4 * rows))
    wanted = pa.record_batch({"k": pc.if_else(pc.equal(query.column(4), True), others, query[1])})
    plain = SortedRows(layout.schema, [held])
    counts = np.ones(16, dtype=np.bool_)
    found = []
    with mock.patch.object(sorted_rows, "MANY", 1):
        for each in (plain, as_in_a_file(layout, held, 16)):
            answer = lookup(layout, [(each, counts)], 16, hash_column(query), wanted)
            found.append((answer.found.tolist(), answer.values.to_pylist()))
    assert found[0] == found[1]
    assert any(found[0][0])


def test_rows_are_numbered_through_their_batches() -> None:
    rows = many_batches()
    assert len(rows) == 10
    taken = rows.take(np.array([0, 2, 2, 3, 4, 9]))
    assert taken.column("k_c0").to_pylist() == [0, 20, 20, 30, 40, 90]
    assert rows.take(np.array([], dtype=np.int64)).num_rows == 0
    pieces = [part.column("k_c0").to_pylist() for part in rows.slice(2, 6)]
    assert pieces == [[20], [30], [40, 50]]
    assert list(rows.slice(4, 4)) == []


@settings(max_examples=50)
@given(st.sets(st.integers(0, 100)))
def test_a_search_goes_through_all_batches(asked: set[int]) -> None:
    rows = many_batches()
    layout = Layout(key_schema("int64"), VALUES)
    hashes = np.array(sorted(asked), dtype=np.uint64)
    query = pa.record_batch({"k": pa.array(sorted(asked), pa.int64())})
    places, found = rows.match(layout, hashes, query, np.arange(len(hashes)))
    expected = [n for n in sorted(asked) if n % 10 == 0 and n < 100]
    assert hashes[places].tolist() == expected
    assert rows.take(found).column("v_n").to_pylist() == expected
