"""What a worker does with its home in a step, as its control row says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anabranch.homes.home import HomeFiles
from anabranch.homes.home_directory import HomeDirectory
from anabranch.messages import (
    Acquire,
    BinCopied,
    Collect,
    Control,
    Hold,
    Load,
    Message,
    Prefetch,
    Shutdown,
)
from anabranch.records.bins import BinSet
from anabranch.records.home_use import HomeUse
from anabranch.runs.state_files import StateFiles, StoreFiles

HOMES = "home"
"""Where homes are in a pipeline's directory, unless told otherwise."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Homes:
    """Where workers have their homes: below this directory of every host.

    All workers of a host share one, or each is ``isolated`` in its own: then copying is real on
    one machine too.
    """

    directory: str
    isolated: bool = False

    def of(self, worker: int) -> Path:
        """The home of a worker."""
        return Path(self.directory) / (f"worker-{worker}" if self.isolated else "shared")


def homes_of(store: Path, directory: str | None, *, isolated: bool) -> Homes | None:
    """The homes of a pipeline; None where state is read in the store.

    Isolated workers live in the pipeline's own directory, unless told otherwise.
    """
    if directory is None and not isolated:
        return None
    return Homes(str(store / HOMES if directory is None else Path(directory).absolute()), isolated)


def tidy_homes(homes: Homes, workers: Collection[int]) -> None:
    """Remove the homes on this host whose workers are none of these: nobody told them to go.

    Such homes are left when a pipeline ends and is started again with fewer workers.
    """
    if not homes.isolated:
        return
    named = {homes.of(worker).name for worker in workers}
    for path in Path(homes.directory).glob("worker-*"):
        if path.name not in named:
            HomeDirectory(path).remove()


class WorkerHome:
    """A worker's state files in one task: at home if it has one, else in the store.

    The home is no part of the result: whatever is missing there is read from the store.
    """

    def __init__(self, homes: Homes | None, store: Path, control: Control, step: int) -> None:
        """Nothing is read yet."""
        self._control = control
        self._step = step
        self._isolated = homes is not None and homes.isolated
        self._home = None if homes is None else HomeFiles(homes.of(control.worker), store)
        self.files: StateFiles = StoreFiles(store) if self._home is None else self._home
        self.held = _bins(self._told(Hold))
        self.is_moving = self._home is not None and any(
            self._told(kind) for kind in (Acquire, Collect, Hold, Prefetch)
        )
        self.copied: tuple[BinCopied, ...] = ()

    def acquire(self) -> None:
        """See that what has arrived is complete, before the first row (R2)."""
        arrived = _bins(self._told(Acquire))
        if self._home is not None and arrived:
            for load in self._told(Load):
                self._home.complete(load.runs, arrived, self._step - 1)

    def after_data(self) -> None:
        """Copy what is to arrive, and remove what nobody needs: the whole home, for the last."""
        home = self._home
        if home is None:
            return
        if self._told(Shutdown):
            if self._isolated:
                home.remove()
            return
        for order in self._told(Prefetch):
            self.copied += self._copy_ahead(home, order)
        coming = _bins(self._told(Prefetch))
        for load in self._told(Load):
            # Others may need what this worker does not, where they live together.
            needed = (
                self._control.owned | coming if self._isolated else BinSet.every(len(load.live))
            )
            home.sweep(load.operator, load.runs, needed, self._step)

    @property
    def handling_seconds(self) -> float:
        """What moving has cost so far that would have cost as much for a single bin."""
        return 0.0 if self._home is None else self._home.handling_seconds

    def use(self) -> HomeUse:
        """What was read and copied so far."""
        if self._home is None:
            return HomeUse()
        counted = self._home.counters
        return HomeUse(counted.moved, counted.home, counted.store, counted.misses)

    def _copy_ahead(self, home: HomeFiles, order: Prefetch) -> tuple[BinCopied, ...]:
        size, seconds = dict.fromkeys(order.bins, 0), 0.0
        for load in self._told(Load):
            copied = home.copy_ahead(load.runs, order.bins, order.allowance)
            seconds += copied.seconds
            size = {n: each + copied.bytes[n] for n, each in size.items() if n in copied.bytes}
        total = sum(size.values())
        return tuple(
            BinCopied(order.region, number, each, seconds * each / total if total else 0.0)
            for number, each in size.items()
        )

    def _told(self, kind: type[M]) -> list[M]:
        return [message for message in self._control.messages if isinstance(message, kind)]


def _bins(orders: list[Acquire] | list[Hold] | list[Prefetch]) -> BinSet:
    found = BinSet()
    for order in orders:
        found |= order.bins
    return found
