"""Compares a replayed step with its first run."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.records.commit import RowCount


def differences(before: Sequence[RowCount], after: Sequence[RowCount]) -> tuple[str, ...]:
    """The places whose rows or hashes differ, each with the first differing bin.

    >>> one = RowCount("sink out", 3, (4,), (3,), ("00",))
    >>> differences([one], [one])
    ()
    >>> differences([one], [RowCount("sink out", 3, (4,), (3,), ("01",))])
    ('sink out, bin 4',)
    """
    had = {count.place: count for count in before}
    has = {count.place: count for count in after}
    found = []
    for place in sorted(had.keys() | has.keys()):
        if had.get(place) == has.get(place):
            continue
        bins = _by_bin(had.get(place)), _by_bin(has.get(place))
        differing = [b for b in sorted(bins[0].keys() | bins[1].keys()) if _differ(*bins, b)]
        if differing:
            found.append(f"{place}, bin {differing[0]}")
    return tuple(found)


def _by_bin(count: RowCount | None) -> dict[int, tuple[int, str]]:
    if count is None:
        return {}
    rows = zip(count.bins, count.bin_rows, count.bin_hashes, strict=True)
    return {number: (rows, value) for number, rows, value in rows if rows}


def _differ(
    before: dict[int, tuple[int, str]], after: dict[int, tuple[int, str]], number: int
) -> bool:
    return before.get(number) != after.get(number)
