from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.records.bins import BinSet
from anabranch.records.run_list import (
    Listed,
    RunInfo,
    RunList,
    files,
    replace,
    replace_all,
    restrict,
    runs_of,
)

BINS = 8


def run(name: str) -> RunInfo:
    return RunInfo(name, "totals", 1, 1, "00000000")


def listed(name: str, *numbers: int) -> Listed:
    return Listed(run(name), BinSet.of(numbers))


def names(runs: RunList, number: int) -> list[str]:
    return [info.name for info in runs_of(runs, number)]


def by_bin(runs: RunList) -> list[list[str]]:
    return [names(runs, number) for number in range(BINS)]


LIST: RunList = (listed("c", 0, 1), listed("b", 1, 2), listed("a", 0, 1, 2, 3))


def test_the_runs_of_a_bin_are_newest_first() -> None:
    assert by_bin(LIST)[:5] == [["c", "a"], ["c", "b", "a"], ["b", "a"], ["a"], []]


def test_a_list_for_some_bins() -> None:
    assert restrict(LIST, BinSet.of([2, 3, 7])) == (listed("b", 2), listed("a", 2, 3))
    assert restrict(LIST, BinSet.of([7])) == ()


def test_files_are_named_once() -> None:
    assert files(LIST, (listed("b", 7), listed("d", 1))) == {"a", "b", "c", "d"}
    assert files() == frozenset()


def test_a_list_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(LIST), type=RunList) == LIST


def test_an_owners_part_replaces_its_bins_only() -> None:
    # The owner of bins 0 and 1 merged c and b in bin 1 and added to bin 0.
    part = (listed("d", 0, 1), listed("c", 0), listed("a", 0, 1))
    after = replace(LIST, BinSet.of([0, 1]), part)
    assert by_bin(after)[:5] == [["d", "c", "a"], ["d", "a"], ["b", "a"], ["a"], []]


def test_an_owner_that_forgot_everything_leaves_nothing() -> None:
    assert replace(LIST, BinSet.every(BINS), ()) == ()


def test_R1_a_part_lists_only_bins_of_its_writer() -> None:
    with pytest.raises(ValueError, match="R1: d is listed"):
        replace(LIST, BinSet.of([0]), (listed("d", 0, 1),))


@st.composite
def steps(draw: st.DrawFn) -> list[list[tuple[set[int], dict[int, int]]]]:
    """Per step, owners of disjoint bins; for each bin of theirs that is written, the depth."""
    drawn = []
    for _ in range(draw(st.integers(1, 5))):
        owner = draw(st.lists(st.integers(0, 2), min_size=BINS, max_size=BINS))
        depth = draw(st.lists(st.none() | st.integers(0, 3), min_size=BINS, max_size=BINS))
        writers = []
        for worker in range(3):
            owned = {number for number in range(BINS) if owner[number] == worker}
            written = {n: d for n in owned if (d := depth[n]) is not None}
            writers.append((owned, written))
        drawn.append(writers)
    return drawn


@given(steps(), st.randoms(use_true_random=False))
def test_a_list_follows_many_owners_through_many_steps(
    drawn: list[list[tuple[set[int], dict[int, int]]]], random: object
) -> None:
    model: list[list[str]] = [[] for _ in range(BINS)]
    runs: RunList = ()
    for number, writers in enumerate(drawn):
        parts = []
        for worker, (owned, written) in enumerate(writers):
            name = f"{number}-{worker}"
            mine = restrict(runs, BinSet.of(owned))
            kept = []
            for entry in mine:
                left = [n for n in entry.bins if not _absorbed(names(mine, n), entry, written, n)]
                kept.append(Listed(entry.run, BinSet.of(left)))
            part = (listed(name, *written), *kept)
            parts.append((BinSet.of(owned), tuple(entry for entry in part if entry.bins)))
            for bin_number, depth in written.items():
                model[bin_number] = [name, *model[bin_number][depth:]]
        random.shuffle(parts)  # type: ignore[attr-defined]
        runs = replace_all(runs, parts)
        assert by_bin(runs) == model
        assert len(files(runs)) == len(runs)


def _absorbed(stack: list[str], entry: Listed, written: dict[int, int], number: int) -> bool:
    return number in written and stack.index(entry.run.name) < written[number]
