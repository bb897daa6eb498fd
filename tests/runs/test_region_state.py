from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.errors import ChangedDataflow, MissingRun
from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList, files, replace_all, runs_of
from anabranch.runs import run_file
from anabranch.runs import run_stack as stacked_runs
from anabranch.runs.changes import KeyChanges
from anabranch.runs.compaction import CompactionLimits
from anabranch.runs.region_state import RegionState, WriteResult
from tests.runs.state_model import (
    KINDS,
    VALUES,
    Key,
    batch_of,
    changed_of,
    chunked,
    frozen,
    hashes_of,
    key_schema,
    keys_of,
    scanned,
    sorted_query,
    to_dicts,
    weak_hash,
)

SPACE = 2**32
TOTALS = Layout(key_schema("int64"), VALUES)


def plain_create(path: Path, data: pa.Buffer) -> None:
    """Exclusive, but not durable: random tests write many files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)


class Store:
    """An operator's state through many steps, beside the dict that it should equal."""

    def __init__(
        self,
        root: Path,
        layout: Layout = TOTALS,
        *,
        bins: int = 16,
        space: int = SPACE,
        limits: CompactionLimits | None = None,
    ) -> None:
        self.root = root
        self.layout = layout
        self.bins = bins
        self.space = space
        self.limits = limits or CompactionLimits()
        self.runs: RunList = ()
        self.live = np.zeros(bins, dtype=np.int64)
        self.model: dict[Any, tuple[Any, ...]] = {}
        self.keys: dict[Any, Key] = {}
        self.written = 0

    def state(self, owned: BinSet | None = None) -> RegionState:
        return RegionState(
            "totals",
            self.layout,
            self.runs,
            self.root,
            self.bins,
            BinSet.every(self.bins) if owned is None else owned,
            self.live,
            limits=self.limits,
        )

    def bin_of(self, key: Key) -> int:
        return weak_hash(key, self.space) * self.bins // 2**64

    def changed(self, changes: Sequence[tuple[Key, tuple[Any, ...] | None]]) -> KeyChanges:
        said = {frozen(key): value for key, value in changes}
        return changed_of(self.layout, said, [key for key, _ in changes], self.space)

    def step(
        self,
        changes: Sequence[tuple[Key, tuple[Any, ...] | None]],
        owners: Sequence[BinSet] | None = None,
        **options: Any,
    ) -> list[WriteResult | None]:
        """Every owner writes its share of the changes; the commit puts them together."""
        results, parts, live = [], [], self.live.copy()
        for owned in owners or [BinSet.every(self.bins)]:
            mine = [change for change in changes if self.bin_of(change[0]) in owned]
            self.written += 1
            options.setdefault("create", plain_create)
            result = self.state(owned).write(self.changed(mine), f"run/{self.written}", **options)
            results.append(result)
            if result is not None:
                parts.append((owned, result.runs))
                mask = owned.mask(self.bins)
                live[mask] = result.live[mask]
        self.runs, self.live = replace_all(self.runs, parts), live
        for key, value in changes:
            self.keys[frozen(key)] = key
            if value is None:
                self.model.pop(frozen(key), None)
            else:
                self.model[frozen(key)] = value
        return results

    def one(self, *changes: tuple[Key, tuple[Any, ...] | None], **options: Any) -> WriteResult:
        (result,) = self.step(changes, **options)
        assert result is not None
        return result

    def check(self, absent: Sequence[Key] = ()) -> None:
        """The state says what the model says, in every way of asking."""
        assert scanned(self.layout, self.state().scan()) == self.model
        asked = [*self.keys.values(), *absent]
        hashes, query, names = sorted_query(self.layout, asked, self.space)
        found, values = self.state().lookup(hashes, query)
        assert found.tolist() == [name in self.model for name in names]
        blank = (None,) * len(self.layout.values)
        got = [tuple(row.values()) for row in to_dicts(values)]
        assert got == [self.model.get(name, blank) for name in names]
        expected = np.zeros(self.bins, dtype=np.int64)
        for name in self.model:
            expected[self.bin_of(self.keys[name])] += 1
        assert self.live.tolist() == expected.tolist()

    def heights(self) -> list[int]:
        return [len(runs_of(self.runs, number)) for number in range(self.bins)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def key(number: int) -> Key:
    return (number,)


def put(*numbers: int, value: int = 0) -> list[tuple[Key, tuple[Any, ...]]]:
    return [(key(number), (value, number / 2)) for number in numbers]


def forget(*numbers: int) -> list[tuple[Key, None]]:
    return [(key(number), None) for number in numbers]


def test_state_begins_empty(store: Store) -> None:
    store.check(absent=[key(1)])
    assert store.state().scan().num_rows == 0
    assert store.state().scan().schema.names == ["hash", "k_c0", "v_n", "v_s"]


def test_what_is_put_is_found_until_it_is_forgotten(store: Store) -> None:
    store.one(*put(*range(20)))
    store.one(*put(3, 4, value=7))
    store.one(*forget(4, 5))
    store.check(absent=[key(99)])
    assert len(store.model) == 18
    assert store.model[key(3)] == (7, 1.5)


def test_a_real_file_is_written_and_read(store: Store) -> None:
    result = store.one(*put(1, 2), create=None)
    assert result.run is not None
    assert (store.root / result.run.name).stat().st_size == result.run.bytes
    store.check()


def test_nothing_changed_and_nothing_due_writes_nothing(store: Store) -> None:
    assert store.step([]) == [None]
    store.one(*put(1))
    assert store.step([]) == [None]
    assert files(store.runs) == {"run/2"}


def test_forgetting_what_is_not_held_leaves_no_trace(store: Store) -> None:
    assert store.step(forget(1, 2)) == [None]
    store.one(*put(1))
    assert store.step(forget(2)) == [None]
    result = store.one(*forget(2), *put(3))
    assert result.changed_rows == 1
    store.check()


def test_forgetting_everything_leaves_no_file(store: Store) -> None:
    store.one(*put(1, 2, 3))
    result = store.one(*forget(1, 2, 3))
    assert result.run is None
    assert result.runs == store.runs == ()
    store.check()


def test_a_tombstone_stays_as_long_as_an_older_run_has_the_key(tmp_path: Path) -> None:
    store = Store(tmp_path, bins=1, limits=CompactionLimits(young_bytes=0, dead_share=1))
    store.one(*put(1, 2, 3, 4))
    store.one(*forget(1))
    assert store.heights() == [2]
    store.check()


def test_a_write_without_changes_still_merges_what_is_due(tmp_path: Path) -> None:
    lazy = CompactionLimits(young_bytes=0, fan_out=99, run_limit=99, dead_share=1)
    store = Store(tmp_path, bins=1, limits=lazy)
    for value in range(5):
        store.one(*put(1, 2, 3, value=value))
    assert store.heights() == [5]
    store.limits = CompactionLimits()
    result = store.one()
    assert result.changed_rows == 0
    assert result.compacted_rows == 15
    assert result.run is not None
    assert result.run.rows == 3
    assert store.heights() == [1]
    store.check()


def test_tiny_steps_keep_one_young_file(store: Store) -> None:
    for number in range(60):
        store.one(*put(number % 7, 100 + number, value=number))
        assert len(store.runs) == 1
    store.check()


def test_a_write_reports_what_it_read(tmp_path: Path) -> None:
    store = Store(tmp_path, bins=1)
    first = store.one(*put(1, 2, 3))
    assert (first.changed_rows, first.compacted_rows, first.compacted_bytes) == (3, 0, 0)
    # hash 8, key 8, count 8, sum 8, per row; the tombstones' bits round down.
    assert store.state().bytes_per_bin().tolist() == [96]
    second = store.one(*put(3, 4))
    assert (second.changed_rows, second.compacted_rows, second.compacted_bytes) == (2, 3, 96)


def test_the_caller_may_say_what_was_found(store: Store) -> None:
    store.one(*put(*range(0, 40, 2)))
    changes = [*forget(*range(20)), *put(*range(20, 40), value=5)]
    assert [weak_hash(key, SPACE) for key, _ in changes] != sorted(
        weak_hash(key, SPACE) for key, _ in changes
    )
    found = np.array([number % 2 == 0 for number in range(40)])
    with patch.object(RegionState, "lookup", side_effect=AssertionError):
        result = store.one(*changes, found=found)
    assert result.changed_rows == 30
    store.check()


def test_changes_may_come_in_any_order_and_in_chunks(store: Store) -> None:
    keys = [key(number) for number in range(50)]
    said = {name: (1, None) for name in keys}
    whole = changed_of(TOTALS, said, keys, SPACE)
    changed = KeyChanges(
        whole.hashes, chunked(whole.keys, 20), chunked(whole.values, 31), whole.tombstone
    )
    result = store.state().write(changed, "run/x", create=plain_create)
    assert result is not None
    store.runs = result.runs
    assert scanned(TOTALS, store.state().scan()) == said


def test_a_key_may_change_only_once_in_a_step(store: Store) -> None:
    twice = KeyChanges(
        hashes_of([key(1)] * 2, SPACE),
        batch_of([key(1)] * 2, TOTALS.keys),
        batch_of([(1, None)] * 2, TOTALS.values),
        np.zeros(2, dtype=np.bool_),
    )
    with pytest.raises(ValueError, match="occurs twice"):
        store.state().write(twice, "run/x")


def test_values_of_forgotten_keys_are_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, bins=1, limits=CompactionLimits(young_bytes=0, dead_share=1))
    store.one(*put(1, 2))
    changed = store.changed(put(1))
    gone = KeyChanges(changed.hashes, changed.keys, changed.values, np.array([True]))
    result = store.state().write(gone, "run/x", create=plain_create)
    assert result is not None
    rows = to_dicts(run_file.open_run(tmp_path, result.runs[0].run).rows.batches[0])
    assert [(row["k_c0"], row["v_n"], row["v_s"], row["tombstone"]) for row in rows] == [
        (1, None, None, True)
    ]


