"""A map of bins: a cell for one or a few of them, with their owner's colour and number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from anabranch.protocol.status import RegionStatus

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red", "white", "bright_black")
CELLS = 58
ROWS = 2
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Bins:
    """The owners of a region's bins: bin → worker."""

    region: str
    workers: tuple[int, ...]

    @classmethod
    def of(cls, status: RegionStatus) -> Bins:
        """The bins of a region's status."""
        return cls(status.region, status.bins)

    @property
    def by_worker(self) -> tuple[int, ...]:
        """The number of bins of each worker that has any."""
        return tuple(count for _, count in sorted(Counter(self.workers).items()))


def cells(workers: Sequence[int], most: int) -> list[int]:
    """The owners as at most ``most`` cells; a cell shows the owner of most of its bins.

    >>> cells((0, 0, 0, 1, 1, 1), 6), cells((0, 0, 0, 1, 1, 1), 3)
    ([0, 0, 0, 1, 1, 1], [0, 0, 1])
    """
    few = max(-(-len(workers) // most), 1)
    groups = (workers[at : at + few] for at in range(0, len(workers), few))
    return [max(sorted(set(group)), key=group.count) for group in groups]


def bin_map(regions: Sequence[Bins]) -> Table:
    """The bins of all regions, one below the other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    for region in regions:
        for number, line in enumerate(_lines(region)):
            table.add_row("" if number else region.region, line)
    return table


def _lines(region: Bins) -> Iterator[Text]:
    found = cells(region.workers, CELLS * ROWS)
    width = CELLS if len(found) <= CELLS else -(-len(found) // ROWS)
    for at in range(0, len(found), width):
        line = Text()
        for worker in found[at : at + width]:
            line.append(_DIGITS[worker % len(_DIGITS)], f"black on {colour(worker)}")
        yield line


def colour(worker: int) -> str:
    """The colour of a worker."""
    return COLOURS[worker % len(COLOURS)]


def bins_text(regions: Sequence[Bins]) -> str:
    """The number of bins by worker, on one line.

    >>> bins_text([Bins("a", (0, 0, 1)), Bins("b", (1, 1, 1))])
    'a 2+1, b 3'
    """
    return ", ".join(f"{each.region} {'+'.join(map(str, each.by_worker))}" for each in regions)
