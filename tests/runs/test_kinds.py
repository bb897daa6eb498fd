"""State of every kind (value, list, map), with and without time-to-live, against a plain dict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.runs import region_state, run_file
from anabranch.runs import run_stack as stacked_runs
from anabranch.runs.changes import KeyChanges
from anabranch.runs.compaction import CompactionLimits
from tests.runs.kind_store import SPACE, KindStore, Put
from tests.runs.state_model import KINDS, VALUES, Key, frozen, key_schema, keys_of

RELAXED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LIST = pa.schema([("step", pa.int64()), ("place", pa.int64())])
VALUE = st.tuples(st.none() | st.integers(-5, 5), st.none() | st.floats(-1, 1))
LIMITS = st.sampled_from(
    [
        CompactionLimits(),
        CompactionLimits(young_bytes=0),
        CompactionLimits(young_bytes=0, fan_out=2, run_limit=3, small_rows=1),
        CompactionLimits(young_bytes=0, fan_out=99, run_limit=99, dead_share=1, sparse_share=0),
        CompactionLimits(young_bytes=3000, small_rows=1, dead_share=0.1),
    ]
)
MAP_KINDS = [("string",), ("int64",), ("struct",), ("binary", "bool")]


def draw_store(
    root: Path, data: st.DataObject, kinds: tuple[str, ...], subkeys: pa.Schema
) -> KindStore:
    expires, dues = data.draw(st.sampled_from([(False, False), (True, False), (True, True)]))
    return KindStore(
        root,
        Layout(key_schema(*kinds), VALUES, subkeys, expires=expires, dues=dues),
        bins=data.draw(st.sampled_from([1, 4, 16])),
        space=data.draw(st.sampled_from([1, 3, 16, SPACE])),
        limits=data.draw(LIMITS),
    )


def draw_expiry(data: st.DataObject, store: KindStore) -> int | None:
    """Never, soon, or already over."""
    if not store.layout.expires:
        return None
    ahead = data.draw(st.none() | st.integers(-1, 6))
    return None if ahead is None else store.now + 10 * ahead


def draw_owners(data: st.DataObject, bins: int) -> list[BinSet]:
    if data.draw(st.booleans()):
        return [BinSet.every(bins)]
    owner = data.draw(st.lists(st.integers(0, 2), min_size=bins, max_size=bins))
    return [BinSet.of(b for b in range(bins) if owner[b] == worker) for worker in range(3)]


def run_steps(
    data: st.DataObject, store: KindStore, draw_puts: Callable[[int], tuple[list[Put], bool]]
) -> None:
    """Some steps with a moving clock, owners that change, merges of any budget."""
    merge_bytes = data.draw(st.sampled_from([1, 500, 1 << 24]))
    batch_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]))
    with (
        patch.object(stacked_runs, "COMPACTION_BYTES", merge_bytes),
        patch.object(run_file, "BATCH_BYTES", batch_bytes),
    ):
        for number in range(data.draw(st.integers(1, 7))):
            store.now += 10 * data.draw(st.integers(0, 3))
            owners = draw_owners(data, store.bins)
            budget = data.draw(st.sampled_from([None, 0, 10]))
            puts, fresh = draw_puts(number)
            known = not fresh and data.draw(st.booleans())
            store.step(puts, owners, known=known, fresh=fresh, budget=budget)
            store.check()


def put_or_forget(data: st.DataObject, store: KindStore, key: Key, subkey: Key = ()) -> Put:
    values = data.draw(st.none() | VALUE)
    expiry = None if values is None else draw_expiry(data, store)
    return Put(key, values, subkey, expiry)


@settings(RELAXED, max_examples=60)
@given(st.data())
def test_value_state_equals_a_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = data.draw(st.sampled_from(KINDS))
    store = draw_store(tmp_path_factory.mktemp("store"), data, kinds, pa.schema([]))

    def puts(_: int) -> tuple[list[Put], bool]:
        keys = data.draw(st.lists(keys_of(kinds), max_size=10, unique_by=frozen))
        return [put_or_forget(data, store, key) for key in keys], False

    run_steps(data, store, puts)


@settings(RELAXED, max_examples=60)
@given(st.data())
def test_map_state_equals_a_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = data.draw(st.sampled_from([("int64",), ("string", "int64"), ("struct",)]))
    inner = data.draw(st.sampled_from(MAP_KINDS))
    store = draw_store(tmp_path_factory.mktemp("store"), data, kinds, key_schema(*inner))

    def puts(_: int) -> tuple[list[Put], bool]:
        if data.draw(st.integers(0, 3)) == 0:
            known = list(store.keys.values()) or [(None,) * len(kinds)]
            return store.clear(data.draw(st.lists(st.sampled_from(known), min_size=1))), False
        pairs = st.tuples(keys_of(kinds), keys_of(inner))
        some = data.draw(st.lists(pairs, max_size=12, unique_by=frozen))
        return [put_or_forget(data, store, *pair) for pair in some], False

    run_steps(data, store, puts)


@settings(RELAXED, max_examples=60)
@given(st.data())
def test_list_state_equals_a_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Appends never look anything up; clears forget what the state itself says is there."""
    kinds = data.draw(st.sampled_from([("int64",), ("string",)]))
    store = draw_store(tmp_path_factory.mktemp("store"), data, kinds, LIST)

    def puts(number: int) -> tuple[list[Put], bool]:
        if data.draw(st.integers(0, 3)) == 0 and store.keys:
            known = list(store.keys.values())
            return store.clear(data.draw(st.lists(st.sampled_from(known), min_size=1))), False
        found = []
        for key in data.draw(st.lists(keys_of(kinds), max_size=5, unique_by=frozen)):
            for place in range(data.draw(st.integers(1, 4))):
                values = data.draw(VALUE)
                found.append(Put(key, values, (number, place), draw_expiry(data, store)))
        return found, True

    run_steps(data, store, puts)


