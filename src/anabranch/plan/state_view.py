"""The readers' view of an operator's state at one step: key, state, worker and bin."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.dataflow.types.schema import parse_schema
from anabranch.operators.state_json import json_column
from anabranch.records.bins import BinSet, bin_of, to_hashes
from anabranch.records.layout import VALUE_PREFIX, Layout, may_be_large
from anabranch.records.placed import OperatorShape
from anabranch.records.run_list import RunList

WORKER = "_worker"
BIN = "_bin"
STATE_PREFIX = "state_"
AGGREGATE = "aggregate("
"""What the kind of an aggregate's state begins with."""

_PREFIX_LENGTH = len(VALUE_PREFIX)


class StateView(msgspec.Struct, frozen=True):
    """All that is needed to read one operator's state: its immutable files and their schema.

    ``workers`` is the worker of each bin, ``expires_at`` what its rows expire by: the clock of the
    step in nanoseconds, or a frontier in microseconds. The columns are the
    key's, the state's, then ``_worker`` and ``_bin``. Names are case-insensitive, as in Spark. A
    state column with the name of a key column is called ``state_<name>``; a name that is still
    taken gets ``_`` appended. A part of what an aggregate keeps for a column, stored as
    ``<column>/<part>``, is called ``<column>_<part>``.
    """

    shape: OperatorShape
    runs: RunList
    workers: tuple[int, ...]
    expires_at: int

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.shape.operator

    @property
    def bins(self) -> int:
        """The number of bins of the region."""
        return len(self.workers)

    def layout(self) -> Layout:
        """The columns of the runs."""
        shape = self.shape
        # State with sub-keys may have no values.
        values, subkeys = (
            parse_schema(text) if text else pa.schema([]) for text in (shape.state, shape.subkeys)
        )
        return Layout(
            parse_schema(shape.keys),
            values,
            subkeys,
            shape.expires,
            blobs=may_be_large(values),
            dues=shape.dues,
        )

    def schema(self) -> pa.Schema:
        """The columns that readers see."""
        stored = [column for column in self.layout().schema if is_user_column(column.name)]
        names = self.names(column.name for column in stored)
        types = [pa.string() if self._is_packed(c.name) else c.type for c in stored]
        types += [pa.int32()] * (len(names) - len(stored))
        return pa.schema([pa.field(*column) for column in zip(names, types, strict=True)])

    def reader_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert scanned rows, whose first column is the hash, to the columns that readers see."""
        columns = [
            json_column(column) if self._is_packed(name) else column
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
            if is_user_column(name)
        ]
        numbers = bin_of(to_hashes(rows.column(0)), self.bins)
        workers = np.asarray(self.workers, dtype=np.int32)[numbers]
        columns += [pa.array(workers), pa.array(numbers.astype(np.int32))]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema())

    def names(self, stored: Iterable[str]) -> list[str]:
        """The names that readers see for these columns of a run, then ``_worker`` and ``_bin``."""
        if self.shape.kind.startswith(AGGREGATE):
            stored = (_without_slash(name) for name in stored)
        return reader_names(stored)

    def _is_packed(self, stored: str) -> bool:
        return stored.startswith(VALUE_PREFIX) and user_name(stored) in self.shape.packed


def is_user_column(stored: str) -> bool:
    """Whether a column of a run is the user's: those have a letter and ``_`` as prefix.

    >>> [name for name in ("hash", "k_day", "v_n", "tombstone") if is_user_column(name)]
    ['k_day', 'v_n']
    """
    return stored[1:_PREFIX_LENGTH] == "_"


def user_name(stored: str) -> str:
    """The user's name for a column of a run."""
    return stored[_PREFIX_LENGTH:]


def reader_names(stored: Iterable[str]) -> list[str]:
    """The names that readers see: the user's columns of a run, then ``_worker`` and ``_bin``.

    >>> reader_names(["k_day", "v_n", "v_Day"])
    ['day', 'n', 'state_Day', '_worker', '_bin']
    """
    taken: set[str] = set()
    names = []
    for name in stored:
        prefix = STATE_PREFIX if name.startswith(VALUE_PREFIX) else ""
        plain = user_name(name)
        names.append(_free(plain if plain.lower() not in taken else prefix + plain, taken))
    return [*names, _free(WORKER, taken), _free(BIN, taken)]


def _without_slash(stored: str) -> str:
    return "_".join(stored.rsplit("/", 1)) if stored.startswith(VALUE_PREFIX) else stored


def _free(name: str, taken: set[str]) -> str:
    """The name, with ``_`` appended until it is free; adds it to ``taken``."""
    while name.lower() in taken:
        name += "_"
    taken.add(name.lower())
    return name


def bin_ranges(bins: int, parts: int) -> list[BinSet]:
    """All bins in ``parts`` ranges of nearly equal length; fewer if there are fewer bins.

    >>> [list(part) for part in bin_ranges(4, 3)]
    [[0], [1], [2, 3]]
    """
    parts = max(1, min(parts, bins))
    edges = [bins * part // parts for part in range(parts + 1)]
    return [BinSet.of(range(edges[k], edges[k + 1])) for k in range(parts)]
