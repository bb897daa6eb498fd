"""What can be asked of a rescale."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from anabranch.records.shares import Shares


class Balance(StrEnum):
    """What is to be equal on all workers: the number of bins, or the measured load."""

    BINS = "bins"
    LOAD = "load"


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    """So many workers: in all regions, or in those named in ``regions``, which counts there.

    ``remove`` names workers that are to have no bins; without a number, the others stay. A region
    that is in neither ``workers`` nor ``regions`` stays as it is, but for removed workers.
    """

    workers: int | None = None
    regions: tuple[tuple[str, int], ...] = ()
    remove: tuple[int, ...] = ()
    by: Balance = Balance.BINS


class Rebalance(msgspec.Struct, frozen=True, tag="rebalance"):
    """The same workers, balanced anew; all regions unless some are named."""

    regions: tuple[str, ...] = ()
    by: Balance = Balance.LOAD


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """Exactly these shares. Regions that are not named stay as they are."""

    shares: tuple[Shares, ...]


TargetRequest: TypeAlias = Scale | Rebalance | Assign
"""What the assignment should become."""


class PauseRescale(msgspec.Struct, frozen=True, tag="pause"):
    """Hand nothing more over until told to; what is in hand-over arrives."""


class ResumeRescale(msgspec.Struct, frozen=True, tag="resume"):
    """Go on after a pause."""


class CancelRescale(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop where things are; or, rolling back, return to the assignment of before."""

    roll_back: bool = False


RescaleRequest: TypeAlias = TargetRequest | PauseRescale | ResumeRescale | CancelRescale