def test_columns_of_other_types_are_refused(store: Store) -> None:
    changed = store.changed(put(1))
    narrow = changed.keys.cast(pa.schema([("c0", pa.int32())]))
    with pytest.raises(TypeError, match="key columns are"):
        store.state().write(
            KeyChanges(changed.hashes, narrow, changed.values, changed.tombstone), "run/x"
        )
    coded = pa.record_batch({"n": changed.values.column(0).dictionary_encode(), "s": [None]})
    with pytest.raises(TypeError, match="value columns are"):
        store.state().write(
            KeyChanges(changed.hashes, changed.keys, coded, changed.tombstone), "run/x"
        )


def test_fields_that_cannot_be_null_fit_those_that_can(tmp_path: Path) -> None:
    strict = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    layout = Layout(pa.schema([("k", strict)]), pa.schema([("v", strict)]))
    rows = pa.record_batch({"k": pa.array([{"x": 1}], strict)})
    changed = KeyChanges(np.array([5], dtype=np.uint64), rows, rows, np.array([False]))
    store = Store(tmp_path, layout)
    result = store.state().write(changed, "run/x", create=plain_create)
    assert result is not None
    store.runs = result.runs
    assert to_dicts(store.state().scan()) == [{"hash": 5, "k_k": {"x": 1}, "v_v": {"x": 1}}]