LISTS = Layout(key_schema("int64"), VALUES, LIST)
SESSIONS = Layout(key_schema("int64"), VALUES, expires=True)


def test_appending_does_not_look_up(tmp_path: Path) -> None:
    store = KindStore(tmp_path, LISTS)
    with patch.object(region_state, "lookup", side_effect=AssertionError):
        for number in range(5):
            puts = [Put((k,), (number, None), (number, p)) for k in range(8) for p in range(3)]
            store.step(puts, fresh=True)
    store.check(absent=[(99,)])
    assert store.live.sum() == 5 * 8 * 3


def test_an_expired_row_does_not_bring_back_the_one_it_hides(tmp_path: Path) -> None:
    lazy = CompactionLimits(young_bytes=0, fan_out=99, run_limit=99, dead_share=1)
    store = KindStore(tmp_path, SESSIONS, bins=1, limits=lazy)
    store.step([Put((n,), (1, None)) for n in range(20)])
    store.step([Put((1,), (2, None), expiry=store.now + 10)])
    store.step([Put((2,), (2, None), expiry=store.now + 10)])
    store.now += 10
    store.limits = CompactionLimits(young_bytes=0, fan_out=2, small_rows=1, dead_share=1)
    store.step([Put((3,), (3, None))])
    # The three small runs were merged above the large one, which still has keys 1 and 2.
    assert store.heights() == [2]
    store.check()
    assert (1,) not in {name for name, _ in store.held()}
    assert store.live.tolist() == [18]


def test_what_has_expired_is_merged_away_without_new_rows(tmp_path: Path) -> None:
    store = KindStore(tmp_path, SESSIONS, bins=4, limits=CompactionLimits(young_bytes=0))
    store.step([Put((n,), (n, None), expiry=store.now + (10 if n % 2 else 999)) for n in range(64)])
    assert store.step([]) == [None]
    store.now += 10
    assert store.live.sum() == 64
    (result,) = store.step([])
    assert result is not None
    assert result.run is not None
    assert result.run.rows == 32 == store.live.sum()
    assert store.step([]) == [None]
    store.now += 999
    store.step([])
    assert store.runs == ()
    assert store.live.sum() == 0


