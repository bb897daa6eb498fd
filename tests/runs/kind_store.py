"""An operator's state of any kind through many steps, beside the dict that it should equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from anabranch.records.bins import BinSet, Mask
from anabranch.records.layout import Layout
from anabranch.records.run_list import RunList, replace_all, runs_of
from anabranch.runs import due_rows
from anabranch.runs.changes import KeyChanges, identity
from anabranch.runs.compaction import CompactionLimits
from anabranch.runs.due import NEVER
from anabranch.runs.keys import Index
from anabranch.runs.region_state import RegionState, WriteResult
from anabranch.runs.rows import group_keys
from anabranch.runs.run_file import open_run
from anabranch.runs.sorted_rows import hash_column
from tests.runs.state_model import Key, batch_of, frozen, hashes_of, to_dicts, weak_hash

SPACE = 2**32
NO_SUBKEY: Key = ()


def plain_create(path: Path, data: pa.Buffer) -> None:
    """Exclusive, but not durable: random tests write many files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)


@dataclass(frozen=True)
class Put:
    """One row that a step changes; without values it is forgotten."""

    key: Key
    values: tuple[Any, ...] | None
    subkey: Key = NO_SUBKEY
    expiry: int | None = None

    @property
    def name(self) -> tuple[Any, Any]:
        return frozen(self.key), frozen(self.subkey)


