"""Homes on a real file system: pieces, misses, damage, large values copied in parts, tidying."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import MissingRun
from anabranch.homes.home import HomeFiles
from anabranch.homes.home_directory import HomeDirectory
from anabranch.homes.pieces import forget_pieces
from anabranch.records.bins import BinSet
from anabranch.records.layout import Layout
from anabranch.records.run_list import BlobInfo, restrict
from anabranch.runs.compaction import CompactionLimits
from anabranch.runs.region_state import RegionState
from anabranch.runs.run_file import forget_runs
from anabranch.store.checksums import crc_of
from anabranch.store.retention import file_step
from tests.runs.kind_store import KindStore, Put, plain_create
from tests.runs.state_model import key_schema

BINS = 16
LAYOUT = Layout(key_schema("int64"), pa.schema([("text", pa.string())]))
LARGE = Layout(key_schema("int64"), pa.schema([("text", pa.string())]), blobs=True)
EVERY = BinSet.every(BINS)
MIB = 1 << 20


def filled(path: Path, layout: Layout = LAYOUT, steps: int = 3, size: int = 3) -> KindStore:
    """A store with some runs that count for all bins."""
    limits = CompactionLimits(young_bytes=0, fan_out=99, dead_share=2.0)
    store = KindStore(path / "store", layout, bins=BINS, limits=limits)
    store.root.mkdir(parents=True, exist_ok=True)
    for step in range(steps):
        store.step([Put((n,), (f"{step}-{n}" * size,)) for n in range(200) if n % (step + 1) == 0])
    return store


def at_home(store: KindStore, files: HomeFiles, owned: BinSet = EVERY) -> RegionState:
    return RegionState(
        "totals",
        store.layout,
        store.runs,
        store.root,
        store.bins,
        owned,
        store.live,
        limits=store.limits,
        files=files,
    )


def test_a_home_is_read_where_it_has_the_bins_and_the_store_where_not(tmp_path: Path) -> None:
    store = filled(tmp_path)
    some, rest = BinSet.of([1, 2, 7]), BinSet.of([3, 9])
    first = HomeFiles(tmp_path / "home", store.root)
    copied = first.copy_ahead(store.runs, some, None)
    assert set(copied.bytes) == {1, 2, 7}
    assert all(copied.bytes.values())
    assert first.counters.moved > 0
    files = HomeFiles(tmp_path / "home", store.root)
    state = at_home(store, files, some)
    assert state.scan() == store.state(some).scan()
    assert (files.counters.store, files.counters.misses, files.counters.moved) == (0, 0, 0)
    assert files.counters.home == int(store.state(some).bytes_per_bin()[[1, 2, 7]].sum())
    assert at_home(store, files, some | rest).scan() == store.state(some | rest).scan()
    assert files.counters.misses == len(restrict(store.runs, rest))
    before = files.counters.store
    again = HomeFiles(tmp_path / "home", store.root)
    assert at_home(store, again, some | rest).scan() == store.state(some | rest).scan()
    assert before > again.counters.store == 0, "what was missing is kept"


@given(st.data())
def test_pieces_say_what_the_run_says(data: st.DataObject) -> None:
    """However the bins came, look-ups and merges come to the same as from the store (R9)."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        store = filled(path, steps=data.draw(st.integers(1, 4)))
        bins = st.sets(st.integers(0, BINS - 1)).map(BinSet.of)
        files = HomeFiles(path / "home", store.root)
        for wanted in data.draw(st.lists(bins, max_size=4)):
            files.copy_ahead(store.runs, wanted, None)
        owned = data.draw(bins)
        puts = [
            Put((n,), data.draw(st.none() | st.just(("new",))))
            for n in data.draw(st.sets(st.integers(0, 250), max_size=30))
        ]
        mine = [put for put in puts if store.bin_of(put.key) in owned]
        changed = store.changed(mine)
        results = []
        for number, state in enumerate([store.state(owned), at_home(store, files, owned)]):
            found = store.present(state, changed)
            change = state.write(changed, f"run/new-{number}", found=found, create=plain_create)
            kept = None if change is None else _told(change.runs, number), _live(change)
            results.append((state.scan(), found.tolist(), kept))
        assert results[0] == results[1]


def _told(runs: Any, number: int) -> Any:
    return [
        (listed.run.name.replace(f"new-{number}", "new"), listed.run.checksum, listed.bins)
        for listed in runs
    ]


def _live(change: Any) -> Any:
    return None if change is None else (change.live.tolist(), change.compacted_rows)


