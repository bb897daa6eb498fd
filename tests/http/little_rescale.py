"""The rescale of a little coordinator: the real controller, one bin a step, over made-up keys."""

from __future__ import annotations

from anabranch.coordinator.journal_view import JournalView
from anabranch.coordinator.machine import new_memory
from anabranch.coordinator.rescaling import forecast_of, rescale_status
from anabranch.coordinator.settings import Settings
from anabranch.protocol.rescale_history import FinishedRescale
from anabranch.protocol.rescale_requests import RescaleRequest, TargetRequest
from anabranch.protocol.status import RescaleStatus
from anabranch.records.commit import Commit
from anabranch.records.placed import Assignment, OperatorShape, OperatorState
from anabranch.rescale.apply_request import apply_request
from anabranch.rescale.controller import after_commit, is_moving, is_pending, plan_step
from anabranch.rescale.forecast import Forecast
from anabranch.rescale.loads import from_states
from anabranch.rescale.migration import Reports
from anabranch.rescale.moved_counts import StepMoved, moved_in
from anabranch.rescale.rounds import MovePolicy, RescaleSettings

ONE_BIN_A_STEP = RescaleSettings(policy=MovePolicy.FLUID, prefetch=False)


class LittleRescale:
    """Who owns the bins of one region. Step *s* has *s* keys, spread over the bins."""

    def __init__(self, shape: OperatorShape, bins: int) -> None:
        self._shape = shape
        self._memory = new_memory(Settings(rescale=ONE_BIN_A_STEP))
        spread = tuple(bin % 2 for bin in range(bins))
        self._commit(0, (Assignment(shape.region, 1, spread),))

    @property
    def assignment(self) -> Assignment:
        commit = self._memory.journal.commit
        assert commit is not None
        return commit.placement[0]

    @property
    def keys_by_worker(self) -> tuple[int, ...]:
        found = [0] * self.assignment.count
        for worker, keys in zip(self.assignment.workers, self._live, strict=True):
            found[worker] += keys
        return tuple(found)

    @property
    def status(self) -> RescaleStatus | None:
        return rescale_status(self._memory)

    @property
    def history(self) -> tuple[FinishedRescale, ...]:
        return self._memory.rescale.history

    @property
    def pending(self) -> bool:
        return is_pending(self._memory.rescale)

    def ask(self, asked: RescaleRequest) -> None:
        """Take a request; raises why it is refused."""
        self._memory.rescale = apply_request(self._memory.rescale, asked, (self.assignment,))

    def forecast(self, request: TargetRequest) -> Forecast:
        return forecast_of(self._memory, request)

    def step(self, step: int, seconds: float) -> StepMoved | None:
        """Go on as a committed step does; gives what it did of a rescale."""
        memory, before = self._memory, self.history
        moving = is_moving(memory.rescale)
        placed = (self.assignment,)
        loads = from_states(placed, memory.journal.states)
        moves = plan_step(memory.rescale, placed, loads, tuple(memory.stats.recent), ONE_BIN_A_STEP)
        memory.rescale = after_commit(memory.rescale, moves, Reports(seconds))
        memory.stats.recent.append(seconds)
        self._commit(step, moves.placement)
        return moved_in(moves if moving else None, before, self.history)

    def _commit(self, step: int, placement: tuple[Assignment, ...]) -> None:
        bins = len(placement[0].workers)
        self._live = tuple(step // bins + (bin < step % bins) for bin in range(bins))
        states = (OperatorState(self._shape, (), self._live),)
        made = Commit(step, 0, step, "c0de", placement, states, (), (), {})
        self._memory.journal = JournalView(commit=made, states=states)
