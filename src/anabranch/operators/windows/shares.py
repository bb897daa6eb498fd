"""State rows that fall due, some keys at a time, with what the step has already made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.operators.aggregates.port import State
from anabranch.operators.order.row_order import Int64s
from anabranch.operators.timed import TimedEntries
from anabranch.operators.windows.contents import take_contents, time_column, time_numbers
from anabranch.records.bins import Hashes
from anabranch.runs.changes import identity
from anabranch.runs.rows import newest_entries
from anabranch.runs.sorted_rows import hash_column


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Rows of state: panes or sessions of many keys, sorted by hash, key and start."""

    hashes: Hashes
    keys: pa.RecordBatch
    starts: Int64s
    dues: Int64s
    state: State

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.hashes)

    def take(self, places: Int64s) -> KeptRows:
        """The rows at these places."""
        return KeptRows(
            self.hashes[places],
            self.keys.take(pa.array(places)),
            self.starts[places],
            self.dues[places],
            take_contents(self.state, places),
        )

    def take_keys(self, places: Int64s) -> tuple[Hashes, pa.RecordBatch]:
        """Hash and key of the rows at these places."""
        return self.hashes[places], self.keys.take(pa.array(places))

    def slice(self, first: int, last: int) -> KeptRows:
        """The rows from ``first`` up to ``last``, without a copy."""
        return KeptRows(
            self.hashes[first:last],
            self.keys.slice(first, last - first),
            self.starts[first:last],
            self.dues[first:last],
            [column.slice(first, last - first) for column in self.state],
        )


Combine: TypeAlias = Callable[[KeptRows, KeptRows], KeptRows]
"""Puts the rows that fall due together with those that the step has made of some keys."""


def due_shares(
    state: TimedEntries,
    names: list[str],
    since: int,
    until: int,
    made: KeptRows | None,
    combine: Combine,
) -> Iterator[KeptRows]:
    """The rows that fall due, some keys at a time; all rows of a key are in one share.

    ``names`` are those of the key columns. ``made`` are rows that the step has made; they come in
    the share of their hash.
    """
    for batch in state.due(since, until):
        share = _kept_rows(batch, names)
        if made is None:
            yield share
            continue
        # Shares are whole bins, in the order of the hashes.
        cut = int(np.searchsorted(made.hashes, share.hashes[-1], side="right"))
        yield combine(share, made.slice(0, cut))
        made = made.slice(cut, len(made))
    if made is not None and len(made):
        yield made


def _kept_rows(batch: pa.RecordBatch, names: list[str]) -> KeptRows:
    """State rows as ``RegionState.due`` gives them: hash, key, start, values and due time."""
    first = 1 + len(names)
    keys = pa.RecordBatch.from_arrays(batch.columns[1:first], names=names)
    starts, dues = time_numbers(batch.column(first)), batch.column(batch.num_columns - 1).to_numpy()
    return KeptRows(hash_column(batch), keys, starts, dues, batch.columns[first + 1 : -1])


def replace_rows(share: KeptRows, made: KeptRows) -> KeptRows:
    """All rows of both; those of ``made`` replace others with their key and start."""
    if not len(made):
        return share
    both = concat_kept(share, made)
    subkeys = pa.RecordBatch.from_arrays([time_column(both.starts)], names=["start"])
    return both.take(newest_entries(both.hashes, identity(both.keys, subkeys)))


def concat_kept(first: KeptRows, second: KeptRows) -> KeptRows:
    """The rows of both, unsorted."""
    return KeptRows(
        np.concatenate([first.hashes, second.hashes]),
        pa.RecordBatch.from_arrays(
            _concat_columns(first.keys.columns, second.keys.columns), names=first.keys.schema.names
        ),
        np.concatenate([first.starts, second.starts]),
        np.concatenate([first.dues, second.dues]),
        _concat_columns(first.state, second.state),
    )


def _concat_columns(first: State, second: State) -> list[pa.Array]:
    """Columns of both; state says of no nested field that it is never NULL, rows may."""
    return [
        pa.concat_arrays([one, two if two.type == one.type else two.cast(one.type)])
        for one, two in zip(first, second, strict=True)
    ]
