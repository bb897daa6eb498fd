"""Everything that a node does, without threads.

Orders are taken at once: they only say what is to be done. The work itself is done by the methods
that say so, each of which does a piece of it and returns whether there was one. A scheduler may
call them one after the other in one thread, as a simulation does; or each of the four groups has a
thread of its own: ``open_pending``, ``run_step`` and ``close_pending``; ``poll_inputs``;
``publish_next``; ``check_next``, ``sweep`` and ``cancel_pending``.

Guarantees
    An order that was carried out, one of a lower leader, and one that does not fit what is open
    change nothing. What a step came to is kept until the next one runs, and the state before it
    until its commit. Nothing is published or acknowledged that no commit order covers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from anabranch.errors import AnabranchError, Fenced, NodeUnreachable, StepCancelled, StepFailed
from anabranch.failures import failure_of
from anabranch.node.chores import Chores
from anabranch.node.data_plane import Cancellable, DataPlane
from anabranch.node.offers import open_plainly
from anabranch.node.opening import Opened, Surroundings, facts_of, open_pipeline
from anabranch.node.outbox import Outbox
from anabranch.node.port import (
    CancelOrder,
    CheckOrder,
    Closed,
    CloseOrder,
    CommitOrder,
    Done,
    Failure,
    NodeState,
    Open,
    OpenOrder,
    Order,
    Output,
    Running,
    StepFailure,
    StepOrder,
    StepResult,
    SweepOrder,
    Told,
)
from anabranch.node.program import Program
from anabranch.node.state_reader import Snapshot, snapshot_of
from anabranch.node.stepping import run_plan
from anabranch.plan.step import Input, OperatorState, Plan
from anabranch.sinks.port import Frames, StagedFile
from anabranch.sources.port import Opener


class NodeCore:
    """A node: what it was told to do, what it is doing, and what it says of itself."""

    def __init__(
        self,
        program: Program,
        store: Path,
        plane: DataPlane,
        code: str,
        *,
        clock: Callable[[], float],
        boot: str,
        application: str = "",
        frames: Frames | None = None,
        open_source: Opener = open_plainly,
        grace_seconds: float = 120.0,
        pickled: str | None = None,
        reached: Callable[[str, int], None] = lambda point, step: None,
    ) -> None:
        """Nothing is open, and nobody leads.

        ``code`` is the hash of the dataflow, ``pickled`` the name that it is kept under in the
        store, where that is another one.
        """
        self._program = program
        self._plane = plane
        self._around = Surroundings(store, frames, open_source, clock, reached)
        self._facts = facts_of(program, code, getattr(plane, "releasing", ""))
        self._boot = boot
        self._application = application
        self._chores = Chores(store, {code, pickled or code}, grace_seconds, clock)
        # Guards everything below. Held briefly, never during work.
        self._changed = threading.Condition(threading.RLock())
        self._version = 1
        self._beat = 0
        self._leader = 0
        self._state: NodeState = Closed()
        self._opened_number = 0
        self._failed_open: Failure | None = None
        self._to_open: OpenOrder | None = None
        self._to_close: CloseOrder | None = None
        self._opened: Opened | None = None
        #: of what is open, or was before it was closed
        self._outbox: Outbox | None = None
        self._committed = 0
        self._replaying = False
        #: the state at the last committed step
        self._states: tuple[OperatorState, ...] = ()
        self._to_run: Plan | None = None
        self._to_run_next: Plan | None = None
        self._cancelled = False
        self._ran: tuple[Plan, StepResult] | None = None
        self._failed_step: StepFailure | None = None
        self._snapshot = snapshot_of(0, 0, program.bins, (), ())
        self._exit = False

    # ------------------------------------------------------------------------------ what is asked

    def told(self, leader: int) -> Told:
        """What the node says of itself now."""
        with self._changed:
            self._fence(leader)
            opened = self._opened
            running = not isinstance(self._state, Open) or self._state.step > self._committed
            return Told(
                version=self._version,
                boot=self._boot,
                application=self._application,
                leader=self._leader,
                facts=self._facts,
                state=self._state,
                opened=self._opened_number,
                failed_open=self._failed_open,
                replaying=self._replaying,
                done=None if self._ran is None else _done(self._ran[1]),
                failed_step=self._failed_step,
                offer=None if opened is None else opened.offers.offer(running=running),
                source_failure=None if opened is None else opened.offers.failure,
                published={} if self._outbox is None else self._outbox.done(),
                sink_failure=None if self._outbox is None else self._outbox.failure,
                checked=self._chores.checked,
                committed=self._committed,
            )

    def take_order(self, leader: int, order: Order) -> None:
        """Take note of an order. Raises ``Fenced``; an order that does not fit does nothing."""
        with self._changed:
            self._fence(leader)
            self._take_note(order)
            stop = self._cancelled
            self._woken()
        if stop:
            self.cancel_pending()

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step; from then on the offer does not change."""
        with self._changed:
            self._fence(leader)
            inputs = None if self._opened is None else self._opened.offers.take(step)
            self._grown()
        if inputs is None:
            raise NodeUnreachable(f"The node has no offer for step {step}")
        return inputs

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run."""
        with self._changed:
            self._fence(leader)
            if self._ran is not None and _done(self._ran[1]) == Done(step, revision):
                return self._ran[1]
        raise NodeUnreachable(f"The node has no result of step {step}, revision {revision}")

    @property
    def snapshot(self) -> Snapshot:
        """The state after the last committed step, as one value: any thread may read it."""
        return self._snapshot

    @property
    def boot(self) -> str:
        """What this node process calls itself."""
        return self._boot

    @property
    def exit_asked(self) -> bool:
        """Whether the node is closed and its process is to end."""
        return self._exit

    def wait_told(self, seen: int, seconds: float) -> None:
        """Wait until what the node says is newer than ``seen``, or for so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > seen, seconds)

    @property
    def beat(self) -> int:
        """A number that grows whenever there may be something to do."""
        return self._beat

    def wait_beat(self, beat: int, seconds: float | None) -> None:
        """Wait until there may be something to do that was not there at ``beat``."""
        with self._changed:
            self._changed.wait_for(lambda: self._beat > beat, seconds)

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._woken()

    def publish_pause(self) -> float | None:
        """How long publishing has to wait before it tries again; None: until something comes."""
        with self._changed:
            opened = self._opened
        return None if opened is None else opened.outbox.pause()

    def chores_pause(self) -> float | None:
        """How long until a file may be removed; None: until something comes."""
        return self._chores.pause()

    # ---------------------------------------------------------------------------------- the work

    def open_pending(self) -> bool:
        """Carry out the newest order to open: close what is open, and open anew."""
        with self._changed:
            order, before = self._to_open, self._opened
            if order is None:
                return False
            self._to_open = self._to_run = self._to_run_next = self._opened = None
            self._outbox = self._ran = self._failed_step = None
            self._cancelled = False
            self._state = Closed()
            self._grown()
        self._chores.forget()
        if before is not None:
            before.close()
        try:
            opened = open_pipeline(self._program, order, self._around)
        except Exception as error:
            with self._changed:
                self._opened_number = order.number
                self._failed_open = failure_of(error)
                self._grown()
            return True
        with self._changed:
            self._opened = opened
            self._outbox = opened.outbox
            self._opened_number = order.number
            self._failed_open = None
            self._states = opened.states
            self._committed = order.step
            self._replaying = False
            self._state = Open(order.step)
            self._snapshot = Snapshot(
                order.step,
                order.clock_ns,
                self._program.bins,
                opened.states,
                dict(order.placement),
            )
            self._grown()
        return True

    def run_step(self) -> bool:
        """Run the step that was ordered, to its result or its failure."""
        with self._changed:
            plan, opened = self._to_run, self._opened
            if plan is None or opened is None:
                return False
            states = self._states
        try:
            if self._cancelled:
                raise _cancelled(plan)
            result = run_plan(self._program, self._plane, opened.offers, self._around, plan, states)
        except Exception as error:
            self._fail(plan, error)
            return True
        self._around.reached("ran", plan.step)
        with self._changed:
            if self._to_run is plan:
                self._to_run = None
                self._cancelled = False
                self._ran = (plan, result)
                self._state = Open(plan.step)
                self._go_on()
            self._grown()
        return True

    def poll_inputs(self) -> bool:
        """Acknowledge what is committed, and let the offer grow by what the sources have."""
        with self._changed:
            opened = self._opened
        if opened is None or not opened.offers.poll():
            return False
        with self._changed:
            self._grown()
        return True

    def publish_next(self) -> bool:
        """Publish one committed step to one sink."""
        with self._changed:
            opened = self._opened
        if opened is None or not opened.outbox.publish_next():
            return False
        with self._changed:
            self._grown()
        return True

    def check_next(self) -> bool:
        """Look at some files of the state that is to be checked."""
        with self._changed:
            opened = self._opened
        if not self._chores.check_next(opened):
            return False
        with self._changed:
            self._grown()
        return True

    def sweep(self) -> bool:
        """Remove what nobody needs any more, as ordered, and again when its time has come."""
        with self._changed:
            opened = self._opened
            states = [self._states]
            staged: list[StagedFile] = []
            if self._ran is not None and self._ran[0].step > self._committed:
                states.append(self._ran[1].states)
                staged.extend(self._ran[1].staged)
        return opened is not None and self._chores.sweep(opened, states, staged)

    def close_pending(self) -> bool:
        """Let go of sources and sinks, once no step runs and everything is published."""
        with self._changed:
            order, opened = self._to_close, self._opened
            if order is None or self._to_run is not None:
                return False
            if opened is not None and not opened.outbox.drained():
                return False
            self._to_close = self._opened = None
            self._state = Closed()
        if opened is not None:
            self._chores.sweep(opened, [self._states], [])
            opened.close()
        with self._changed:
            self._exit = self._exit or order.exit
            self._grown()
        return True

    def cancel_pending(self) -> bool:
        """Ask the data plane again to give up a step that was cancelled and still runs."""
        if not self._cancelled:
            return False
        if isinstance(self._plane, Cancellable):
            self._plane.cancel()
        return True

    def give_up_step(self) -> None:
        """Cancel the step that runs, if one does: the process ends."""
        with self._changed:
            self._cancelled = self._to_run is not None
        self.cancel_pending()

    def shut(self) -> None:
        """Let go of everything at once: nothing more is published."""
        with self._changed:
            opened, self._opened = self._opened, None
            self._to_open = self._to_run = self._to_run_next = None
            self._state = Closed()
            self._grown()
        if opened is not None:
            opened.close()

    # --------------------------------------------------------------------------------- the orders

    def _take_note(self, order: Order) -> None:
        match order:
            case OpenOrder():
                self._note_open(order)
            case CancelOrder():
                if isinstance(self._state, Running) and self._state.step == order.step:
                    self._cancelled = True
            case StepOrder() if self._is_meant(order.opened):
                self._note_step(order.plan)
            case CommitOrder() if self._is_meant(order.opened):
                self._note_commit(order)
            case CloseOrder() if self._is_meant(order.opened):
                self._to_close = order
            case CheckOrder():
                self._chores.to_check(order)
            case SweepOrder():
                self._chores.to_sweep(order)
            case _:
                pass

    def _is_meant(self, opened: int) -> bool:
        """Whether an order is for what is open: nothing else is to be opened or closed."""
        return self._to_open is None and opened in (0, self._opened_number)

    def _note_open(self, order: OpenOrder) -> None:
        newest = self._opened_number if self._to_open is None else self._to_open.number
        if order.number <= newest:
            return
        self._to_open = order
        self._to_close = None
        self._to_run_next = None
        self._cancelled = self._to_run is not None

    def _note_step(self, plan: Plan) -> None:
        if plan.step != self._committed + 1 or self._to_close is not None:
            return
        tried = [self._to_run, self._to_run_next, None if self._ran is None else self._ran[0]]
        revisions = [p.revision for p in tried if p is not None and p.step == plan.step]
        if self._failed_step is not None and self._failed_step.step == plan.step:
            revisions.append(self._failed_step.revision)
        if isinstance(self._state, Closed) or plan.revision <= max(revisions, default=-1):
            return
        if self._to_run is None:
            self._begin(plan)
        else:
            self._to_run_next = plan
            self._cancelled = True

    def _go_on(self) -> None:
        """Run the plan that has replaced the one whose run has just ended."""
        plan, self._to_run_next = self._to_run_next, None
        if plan is not None:
            self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        self._to_run = plan
        self._ran = self._failed_step = None
        self._state = Running(plan.step, plan.revision)
        self._grown()

    def _note_commit(self, order: CommitOrder) -> None:
        opened = self._opened
        if opened is None:
            return
        if order.step == self._committed:
            opened.offers.limit(order.limit)
            # A late order of the replay does not begin it again.
            self._replaying = self._replaying and order.replayed
            self._grown()
        if self._state != Open(order.step) or order.step != self._committed + 1:
            return
        assert self._ran is not None, "a node that is open after a step has its result"
        plan, result = self._ran
        self._committed = order.step
        self._replaying = order.replayed
        self._states = result.states
        self._snapshot = snapshot_of(
            plan.step, plan.clock_ns, self._program.bins, result.states, plan.placement
        )
        if order.replayed:
            opened.outbox.skip(order.step)
            opened.offers.replayed(order.step, order.limit)
        else:
            opened.outbox.add(order.output or Output(order.step, ()))
            opened.offers.commit(order.step, order.positions, order.limit)
        self._grown()

    def _fail(self, plan: Plan, error: Exception) -> None:
        with self._changed:
            if self._to_run is not plan:
                return
            if self._cancelled:
                error = _cancelled(plan)
            elif not isinstance(error, AnabranchError):
                what = f"Step {plan.step} failed: {type(error).__name__}: {error}"
                error = StepFailed(what)
            self._to_run = None
            self._cancelled = False
            self._failed_step = StepFailure(plan.step, plan.revision, failure_of(error))
            self._state = Open(plan.step - 1)
            self._go_on()
            self._grown()

    def _fence(self, leader: int) -> None:
        if leader < self._leader:
            raise Fenced(
                f"Leader {leader} gives orders, and leader {self._leader} has taken over",
                do="End this coordinator: nothing of it counts any more.",
            )
        if leader > self._leader:
            self._leader = leader
            # What the former leader wanted and did not get is not wanted any more.
            self._to_open = self._to_close = None
            self._grown()

    def _grown(self) -> None:
        self._version += 1
        self._woken()

    def _woken(self) -> None:
        self._beat += 1
        self._changed.notify_all()


def _done(result: StepResult) -> Done:
    return Done(result.step, result.revision)


def _cancelled(plan: Plan) -> StepCancelled:
    return StepCancelled(f"Step {plan.step} was cancelled", do="It runs again when it is ordered.")
