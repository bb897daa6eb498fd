"""What to do with the node that a coordinator meets: go on with it, or open it anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from anabranch.coordinator.journal_view import JournalView
from anabranch.protocol.node import Closed, Done, NodeReport, Open, Running
from anabranch.records.commit import Checkpoint
from anabranch.records.placed import state_fingerprint
from anabranch.records.plan import Plan

LOST_STATE = frozenset({"store.missing_run", "store.corrupt_run"})
"""Failures that mean that state is lost: an older checkpoint may have it."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The node stands where the journal does."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """The node runs, or has run, the step that the journal has a plan of."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Reopen:
    """The node stands somewhere else, or nowhere."""


@dataclass(frozen=True, slots=True)
class Replace:
    """The node has loaded another dataflow."""

    why: str


Meeting: TypeAlias = GoOn | WaitFor | Reopen | Replace


def meet(report: NodeReport, journal: JournalView, code: str | None) -> Meeting:
    """What to do with a node that says this, when the journal says that.

    Lost state sends all workers back together: a node that is anywhere but where the journal
    stands opens again, and so does one whose sinks may still have output of steps that were left
    behind. A node may be at the step where the journal stands and yet somewhere else: one that
    was replaced, and did not know it, may have let it run a step that then was committed by
    another one. ``code`` is the dataflow that is to run, None for whatever the node has.
    """
    if code is not None and report.info.code != code:
        return Replace("the dataflow has changed since the node loaded it")
    if journal.rewound or report.branch != journal.branch:
        return Reopen()
    plan, here = journal.plan, state_fingerprint(journal.states)
    match report.state:
        case Running(step, revision):
            if plan is not None and (plan.step, plan.revision) == (step, revision):
                return WaitFor(plan) if report.stands == here else Reopen()
        case Open(step):
            if report.replaying:
                return Reopen()
            if step == journal.step:
                at = report.stands if report.committed == step else report.reached
                return GoOn() if at == here else Reopen()
            if plan is not None and report.done == Done(plan.step, plan.revision):
                return WaitFor(plan) if report.stands == here else Reopen()
        case Closed():
            pass
    return Reopen()


def next_checkpoint(
    journal: JournalView, tried: frozenset[int], back_to: int | None = None
) -> Checkpoint | None:
    """The newest checkpoint that was not tried and that every later step can be replayed from.

    With ``back_to``, the step that the pipeline is about to be set back to, nothing is replayed:
    the checkpoint of that step, else the newest one.
    """
    kept = [
        each
        for each in reversed(journal.checkpoints)
        if each.step not in tried and each.step <= journal.step
    ]
    if back_to is not None:
        return min(kept, key=lambda each: each.step != back_to, default=None)
    for checkpoint in kept:
        if checkpoint.step + 1 >= journal.replayable or checkpoint.step == journal.step:
            return checkpoint
    return None
