"""What a node was told to do, how far it is with that, and what came of it. Decides, does nothing.

An order is taken note of at once and carried out later, a piece at a time, by ``NodeCore``, which
says here when it begins something and what came of it. Whoever calls holds the node's lock.

Guarantees
    An order that was carried out, one of a lower leader, and one that does not fit what is open
    change nothing. What a step came to is kept until the next one runs, and the state before it
    until its commit.
"""

from __future__ import annotations

from typing import TypeAlias

from anabranch.errors import AnabranchError, Fenced, StepCancelled, StepFailed
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import (
    CancelOrder,
    Closed,
    CloseOrder,
    CommitOrder,
    Done,
    Failure,
    NodeOrder,
    NodeState,
    Open,
    OpenOrder,
    PausedSources,
    Running,
    StepFailure,
    StepOrder,
    StepResult,
)
from anabranch.records.placed import OperatorState, state_fingerprint
from anabranch.records.plan import Plan

Ran: TypeAlias = tuple[Plan, StepResult]


class Duties:
    """The orders of a node and where it stands with them."""

    def __init__(self) -> None:
        #: grows with whatever a leader may want to hear
        self.version = 1
        #: grows whenever there may be something to do
        self.beat = 0
        #: whose orders are carried out
        self.leader = 0
        #: who leads by the journal, if it is known to be a higher one that has not called yet
        self.successor = 0
        self.state: NodeState = Closed()
        #: the number of the newest order to open that was carried out
        self.opened = 0
        self.failed_open: Failure | None = None
        self.to_open: OpenOrder | None = None
        self.to_close: CloseOrder | None = None
        self.to_run: Plan | None = None
        self.cancelled = False
        self.ran: Ran | None = None
        self.failed_step: StepFailure | None = None
        self.committed = 0
        self.replaying = False
        #: the state at the last committed step
        self.states: tuple[OperatorState, ...] = ()
        #: the branch that was opened, and the fingerprints of the states there and after the step
        self.branch = 0
        self.stands = self.reached = ""
        #: the sources that nothing is asked of
        self.paused = PausedSources()
        self._to_run_next: Plan | None = None

    # --------------------------------------------------------------------------------- the orders

    def fence(self, leader: int) -> None:
        """Refuse a leader that another one has replaced; know a new one. Raises ``Fenced``."""
        newest = max(self.leader, self.successor)
        if leader < newest:
            raise Fenced(
                f"Leader {leader} gives orders, and leader {newest} has taken over",
                do="End this coordinator: nothing of it counts any more.",
            )
        if leader > self.leader:
            self.leader = leader
            # What the former leader wanted and did not get is not wanted any more.
            self.to_open = self.to_close = None
            self.grown()

    def was_replaced_by(self, leader: int) -> None:
        """Another one leads. It may have a node of its own, and never call this one."""
        self.successor = max(self.successor, leader)
        self.grown()

    @property
    def is_replaced(self) -> bool:
        """Whether the one whose orders are carried out leads no longer."""
        return self.successor > self.leader

    def is_meant(self, opened: int) -> bool:
        """Whether an order is for what is open: nothing else is to be opened or closed."""
        return self.to_open is None and opened in (0, self.opened)

    def take_note(self, order: NodeOrder) -> None:
        """Keep an order to open, step, cancel or close; one that does not fit is forgotten."""
        match order:
            case OpenOrder():
                self._note_open(order)
            case CancelOrder():
                if isinstance(self.state, Running) and self.state.step == order.step:
                    self.cancelled = True
            case StepOrder() if self.is_meant(order.opened):
                self._note_step(order.plan)
            case CloseOrder() if self.is_meant(order.opened):
                self.to_close = order

    def commit(self, order: CommitOrder) -> Ran | None:
        """The step that the order commits, once; None where it tells nothing new."""
        if order.step == self.committed:
            # A late order of the replay does not begin it again.
            self.replaying = self.replaying and order.replayed
            self.grown()
        if self.state != Open(order.step) or order.step != self.committed + 1:
            return None
        assert self.ran is not None, "a node that is open after a step has its result"
        self.committed = order.step
        self.replaying = order.replayed
        self.states = self.ran[1].states
        self.stands = self.reached
        self.grown()
        return self.ran

    def pause_sources(self, paused: PausedSources) -> None:
        """Go by this, unless something newer was heard."""
        if paused.number > self.paused.number:
            self.paused = paused
            self.grown()

    def _note_open(self, order: OpenOrder) -> None:
        newest = self.opened if self.to_open is None else self.to_open.number
        if order.number <= newest:
            return
        self.to_open = order
        self.to_close = None
        self._to_run_next = None
        self.cancelled = self.to_run is not None

    def _note_step(self, plan: Plan) -> None:
        if plan.step != self.committed + 1 or self.to_close is not None:
            return
        tried = [self.to_run, self._to_run_next, None if self.ran is None else self.ran[0]]
        revisions = [p.revision for p in tried if p is not None and p.step == plan.step]
        if self.failed_step is not None and self.failed_step.step == plan.step:
            revisions.append(self.failed_step.revision)
        if isinstance(self.state, Closed) or plan.revision <= max(revisions, default=-1):
            return
        if self.to_run is None:
            self._begin(plan)
        else:
            self._to_run_next = plan
            self.cancelled = True

    # ----------------------------------------------------------------------------------- the work

    def begin_open(self) -> OpenOrder | None:
        """The order to open that is to be carried out now: what was open counts no more."""
        order = self.to_open
        if order is not None:
            self.to_open = None
            self.forget()
            self.ran = self.failed_step = None
            self.cancelled = False
            self.grown()
        return order

    def has_opened(self, order: OpenOrder, states: tuple[OperatorState, ...]) -> None:
        """What was ordered is open."""
        self.opened = order.number
        self.failed_open = None
        self.states = states
        self.branch = order.branch
        self.stands, self.reached = state_fingerprint(states), ""
        self.committed = order.step
        self.replaying = False
        self.state = Open(order.step)
        self.pause_sources(order.paused)
        self.grown()

    def could_not_open(self, order: OpenOrder, error: Exception) -> None:
        """What was ordered cannot be opened."""
        self.opened = order.number
        self.failed_open = failure_of(error)
        self.grown()

    def has_run(self, plan: Plan, result: StepResult) -> None:
        """A step came to its end; if it is no longer wanted, that does not count."""
        if self.to_run is plan:
            self.to_run = None
            self.cancelled = False
            self.ran = (plan, result)
            self.reached = state_fingerprint(result.states)
            self.state = Open(plan.step)
            self._go_on()
        self.grown()

    def has_failed(self, plan: Plan, error: Exception) -> None:
        """A step failed or was given up."""
        if self.to_run is not plan:
            return
        if self.cancelled:
            error = cancelled(plan)
        elif not isinstance(error, AnabranchError):
            error = StepFailed(f"Step {plan.step} failed: {type(error).__name__}: {error}")
        self.to_run = None
        self.cancelled = False
        self.failed_step = StepFailure(plan.step, plan.revision, failure_of(error))
        self.state = Open(plan.step - 1)
        self._go_on()
        self.grown()

    def forget(self) -> None:
        """Nothing is open, and nothing is to be run."""
        self.to_run = self._to_run_next = None
        self.state = Closed()

    def has_closed(self) -> None:
        """The pipeline is over: when it is started anew, no source is paused."""
        self.forget()
        self.paused = PausedSources(self.paused.number)

    def _go_on(self) -> None:
        """Run the plan that has replaced the one whose run has just ended."""
        plan, self._to_run_next = self._to_run_next, None
        if plan is not None:
            self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        self.to_run = plan
        self.ran = self.failed_step = None
        self.reached = ""
        self.state = Running(plan.step, plan.revision)
        self.grown()

    # -------------------------------------------------------------------------------- what is said

    @property
    def done(self) -> Done | None:
        """The step whose result is kept."""
        return None if self.ran is None else Done(self.ran[1].step, self.ran[1].revision)

    @property
    def is_running(self) -> bool:
        """Whether the input of the next step is taken: one runs, or ran and is not committed."""
        return not isinstance(self.state, Open) or self.state.step > self.committed

    def grown(self) -> None:
        """There is something new to say, and perhaps to do."""
        self.version += 1
        self.beat += 1


def cancelled(plan: Plan) -> StepCancelled:
    """The error of a step that somebody cancelled."""
    return StepCancelled(f"Step {plan.step} was cancelled", do="It runs again when it is ordered.")