def test_untyped_state_is_only_bytes(tmp_path: Path) -> None:
    store = Store(tmp_path, Layout(key_schema("string"), pa.schema([("state", pa.binary())])))
    store.one((("a",), (b"\x93\x01\x02\x03",)), (("b",), (b"",)))
    store.one((("a",), (b"\xc0",)), ((None,), (b"\xff" * 300,)))
    store.check()


def test_state_without_values_is_a_set_of_keys(tmp_path: Path) -> None:
    store = Store(tmp_path, Layout(key_schema("int64"), pa.schema([])))
    keys = [key(1), key(2)]
    changed = KeyChanges(
        hashes_of(keys, SPACE),
        batch_of(keys, store.layout.keys),
        pa.table({}),
        np.zeros(2, dtype=np.bool_),
    )
    result = store.state().write(changed, "run/1", create=plain_create)
    assert result is not None
    store.runs, store.live = result.runs, result.live
    hashes, query, names = sorted_query(store.layout, [key(1), key(2), key(3)], SPACE)
    found, _ = store.state().lookup(hashes, query)
    assert {name for name, held in zip(names, found, strict=True) if held} == set(keys)


def test_R1_only_owned_bins_are_looked_up_and_written(store: Store) -> None:
    owned = BinSet.of({store.bin_of(key(1))})
    other = next(n for n in range(2, 99) if store.bin_of(key(n)) not in owned)
    hashes, query, _ = sorted_query(TOTALS, [key(other)], SPACE)
    with pytest.raises(ValueError, match="R1"):
        store.state(owned).lookup(hashes, query)
    with pytest.raises(ValueError, match="R1"):
        store.state(owned).write(store.changed(put(other)), "run/x")


def test_state_of_other_columns_or_bins_is_not_opened(store: Store) -> None:
    store.one(*put(1))
    other = Layout(key_schema("string"), VALUES)
    strange = RegionState("totals", other, store.runs, store.root, 16, BinSet.every(16), store.live)
    with pytest.raises(ChangedDataflow, match="'totals'"):
        strange.scan()
    fewer = RegionState("totals", TOTALS, store.runs, store.root, 8, BinSet.every(8), [0] * 8)
    with pytest.raises((ChangedDataflow, ValueError), match=r"bins"):
        fewer.scan()


def test_a_missing_run_stops_a_look_up(store: Store) -> None:
    store.one(*put(1))
    for name in files(store.runs):
        (store.root / name).unlink()
    with pytest.raises(MissingRun):
        store.state().scan()


def test_live_keys_are_one_number_per_bin(store: Store) -> None:
    with pytest.raises(ValueError, match="16 bins"):
        RegionState("totals", TOTALS, (), store.root, 16, BinSet.every(16), [0] * 8)