def test_what_a_worker_writes_it_has_at_home(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=0)
    files = HomeFiles(tmp_path / "home", store.root)
    store.step([Put((1,), ("a",))], create=files.create)
    (listed,) = store.runs
    assert (tmp_path / "home" / listed.run.name).read_bytes() == (
        store.root / listed.run.name
    ).read_bytes()
    assert at_home(store, files).scan() == store.state().scan()
    assert (files.counters.misses, files.counters.moved) == (0, 0)


def test_a_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=0)
    store.step([Put((1,), ("a",))], create=HomeFiles(tmp_path / "homes" / "1", store.root).create)
    assert stat.S_IMODE((tmp_path / "homes" / "1").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "homes").stat().st_mode) & 0o055 == 0o055


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_damage_is_noticed_and_counted_as_a_miss(tmp_path: Path, harm: str) -> None:
    store = filled(tmp_path)
    for bins in ([1, 2], [3]):
        HomeFiles(tmp_path / "home", store.root).copy_ahead(store.runs, BinSet.of(bins), None)
    forget_pieces()
    piece = sorted((tmp_path / "home" / "run").glob("*.piece"))[0]
    data = piece.read_bytes()
    if harm == "gone":
        shutil.rmtree(tmp_path / "home")
    else:
        piece.write_bytes(data[:-9] if harm == "cut" else bytes([data[0] ^ 1]) + data[1:])
    files = HomeFiles(tmp_path / "home", store.root)
    owned = BinSet.of([1, 2, 3])
    assert at_home(store, files, owned).scan() == store.state(owned).scan()
    assert files.counters.misses == (1 if harm != "gone" else len(restrict(store.runs, owned)))
    again = HomeFiles(tmp_path / "home", store.root)
    assert at_home(store, again, owned).scan() == store.state(owned).scan()
    assert again.counters.misses == 0


