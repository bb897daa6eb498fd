"""The ledger against a set, through restarts at any mark."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptEntry, FutureFormat, StoreUnavailable
from anabranch.sources import ledger as ledger_module
from anabranch.sources.ledger import (
    Ledger,
    LedgerSegment,
    Mark,
    keep_list,
    read_list,
    read_segment,
    write_segment,
)
from tests.sources.memory_log import MemoryLog

directories = st.sampled_from(["/in", "/in/a", "/in/ä b", "/"])
names = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=4
)
paths = st.builds(lambda directory, name: f"{directory.rstrip('/')}/{name}", directories, names)
grow = st.lists(paths, max_size=12)
#: Goes back to a mark of the past, counted from the newest.
restart = st.integers(0, 5)


@settings(max_examples=150, deadline=None)
@given(st.lists(grow | restart, max_size=25))
def test_ledger_is_a_set_that_reopens_at_any_mark(actions: list[list[str] | int]) -> None:
    log = MemoryLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "INLINE", 3)
        ledger = Ledger(Mark(), log)
        kept: list[tuple[Mark, frozenset[str]]] = [(ledger.mark, frozenset())]
        for action in actions:
            if isinstance(action, int):
                mark, model = kept[max(0, len(kept) - 1 - action)]
                ledger = Ledger(mark, log)
                kept.append((mark, model))
            else:
                model = kept[-1][1]
                fresh = sorted(set(action) - model)
                ledger.add(fresh)
                kept.append((ledger.mark, model | set(fresh)))
            assert contents(ledger.mark, log) == sorted(kept[-1][1])
            everything = set().union(*(m for _, m in kept))
            assert {path for path in everything if path in ledger} == kept[-1][1]
            assert len(ledger.mark.recent) <= 3


def contents(mark: Mark, log: MemoryLog) -> list[str]:
    """Every path of a mark, with repeats, read without a ledger."""
    segments = [path for segment in mark.segments for path in read_segment(segment, log)]
    return sorted([*segments, *mark.recent])


@pytest.mark.parametrize("step", [1, 100, 257, 1000])
def test_segments_stay_few_and_each_path_is_rewritten_seldom(step: int) -> None:
    log = MemoryLog()
    ledger = Ledger(Mark(), log)
    total = 40_000
    written = 0
    for start in range(0, total, step):
        before = set(ledger.mark.segments)
        ledger.add([f"/in/{i:06}.json" for i in range(start, min(start + step, total))])
        written += sum(segment.paths for segment in set(ledger.mark.segments) - before)
    sizes = [segment.paths for segment in ledger.mark.segments]
    assert all(older > 2 * newer for older, newer in pairwise(sizes))
    assert len(sizes) <= math.log2(total / 256) + 1
    assert written <= total * (math.log2(total / 256) + 1)
    assert sum(sizes) + len(ledger.mark.recent) == total


def test_names_are_given_by_directory() -> None:
    ledger = Ledger(Mark(recent=("/in/a", "/in/b", "/in/sub/c")), MemoryLog())
    assert ledger.names_in("/in") == {"a", "b"}
    assert ledger.names_in("/in/sub") == {"c"}
    assert ledger.names_in("/elsewhere") == set()


@pytest.mark.parametrize("count", [0, 256, 257])
def test_a_kept_list_keeps_its_order(count: int) -> None:
    log = MemoryLog()
    given_paths = [f"/in/{count - i}" for i in range(count)]
    kept = keep_list(given_paths, log, "fixed")
    assert read_list(kept, log) == given_paths
    assert len(log.files) == (1 if count > 256 else 0)


def test_every_damage_to_a_segment_is_noticed() -> None:
    log = MemoryLog()
    segment = write_segment(["/in/a", "/in/b"], log, "seen")
    whole = log.files[segment.name]
    for place in range(len(whole)):
        log.files[segment.name] = whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :]
        with pytest.raises((CorruptEntry, FutureFormat)):
            read_segment(segment, log)
        log.files[segment.name] = whole[:place]
        with pytest.raises(CorruptEntry):
            read_segment(segment, log)


def test_another_segment_under_the_name_is_noticed() -> None:
    log = MemoryLog()
    segment = write_segment(["/in/a"], log, "seen")
    with pytest.raises(CorruptEntry, match=segment.name):
        read_segment(LedgerSegment(segment.name, 2), log)


def test_a_segment_of_a_newer_version_is_refused() -> None:
    log = MemoryLog()
    segment = write_segment(["/in/a"], log, "seen")
    log.files[segment.name] = log.files[segment.name].replace(b"paths 1 ", b"paths 2 ", 1)
    with pytest.raises(FutureFormat, match="format 2"):
        read_segment(segment, log)


def test_a_missing_segment_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match="seen-7"):
        Ledger(Mark(segments=(LedgerSegment("seen-7", 3),)), MemoryLog())