def test_a_file_others_still_need_is_not_rewritten(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=CompactionLimits(young_bytes=0))
    store.one(*put(*range(100)))
    half = BinSet.of(range(8))
    assert store.state(half).write(store.changed([]), "run/x") is None
    alone = RegionState(
        "totals", TOTALS, store.runs, tmp_path, 16, BinSet.of([0]), store.live, limits=store.limits
    )
    assert alone.write(store.changed([]), "run/x") is None


RELAXED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
VALUE = st.none() | st.tuples(st.none() | st.integers(-5, 5), st.none() | st.floats(-1, 1))
LIMITS = st.sampled_from(
    [
        CompactionLimits(),
        CompactionLimits(young_bytes=0),
        CompactionLimits(young_bytes=0, fan_out=2, run_limit=3, small_rows=1),
        CompactionLimits(young_bytes=0, fan_out=99, run_limit=99, dead_share=1, sparse_share=0),
        CompactionLimits(young_bytes=3000, small_rows=1, dead_share=0.1),
    ]
)


def draw_changes(
    data: st.DataObject, kinds: Sequence[str]
) -> list[tuple[Key, tuple[Any, ...] | None]]:
    keys = data.draw(st.lists(keys_of(kinds), max_size=12, unique_by=frozen))
    return [(key, data.draw(VALUE)) for key in keys]


def draw_owners(data: st.DataObject, bins: int) -> list[BinSet]:
    owner = data.draw(st.lists(st.integers(0, 2), min_size=bins, max_size=bins))
    return [BinSet.of(b for b in range(bins) if owner[b] == worker) for worker in range(3)]


@settings(RELAXED, max_examples=60)
@given(st.data())
def test_state_equals_a_dict_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = data.draw(st.sampled_from(KINDS))
    store = Store(
        tmp_path_factory.mktemp("store"),
        Layout(key_schema(*kinds), VALUES),
        bins=data.draw(st.sampled_from([1, 4, 16])),
        space=data.draw(st.sampled_from([1, 3, 16, SPACE])),
        limits=data.draw(LIMITS),
    )
    merge_bytes = data.draw(st.sampled_from([1, 500, 1 << 24]))
    batch_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]))
    with (
        patch.object(stacked_runs, "COMPACTION_BYTES", merge_bytes),
        patch.object(run_file, "BATCH_BYTES", batch_bytes),
    ):
        for _ in range(data.draw(st.integers(1, 8))):
            budget = data.draw(st.sampled_from([None, 0, 10]))
            results = store.step(draw_changes(data, kinds), budget=budget)
            made = {f"run/{store.written}"} & files(store.runs)
            wrote = results[0] is not None and results[0].run is not None
            assert len(made) == wrote
            store.check(absent=data.draw(st.lists(keys_of(kinds), max_size=3)))


@settings(RELAXED, max_examples=30)
@given(st.data())
def test_R9_owners_do_not_change_the_state(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bins change hands between steps, and every step has several writers."""
    kinds = data.draw(st.sampled_from([("int64",), ("string", "int64"), ("struct",)]))
    space = data.draw(st.sampled_from([3, 16, SPACE]))
    store = Store(
        tmp_path_factory.mktemp("store"),
        Layout(key_schema(*kinds), VALUES),
        space=space,
        limits=data.draw(LIMITS),
    )
    for _ in range(data.draw(st.integers(1, 8))):
        owners = draw_owners(data, store.bins)
        store.step(draw_changes(data, kinds), owners)
        store.check()
        for number, height in enumerate(store.heights()):
            assert (height > 0) >= (store.live[number] > 0)


@settings(RELAXED, max_examples=15)
@given(st.data())
def test_a_long_life_keeps_stacks_low_and_forgets_the_dead(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = Store(
        tmp_path_factory.mktemp("store"),
        bins=4,
        limits=CompactionLimits(young_bytes=data.draw(st.sampled_from([0, 4000])), small_rows=4),
    )
    seed = data.draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    for number in range(40):
        ids = random.choice(100, size=random.integers(1, 20), replace=False)
        changes = [
            (key(int(n)), None if random.random() < 0.3 else (number, float(n))) for n in ids
        ]
        store.step(changes)
        assert max(store.heights()) <= 8
    store.check()
    rows = sum(
        int(run_file.open_run(store.root, listed.run).bin_rows[listed.bins.mask(4)].sum())
        for listed in store.runs
    )
    assert rows <= len(store.model) / 0.6 + 20
    # With every key forgotten, and merges going on, nothing is left.
    store.step(forget(*range(100)))
    for _ in range(20):
        store.step([])
    assert store.runs == ()
    store.check()
