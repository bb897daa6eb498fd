"""A migration: it moves bins from where they are to a target, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from anabranch.protocol.rescale_history import MovedTotals
from anabranch.records.placed import Assignment
from anabranch.records.shares import Shares
from anabranch.records.worker_load import WorkerLoad
from anabranch.rescale.costs import CostModel, Prefetched
from anabranch.rescale.loads import Loads
from anabranch.rescale.moves import Move, joiners, moves_between
from anabranch.rescale.rounds import (
    Purse,
    RescaleSettings,
    allowed_bytes,
    budget_for,
    costs_for,
    next_pace,
    scale_budget,
)

if TYPE_CHECKING:
    from anabranch.rescale.step_moves import StepMoves

_UNKNOWN = Loads()


@dataclass(frozen=True, slots=True)
class MigrationView:
    """The input of a phase when a step is planned.

    ``step`` is what the step does in any phase, with its placement; ``idle`` are the workers
    without bins.
    """

    step: StepMoves
    loads: Loads
    recent: Sequence[float]
    settings: RescaleSettings
    costs: CostModel
    idle: tuple[int, ...] = ()


class Reports(msgspec.Struct, frozen=True):
    """The reports of a committed step: its duration, and the answers of workers and homes.

    Answers may be missing, late or duplicated. ``copied_bytes`` is what homes copied for bins that
    move, ``moving_seconds`` the time of the worker that spent most on it.
    """

    seconds: float = 0.0
    loads: tuple[WorkerLoad, ...] = ()
    prefetched: tuple[Prefetched, ...] = ()
    copied_bytes: int = 0
    moving_seconds: float = 0.0


class Copying(msgspec.Struct, frozen=True):
    """A bin being copied to its new owner's home, and for how many steps so far."""

    region: str
    bin: int
    to_worker: int
    steps: int

    @property
    def end(self) -> tuple[str, int, int]:
        """The bin and its new worker."""
        return self.region, self.bin, self.to_worker


class Migration(msgspec.Struct, frozen=True):
    """The move to a target. Every step recomputes the rest from where the bins are.

    ``usual_seconds`` is what a step took before the migration: the budget derives from it, so that
    longer steps do not raise the budget. ``copying`` and ``ready`` are bins on their way to, and
    in, the homes of their new owners; they are hints, and may be lost or wrong. ``pace`` is the
    share of the budget to plan for, adjusted by the cost of earlier rounds.
    """

    target: tuple[Shares, ...]
    usual_seconds: float
    announced: bool = False
    copying: tuple[Copying, ...] = ()
    ready: tuple[tuple[str, int, int], ...] = ()
    moved: MovedTotals = MovedTotals()
    pace: float = 1.0

    def left(self, placement: Sequence[Assignment], loads: Loads = _UNKNOWN) -> tuple[Move, ...]:
        """The bins that are not at their target, in the order they move."""
        return moves_between(placement, self.target, loads)

    def plan(self, view: MigrationView) -> StepMoves:
        """What the next step does: hand over the copied bins, and copy the next ones.

        Workers that will get bins have a task from the first step on. If bins are copied, the first
        step does nothing else: its query differs from that of the step before, and takes time to
        build.
        """
        announce = () if self.announced else self.target
        left = self.left(view.step.placement, view.loads)
        step = replace(view.step, announced=announce, joining=joiners(left))
        budget = budget_for(view.settings, self.usual_seconds)
        allowed = budget.seconds
        budget = scale_budget(budget, self.pace)
        purse = Purse(budget, costs_for(view.settings, view.costs))
        if not view.settings.prefetch:
            return replace(step, collect=purse.take(left, copies=True), allowed=allowed)
        if announce and any(move.bytes for move in left):
            return step
        allowance = allowed_bytes(budget, view.costs)
        patience = {m.end: _patience(m, allowance, view.settings.prefetch_steps) for m in left}
        late = {each.end for each in self.copying if each.steps >= patience.get(each.end, 0)}
        under_way = {each.end for each in self.copying} - late
        ready = [move for move in left if not move.bytes or move.end in self.ready]
        going = tuple(m for m in left if m.end in under_way and m not in ready)
        for move in going:
            purse.owe(move, copies=True)
        collect = purse.take(ready, copies=False)
        if len(collect) == len(ready):
            rest = [move for move in left if move not in ready and move.end in late]
            collect += purse.take(rest, copies=True)
        known = {*under_way, *late, *(move.end for move in ready)}
        new = purse.take([move for move in left if move.end not in known], copies=True)
        waiting = tuple(m for m in ready if m not in collect)
        return replace(
            step,
            prefetch=going + new,
            collect=collect,
            ahead=(*going, *new, *waiting, *collect),
            allowance=allowance,
            allowed=allowed,
        )

    def after(self, moves: StepMoves, reports: Reports) -> Migration:
        """The migration after one of its steps.

        Steps that copied or acquired bins adjust the pace: collected bins cost time when they are
        acquired.
        """
        arrived = {each.end for each in reports.prefetched}
        gone = {move.end for move in moves.collect}
        # Empty while paused: a pause does not count as waiting.
        ordered = {move.end for move in moves.prefetch}
        copying = {each.end: each.steps for each in self.copying}
        copying.update((move.end, 0) for move in moves.prefetch if move.end not in copying)
        ready = [*self.ready, *(end for end in copying if end in arrived)]
        return replace(
            self,
            announced=self.announced or bool(moves.announced),
            copying=tuple(
                Copying(*end, steps + (end in ordered))
                for end, steps in copying.items()
                if end not in arrived and end not in gone
            ),
            ready=tuple(end for end in ready if end not in gone),
            pace=next_pace(
                self.pace,
                reports.moving_seconds,
                moves.allowed if moves.ahead or moves.acquire else None,
            ),
        )

    def is_done(self, placement: Sequence[Assignment], collect: Sequence[Move]) -> bool:
        """Whether nothing is left to do after a step with this placement."""
        return not collect and not self.left(placement)


def _patience(move: Move, allowance: int | None, steps: int) -> int:
    """For how many steps to wait for a copy: a large one takes several by itself."""
    return steps if not allowance else steps + move.bytes // allowance