def test_expiring_state_needs_the_clock(tmp_path: Path) -> None:
    state = KindStore(tmp_path, SESSIONS).state()
    none = np.array([], dtype=np.uint64)
    for ask in (
        lambda: state.lookup(none, SESSIONS.keys.empty_table()),
        lambda: state.entries(none, SESSIONS.keys.empty_table()),
        lambda: state.write(KindStore(tmp_path, SESSIONS).changed([]), "run/x"),
        state.scan,
    ):
        with pytest.raises(ValueError, match="clock"):
            ask()


def test_columns_that_the_layout_does_not_have_are_refused(tmp_path: Path) -> None:
    lists = KindStore(tmp_path, LISTS)
    whole = lists.changed([Put((1,), (1, None), (0, 0))])
    without = KeyChanges(whole.hashes, whole.keys, whole.values, whole.tombstone)
    with pytest.raises(TypeError, match="sub-key columns are"):
        lists.state().write(without, "run/x")
    late = KeyChanges(
        whole.hashes, whole.keys, whole.values, whole.tombstone, whole.subkeys, pa.array([5])
    )
    with pytest.raises(TypeError, match="has no expiry"):
        lists.state().write(late, "run/x")
    sessions = KindStore(tmp_path, SESSIONS)
    one = sessions.changed([Put((1,), (1, None))])
    text = KeyChanges(one.hashes, one.keys, one.values, one.tombstone, None, pa.array(["soon"]))
    with pytest.raises(TypeError, match="expiry must be nanoseconds"):
        sessions.state().write(text, "run/x", now_ns=1)


def test_an_entry_may_change_only_once_in_a_step(tmp_path: Path) -> None:
    store = KindStore(tmp_path, LISTS)
    with pytest.raises(ValueError, match="key and sub-key occurs twice"):
        store.step([Put((1,), (1, None), (0, 0)), Put((1,), (2, None), (0, 0))])


WORDS = pa.schema([("text", pa.string())])


@pytest.mark.parametrize("layout", ["value", "list"])
@pytest.mark.parametrize("young", [0, 30_000])
def test_turnover_leaves_no_more_than_twice_what_is_alive(
    tmp_path: Path, layout: str, young: int
) -> None:
    """Keys come, are refreshed and expire, for many times the life of a row."""
    subkeys = LIST if layout == "list" else pa.schema([])
    kept = Layout(key_schema("int64"), WORDS, subkeys, expires=True)
    store = KindStore(tmp_path, kept, bins=8, limits=CompactionLimits(young_bytes=young))
    random = np.random.default_rng(7)
    life = 200
    for number in range(80):
        store.now += 10
        again = random.integers(max(0, number * 40 - 600), number * 40 + 1, 20)
        keys = {int(key) for key in (*(number * 40 + np.arange(80)), *again)}
        subkey = (number, 0) if layout == "list" else ()
        store.step(
            [
                Put((key,), (f"{key:060d}",), subkey, store.now + int(random.integers(1, life)))
                for key in sorted(keys)
            ]
        )
        store.model = store.held()
        if number >= 20:
            alive = KindStore(tmp_path / f"alive{number}", kept, bins=8)
            alive.step(list(store.model.values()))
            assert file_bytes(store) <= 2 * file_bytes(alive)
    store.check()
    # When nothing comes any more, nothing is left in the end.
    store.now += life
    for _ in range(10):
        store.step([])
    assert store.runs == ()
    assert store.live.sum() == 0


def file_bytes(store: KindStore) -> int:
    return sum(listed.run.bytes for listed in store.runs)
