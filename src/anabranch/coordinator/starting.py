"""Decides what to do with the node that a coordinator finds: continue, reopen or replace it."""

from __future__ import annotations

from enum import Enum, auto

from anabranch.coordinator.journal_view import JournalView
from anabranch.protocol.node import Done, NodeReport, Open, Running
from anabranch.records.commit import Checkpoint
from anabranch.records.placed import state_fingerprint

LOST_STATE = frozenset({"store.missing_run", "store.corrupt_run"})
"""Codes of failures that mean lost state; replay from a checkpoint may restore it."""


class NodeDecision(Enum):
    """What to do with a node that a coordinator finds."""

    #: it is at the journal's last commit
    CONTINUE = auto()
    #: it runs, or has run, the journal's uncommitted plan: wait for the result
    WAIT = auto()
    #: it is elsewhere, or has nothing open: open the last commit
    REOPEN = auto()
    #: it has loaded another dataflow: start another process
    REPLACE = auto()


def decide_on_node(report: NodeReport, journal: JournalView, code: str | None) -> NodeDecision:
    """Compare a node's report with the journal, and decide what to do with it.

    A node that is not exactly at the journal's state reopens, and so does one whose sinks may hold
    output of steps that a rewind left behind. Equal step numbers are not enough: a fenced
    coordinator may have let the node run a step that another one then committed. ``code`` is the
    dataflow to run, None for the one that the node has.
    """
    if code is not None and report.info.code != code:
        return NodeDecision.REPLACE
    if journal.rewound or report.branch != journal.branch:
        return NodeDecision.REOPEN
    plan, here = journal.plan, state_fingerprint(journal.states)
    planned = None if plan is None else Done(plan.step, plan.revision)
    match report.state:
        case Running(step, revision):
            if planned == Done(step, revision) and report.stands == here:
                return NodeDecision.WAIT
        case Open(step) if not report.replaying:
            if step == journal.step:
                at = report.stands if report.committed == step else report.reached
                return NodeDecision.CONTINUE if at == here else NodeDecision.REOPEN
            if planned is not None and report.done == planned and report.stands == here:
                return NodeDecision.WAIT
    return NodeDecision.REOPEN


def next_checkpoint(
    journal: JournalView, tried: frozenset[int], back_to: int | None = None
) -> Checkpoint | None:
    """The newest untried checkpoint from which all later steps can be replayed.

    With ``back_to``, the step of a pending rewind, nothing is replayed: returns the checkpoint of
    that step, else the newest.
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
