"""Reads committed state at one step, from immutable files.

A snapshot only lists files and does not hold them: files that later steps do not need are removed
after the grace period. Later reads raise ``SnapshotExpired``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.errors import (
    AnabranchError,
    MissingEntry,
    MissingRun,
    NoPipeline,
    SnapshotExpired,
    UnknownOperator,
    UnknownStep,
)
from anabranch.journal.entry_names import CheckpointName, CommitName, IdentityName
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.journal import Journal
from anabranch.journal.lineage import decoded, lineage, newest_branch
from anabranch.plan.state_view import StateView, is_user_column
from anabranch.records.bins import BinSet
from anabranch.records.commit import decode_checkpoint, decode_commit, decode_repair
from anabranch.records.leader import decode_identity
from anabranch.records.placed import Assignment, OperatorState
from anabranch.records.run_list import files
from anabranch.runs import region_state

#: How many bytes of runs are read at a time.
PART_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of all operators after one committed step."""

    step: int
    clock_ns: int
    bins: int
    states: tuple[OperatorState, ...]
    workers: Mapping[str, tuple[int, ...]]

    @property
    def operators(self) -> list[str]:
        """The names of all operators with state."""
        return [state.operator for state in self.states]

    def view(self, operator: str) -> StateView:
        """The view of one operator's state. Raises ``UnknownOperator``."""
        for state in self.states:
            if state.operator == operator:
                workers = self.workers.get(state.shape.region, (0,) * self.bins)
                expires_at = self.clock_ns if state.frontier is None else state.frontier
                return StateView(state.shape, state.runs, workers, expires_at)
        known = ", ".join(sorted(self.operators)) or "none"
        raise UnknownOperator(
            f"There is no stateful operator {operator!r}", do=f"There are: {known}."
        )

    def lists(self, file: str) -> bool:
        """Whether a file belongs to this state."""
        return file in files(*(state.runs for state in self.states))


def snapshot_of(
    step: int,
    clock_ns: int,
    bins: int,
    states: tuple[OperatorState, ...],
    placement: Sequence[Assignment],
) -> Snapshot:
    """The snapshot of a commit."""
    return Snapshot(step, clock_ns, bins, states, {a.region: a.workers for a in placement})


def read_view(view: StateView, store: Path, bins: BinSet) -> Iterator[pa.RecordBatch]:
    """The rows of these bins with the columns that readers see, a few bins at a time."""
    for table in _scanned(view, store, bins):
        for batch in table.to_batches():
            yield view.reader_rows(batch)


def read_table(view: StateView, store: Path) -> pa.Table:
    """An operator's whole state: key columns, then state columns, named as in queries."""
    every = BinSet.every(view.bins)
    tables = [_state(view, store, BinSet()).scan(view.expires_at), *_scanned(view, store, every)]
    rows = pa.concat_tables(tables)
    stored = [name for name in rows.schema.names if is_user_column(name)]
    return rows.select(stored).rename_columns(view.names(stored)[: len(stored)])


def _scanned(view: StateView, store: Path, bins: BinSet) -> Iterator[pa.Table]:
    """Scan the rows in parts of whole bins that fit in memory."""
    try:
        sizes = _state(view, store, bins).bytes_per_bin()
        for part in _parts(bins, sizes.tolist()):
            yield _state(view, store, part).scan(view.expires_at)
    except MissingRun as error:
        raise _expired(view.operator, error, store) from error


def _state(view: StateView, store: Path, bins: BinSet) -> region_state.RegionState:
    nothing = np.zeros(view.bins, dtype=np.int64)
    return region_state.RegionState(
        view.operator, view.layout(), view.runs, store, view.bins, bins, nothing
    )


def _parts(bins: BinSet, sizes: Sequence[int]) -> Iterator[BinSet]:
    """Group non-empty bins into parts of about ``PART_BYTES``."""
    held: list[int] = []
    size = 0
    for number in bins:
        if sizes[number]:
            held.append(number)
            size += sizes[number]
        if size >= PART_BYTES:
            yield BinSet.of(held)
            held, size = [], 0
    if held:
        yield BinSet.of(held)


