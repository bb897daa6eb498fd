"""What can happen next in a simulated cluster, and in whose name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from anabranch.testing.cluster.processes import CoordinatorProcess, SimulatedNode


class Kind(StrEnum):
    """What can happen next."""

    THINK = "thinks"
    CALL = "calls"
    FIND = "finds the node"
    LOSE = "loses the node"
    HEAR = "hears"
    DELIVER = "is told"
    WAKE = "wakes"
    WORK = "works"
    LATE = "late attempt"
    ORPHAN = "orphaned attempt"
    START = "start"


OF_EXECUTORS = frozenset({Kind.LATE, Kind.ORPHAN})
"""What is done by processes that outlive the node."""

Action: TypeAlias = tuple[Kind, CoordinatorProcess | SimulatedNode | None]
"""What, and by which process; None: by nobody of the cluster."""


def of_coordinator(
    each: CoordinatorProcess, nodes: Sequence[SimulatedNode], now: float, found: list[Action]
) -> None:
    """Add what a coordinator can do next. ``nodes`` are those that live."""
    if each.effects or each.outcomes or each.inbox or each.stopped:
        found.append((Kind.THINK, each))
    if each.calls:
        found.append((Kind.CALL, each))
    if each.finding:
        found.append((Kind.FIND, each))
    if each.node is not None:
        if each.node not in nodes:
            found.append((Kind.LOSE, each))
        elif each.hears(now):
            found.append((Kind.HEAR, each))
    if each.tellings:
        found.append((Kind.DELIVER, each))
    if each.wakes is not None and each.wakes <= now:
        found.append((Kind.WAKE, each))


def of_node(node: SimulatedNode, now: float, found: list[Action]) -> None:
    """Add what a node can do next; its work comes as often as that of two coordinators."""
    if next(node.work(now), None) is not None:
        found += ((Kind.WORK, node), (Kind.WORK, node))
    if node.plane.late:
        found.append((Kind.LATE, node))