class KindStore:
    """State and model, and the clock of the step that comes."""

    def __init__(
        self,
        root: Path,
        layout: Layout,
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
        self.now = 1_000
        self.runs: RunList = ()
        self.live = np.zeros(bins, dtype=np.int64)
        self.model: dict[tuple[Any, Any], Put] = {}
        self.keys: dict[Any, Key] = {}
        self.written = 0

    @property
    def clock(self) -> int | None:
        return self.now if self.layout.expires else None

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

    def changed(self, puts: Sequence[Put]) -> KeyChanges:
        layout = self.layout
        blank = (None,) * len(layout.values)
        keys = [put.key for put in puts]
        subkeys = batch_of([put.subkey for put in puts], layout.subkeys)
        expiry = pa.array([put.expiry for put in puts], pa.int64())
        return KeyChanges(
            hashes_of(keys, self.space),
            batch_of(keys, layout.keys),
            batch_of([put.values or blank for put in puts], layout.values),
            np.array([put.values is None for put in puts], dtype=np.bool_),
            subkeys if layout.has_subkeys else None,
            expiry if layout.expires else None,
        )

    def present(self, state: RegionState, changed: KeyChanges) -> Mask:
        """Which of the changed rows the state counts, as an operator would find out."""
        order = np.argsort(changed.hashes, kind="stable")
        hashes, keys = changed.hashes[order], changed.keys.take(order)
        if changed.subkeys is None:
            held = state.find(hashes, keys, self.clock)
        else:
            entries = identity(keys, changed.subkeys.take(order))
            held = state.find(hashes, entries, self.clock)
        found = np.empty(len(order), dtype=np.bool_)
        found[order] = held.present
        return found

    def step(
        self,
        puts: Sequence[Put],
        owners: Sequence[BinSet] | None = None,
        *,
        known: bool = False,
        fresh: bool = False,
        **options: Any,
    ) -> list[WriteResult | None]:
        """Every owner writes its share of the changes; the commit puts them together.

        The writer is told what was there before if that is ``known``, or that it is all ``fresh``.
        """
        results, parts, live = [], [], self.live.copy()
        options.setdefault("create", plain_create)
        for owned in owners or [BinSet.every(self.bins)]:
            mine = [put for put in puts if self.bin_of(put.key) in owned]
            self.written += 1
            state, changed = self.state(owned), self.changed(mine)
            if known:
                options["found"] = self.present(state, changed)
            if fresh:
                options["found"] = np.zeros(len(mine), dtype=np.bool_)
            result = state.write(changed, f"run/{self.written}", now_ns=self.clock, **options)
            results.append(result)
            if result is not None:
                parts.append((owned, result.runs))
                mask = owned.mask(self.bins)
                live[mask] = result.live[mask]
                self._check_due_after(result, owned)
        self.runs, self.live = replace_all(self.runs, parts), live
        for put in puts:
            self.keys[frozen(put.key)] = put.key
            self.model[put.name] = put
        return results

    def _check_due_after(self, result: WriteResult, owned: BinSet) -> None:
        """What falls due after a write is known without opening what was written."""
        if self.layout.dues:
            nothing = np.zeros(self.bins, dtype=np.int64)
            layout, files = self.layout, result.runs
            opened = RegionState("totals", layout, files, self.root, self.bins, owned, nothing)
            due = result.next_due(self.now)
            assert due.tolist() == opened.next_due(self.now).tolist()

    def held(self) -> dict[tuple[Any, Any], Put]:
        """What the model holds now."""
        return {
            name: put
            for name, put in self.model.items()
            if put.values is not None and (put.expiry is None or put.expiry > self.now)
        }

    def clear(self, keys: Iterable[Key]) -> list[Put]:
        """The changes that forget every entry of these keys, as the state itself finds them."""
        groups = group_keys(*self._asked(keys))
        state = self.state()
        entries = state.entries(groups.hashes, groups.keys, self.clock)
        keys_of_entries = groups.keys.take(pa.array(entries.places))
        named = zip(to_dicts(keys_of_entries), to_dicts(entries.subkeys), strict=True)
        return [Put(tuple(k.values()), None, tuple(s.values())) for k, s in named]

    def check(self, absent: Sequence[Key] = ()) -> None:
        """The state says what the model says, in every way of asking."""
        self._check_scan()
        if self.layout.has_subkeys:
            self._check_entries(absent)
            self._check_single_entries()
        else:
            self._check_lookup(absent)
        if self.layout.dues:
            self._check_due()
        assert self.live.tolist() == self.counted().tolist()

    def counted(self) -> Index:
        """Per bin, the keys or entries of which the newest row in the files is no tombstone."""
        numbers = np.zeros(self.bins, dtype=np.int64)
        names = self.layout.schema.names
        identity = [names[column] for column in self.layout.identity_columns]
        for number in range(self.bins):
            newest: dict[Any, bool] = {}
            for info in runs_of(self.runs, number):
                run = open_run(self.root, info)
                chosen = np.arange(self.bins) == number
                for batch in run.select(chosen):
                    for row in to_dicts(batch):
                        name = frozen(tuple(row[column] for column in identity))
                        newest.setdefault(name, row["tombstone"])
            numbers[number] = sum(not gone for gone in newest.values())
        return numbers

    def heights(self) -> list[int]:
        return [len(runs_of(self.runs, number)) for number in range(self.bins)]

    def _asked(self, keys: Iterable[Key]) -> tuple[Any, pa.RecordBatch]:
        unique = list({frozen(key): key for key in keys}.values())
        return hashes_of(unique, self.space), batch_of(unique, self.layout.keys)

    def _check_scan(self) -> None:
        assert self._puts(self.state().scan(self.clock)) == self.held()

    def _puts(self, rows: pa.Table | pa.RecordBatch) -> dict[tuple[Any, Any], Put]:
        """State rows, each once, by name."""
        layout, found = self.layout, {}
        for row in to_dicts(rows):
            parts = list(row.values())
            key = tuple(parts[at] for at in layout.key_columns)
            subkey = tuple(parts[at] for at in layout.subkey_columns)
            values = tuple(parts[at] for at in layout.value_columns)
            put = Put(key, values, subkey, row.get("expiry"))
            assert put.name not in found
            found[put.name] = put
        return found

    def _check_due(self) -> None:
        """Rows are found by when they fall due, all at once or some bins at a time."""
        state, held = self.state(), self.held()
        pending = {name: put for name, put in held.items() if put.expiry is not None}
        latest = max((put.expiry or 0 for put in pending.values()), default=self.now)
        for until in (self.now + 10, latest):
            expected = {n: p for n, p in pending.items() if (p.expiry or 0) <= until}
            for most in (1, 100):
                parts = list(state.due(self.now, until, most=most))
                found = [name for part in parts for name in self._puts(part)]
                assert len(found) == len(set(found))
                whole = {name: put for part in parts for name, put in self._puts(part).items()}
                assert whole == expected
                hashes = [h for part in parts for h in hash_column(part).tolist()]
                assert hashes == sorted(hashes)
        exact = np.full(self.bins, NEVER, dtype=np.int64)
        for put in pending.values():
            number = self.bin_of(put.key)
            exact[number] = min(exact[number], put.expiry or 0)
        with patch.object(due_rows, "ROUNDS", 1000):
            assert state.next_due(self.now).tolist() == exact.tolist()
        with patch.object(due_rows, "ROUNDS", 1):
            assert (state.next_due(self.now) <= exact).all()

    def _check_lookup(self, absent: Sequence[Key]) -> None:
        groups = group_keys(*self._asked([*self.keys.values(), *absent]))
        found = self.state().find(groups.hashes, groups.keys, self.clock)
        held = self.held()
        blank = (None,) * len(self.layout.values)
        values = [tuple(row.values()) for row in to_dicts(found.values)]
        for place, row in enumerate(to_dicts(groups.keys)):
            name = (frozen(tuple(row.values())), NO_SUBKEY)
            assert found.found[place] == (name in held)
            assert values[place] == (held[name].values if name in held else blank)
            if name in held and found.expiry is not None:
                assert found.expiry[place].as_py() == held[name].expiry
            assert found.present[place] or not found.found[place]
        seen, plain = self.state().lookup(groups.hashes, groups.keys, self.clock)
        assert seen.tolist() == found.found.tolist()
        assert plain == found.values

    def _check_entries(self, absent: Sequence[Key]) -> None:
        groups = group_keys(*self._asked([*self.keys.values(), *absent]))
        entries = self.state().entries(groups.hashes, groups.keys, self.clock)
        held = self.held()
        keys = [frozen(tuple(row.values())) for row in to_dicts(groups.keys)]
        assert len(entries.offsets) == len(keys) + 1
        assert entries.offsets[0] == 0
        assert entries.offsets[-1] == entries.rows.num_rows == len(held)
        subkeys, values = to_dicts(entries.subkeys), to_dicts(entries.values)
        for place, subkey, value, row in zip(
            entries.places, subkeys, values, to_dicts(entries.rows), strict=True
        ):
            put = held.pop((keys[place], frozen(tuple(subkey.values()))))
            assert tuple(value.values()) == put.values
            assert row.get("expiry") == put.expiry
        assert held == {}
        ordered = group_keys(entries.places.astype(np.uint64), entries.subkeys)
        assert ordered.order.tolist() == list(range(len(subkeys))), "sorted by key and sub-key"

    def _check_single_entries(self) -> None:
        held = self.held()
        names = list(self.model.values())
        if not names:
            return
        # Each key also with a sub-key of another.
        crossed = [Put(a.key, None, b.subkey) for a, b in pairwise(names)]
        asked = list({put.name: put for put in [*names, *crossed]}.values())
        hashes = hashes_of([put.key for put in asked], self.space)
        order = np.argsort(hashes, kind="stable")
        asked = [asked[place] for place in order]
        keys = batch_of([put.key for put in asked], self.layout.keys)
        subkeys = batch_of([put.subkey for put in asked], self.layout.subkeys)
        found = self.state().find(hashes[order], identity(keys, subkeys), self.clock)
        values = [tuple(row.values()) for row in to_dicts(found.values)]
        for place, put in enumerate(asked):
            assert found.found[place] == (put.name in held)
            if put.name in held:
                assert values[place] == held[put.name].values