def missing_or_expired(error: SnapshotExpired, now: Snapshot) -> AnabranchError:
    """The error, or ``MissingRun`` if the last step still lists the file: then it is lost."""
    if error.where is None or not now.lists(error.where):
        return error
    return MissingRun(
        "A run that the last commit names is not in the store",
        where=error.where,
        do="Restore the file from a copy of the store, or open an older checkpoint.",
    )


def steps_of(directory: Path) -> list[int]:
    """The steps with a commit or checkpoint in the journal, oldest first.

    After a rewind: those of the newest branch and its ancestors.
    """
    return sorted(_kept_steps(_journal(directory)))


def read_snapshot(directory: Path, step: int | None = None) -> Snapshot:
    """The state after a step, by default the last, from the journal.

    Changes nothing, and works beside the process that runs the pipeline.
    """
    journal = _journal(directory)
    bins = decode_identity(journal.read(IdentityName()).body).bins
    kept = _kept_steps(journal)
    steps = sorted(kept)
    if step is None and not steps:
        return Snapshot(0, 0, bins, (), {})
    wanted = steps[-1] if step is None else step
    if wanted not in kept:
        raise _no_step(wanted, steps, directory)
    try:
        entry = journal.read(kept[wanted])
    except MissingEntry as error:  # trimmed since it was listed
        raise _no_step(wanted, [s for s in steps if s > wanted], directory) from error
    if isinstance(entry.name, CommitName):
        found = decoded(journal, entry, decode_commit)
    else:
        found = decoded(journal, entry, decode_checkpoint).opened()
    states = _repaired(journal, found.step) or found.states
    return snapshot_of(found.step, found.clock_ns, bins, states, found.placement)


def _kept_steps(journal: Journal) -> dict[int, CommitName | CheckpointName]:
    """The entry that holds the state of each visible step: a commit or a checkpoint."""
    found: dict[int, CommitName | CheckpointName] = {}
    for stretch in lineage(journal, newest_branch(journal)):
        names: list[CommitName | CheckpointName] = [
            *journal.commits(stretch.branch),
            *journal.checkpoints(stretch.branch),
        ]
        for name in names:
            if stretch.sees(name.step):
                found.setdefault(name.step, name)
    return found


def _repaired(journal: Journal, step: int) -> tuple[OperatorState, ...] | None:
    """The state of a step from its newest repair, if any."""
    for stretch in lineage(journal, newest_branch(journal)):
        if stretch.sees(step):
            for name in reversed(journal.repairs(stretch.branch)):
                if name.step == step:
                    return decoded(journal, journal.read(name), decode_repair).states
    return None


def _journal(directory: Path) -> Journal:
    journal = Journal(FileDirectory(directory / "journal"))
    if journal.identity() is None:
        raise NoPipeline(
            "There is no pipeline in the directory",
            where=str(directory),
            do="Name the directory that ab.run was given.",
        )
    return journal


def _no_step(step: int, steps: Sequence[int], directory: Path) -> AnabranchError:
    kept = f"{steps[0]} to {steps[-1]}" if steps else "none"
    advice = f"The journal has the steps {kept}."
    if not steps or step > steps[-1] or step < 1:
        return UnknownStep(f"Step {step} is not committed", where=str(directory), do=advice)
    what = f"Step {step} is no longer in the journal"
    return SnapshotExpired(what, where=str(directory), do=advice)


def _expired(operator: str, error: MissingRun, store: Path) -> SnapshotExpired:
    path = Path(error.where or "")
    name = path.relative_to(store).as_posix() if path.is_relative_to(store) else str(path)
    return SnapshotExpired(
        f"The state of {operator!r} at this step has been removed: later steps do not need it",
        where=name,
        do="Read the last committed step again; raise grace_seconds for readers that take longer.",
    )
