"""Work beside the steps: looking after the files of checkpoints, and removing what is over."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from anabranch.errors import StoreError
from anabranch.node.opening import OpenPipeline
from anabranch.protocol.failures import failure_of
from anabranch.protocol.node import Checked, CheckOrder, SweepOrder
from anabranch.records.placed import OperatorState
from anabranch.records.staged_file import StagedFile
from anabranch.store.integrity import NeededFile, check_files, state_files
from anabranch.store.retention import Sweeper, needed_files

AT_ONCE = 64
"""How many files are looked at before the node says how far it is."""


class Chores:
    """Checks and sweeps that were ordered. Any thread may order; one at a time sweeps."""

    def __init__(
        self, store: Path, codes: Set[str], grace_seconds: float, clock: Callable[[], float]
    ) -> None:
        """Nothing is ordered yet. ``codes`` are the pickled dataflows that this node uses."""
        self._store = store
        self._codes = codes
        self._clock = clock
        self._sweeper = Sweeper(store, grace_seconds)
        self._guard = threading.Lock()
        #: held while files are removed: the thread that closes sweeps too
        self._sweeping = threading.Lock()
        self._check: CheckOrder | None = None
        self._files: tuple[NeededFile, ...] | None = None
        #: how far the last check is
        self.checked: Checked | None = None
        self._sweep: SweepOrder | None = None
        self._swept: SweepOrder | None = None

    def to_check(self, order: CheckOrder) -> None:
        """Check a state; one that is being checked, or was found whole, is not checked again."""
        with self._guard:
            failed = self.checked is not None and self.checked.failure is not None
            if failed or self._check != order:
                self._check = order
                self._files = self.checked = None

    def to_sweep(self, order: SweepOrder) -> None:
        """Sweep; only the newest order counts."""
        with self._guard:
            self._sweep = order

    def forget_check(self) -> None:
        """Drop what was checked: another one leads, and wants to know how the files are now."""
        with self._guard:
            self._check = self._files = self.checked = None

    def forget(self) -> None:
        """Drop all orders: something else is opened."""
        self.forget_check()
        with self._guard:
            self._sweep = self._swept = None

    def check_next(self, opened: OpenPipeline | None) -> bool:
        """Look at some files; False when there are none to look at."""
        with self._guard:
            order, files, checked = self._check, self._files, self.checked
        if opened is None or order is None:
            return False
        end, failure = 0, None
        if files is None or checked is None:
            files = state_files(order.states, order.files)
        elif checked.files_done >= len(files) or checked.failure is not None:
            return False
        else:
            end = min(checked.files_done + AT_ONCE, len(files))
            try:
                check_files(self._store, files[checked.files_done : end], whole=order.whole)
            except Exception as error:
                failure = failure_of(error)
        with self._guard:
            if self._check is order:
                self._files = files
                self.checked = Checked(order.step, len(files), end, failure, order.asked)
        return True

    def sweep(
        self,
        opened: OpenPipeline,
        states: Sequence[Sequence[OperatorState]],
        staged: Sequence[StagedFile],
        is_led: Callable[[], bool],
    ) -> bool:
        """Carry out the newest order, or the last one again when files may go by now.

        What this node works with stays beside what the order names. Nothing is removed while the
        node is not led: the order does not name what another leader has made since. What goes was
        seen before it was last known that the node is led, so it is older than any other leader.
        """
        with self._sweeping:
            order = self._next_sweep()
            if order is None:
                return False
            now = self._clock()
            kept = [file for output in order.outputs for file in output.staged]
            files = {*order.files, *opened.offers.files()}
            needed = needed_files(
                [*order.states, *states], [*kept, *opened.outbox.staged(), *staged], files
            )
            # Asked last: sources that have let go do not say what they need.
            if opened.offers.closed:
                return False
            # What cannot be removed now is tried again with the next order.
            with contextlib.suppress(StoreError):
                if not is_led():
                    return False
                opened.offers.forget(order.positions)
                self._sweeper.sweep_code({*order.codes, *self._codes})
                self._sweeper.sweep(order.step, needed, now)
            return True

    def pause(self) -> float | None:
        """How long until a file may go; None when none waits for that."""
        with self._guard:
            due = self._sweeper.due() if self._swept is not None else None
        return None if due is None else max(0.0, due - self._clock())

    def _next_sweep(self) -> SweepOrder | None:
        with self._guard:
            order, self._sweep = self._sweep, None
            due = self._sweeper.due()
            if order is None and due is not None and self._clock() >= due:
                order = self._swept
            if order is not None:
                self._swept = order
            return order