def test_the_time_of_a_copy_is_told_without_what_it_costs_to_handle_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everything takes a millisecond, that is what a run costs whatever is copied."""
    store = filled(tmp_path, steps=4)
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 1000)
    files = HomeFiles(tmp_path / "home", store.root)
    began = next(ticks)
    copied = files.copy_ahead(store.runs, BinSet.of([1, 2]), None)
    spent = (next(ticks) - began - 2) / 1000
    assert files.handling_seconds == pytest.approx(0.002 * 4)
    assert copied.seconds == pytest.approx(spent - files.handling_seconds)
    files.complete(store.runs, BinSet.of([1, 2]), last_step=9)
    assert files.handling_seconds == pytest.approx(0.002 * 4 + 0.001 * 4)
    files.complete(store.runs, BinSet.of([3]), last_step=9)
    assert files.handling_seconds == pytest.approx(0.002 * 4 + 0.001 * 4 + 0.002 * 4)


def test_damage_of_the_store_is_never_copied(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=1)
    (listed,) = store.runs
    os.unlink(store.root / listed.run.name)
    forget_runs()
    with pytest.raises(MissingRun):
        HomeFiles(tmp_path / "home", store.root).copy_ahead(store.runs, EVERY, None)
    assert not (tmp_path / "home").exists()


def test_without_room_the_store_is_read_as_it_is(tmp_path: Path) -> None:
    store = filled(tmp_path)
    (tmp_path / "home").write_text("a file, where no directory can be made")
    files = HomeFiles(tmp_path / "home", store.root)
    assert at_home(store, files).scan() == store.state().scan()
    assert files.counters.misses == len(store.runs)
    assert files.counters.home == 0


def test_acquired_bins_lack_what_the_last_step_wrote_and_nothing_else(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=0)
    owned = BinSet.of([store.bin_of((1,))])
    _step(store, 7, "a")
    early = HomeFiles(tmp_path / "home", store.root)
    early.copy_ahead(store.runs, owned, None)
    _step(store, 8, "b")
    files = HomeFiles(tmp_path / "home", store.root)
    files.complete(store.runs, owned, 8)
    assert (files.counters.misses, files.counters.moved > 0) == (0, True)
    wiped = HomeFiles(tmp_path / "other", store.root)
    wiped.complete(store.runs, owned, 8)
    assert wiped.counters.misses == 1, "the older one should have been there"
    for each in (files, wiped):
        before = each.counters.store
        assert at_home(store, each, owned).scan() == store.state(owned).scan()
        assert each.counters.store == before, "nothing more is read from the store"


def _step(store: KindStore, step: int, text: str) -> None:
    """A step whose run is named as tasks name them."""
    state, changed = store.state(), store.changed([Put((1,), (text,))])
    name = f"run/totals/{step:012d}-0-r-1-0-f00d.arrow"
    change = state.write(changed, name, create=plain_create)
    assert change is not None
    store.runs, store.live = change.runs, change.live


def test_bins_that_are_held_are_not_merged_unless_they_must_be(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=0)
    store.limits = CompactionLimits(young_bytes=MIB, run_limit=4)
    heights = []
    for step in range(8):
        store.step([Put((n,), (f"{step}",)) for n in range(300)], still=BinSet.of([5]))
        heights.append((store.heights()[5], store.heights()[6]))
    assert [each[1] for each in heights] == [1] * 8, "others become one young run"
    assert [each[0] for each in heights[:4]] == [1, 2, 3, 4]
    assert max(each[0] for each in heights) == 4
    store.check()


def test_a_large_value_is_copied_in_parts_and_read_at_home(tmp_path: Path) -> None:
    store = filled(tmp_path, LARGE, steps=0)
    store.step([Put((1,), ("x" * (20 * MIB),)), Put((2,), ("small",))])
    number = store.bin_of((1,))
    owned = BinSet.of([number])
    sizes = []
    for _ in range(4):
        files = HomeFiles(tmp_path / "home", store.root)
        copied = files.copy_ahead(store.runs, owned, 6 * MIB)
        sizes.append(files.counters.moved / MIB)
        assert (number in copied.bytes) == (len(sizes) == 4)
    assert [round(size) for size in sizes] == [6, 6, 6, 2]
    files = HomeFiles(tmp_path / "home", store.root)
    state = at_home(store, files, owned)
    assert max(len(row["v_text"]) for row in state.scan().to_pylist()) == 20 * MIB
    assert (files.counters.misses, files.counters.home > 20 * MIB) == (0, True)
    shutil.rmtree(tmp_path / "home")
    files = HomeFiles(tmp_path / "home", store.root)
    assert at_home(store, files, owned).scan() == state.scan()
    assert files.counters.misses == 2, "the run and the blob"
    assert files.counters.store > 20 * MIB


def test_a_part_that_is_not_what_its_name_says_is_begun_anew(tmp_path: Path) -> None:
    home = HomeDirectory(tmp_path)
    data = pa.py_buffer(os.urandom(10 * MIB))
    blob = BlobInfo("run/a-0.blob", data.size, crc_of(data), 0)
    assert home.add_part(blob, data, 1) == (4 * MIB, False)
    (part,) = (tmp_path / "run").iterdir()
    part.write_bytes(b"torn")
    assert home.add_part(blob, data, 8 * MIB) == (8 * MIB, False)
    assert home.add_part(blob, data, 8 * MIB) == (2 * MIB, True)
    assert (tmp_path / "run/a-0.blob").read_bytes() == data.to_pybytes()
    wrong = BlobInfo("run/b-0.blob", data.size, "00000000", 0)
    assert home.add_part(wrong, data, data.size) == (data.size, False)
    assert not home.has(wrong)


def test_sweeping_leaves_what_is_needed_or_new(tmp_path: Path) -> None:
    store = filled(tmp_path, steps=0)
    owned = BinSet.of([store.bin_of((1,))])
    _step(store, 7, "a")
    files = HomeFiles(tmp_path / "home", store.root)
    files.copy_ahead(store.runs, owned, None)
    _step(store, 8, "b")
    files.copy_ahead(store.runs, owned, None)
    room = tmp_path / "home/run/totals"
    (room / "000000000009-0-r-1-0-f00d.arrow").write_text("of an attempt under way")
    (room / ".x.1.0.aside").write_text("")
    os.utime(room / ".x.1.0.aside", (0, 0))
    (room / ".y.1.0.aside").write_text("of somebody who writes now")

    def kept() -> list[int]:
        names = [path.name for path in room.iterdir() if not path.name.startswith(".")]
        return sorted(file_step(name) for name in names)

    assert kept() == [7, 8, 9]
    files.sweep("totals", store.runs, owned, 9)
    assert kept() == [7, 8, 9]
    files.sweep("totals", store.runs[:1], owned, 9)
    assert kept() == [8, 9], "no commit names the other one"
    assert [path.name for path in room.glob(".*")] == [".y.1.0.aside"]
    files.sweep("totals", store.runs, BinSet(), 9)
    assert kept() == [9]
    files.remove()
    assert not (tmp_path / "home").exists()
