"""Requests for a rescale."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from anabranch.records.shares import Shares


class Balance(StrEnum):
    """What to balance over workers: the number of bins, or the measured load."""

    BINS = "bins"
    LOAD = "load"


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    """Change the number of workers: ``workers`` for all regions, ``regions`` overrides it by name.

    ``remove`` names workers that lose all bins; without a number, the others stay. A region without
    a number stays as it is, except for removed workers.
    """

    workers: int | None = None
    regions: tuple[tuple[str, int], ...] = ()
    remove: tuple[int, ...] = ()
    by: Balance = Balance.BINS


class Rebalance(msgspec.Struct, frozen=True, tag="rebalance"):
    """Rebalance over the same workers, in the named regions or in all."""

    regions: tuple[str, ...] = ()
    by: Balance = Balance.LOAD


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """Assign exactly these shares. Other regions stay as they are."""

    shares: tuple[Shares, ...]


TargetRequest: TypeAlias = Scale | Rebalance | Assign
"""What the assignment should become."""


class PauseRescale(msgspec.Struct, frozen=True, tag="pause"):
    """Hand over no more bins until resumed; those in hand-over still arrive."""


class ResumeRescale(msgspec.Struct, frozen=True, tag="resume"):
    """Continue after a pause."""


class CancelRescale(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop at the current assignment; with ``roll_back``, return to the previous one."""

    roll_back: bool = False


RescaleRequest: TypeAlias = TargetRequest | PauseRescale | ResumeRescale | CancelRescale
