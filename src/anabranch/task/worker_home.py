"""A worker's use of its home in a step, as its control says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_
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
"""The default directory of homes, in the pipeline's directory."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Homes:
    """The directory of homes on every host.

    All workers of a host share one home, or each is ``isolated`` in its own, so that moving bins
    copies state even on one machine.
    """

    directory: str
    isolated: bool = False

    def of(self, worker: int) -> Path:
        """The home of a worker."""
        return Path(self.directory) / (f"worker-{worker}" if self.isolated else "shared")


def homes_of(store: Path, directory: str | None, *, isolated: bool) -> Homes | None:
    """The homes of a pipeline; None if state is read from the store.

    By default, the homes of isolated workers are in the pipeline's directory.
    """
    if directory is None and not isolated:
        return None
    return Homes(str(store / HOMES if directory is None else Path(directory).absolute()), isolated)


def tidy_homes(homes: Homes, workers: Collection[int]) -> None:
    """Remove the isolated homes on this host of all workers but these.

    Such homes are left over when a pipeline is restarted with fewer workers.
    """
    if not homes.isolated:
        return
    named = {homes.of(worker).name for worker in workers}
    for path in Path(homes.directory).glob("worker-*"):
        if path.name not in named:
            HomeDirectory(path).remove()


class WorkerHome:
    """A worker's state files in one task: at home if it has one, else in the store.

    The home is only a cache: whatever it lacks is read from the store.
    """

    def __init__(self, homes: Homes | None, store: Path, control: Control, step: int) -> None:
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
        """Complete the state of arrived bins before the first row (R2)."""
        arrived = _bins(self._told(Acquire))
        if self._home is not None and arrived:
            for load in self._told(Load):
                self._home.complete(load.runs, arrived, self._step - 1)

    def after_data(self) -> None:
        """Prefetch bins that will arrive, and remove unneeded files; all of them at shutdown."""
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
            # In a shared home, other workers may need what this one does not.
            needed = (
                self._control.owned | coming if self._isolated else BinSet.every(len(load.live))
            )
            home.sweep(load.operator, load.runs, needed, self._step)

    @property
    def handling_seconds(self) -> float:
        """The fixed cost of moving so far, independent of the number of bins."""
        return 0.0 if self._home is None else self._home.handling_seconds

    def use(self) -> HomeUse:
        """The bytes read and copied so far."""
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
    return reduce(or_, (order.bins for order in orders), BinSet())
