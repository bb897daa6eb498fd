"""The controller of rescaling: what each step does, and what follows from its commit.

``Rescale`` is a value. Every commit stores it in the journal, so that a restarted coordinator
continues the rescale. ``apply_request`` changes it at any time, ``plan_step`` makes a step's moves
from it, ``after_commit`` gives the value to store.

A commit may apply to another value than the one its plan was made from: requests may have come in
between, or the coordinator may have crashed after the plan and read both from the journal. So
``after_commit`` takes what was done from the plan, and what is requested from the value.

A plan is journalled with the value it was made from. A restarted coordinator continues from that
value if the plan has no commit yet, else from the value of the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.protocol.rescale_history import FinishedRescale, append_finished
from anabranch.records.placed import Assignment
from anabranch.records.shares import members, reassigned
from anabranch.rescale.costs import CostModel
from anabranch.rescale.loads import Loads
from anabranch.rescale.migration import MigrationView, Reports
from anabranch.rescale.moved_counts import count_moved, credit_history
from anabranch.rescale.moves import Move, joiners, moves_between
from anabranch.rescale.phases import Interrogating, Phase, Settled, Steady
from anabranch.rescale.rounds import RescaleSettings
from anabranch.rescale.step_moves import StepMoves
from anabranch.rescale.targets import target_for

_UNKNOWN = Loads()


class Rescale(msgspec.Struct, frozen=True):
    """The progress of rescaling after a commit: all that a coordinator needs to continue it.

    ``number`` counts rescales, ``turn`` changes of request: a plan says for which turn it was made.
    ``handing`` are the bins that the last step collected: in any phase, the next step gives them to
    their new owners. ``workers`` are those with bins or files; they get ``Shutdown`` when they have
    no bins left.
    """

    number: int = 0
    turn: int = 0
    phase: Phase = Steady()
    handing: tuple[Move, ...] = ()
    workers: tuple[int, ...] = ()
    costs: CostModel = CostModel()
    history: tuple[FinishedRescale, ...] = ()


def plan_step(
    rescale: Rescale,
    placement: Sequence[Assignment],
    loads: Loads,
    recent: Sequence[float],
    settings: RescaleSettings,
) -> StepMoves:
    """What the next step does. ``placement`` is that of the last commit.

    Planning again, after a crash or for another revision, is safe: nothing depends on a plan that
    was not committed.
    """
    now = next_placement(rescale, placement)
    step = StepMoves(rescale.turn, now, acquire=rescale.handing, number=rescale.number)
    idle = idle_workers(rescale, now)
    return rescale.phase.plan(MigrationView(step, loads, recent, settings, rescale.costs, idle))


def joining_next(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[tuple[str, int], ...]:
    """The workers that will get bins, as predicted while workers report their loads."""
    phase = rescale.phase
    if not isinstance(phase, Interrogating):
        return ()
    target = target_for(phase.request, placement, _UNKNOWN)
    return joiners(moves_between(placement, target, _UNKNOWN))


def next_placement(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """The placement of the next step, with bins in hand-over at their new owners."""
    return reassigned(placement, (move.end for move in rescale.handing))


def idle_workers(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[int, ...]:
    """The workers without bins."""
    return tuple(sorted(set(rescale.workers) - set(members(placement))))


def after_commit(rescale: Rescale, moves: StepMoves, reports: Reports) -> Rescale:
    """The value to store with the commit of a step with these moves."""
    phase = rescale.phase.after(moves, reports, moves.turn == rescale.turn)
    ended = isinstance(rescale.phase, Settled) and isinstance(phase, Steady)
    history = history_with_settled(rescale, moves.placement) if ended else rescale.history
    if moves.number == rescale.number:
        phase = count_moved(phase, moves, reports)
    else:
        history = credit_history(history, moves, reports)
    staying = {*rescale.workers, *members(moves.placement)} - set(moves.shutdown)
    joining = {move.to_worker for move in (*moves.prefetch, *moves.collect)}
    return msgspec.structs.replace(
        rescale,
        phase=phase,
        handing=moves.collect,
        workers=tuple(sorted(staying | joining)),
        costs=rescale.costs.learn_from(reports.prefetched),
        history=history,
    )


def history_with_settled(
    rescale: Rescale, placement: Sequence[Assignment]
) -> tuple[FinishedRescale, ...]:
    """The history, with an entry for the rescale if it is settled."""
    phase = rescale.phase
    if not isinstance(phase, Settled):
        return rescale.history
    entry = FinishedRescale(
        rescale.number, phase.request, phase.outcome, phase.moved, members(placement)
    )
    return append_finished(rescale.history, entry)


def is_pending(rescale: Rescale) -> bool:
    """Whether the rescale needs a step even without input. A paused one does not.

    Bins in hand-over need one more step in any phase.
    """
    return bool(rescale.handing) or rescale.phase.pending


def is_moving(rescale: Rescale) -> bool:
    """Whether the next step has work to do for a rescale."""
    return bool(rescale.handing) or not isinstance(rescale.phase, Steady)
