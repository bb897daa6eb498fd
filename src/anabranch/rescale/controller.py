"""The controller of rescaling: what a step does of it, and what follows from a commit.

``Rescale`` is a value. It is stored in the journal with every commit, so that whoever reads the
journal goes on with the rescale where it was. Between two commits there are three moments:

    request(rescale, asked, placement)                    at any time: another ``Rescale``
    plan_step(rescale, placement, loads, recent, …)       a plan is made: ``StepMoves``, part of it
    after_commit(rescale, moves, reports)                 it is committed: the ``Rescale`` to store

The plan that is committed need not have been made from the value that it is applied to: requests
may have come in between, or the coordinator may have died after the plan and read both from the
journal. So ``after_commit`` takes what was done from the plan, and what is wanted from the value.

A plan is journalled with the value that it was made from. Whoever comes back goes on from that, if
the plan has no commit yet, and else from the value of the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.protocol.rescale_history import FinishedRescale, remembered
from anabranch.records.placed import Assignment
from anabranch.records.shares import members, reassigned
from anabranch.rescale.costs import CostModel
from anabranch.rescale.loads import Loads
from anabranch.rescale.migration import MigrationView, Reports
from anabranch.rescale.moved_counts import count_moved, credited
from anabranch.rescale.moves import Move, joiners, moves_between
from anabranch.rescale.phases import Interrogating, Phase, Settled, Steady
from anabranch.rescale.rounds import RescaleSettings
from anabranch.rescale.step_moves import StepMoves
from anabranch.rescale.targets import target_for

_UNKNOWN = Loads()


class Rescale(msgspec.Struct, frozen=True):
    """How far rescaling is after a commit: everything that a coordinator needs to go on with it.

    ``number`` counts rescales, ``turn`` the changes of mind: a plan says for which turn it was
    made. ``handing`` are the bins that the last step has collected: whatever the phase, the next
    step gives them to their new owners. ``workers`` are those that have bins or files, and so are
    to be told when they have none.
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

    Planning again, after a crash or for another revision, gives the same or does as well: nothing
    depends on a plan that was not committed.
    """
    now = arrived(rescale, placement)
    intent = rescale.phase.plan(MigrationView(now, loads, recent, settings, rescale.costs))
    return StepMoves(
        turn=rescale.turn,
        placement=now,
        acquire=rescale.handing,
        collect=intent.collect,
        prefetch=intent.prefetch,
        asked=intent.ask,
        announced=intent.announce,
        migration=intent.migration,
        settles=intent.settle,
        shutdown=idle(rescale, now) if intent.settle else (),
        ahead=intent.ahead,
        allowance=intent.allowance,
        joining=intent.joining,
        allowed=intent.allowed,
        number=rescale.number,
    )


def joining_next(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[tuple[str, int], ...]:
    """Who will have bins, as far as that can be told while workers are asked for their loads."""
    phase = rescale.phase
    if not isinstance(phase, Interrogating):
        return ()
    target = target_for(phase.request, placement, _UNKNOWN)
    return joiners(moves_between(placement, target, _UNKNOWN))


def arrived(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """The placement of the next step: bins in hand-over are with their new owners."""
    return reassigned(placement, (move.end for move in rescale.handing))


def idle(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[int, ...]:
    """The workers that have no bins."""
    return tuple(sorted(set(rescale.workers) - set(members(placement))))


def after_commit(rescale: Rescale, moves: StepMoves, reports: Reports) -> Rescale:
    """The value to store with the commit of the step that was planned like this."""
    phase = rescale.phase.after(moves, reports, moves.turn == rescale.turn)
    ended = isinstance(rescale.phase, Settled) and isinstance(phase, Steady)
    history = finished(rescale, moves.placement) if ended else rescale.history
    if moves.number == rescale.number:
        phase = count_moved(phase, moves, reports)
    else:
        history = credited(history, moves, reports)
    told = {*rescale.workers, *members(moves.placement)} - set(moves.shutdown)
    joining = {move.to_worker for move in (*moves.prefetch, *moves.collect)}
    return msgspec.structs.replace(
        rescale,
        phase=phase,
        handing=moves.collect,
        workers=tuple(sorted(told | joining)),
        costs=rescale.costs.learnt(reports.prefetched),
        history=history,
    )


def finished(rescale: Rescale, placement: Sequence[Assignment]) -> tuple[FinishedRescale, ...]:
    """The history when a settled rescale is over."""
    phase = rescale.phase
    if not isinstance(phase, Settled):
        return rescale.history
    entry = FinishedRescale(
        rescale.number, phase.request, phase.outcome, phase.moved, members(placement)
    )
    return remembered(rescale.history, entry)


def is_pending(rescale: Rescale) -> bool:
    """Whether a step is justified although no input waits: a paused rescale justifies none.

    Bins in hand-over justify one more step, whatever the phase.
    """
    return bool(rescale.handing) or rescale.phase.pending


def is_moving(rescale: Rescale) -> bool:
    """Whether a step has anything to do of a rescale."""
    return bool(rescale.handing) or not isinstance(rescale.phase, Steady)
