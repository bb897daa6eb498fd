"""What a ``process`` gets in a step: rows, due timers, keys whose input has ended; by parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from anabranch.operators.rows import Rows
from anabranch.operators.timers.due_timers import DueTimers
from anabranch.records.bins import Hashes, Mask
from anabranch.records.times import TOO_FAR
from anabranch.runs.rows import Groups

TIMERS_AT_ONCE = 1 << 16
"""About how many due timers are turned into objects at a time."""

_LAST_HASH = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StepParts:
    """The work of a step in its order: fired rows, due timers, data rows, ending keys.

    With ``ends``, all keys are told that the input has ended; ``ending`` are those with state.
    """

    fired: Rows | None = None
    due: DueTimers | None = None
    data: Rows | None = None
    ending: Groups | None = None
    ends: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return any(part is not None for part in (self.fired, self.due, self.data, self.ending))

    def within(self, first: int, last: int) -> StepParts:
        """The part whose hashes are from ``first`` to ``last``, without ending keys."""

        def inside(hashes: Hashes) -> Mask:
            return (hashes >= np.uint64(first)) & (hashes <= np.uint64(last))

        def some(rows: Rows | None) -> Rows | None:
            if rows is None:
                return None
            assert rows.hashes is not None
            return filled(rows.take(np.flatnonzero(inside(rows.hashes))))

        due = None if self.due is None else self.due.select(inside(self.due.hashes))
        return StepParts(some(self.fired), due if due else None, some(self.data), ends=self.ends)


def split_by_hash(whole: StepParts, ending: Iterable[Groups]) -> Iterator[StepParts]:
    """Split the work by hash, to bound the number of objects for timers and ending keys.

    ``ending`` are the keys whose input has ended, some at a time, in the order of their hashes.
    """
    first = 0
    for groups in ending:
        last = int(groups.hashes[-1])
        yield replace(whole.within(first, last), ending=groups)
        first = last + 1
    if first > _LAST_HASH:
        return
    for last in (*_cuts(whole.due, first), _LAST_HASH):
        part = whole if (first, last) == (0, _LAST_HASH) else whole.within(first, last)
        if part:
            yield part
        first = last + 1


def _cuts(due: DueTimers | None, first: int) -> list[int]:
    """The last hashes of all shares but the last."""
    if due is None or len(due) <= TIMERS_AT_ONCE:
        return []
    hashes = np.sort(due.hashes)[TIMERS_AT_ONCE - 1 :: TIMERS_AT_ONCE]
    return [int(last) for last in np.unique(hashes) if first <= int(last) < _LAST_HASH]


def split_fired(rows: Rows | None, *, timed: bool, ends: bool) -> tuple[Rows | None, ...]:
    """The rows that notifications made, the others, and those that are late.

    Late is only what is further ahead than its stream allows. At the end of the input all rows are
    made by notifications.
    """
    if rows is None or not len(rows):
        return None, None, None
    late = np.zeros(len(rows), dtype=np.bool_)
    if timed and rows.times is not None:
        late = rows.times == TOO_FAR
    fired = np.zeros(len(rows), dtype=np.bool_) if rows.fired is None else rows.fired
    if ends:
        fired = np.ones(len(rows), dtype=np.bool_)
    if not late.any() and not fired.any():
        return None, replace(rows, fired=None), None
    data = filled(rows.take(np.flatnonzero(~fired & ~late)))
    return (
        filled(rows.take(np.flatnonzero(fired & ~late))),
        None if data is None else replace(data, fired=None),
        filled(rows.take(np.flatnonzero(late))),
    )


def filled(rows: Rows) -> Rows | None:
    """The rows; None if there are none."""
    return rows if len(rows) else None
