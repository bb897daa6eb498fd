"""What falls due in a stack of runs: the newest row of a key counts, whatever older ones say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch.records.bins import Mask, bin_of
from anabranch.records.layout import Layout
from anabranch.runs.due import NEVER, DueIndex
from anabranch.runs.keys import Index
from anabranch.runs.rows import merge_rows
from anabranch.runs.run_file import Run
from anabranch.runs.sorted_rows import hash_column

ROUNDS = 8
"""How many replaced rows of a bin are looked past to find when the next live one falls due."""


class DueRows:
    """The due orders of the runs of an owner's bins, newest first.

    ``listed`` says which bins each run is listed for.
    """

    def __init__(self, layout: Layout, runs: Sequence[Run], listed: Mask) -> None:
        self._layout = layout
        self._listed = listed
        self._indexes = [DueIndex(layout, run.rows, run.edges) for run in runs]

    def between(self, since: int, until: int, most: int) -> Iterator[pa.RecordBatch]:
        """The live rows that fall due after ``since``, up to ``until``: sorted, bins in order.

        Some bins at a time, with about ``most`` rows, but at least one bin.
        """
        spans = []
        for index, chosen in zip(self._indexes, self._listed, strict=True):
            first = index.places_after(since, chosen)
            spans.append((first, index.places_after(until, chosen, first)))
        counts = sum((last - first for first, last in spans), start=np.zeros(1, dtype=np.int64))
        for bins in _shares(counts, most):
            parts = []
            for run, (first, last) in enumerate(spans):
                rows = self._rows(run, first[bins], last[bins], np.arange(bins.start, bins.stop))
                parts.append(rows.filter(pa.array(self._newest(run, rows))))
            yield merge_rows(self._layout, parts)

    def next_after(self, since: int, bins: int) -> Index:
        """When the next live row of each bin falls due after ``since``; ``NEVER`` if none does.

        Never too late. Too early only behind more than ``ROUNDS`` rows that newer ones replace.
        """
        indexes = list(zip(self._indexes, self._listed, strict=True))
        if not indexes:
            return np.full(bins, NEVER, dtype=np.int64)
        places = np.stack([index.places_after(since, chosen) for index, chosen in indexes])
        every = np.arange(bins)
        times = np.stack(
            [
                np.where(chosen, index.times(place, every), NEVER)
                for (index, chosen), place in zip(indexes, places, strict=True)
            ]
        )
        for _ in range(ROUNDS):
            run_of = times.argmin(axis=0)
            replaced = self._replaced(run_of, places, times.min(axis=0) < NEVER)
            if not replaced.any():
                break
            for run, index in enumerate(self._indexes):
                stale = np.flatnonzero(replaced & (run_of == run))
                places[run, stale] += 1
                times[run, stale] = index.times(places[run, stale], stale)
        least: Index = times.min(axis=0)
        return least

    def _replaced(self, run_of: Index, places: Index, asked: Mask) -> Mask:
        """Of the asked bins, whether a newer run replaces the row at the place of its run."""
        replaced = np.zeros(len(asked), dtype=np.bool_)
        for run in range(1, len(self._indexes)):
            bins = np.flatnonzero(asked & (run_of == run))
            rows = self._rows(run, places[run, bins], places[run, bins] + 1, bins)
            replaced[bins] = ~self._newest(run, rows)
        return replaced

    def _rows(self, run: int, first: Index, last: Index, bins: Index) -> pa.RecordBatch:
        """The rows of a run from ``first`` to ``last`` in the due orders of some bins, sorted."""
        counts = last - first
        begun = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(first - begun, counts)
        index = self._indexes[run]
        return index.rows.take(np.sort(index.positions(places, np.repeat(bins, counts))))

    def _newest(self, run: int, rows: pa.RecordBatch) -> Mask:
        """Which rows of a run no newer run replaces, be it by a tombstone."""
        layout = self._layout
        hashes, keys = hash_column(rows), rows.select(layout.identity_columns)
        newest = np.ones(len(hashes), dtype=np.bool_)
        for index, listed in zip(self._indexes[:run], self._listed[:run], strict=True):
            match = index.rows.match_entries if layout.has_subkeys else index.rows.match
            asked = np.flatnonzero(newest & listed[bin_of(hashes, len(listed))])
            replaced, _ = match(layout, hashes, keys, asked)
            newest[replaced] = False
        return newest


def _shares(counts: Index, most: int) -> Iterator[slice]:
    """Ranges of bins with about ``most`` rows each; bins without rows at the end are left out."""
    first, held = 0, 0
    for last, count in enumerate(counts.tolist(), start=1):
        held += count
        if held >= most:
            yield slice(first, last)
            first, held = last, 0
    if held:
        yield slice(first, len(counts))
