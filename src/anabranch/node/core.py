"""Everything that a node does, without threads.

Orders are taken at once: they only say what is to be done. The work itself is done by the methods
that say so, each of which does a piece of it and returns whether there was one. A scheduler may
call them one after the other in one thread, as a simulation does; or each of these groups has a
thread of its own: ``open_pending``, ``run_step`` and ``close_pending``; ``prepare_next``;
``poll_inputs`` of each source that may block, and of all others; ``publish_next`` of each sink;
``check_next``, ``sweep`` and ``cancel_pending``.

What was ordered and how far that is, ``node_machine`` knows; here it is done, under a lock. Nothing
is published or acknowledged that no commit order covers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from anabranch.errors import JvmDied, NodeUnreachable
from anabranch.journal.file_directory import FileDirectory
from anabranch.journal.leadership import check_leads, replaced_by
from anabranch.node.chores import Chores
from anabranch.node.node_machine import Duties, cancelled
from anabranch.node.offers import open_plainly
from anabranch.node.opening import OpenPipeline, Surroundings, facts_of, open_pipeline
from anabranch.node.outbox import Outbox
from anabranch.node.step_runner import run_plan
from anabranch.protocol.data_plane import Cancellable, DataPlane, MortalPlane, PreparablePlane
from anabranch.protocol.node import (
    CheckOrder,
    CommitOrder,
    Done,
    NodeOrder,
    NodeReport,
    Output,
    SourcesOrder,
    StepResult,
    SweepOrder,
)
from anabranch.protocol.sinks import Frames, SinkOpener, open_sink_plainly
from anabranch.protocol.sources import Opener, blocks
from anabranch.records.plan import Input
from anabranch.records.staged_file import StagedFile
from anabranch.task.program import Program
from anabranch.task.state_reader import Snapshot, snapshot_of


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
        open_sink: SinkOpener = open_sink_plainly,
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
        self._around = Surroundings(
            store, frames, open_source, open_sink, clock, reached, self._check_plane
        )
        self._journal = FileDirectory(store / "journal")
        self._facts = facts_of(program, code, getattr(plane, "releasing", ""))
        #: the names of the sinks, in the order of the dataflow
        self.sinks = tuple(program.sinks)
        #: what this node process calls itself
        self.boot = boot
        self._application = application
        self._chores = Chores(store, {code, pickled or code}, grace_seconds, clock)
        # Guards everything below. Held briefly, never during work.
        self._changed = threading.Condition(threading.RLock())
        self._duties = Duties()
        self._opened: OpenPipeline | None = None
        #: of what is open, or was before it was closed
        self._outbox: Outbox | None = None
        #: the state after the last committed step, as one value: any thread may read it
        self.snapshot = snapshot_of(0, 0, program.bins, (), ())
        #: whether the node is closed and its process is to end
        self.exit_asked = False

    # ------------------------------------------------------------------------------ what is asked

    def report(self, leader: int) -> NodeReport:
        """What the node says of itself now."""
        with self._changed:
            duties, opened, outbox = self._fenced(leader), self._opened, self._outbox
            return NodeReport(
                version=duties.version,
                boot=self.boot,
                application=self._application,
                leader=duties.leader,
                info=self._facts,
                state=duties.state,
                opened=duties.opened,
                failed_open=duties.failed_open,
                replaying=duties.replaying,
                done=duties.done,
                failed_step=duties.failed_step,
                offer=None if opened is None else opened.offers.offer(running=duties.is_running),
                source_failure=None if opened is None else opened.offers.failure,
                published={} if outbox is None else outbox.done(),
                sink_retries={} if outbox is None else outbox.retries(),
                sink_failure=None if outbox is None else outbox.failure,
                taking_back=() if outbox is None else outbox.taking_back(),
                checked=self._chores.checked,
                committed=duties.committed,
                branch=duties.branch,
                stands=duties.stands,
                reached=duties.reached,
                paused=duties.paused,
            )

    def take_order(self, leader: int, order: NodeOrder) -> None:
        """Take note of an order. Raises ``Fenced``; an order that does not fit does nothing."""
        with self._changed:
            duties = self._fenced(leader)
            match order:
                case CommitOrder():
                    self._note_commit(order)
                case CheckOrder():
                    self._chores.to_check(order)
                case SweepOrder():
                    self._chores.to_sweep(order)
                case SourcesOrder(paused):
                    duties.pause_sources(paused)
                    self._pause_sources()
                case _:
                    duties.take_note(order)
            stop = duties.cancelled
            self.wake()
        if stop:
            self.cancel_pending()

    def take(self, leader: int, step: int) -> tuple[Input, ...]:
        """The input of the offer for a step; from then on the offer does not change."""
        with self._changed:
            self._fenced(leader)
            inputs = None if self._opened is None else self._opened.offers.take(step)
            self._grown()
        if inputs is None:
            raise NodeUnreachable(f"The node has no offer for step {step}")
        return inputs

    def result(self, leader: int, step: int, revision: int) -> StepResult:
        """The result of the last step that was run."""
        with self._changed:
            duties = self._fenced(leader)
            if duties.ran is not None and duties.done == Done(step, revision):
                return duties.ran[1]
        raise NodeUnreachable(f"The node has no result of step {step}, revision {revision}")

    def wait_told(self, seen: int, seconds: float, over: Callable[[], bool]) -> None:
        """Wait until what the node says is newer than ``seen``, all is over, or for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._duties.version > seen or over(), seconds)

    @property
    def beat(self) -> int:
        """A number that grows whenever there may be something to do."""
        return self._duties.beat

    def wait_beat(self, beat: int, seconds: float | None) -> None:
        """Wait until there may be something to do that was not there at ``beat``."""
        with self._changed:
            self._changed.wait_for(lambda: self._duties.beat > beat, seconds)

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._duties.beat += 1
            self._changed.notify_all()

    @property
    def source_groups(self) -> list[list[str]]:
        """The sources that are asked one after the other, then each that may block, alone."""
        nodes = self._program.physical.sources()
        alone = [[node.name] for node in nodes if blocks(node.source)]
        return [[node.name for node in nodes if not blocks(node.source)], *alone]

    def publish_pause(self, sink: str) -> float | None:
        """How long a sink has to be left alone; None: until something comes."""
        opened = None if self._duties.is_replaced else self._opened
        return None if opened is None else opened.outbox.pause(sink)

    def chores_pause(self) -> float | None:
        """How long until a file may be removed; None: until something comes."""
        return None if self._duties.is_replaced else self._chores.pause()

    # ---------------------------------------------------------------------------------- the work

    def open_pending(self) -> bool:
        """Carry out the newest order to open: close what is open, and open anew."""
        duties = self._duties
        with self._changed:
            order, before, leader = duties.begin_open(), self._opened, duties.leader
            if order is None:
                return False
            self._opened = self._outbox = None
            self._changed.notify_all()
        self._chores.forget()
        if before is not None:
            before.close()
        try:
            # Sinks give and take back what the order says: one that was replaced, and has led no
            # node since, may not know what was committed after it.
            check_leads(self._journal, leader)
            opened = open_pipeline(self._program, order, self._around)
        except Exception as error:
            self._check_plane()
            with self._changed:
                duties.could_not_open(order, error)
                self._changed.notify_all()
            return True
        with self._changed:
            self._opened = opened
            self._outbox = opened.outbox
            self.snapshot = Snapshot(
                order.step, order.clock_ns, self._program.bins, opened.states, dict(order.placement)
            )
            duties.has_opened(order, opened.states)
            self._pause_sources()
            self._changed.notify_all()
        return True

    def run_step(self) -> bool:
        """Run the step that was ordered, to its result or its failure."""
        duties = self._duties
        with self._changed:
            plan, opened, states = duties.to_run, self._opened, duties.states
        if plan is None or opened is None:
            return False
        try:
            if duties.cancelled:
                raise cancelled(plan)
            result = run_plan(self._program, self._plane, opened.offers, self._around, plan, states)
        except Exception as error:
            self._check_plane()
            with self._changed:
                duties.has_failed(plan, error)
                self._changed.notify_all()
            return True
        self._around.reached("ran", plan.step)
        with self._changed:
            duties.has_run(plan, result)
            self._changed.notify_all()
        return True

    def prepare_next(self) -> bool:
        """Let the data plane get ready for the step after the one that runs, if it is known."""
        with self._changed:
            plan, opened = self._duties.to_run, self._opened
        if plan is None or opened is None or not isinstance(self._plane, PreparablePlane):
            return False
        inputs = opened.offers.settled(plan.step + 1)
        following = None if inputs is None else plan.followed_by(inputs)
        if inputs is None or following is None or not self._plane.prepare(following):
            return False
        opened.offers.close_offer(following.step, inputs)
        return True

    def poll_inputs(self, sources: Sequence[str] | None = None) -> bool:
        """Acknowledge what is committed, and let the offer grow by what these sources have."""
        opened = self._opened
        return opened is not None and opened.offers.poll(sources) and self._grown()

    def publish_next(self, sink: str) -> bool:
        """Publish the next committed step to a sink, or several if it takes them.

        A sink that was away when the pipeline was opened is opened first.
        """
        opened = self._opened
        published = opened is not None and opened.outbox.publish_next(sink, self._is_led)
        return published and self._grown()

    def check_next(self) -> bool:
        """Look at some files of the state that is to be checked."""
        return self._chores.check_next(self._opened) and self._grown()

    def sweep(self) -> bool:
        """Remove what nobody needs any more, as ordered, and again when its time has come."""
        with self._changed:
            opened, duties = self._opened, self._duties
            states = [duties.states]
            staged: list[StagedFile] = []
            if duties.ran is not None and duties.ran[0].step > duties.committed:
                states.append(duties.ran[1].states)
                staged.extend(duties.ran[1].staged)
        return opened is not None and self._chores.sweep(opened, states, staged, self._is_led)

    def close_pending(self) -> bool:
        """Let go of sources and sinks, once no step runs and everything is published.

        Sources hear of the last commit first: a pipeline that is complete is not opened again.
        """
        duties = self._duties
        with self._changed:
            order, opened = duties.to_close, self._opened
            if order is None or duties.to_run is not None:
                return False
            if opened is not None and not opened.outbox.drained():
                return False
            self._opened = duties.to_close = None
            duties.has_closed()
        if opened is not None:
            opened.offers.acknowledge()
            self._chores.sweep(opened, [duties.states], [], self._is_led)
            opened.close()
        with self._changed:
            self.exit_asked = self.exit_asked or order.exit
        return self._grown()

    def cancel_pending(self) -> bool:
        """Ask the data plane again to give up a step that was cancelled and still runs."""
        if not self._duties.cancelled:
            return False
        if isinstance(self._plane, Cancellable):
            self._plane.cancel()
        return True

    def give_up_step(self) -> None:
        """Cancel the step that runs, if one does: the process ends."""
        with self._changed:
            self._duties.cancelled = self._duties.to_run is not None
        self.cancel_pending()

    def shut(self, seconds: float) -> None:
        """Let go of everything at once; a sink is waited for so many seconds at most."""
        with self._changed:
            opened, self._opened = self._opened, None
            self._duties.to_open = None
            self._duties.forget()
            self._grown()
        if opened is not None:
            opened.close(seconds)

    def cause_of(self, error: BaseException) -> BaseException:
        """What is to blame for an error: the death of the data plane, or the error itself."""
        try:
            self._check_plane()
        except JvmDied as died:
            return died
        return error

    def _check_plane(self) -> None:
        """Raise ``JvmDied`` if the data plane is dead: nothing else is to blame then."""
        if isinstance(self._plane, MortalPlane):
            self._plane.check_alive()

    def _is_led(self) -> bool:
        """Whether the leader still leads, by the journal; once it does not, it is refused."""
        with self._changed:
            leader, known = self._duties.leader, self._duties.is_replaced
        successor = None if known else replaced_by(self._journal, leader)
        if successor is not None:
            with self._changed:
                self._duties.was_replaced_by(successor)
                self._changed.notify_all()
        return not known and successor is None

    # ------------------------------------------------------------------------------ under the lock

    def _fenced(self, leader: int) -> Duties:
        """The duties, for a leader that may ask. Raises ``Fenced``."""
        before = self._duties.leader
        self._duties.fence(leader)
        if before != leader:
            self._chores.forget_check()
            self._changed.notify_all()
        return self._duties

    def _pause_sources(self) -> None:
        if self._opened is not None:
            self._opened.offers.pause(self._duties.paused.names)

    def _note_commit(self, order: CommitOrder) -> None:
        opened, duties = self._opened, self._duties
        if opened is None or not duties.is_meant(order.opened):
            return
        if order.step == duties.committed:
            opened.offers.limit(order.limit)
        ran = duties.commit(order)
        if ran is None:
            return
        plan, result = ran
        self.snapshot = snapshot_of(
            plan.step, plan.clock_ns, self._program.bins, result.states, plan.placement
        )
        if order.replayed:
            opened.outbox.skip(order.step)
            opened.offers.replayed(order.step, order.limit)
        else:
            opened.outbox.add(order.output or Output(order.step, (), duties.branch))
            opened.offers.commit(order.step, order.positions, order.limit)

    def _grown(self) -> bool:
        """Something was done that a leader may want to hear of."""
        with self._changed:
            self._duties.grown()
            self._changed.notify_all()
        return True
